import pytest
import torch

from polyclinic.engine.local import LocalSites, assign
from polyclinic.engine.run import runs_of
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.federation.server import Server
from polyclinic.methods.fedlppa import PLACE, ROWS, SPARSITY, UNIVERSAL, FedLPPA
from polyclinic.methods.second_decoder import MAIN, names_in
from polyclinic.networks.parts import parameters
from tests.federations import PAPER, a_site, equal, one_visit

LAST = "evaluation.choose=last"
KINDS = ("point", "scribble", "block")
QUICK = ("method.mixing.first_passes=2", LAST)
BRIEF = {"training.iterations": 1, "network.width": 4}
PLAIN = (
    "method.fusion=false",
    "method.second_decoder=none",
    "method.learned_aggregation=false",
    LAST,
)


class Exchange:
    """A federation one can watch: its server, and what was sent and answered in each round."""

    def __init__(self, small, *overrides: str) -> None:
        study = small.study("fedlppa", "method.mixing.first_passes=2", *overrides)
        (run,) = runs_of(study, small.folder / "runs")
        data = small.data(study)
        self.runner = SiteRunner(assign(run, data), torch.device("cpu"))
        self.method = self.runner.assignment.method
        self.sites = LocalSites(self.runner, data, run.folder)
        first = self.runner.first_weights()
        self.server = Server(self.sites.trained, first, study.federation, 0)
        self.method.start(self.server)

    def round(self, number, *, without=()):
        self.server.round = number
        (stage,) = self.method.each_round()
        infos = [info for info in self.sites.trained if info.name not in without]
        messages = {info.name: self.method.message(self.server, info) for info in infos}
        asked = self.sites.ask(stage, messages, number=number, since=number - 1)
        replies = {site: reply.message for site, reply in asked}
        self.method.combine(self.server, replies)
        return messages, replies

    def second(self, site):
        message = self.method.message(self.server, self.sites.trained[site])
        prefix = "second."
        return {
            n.removeprefix(prefix): t for n, t in message.weights.items() if n.startswith(prefix)
        }


def test_without_prompts_second_decoder_and_mixing_it_is_fedavg(federation):
    small = federation(rounds=2, kinds=KINDS)
    plain, fedavg = small.run("fedlppa", *PLAIN), small.run("fedavg", LAST)
    assert equal(plain.tensors("server"), fedavg.tensors("server"))
    for site in fedavg.folder.about().sites:
        assert equal(plain.site(site.name), fedavg.site(site.name))


def test_a_residual_gate_starts_as_no_gate(federation):
    _, site, batch = a_site(federation, "fedlppa", "method.second_decoder=none")
    site.net.eval()
    gated = site.net(batch.images)
    site.net.gate = None
    assert torch.equal(gated, site.net(batch.images))


def test_mixtures_of_one_that_do_not_learn_leave_both_received_decoders(federation):
    small = federation(rounds=2, kinds=KINDS)
    still = small.run("fedlppa", "method.mixing.rate=0.0", LAST)
    without = small.run("fedlppa", "method.learned_aggregation=false", LAST)
    assert equal(still.tensors("server"), without.tensors("server"))


def test_both_decoders_and_the_gate_are_mixed_and_nothing_else(federation):
    done = federation(rounds=2, kinds=KINDS).run("fedlppa", *QUICK)
    for site in done.folder.about().sites:
        mixture = {n: t for n, t in done.memory(site.name).items() if n.startswith("mixture/")}
        parts = {name.split("/")[1].split(".")[0] for name in mixture}
        assert parts == {"decoder", "head", "gate", "second"}
        assert all(t.min() >= 0 and t.max() <= 1 for t in mixture.values())
        for part in ("decoder", "second"):
            assert any((t < 1).any() for n, t in mixture.items() if f"/{part}." in n)


def test_learning_the_mixture_takes_two_steps_after_the_second_round(federation):
    done = federation(sites=2, rounds=4, kinds=KINDS).run("fedlppa", *QUICK)
    name = done.folder.about().sites[0].name
    steps = [
        line.images // 4
        for line in done.folder.rounds()
        if line.site == name and line.stage == "fit"
    ]
    assert steps == [2, 2 + 2 * 2, 2 + 2, 2 + 2]  # passes of two, two of them the first time


