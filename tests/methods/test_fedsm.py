from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy

from polyclinic.engine.local import LocalSites, assign
from polyclinic.engine.run import runs_of
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.engine.states import SiteState
from polyclinic.engine.unseen import try_models
from polyclinic.federation.message import Message
from polyclinic.federation.server import Server
from polyclinic.federation.weights import Weights
from polyclinic.methods.fedsm import FedSM, selector_loss, soft_pull
from polyclinic.networks.parts import everything
from polyclinic.networks.personal_copy import COPY
from polyclinic.networks.selector import SELECTOR, Selector
from polyclinic.runs import DECODER, ENSEMBLE, REESTIMATED, ROUTED, SHARED, SiteInfo
from tests.federations import NETS, Done, a_site, equal, small_data

LAST = "evaluation.choose=last"
CPU = torch.device("cpu")


def names(done: Done) -> list[str]:
    return [site.name for site in done.folder.about().sites]


def copies(weights) -> dict[str, torch.Tensor]:
    prefix = f"{COPY}."
    return {n.removeprefix(prefix): t for n, t in weights.items() if n.startswith(prefix)}


def shared(done: Done) -> dict[str, torch.Tensor]:
    found = {n.removeprefix("weights/"): t for n, t in done.tensors("server").items()}
    return {n: t for n, t in found.items() if n.split(".")[0] in ("encoder", "decoder", "head")}


@pytest.mark.parametrize(
    ("network", "keep"),
    [("small_unet", "true"), pytest.param("resnet_fpn", "false", marks=pytest.mark.slow)],
)
def test_the_shared_model_is_fedavgs_and_alone_the_personal_one_is_local_training(
    federation, network, keep
):
    small = federation(**{"network.name": network})
    settings = (f"training.keep_optimizer={keep}", LAST)
    done = small.run("fedsm", "method.own_share=1.0", *settings)
    average, local = small.run("fedavg", *settings), small.run("local", *settings)
    assert equal(shared(done), shared(average))
    for site in names(done):
        assert equal(copies(done.site(site)), local.site(site))


@NETS
def test_the_shared_model_is_fedavgs_for_every_pull(federation, network):
    small = federation(**{"network.name": network})
    expected = shared(small.run("fedavg", LAST))
    for own_share in (0.0, 0.7):
        done = small.run("fedsm", f"method.own_share={own_share}", LAST)
        assert equal(shared(done), expected)


class Exchange:
    """Server and sites of a federation, asked round by round."""

    def __init__(self, small, *overrides) -> None:
        study = small.study("fedsm", *overrides)
        (run,) = runs_of(study, small.folder / "runs")
        self.data = small.data(study)
        self.runner = SiteRunner(assign(run, self.data), CPU)
        self.method = self.runner.assignment.method
        self.sites = LocalSites(self.runner, self.data, run.folder)
        self.server = Server(self.sites.trained, self.runner.first_weights(), study.federation, 0)

    def round(self, number):
        (stage,) = self.method.each_round()
        messages = {i.name: stage.message(self.server, i) for i in self.sites.trained}
        asked = self.sites.ask(stage, messages, number=number, since=number - 1)
        replies = {site: reply.message for site, reply in asked}
        stage.combine(self.server, replies)
        return messages, replies

    def personal(self):
        infos = self.sites.trained
        return {i.name: copies(self.method.message(self.server, i).weights) for i in infos}


@NETS
def test_soft_pull_conserves_the_sum_of_the_personal_models(federation, network):
    exchange = Exchange(federation(sites=3, **{"network.name": network}), "method.own_share=0.7")
    _, replies = exchange.round(1)
    pulled = exchange.personal()
    for name in next(iter(pulled.values())):
        sent = torch.stack([reply.weights[f"{COPY}.{name}"].double() for reply in replies.values()])
        after = torch.stack([model[name].double() for model in pulled.values()])
        torch.testing.assert_close(sent.sum(0), after.sum(0), rtol=1e-6, atol=1e-6)
        others = (sent.sum(0) - sent[0]) / 2
        torch.testing.assert_close(after[0], 0.7 * sent[0] + 0.3 * others, rtol=1e-6, atol=1e-6)