def test_every_sites_row_is_what_that_site_sent_and_others_never_move_it(federation):
    exchange = Exchange(federation(kinds=KINDS))
    before = exchange.server.weights[ROWS].clone()
    _, replies = exchange.round(1)
    for info in exchange.sites.trained:
        row = exchange.server.weights[ROWS][info.index]
        assert torch.equal(row, replies[info.name].weights[ROWS][info.index])
        assert not torch.equal(row, before[info.index])
    absent = exchange.sites.trained[1]
    before = exchange.server.weights[ROWS].clone()
    exchange.round(2, without=[absent.name])
    moved = (exchange.server.weights[ROWS] != before).flatten(1).any(1)
    assert moved.tolist() == [True, False, True]


def test_the_universal_prompt_is_the_mean(federation):
    exchange = Exchange(federation(kinds=KINDS))
    _, replies = exchange.round(1)
    row = exchange.server.row(replies)
    mean = sum(
        p * r.weights[UNIVERSAL].double() for p, r in zip(row, replies.values(), strict=True)
    )
    torch.testing.assert_close(exchange.server.weights[UNIVERSAL].double(), mean)


def test_equal_prompts_give_every_site_the_uniform_mean_of_the_main_decoders(federation):
    exchange = Exchange(federation(kinds=KINDS), "method.distribution_prompt=false")
    _, replies = exchange.round(1)
    for name in names_in(exchange.server.weights, MAIN):
        mean = sum(reply.weights[name].double() for reply in replies.values()) / 3
        for site in range(3):
            torch.testing.assert_close(exchange.second(site)[name].double(), mean)


def test_affinity_is_how_alike_the_common_prompt_with_each_site_s_row_is(federation):
    exchange = Exchange(federation(kinds=KINDS))
    exchange.round(1)
    (table,) = exchange.server.tables
    common, rows = (exchange.server.weights[name].double() for name in (UNIVERSAL, ROWS))
    prompts = [torch.cat((common.flatten(), row.flatten())) for row in rows]
    for i, one in enumerate(prompts):
        for j, other in enumerate(prompts):
            cosine = one @ other / (one.norm() * other.norm())
            assert table.values[i][j] == pytest.approx(max(0.0, cosine.item()), abs=1e-9)


def test_the_second_decoder_is_the_affinity_mean_of_the_main_decoders(federation):
    exchange = Exchange(federation(kinds=KINDS), "method.prompt_size=16")
    exchange.server.weights[ROWS].copy_(torch.eye(3)[:, :, None].repeat(1, 6, 16)[:, :16])
    _, replies = exchange.round(1)
    (table,) = exchange.server.tables
    affinity = torch.tensor(table.values, dtype=torch.float64)
    shares = affinity / affinity.sum(1, keepdim=True)
    name = "decoder.levels.0.narrow.weight"
    for site in range(3):
        parts = [reply.weights[name].double() for reply in replies.values()]
        expected = sum(share * part for share, part in zip(shares[site], parts, strict=True))
        torch.testing.assert_close(exchange.second(site)[name].double(), expected)


def test_a_copied_second_decoder_is_the_common_start(federation):
    exchange = Exchange(federation(kinds=KINDS), "method.second_start=copy")
    start = exchange.server.weights.pick(names_in(exchange.server.weights, MAIN))
    assert equal(exchange.second(0), dict(start))


def test_a_message_brings_one_second_decoder_and_replies_none(federation):
    exchange = Exchange(federation(kinds=KINDS), "method.second_start=copy")
    for number in (1, 2):
        messages, replies = exchange.round(number)
        for message in messages.values():
            second = [name for name in message.weights if name.startswith("second.")]
            assert {name.removeprefix("second.") for name in second} == names_in(
                message.weights, MAIN
            )
            assert not message.extras
        for reply in replies.values():
            assert not any(name.startswith("second.") for name in reply.weights)
            assert not {PLACE, SPARSITY} & reply.weights.names
            assert not reply.extras