def test_an_equal_share_makes_all_personal_models_the_uniform_mean(federation):
    exchange = Exchange(federation(sites=3), f"method.own_share={1 / 3}")
    _, replies = exchange.round(1)
    first, *others = exchange.personal().values()
    for other in others:
        for name in first:
            torch.testing.assert_close(first[name], other[name], rtol=1e-6, atol=1e-7)
    for name in first:
        sent = torch.stack([reply.weights[f"{COPY}.{name}"].double() for reply in replies.values()])
        torch.testing.assert_close(first[name], sent.mean(0).float(), rtol=1e-6, atol=1e-7)


def test_the_rows_of_soft_pull_are_doubly_stochastic():
    for sites in (1, 2, 5):
        for own in (0.0, 0.3, 1.0):
            rows = torch.tensor([soft_pull(own, place, sites) for place in range(sites)])
            torch.testing.assert_close(rows.sum(0), torch.ones(sites))
            torch.testing.assert_close(rows.sum(1), torch.ones(sites))
            assert sites == 1 or torch.allclose(rows.diagonal(), torch.tensor(own))


def test_a_site_that_is_away_keeps_its_personal_model(federation):
    exchange = Exchange(federation())
    exchange.round(1)
    before = exchange.personal()
    away, *present = exchange.sites.trained
    (stage,) = exchange.method.each_round()
    messages = {i.name: stage.message(exchange.server, i) for i in present}
    asked = exchange.sites.ask(stage, messages, number=2, since=1)
    stage.combine(exchange.server, {site: reply.message for site, reply in asked})
    after = exchange.personal()
    assert equal(before[away.name], after[away.name])
    assert not equal(before[present[0].name], after[present[0].name])


@NETS
def test_a_threshold_of_1_gives_fedavgs_predictions(federation, network):
    small = federation(**{"network.name": network})
    done = small.run("fedsm", "method.threshold=1.0", LAST)
    assert done.folder.scores() == small.run("fedavg", LAST).folder.scores()


def final_site(small, done, index=0):
    data = small.data(done.run.study)
    runner = SiteRunner(assign(done.run, data), CPU)
    info = runner.assignment.sites[index]
    state = SiteState(done.site(info.name), done.memory(info.name))
    site = runner.opened(info, data[index], state)
    site.net.eval()
    return runner.assignment.method, site


class Says(torch.nn.Module):
    """A selector that says for each image what it is told."""

    def __init__(self, logits):
        super().__init__()
        self.logits = torch.tensor(logits)

    def forward(self, images):
        return self.logits