def test_a_second_decoder_of_its_own_starts_with_other_weights_and_is_not_sent_before_it_was_made(
    federation,
):
    exchange = Exchange(federation(kinds=KINDS))
    net = exchange.runner.net
    assert not torch.equal(net.head.weight, net.second.head.weight)
    assert net.head.weight.shape == net.second.head.weight.shape
    assert not exchange.second(0)
    exchange.round(1)
    assert exchange.second(0)


def test_made_from_second_decoders_it_never_meets_a_main_one(federation):
    exchange = Exchange(
        federation(kinds=KINDS), "method.second_from=second", "method.distribution_prompt=false"
    )
    _, replies = exchange.round(1)
    name = "decoder.levels.0.narrow.weight"
    mean = sum(reply.weights[f"second.{name}"].double() for reply in replies.values()) / 3
    for site in range(3):
        torch.testing.assert_close(exchange.second(site)[name].double(), mean)
        assert not torch.equal(exchange.second(site)[name], exchange.server.weights[name])


def test_modulating_prompts_move_how_much_is_foreground_and_joined_ones_hardly_do(federation):
    slopes = {}
    for form in ("joined", "modulating"):
        _, site, batch = a_site(federation, "fedlppa", f"method.prompts={form}")
        site.net.train()  # norm layers see one site's batches, as in training
        torch.manual_seed(3)
        if site.net.modulation is not None:  # as after a few steps; it starts without an effect
            torch.nn.init.normal_(site.net.modulation.layer.weight, std=0.05)
        site.net(batch.images).softmax(1)[:, 1].mean().backward()
        slopes[form] = float(site.net.prompts.sites.grad.norm())
    assert slopes["modulating"] > 5 * slopes["joined"]


def test_a_site_trains_on_from_its_own_second_decoder(federation):
    exchange = Exchange(federation(kinds=KINDS), "method.mixing.rate=0.0")
    exchange.round(1)
    name = "second.head.weight"
    states = [exchange.sites.states.load(info.name, 1) for info in exchange.sites.trained]
    assert not torch.equal(states[0].weights[name], states[1].weights[name])


def test_gradients_reach_prompts_fusion_gate_and_both_decoders(federation):
    method, site, batch = a_site(
        federation, "fedlppa", "method.gate=product", "method.weak.crf=0.1"
    )
    for name, parameter in site.net.named_parameters():
        if name.endswith("strength"):  # as after a first step; before it attention is not heard
            parameter.data.fill_(0.1)
    site.net.train()
    method.loss(site, batch).backward()
    for name, parameter in site.net.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        # Offsets before a norm layer have no effect, so theirs may vanish.
        assert parameter.ndim == 1 or parameter.grad.any(), name
    rows = site.net.prompts.sites.grad.flatten(1).any(1)
    assert rows.tolist() == [True, False, False]


def test_the_sparsity_prompt_follows_from_the_kind_of_labels(federation):
    done = federation(rounds=1, kinds=KINDS).run("fedlppa", *QUICK)
    for index, site in enumerate(done.folder.about().sites):
        assert torch.equal(done.site(site.name)[PLACE], torch.eye(3)[index])
        assert torch.equal(done.site(site.name)[SPARSITY], torch.eye(3)[index])


def test_a_model_trained_at_one_size_runs_at_another(federation):
    method, site, _ = a_site(federation, "fedlppa")
    site.net.eval()
    for size in (16, 48, 256):
        assert method.predict(site, torch.rand(1, 1, size, size)).shape == (1, 2, size, size)