def test_each_image_is_predicted_by_the_model_of_the_site_it_is_taken_for(federation):
    small = federation(sites=3)
    done = small.run("fedsm", LAST)
    method, site = final_site(small, done)
    infos = site.sites
    images = torch.rand(4, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    sure = 20.0
    site.net.selector = Says([[sure, 0, 0], [0, sure, 0], [0, 0, sure], [1.0, 0.9, 0.8]])
    expected = []
    with torch.no_grad():
        for number, info in enumerate(infos):
            model = site.twin({f"{COPY}.{n}": t for n, t in copies(done.site(info.name)).items()})
            expected.append(model.personal(images[number : number + 1]).softmax(1))
        expected.append(site.net.shared_logits(images[3:]).softmax(1))
        found = method.predict(site, images)
    torch.testing.assert_close(found, torch.cat(expected))
    # The oracle: its own personal model for every image.
    with torch.no_grad():
        own = replace(method, uses="personal").predict(site, images)
        torch.testing.assert_close(own, site.net.personal(images).softmax(1))


def test_a_threshold_of_0_always_takes_a_personal_model(federation):
    _, site, _ = a_site(federation, "fedsm", "method.threshold=0.0", kinds=("mask",))
    images = torch.rand(5, 1, 32, 32)
    assert (site.net.chosen(images, 0.0) >= 0).all()
    assert (site.net.chosen(images, 1.0) == -1).all()


def test_what_travels_each_round_and_once_is_all_listed(federation):
    done = federation(sites=3).run("fedsm", LAST)
    size = 4 * sum(t.numel() for t in shared(done).values())
    lines = done.folder.rounds()
    for line in lines:
        extras = {extra.split("/")[0] for extra in line.extras}
        if line.stage == "fit":
            assert not extras
            assert line.parts[COPY] == size
            assert SELECTOR in line.parts
        else:
            assert extras == {COPY}
            owners = {extra.split("/")[1] for extra in line.extras}
            assert owners == set(names(done)) - {line.site}
            assert line.down == 2 * size + next(x for x in lines if x.stage == "fit").down
    oracle = federation().run("fedsm", "method.uses=personal", LAST)
    assert not any(line.extras for line in oracle.folder.rounds())


def test_it_says_that_it_discloses(federation):
    method, site, _ = a_site(federation, "fedsm")
    assert [stage.discloses for stage in method.each_round()] == [True]
    assert method.shares(site.net) == everything(site.net)


# The selector.


def test_its_step_is_adams():
    torch.manual_seed(0)
    ours = Selector(1, 3, 4)
    theirs = Selector(1, 3, 4)
    theirs.load_state_dict(ours.state_dict())
    optimizer = torch.optim.Adam(theirs.parameters(), lr=0.01)
    images, labels = torch.rand(6, 1, 32, 32), torch.tensor([0, 1, 2, 0, 1, 2])
    for number in range(1, 6):
        optimizer.zero_grad()
        cross_entropy(theirs(images), labels).backward()
        optimizer.step()
        ours.zero_grad()
        cross_entropy(ours(images), labels).backward()
        ours.step({n: p.grad for n, p in ours.named_parameters()}, 0.01, number)
    for (name, one), (_, other) in zip(
        ours.named_parameters(), theirs.named_parameters(), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6, msg=name)


def test_it_learns_by_one_step_a_round_down_the_mean_gradient_of_all_images(federation):
    small = federation(**{"training.batch": 100, "training.augmentation.flips": "false"})
    exchange = Exchange(small, "training.augmentation.rotation=0.0", "method.selector_rate=0.01")
    start = exchange.runner.first_weights()
    _, replies = exchange.round(1)
    info, data = exchange.sites.trained[1], exchange.data[1]
    site = exchange.runner.opened(info, data, None)
    site.load(start)
    cases = data.train
    offset, scale = (each.view(-1, 1, 1, 1) for each in (cases.offset, cases.scale))
    images = (cases.images.float() - offset) / scale
    site.net.requires_grad_(True)
    labels = torch.full((len(images),), info.index)
    cross_entropy(site.net.selector(images), labels).backward()
    reply = replies[info.name].weights
    for name, parameter in site.net.selector.named_parameters():
        moment = reply[f"selector.moments.first_{name.replace('.', '_')}"]
        torch.testing.assert_close(moment, 0.1 * parameter.grad, rtol=1e-3, atol=1e-6)
        moved = (reply[f"selector.{name}"] - start[f"selector.{name}"]).abs()
        assert moved.max() <= 0.01 * 1.001
    assert replies[info.name].numbers["steps"] == 4  # of the shared and the personal model


def test_its_moments_are_averaged_and_handed_out_again(federation):
    exchange = Exchange(federation(**{"federation.weighting": "uniform"}))
    _, replies = exchange.round(1)
    messages, _ = exchange.round(2)
    moments = [name for name in exchange.server.weights if ".moments." in name]
    assert len(moments) == 2 * len(list(Selector(1, 3, 4).parameters()))
    for name in moments:
        mean = torch.stack([reply.weights[name] for reply in replies.values()]).mean(0)
        for message in messages.values():
            torch.testing.assert_close(message.weights[name], mean, rtol=1e-5, atol=1e-9)


def test_its_loss_has_a_gradient_and_leaves_segmentation_alone(federation):
    _, site, batch = a_site(federation, "fedsm", index=1)
    site.net.requires_grad_(True)
    selector_loss(site, batch).backward()
    heard = {n.split(".")[0] for n, p in site.net.named_parameters() if p.grad is not None}
    assert heard == {SELECTOR}
    assert all(p.grad.abs().sum() > 0 for p in site.net.selector.last.parameters())


@pytest.mark.slow
def test_it_learns_which_site_images_are_from(federation):
    """Sites whose images differ in brightness, told apart after some rounds."""
    small = federation(rounds=40, sites=2, **{"training.iterations": 1, "evaluation.every": 0})
    study = small.study("fedsm", "method.selector_rate=0.01", "method.selector_width=4", LAST)
    (run,) = runs_of(study, small.folder / "runs")
    first, second = small.data(study)
    darker = replace(second.train, offset=second.train.offset + 1.5 * second.train.scale)
    runner = SiteRunner(assign(run, [first, second]), CPU)
    data = {first.name: first, second.name: replace(second, train=darker)}
    server = Server(runner.assignment.sites, runner.first_weights(), study.federation, 0)
    (stage,) = runner.assignment.method.each_round()
    for number in range(1, 41):
        replies = {
            i.name: runner.visit(
                i, data[i.name], stage, stage.message(server, i), None, number
            ).reply
            for i in server.sites
        }
        stage.combine(server, replies)
    runner.weights.load(server.weights)
    for info in server.sites:
        cases = data[info.name].train
        offset, scale = (each.view(-1, 1, 1, 1) for each in (cases.offset, cases.scale))
        found = runner.net.chosen((cases.images.float() - offset) / scale, 0.5)
        assert (found == info.index).float().mean() > 0.9


# After the rounds, and outside.


def test_fine_tuning_trains_the_personal_model(federation):
    small = federation()
    plain = small.run("fedsm", LAST)
    tuned = small.run("fedsm", LAST, then='{name = "finetune", iterations = 2}')
    for site in names(plain):
        before, after = plain.site(site), tuned.site(site)
        changed = {n.split(".")[0] for n in before if not torch.equal(before[n], after[n])}
        assert changed == {COPY}


def test_it_trains_on_weak_labels(federation):
    done = federation(kinds=("point", "scribble", "mask")).run("fedsm", LAST)
    assert all(line.loss == line.loss for line in done.folder.rounds() if line.stage == "fit")


def test_at_a_site_that_took_no_part_the_selector_chooses_among_all_personal_models(federation):
    small = federation()
    done = small.run("fedsm", LAST)
    stranger = small_data("octa", 4)[3]
    runner = SiteRunner(assign(done.run, small.data(done.run.study)), CPU)
    method = runner.assignment.method
    models = {info.name: Weights.pack(done.site(info.name)) for info in runner.assignment.sites}
    site = runner.opened(SiteInfo(stranger.name, 0, "mask", 1), stranger, None)
    server = {n: t for n, t in done.tensors("server").items() if n.startswith("weights/")}
    server = {n.removeprefix("weights/"): t for n, t in server.items()}
    site.message = Message(Weights.pack(server))
    site.load(server)
    guest = method.outside(site, models)
    guest.net.eval()
    guest.net.selector = Says([[9.0, 0, 0], [0, 9.0, 0], [0, 0, 9.0], [0.0, 0, 0]])
    images = torch.rand(4, 1, 32, 32)
    with torch.no_grad():
        found = method.predict(guest, images)
        for number, model in enumerate(models.values()):
            twin = site.twin({n: t for n, t in model.items() if n.startswith(f"{COPY}.")})
            alone = twin.personal(images[number : number + 1]).softmax(1)
            torch.testing.assert_close(found[number : number + 1], alone)
        torch.testing.assert_close(found[3:], site.net.shared_logits(images[3:]).softmax(1))


@pytest.mark.parametrize(("uses", "rows"), [("selected", [ROUTED]), ("personal", [])])
def test_polyclinic_unseen_scores_it(federation, uses, rows):
    small = federation()
    done = small.run("fedsm", f"method.uses={uses}", LAST)
    found = try_models(done.run, small_data("octa", 4)[3], CPU, iterations=1)
    models = list(dict.fromkeys(row.model for row in found))
    assert models == [*names(done), ENSEMBLE, SHARED, REESTIMATED, *rows, DECODER]


def test_the_personal_model_alone_is_what_the_oracle_depends_on(federation):
    _, site, _ = a_site(federation, "fedsm")
    assert FedSM(uses="personal").predicts_with(site.net) == {
        n for n in site.weights if n.startswith(f"{COPY}.")
    }