@pytest.mark.parametrize(
    "change",
    [
        "method.learned_aggregation=false",
        "method.fusion=false",
        "method.second_from=second",
        "method.prompts=modulating",
        *(
            pytest.param(change, marks=pytest.mark.slow)
            for change in (
                "method.second_decoder=none",
                "method.second_start=copy",
                "method.weak.pseudo_labels=0.0",
                "method.gate=product",
                "method.weak.least_share=0.0",
                "method.weak.crf=0.1",
                "method.universal_prompt=false",
                "method.distribution_prompt=false",
                "method.sparsity_prompt=false",
                "method.attention=none",
                "method.attention=spatial",
                "method.attention=channel",
                "method.channel_weights=likeness",
                "method.gate=none",
                "method.second_decoder=nearest",
                "method.second_decoder=cyclic",
                "method.second_decoder=random",
                "method.mixing_loss=supervised",
                "method.prompt_size=5",
                "method.prompts=differing",
                "method.mixing.optimizer=adam",
            )
        ),
    ],
)
def test_every_switch_changes_the_result(federation, change):
    small = federation(sites=2, rounds=2, kinds=KINDS, **BRIEF)
    changed = small.run("fedlppa", change, *QUICK).tensors("server")
    usual = small.run("fedlppa", *QUICK).tensors("server")
    common = changed.keys() & usual.keys()
    same = all(
        changed[name].shape == usual[name].shape and torch.equal(changed[name], usual[name])
        for name in common
    )
    assert not same


@pytest.mark.slow
def test_sites_with_full_masks_need_no_pseudo_labels(federation):
    small = federation(sites=2, rounds=2)
    with_them = small.run("fedlppa", "method.weak.crf=0.1", *QUICK)
    without = small.run("fedlppa", "method.weak.pseudo_labels=0.0", *QUICK)
    assert equal(with_them.tensors("server"), without.tensors("server"))


@pytest.mark.parametrize(
    ("task", "kinds"),
    [
        ("fundus", ("box", "mask")),
        ("octa", ("box-scribble", "rotated-box-block")),
        ("polyp", ("scribble2", "point")),
        ("prostate", ("mask", "box-block", "box")),
    ],
)
@pytest.mark.slow
def test_it_runs_on_every_task_with_any_mixture_of_kinds(federation, task, kinds):
    small = federation(task=task, sites=len(kinds), rounds=1, kinds=kinds)
    done = small.run("fedlppa", *QUICK)
    assert all(line.loss == line.loss for line in done.folder.rounds() if line.stage == "fit")


@pytest.mark.parametrize("uses", ["blended", "trained"])
def test_it_uses_a_new_blend_or_the_model_it_trained(federation, uses):
    done = federation(rounds=2, kinds=KINDS).run("fedlppa", f"method.uses={uses}", *QUICK)
    encoders = [
        done.site(site.name)["encoder.levels.0.conv1.weight"] for site in done.folder.about().sites
    ]
    assert torch.equal(encoders[0], encoders[1]) == (uses == "blended")


def test_parameters_and_traffic_are_those_of_the_paper(federation):
    small = federation(sites=5, kinds=KINDS)
    settings = ("training.batch=2", "federation.statistics=private", *QUICK)
    published = (*PAPER, "method.prompt_size=16", "method.second_start=copy")
    runner, message, reply = one_visit(small, "fedlppa", *published, *settings)
    assert sum(each.numel() for each in runner.net.parameters()) == 2_897_430
    numbers = 16  # bytes: of images and steps
    assert message.nbytes == 4 * 2_897_430
    assert reply.nbytes == 4 * 2_256_228 + numbers


def test_the_affinity_of_every_round_is_in_the_run_folder(federation):
    done = federation(rounds=2, kinds=KINDS).run("fedlppa", *QUICK)
    tables = [table for table in done.folder.tables() if table.name == "affinity"]
    names = tuple(site.name for site in done.folder.about().sites)
    assert [(table.round, table.name) for table in tables] == [
        (number, "affinity") for number in (1, 2)
    ]
    for table in tables:
        assert table.rows == table.columns == names
        affinity = torch.tensor(table.values)
        assert torch.equal(affinity, affinity.T)
        assert affinity.diagonal().eq(1).all()
        assert affinity.min() >= 0
    assert tables[0].values != tables[-1].values


def test_what_the_server_hands_out_is_private():
    from polyclinic.networks import NETWORKS

    method = FedLPPA()
    net = method.adapt(NETWORKS["unet"](channels=1, classes=2, width=2), ())
    assert method.server_made(net)
    assert not method.server_made(net) & method.shares(net)
    assert method.server_made(net) & parameters(net) <= method.blended(net)
