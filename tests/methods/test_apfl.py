import pytest
import torch
from torch.nn.functional import cross_entropy

from polyclinic.engine.local import assign
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.engine.states import SiteState
from polyclinic.methods.apfl import APFL
from polyclinic.networks import NETWORKS
from polyclinic.networks.parts import everything, under
from polyclinic.networks.personal_copy import ALPHA, COPY, MixedSegmenter
from polyclinic.runs import read_embeddings
from tests.federations import NETS, Done, a_site, equal
from tests.small_unet import SmallUNet

LAST = "evaluation.choose=last"
FIXED = ("method.adaptive=false", LAST)
MIXINGS = pytest.mark.parametrize("mixing", ["outputs", "weights"])


def apfl(small, mixing, *settings):
    return small.run("apfl", f"method.mixing={mixing}", *settings)


def copies(done: Done, site: str) -> dict[str, torch.Tensor]:
    prefix = f"{COPY}."
    return {n.removeprefix(prefix): t for n, t in done.site(site).items() if n.startswith(prefix)}


def names(done: Done) -> list[str]:
    return [site.name for site in done.folder.about().sites]


@MIXINGS
@NETS
def test_the_shared_model_is_fedavgs_for_every_alpha(federation, mixing, network):
    small = federation(**{"network.name": network})
    expected = small.run("fedavg", LAST).tensors("server")
    for settings in ([], ["method.alpha=0.9"], ["method.adaptive=false"]):
        assert equal(apfl(small, mixing, *settings, LAST).tensors("server"), expected)


@MIXINGS
def test_a_kept_optimizer_leaves_the_shared_model_fedavgs(federation, mixing):
    small = federation()
    settings = ("training.keep_optimizer=true", LAST)
    done = apfl(small, mixing, *settings)
    assert equal(done.tensors("server"), small.run("fedavg", *settings).tensors("server"))


@MIXINGS
@NETS
def test_with_alpha_1_the_personal_model_is_local_training(federation, mixing, network):
    small = federation(**{"network.name": network})
    done, local = apfl(small, mixing, "method.alpha=1.0", *FIXED), small.run("local", LAST)
    for site in names(done):
        assert equal(copies(done, site), local.site(site))


@MIXINGS
@NETS
def test_with_alpha_0_the_personal_model_never_moves_and_predictions_are_fedavgs(
    federation, mixing, network
):
    small = federation(**{"network.name": network})
    done, average = apfl(small, mixing, "method.alpha=0.0", *FIXED), small.run("fedavg", LAST)
    start, _ = SiteRunner(
        assign(average.run, small.data(average.run.study)), torch.device("cpu")
    ).assignment.first_network(torch.device("cpu"))
    first = {name: start.state_dict()[name] for name in everything(start)}
    for site in names(done):
        assert equal(copies(done, site), first)
    assert done.folder.scores() == average.folder.scores()


@MIXINGS
def test_alpha_is_every_site_s_own_and_between_0_and_1(federation, mixing):
    small = federation()
    for rate in (1.0, 1e6):
        done = apfl(small, mixing, f"method.alpha_rate={rate}", LAST)
        learned = {site: float(done.site(site)[ALPHA]) for site in names(done)}
        assert len(set(learned.values())) > 1 or rate > 1
        assert all(0 <= alpha <= 1 for alpha in learned.values())
        assert set(learned.values()) != {0.5}
    assert ALPHA not in {name.partition("/")[2] for name in done.tensors("server")}


def test_alpha_that_is_fixed_stays(federation):
    done = federation().run("apfl", "method.alpha=0.3", *FIXED)
    assert all(float(done.site(site)[ALPHA]) == pytest.approx(0.3) for site in names(done))


def test_nothing_personal_is_in_a_message(federation):
    done = federation().run("apfl", LAST)
    for line in done.folder.rounds():
        assert not line.extras
        assert not {COPY, "mixture"} & set(line.parts)


def test_mixing_weights_and_mixing_outputs_agree_for_alpha_0_and_1_and_differ_between():
    torch.manual_seed(0)
    images = torch.rand(2, 1, 32, 32)
    for alpha, same in ((0.0, True), (1.0, True), (0.5, False)):
        nets = []
        for mixing in ("outputs", "weights"):
            torch.manual_seed(1)
            plain = NETWORKS["unet"](channels=1, classes=2, width=2)
            net = MixedSegmenter(plain, mixing=mixing, alpha=alpha).eval()
            with torch.no_grad():
                for each in net.personal.parameters():
                    each.add_(0.1 * torch.randn_like(each))
            nets.append(net(images))
        assert torch.equal(*nets) is same


@MIXINGS
def test_every_gradient_is_that_of_its_own_loss(federation, mixing):
    """Against finite differences and the formulas of the paper, without dropout."""
    method, site, batch = a_site(
        federation,
        "apfl",
        f"method.mixing={mixing}",
        "network.dropout=[0,0,0,0,0]",
        kinds=("mask",),
    )
    net = site.net.double().train()
    images, labels = batch.images.double(), batch.labels
    with torch.no_grad():
        for each in net.personal.parameters():
            each.add_(0.05 * torch.randn_like(each))
    alpha = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    net.requires_grad_(True)
    method.both_losses(site, type(batch)(images, labels), alpha).backward()
    shared = {n: p.grad.clone() for n, p in net.named_parameters() if not n.startswith(COPY)}
    net.zero_grad()
    site.supervised(net.shared_logits(images), labels).backward()
    for name, expected in shared.items():
        torch.testing.assert_close(net.get_parameter(name).grad, expected)

    def mixture(weight):
        logits = net.both(images, torch.tensor(weight, dtype=torch.float64))[1]
        return float(site.supervised(logits, labels).detach())

    step = 1e-6
    slope = (mixture(0.4 + step) - mixture(0.4 - step)) / (2 * step)
    assert float(alpha.grad) == pytest.approx(slope, rel=1e-4)


def test_the_personal_gradient_in_a_mixture_of_weights_is_alpha_times_the_mixture_s():
    torch.manual_seed(0)
    plain = NETWORKS["unet"](channels=1, classes=2, width=2, dropout=(0, 0, 0, 0, 0)).double()
    net = MixedSegmenter(plain, mixing="weights", alpha=0.3).double()
    images, labels = torch.rand(2, 1, 32, 32).double(), torch.randint(0, 2, (2, 32, 32))
    with torch.no_grad():
        for each in net.personal.parameters():
            each.add_(0.05 * torch.randn_like(each))
    _, mixed = net.both(images, torch.tensor(0.3, dtype=torch.float64))
    cross_entropy(mixed, labels).backward()
    assert all(p.grad is None for n, p in net.named_parameters() if not n.startswith(COPY))
    third = NETWORKS["unet"](channels=1, classes=2, width=2, dropout=(0, 0, 0, 0, 0)).double()
    with torch.no_grad():
        for name, each in third.named_parameters():
            personal, own = net.personal.get_parameter(name), net.get_parameter(name)
            each.copy_(0.3 * personal + 0.7 * own)
    cross_entropy(third(images), labels).backward()
    for name, each in third.named_parameters():
        torch.testing.assert_close(net.personal.get_parameter(name).grad, 0.3 * each.grad)


def test_a_step_of_alpha_follows_its_gradient_and_decay(federation):
    method, site, _ = a_site(federation, "apfl", "method.alpha_decay=0.02", kinds=("mask",))
    alpha = torch.tensor(0.5, requires_grad=True)
    alpha.grad = torch.tensor(2.0)
    rate = site.training.learning_rate
    assert float(method.stepped(site, alpha)) == pytest.approx(0.5 - rate * (2.0 + 0.02 * 0.5))
    alpha.grad = torch.tensor(1e9)
    assert float(method.stepped(site, alpha)) == 0.0
    alpha.grad = torch.tensor(-1e9)
    assert float(method.stepped(site, alpha)) == 1.0


@MIXINGS
def test_alpha_steps_once_a_round(federation, mixing, monkeypatch):
    taken = []
    before = APFL.stepped
    monkeypatch.setattr(APFL, "stepped", lambda *a: taken.append(1) or before(*a))
    apfl(federation(sites=2, rounds=3), mixing, LAST)
    assert len(taken) == 2 * 3


@MIXINGS
@pytest.mark.parametrize("kinds", [("point", "scribble", "mask")])
def test_it_trains_on_weak_labels(federation, mixing, kinds):
    done = apfl(federation(kinds=kinds), mixing, LAST)
    assert all(line.loss == line.loss for line in done.folder.rounds() if line.stage == "fit")


@MIXINGS
def test_fine_tuning_trains_the_mixture_that_is_used(federation, mixing):
    small = federation()
    then = '{name = "finetune", iterations = 2}'
    settings = (f"method.mixing={mixing}", LAST)
    plain, tuned = small.run("apfl", *settings), small.run("apfl", *settings, then=then)
    for site in names(plain):
        assert not equal(copies(plain, site), copies(tuned, site))
        assert plain.site(site)[ALPHA] == tuned.site(site)[ALPHA]
    data = small.data(plain.run.study)
    runner = SiteRunner(assign(plain.run, data), torch.device("cpu"))
    info = runner.assignment.sites[0]
    site = runner.opened(info, data[0], SiteState(tuned.site(info.name), {}))
    alpha, images = site.net.alpha, torch.rand(2, 1, 32, 32)
    site.net.eval()
    with torch.no_grad():
        found = runner.assignment.method.predict(site, images)
        if mixing == "outputs":
            personal, shared = site.net.personal(images), site.net.shared_logits(images)
            expected = (alpha * personal + (1 - alpha) * shared).softmax(1)
        else:
            weights = {n: site.weights[n] for n in runner.shared}
            mixed = {
                n: alpha * site.weights[f"{COPY}.{n}"] + (1 - alpha) * weights[n] for n in weights
            }
            net = SmallUNet(channels=1, classes=2).eval()
            net.load_state_dict(mixed, strict=False)
            expected = net(images).softmax(1)
    torch.testing.assert_close(found, expected)


def test_with_alpha_1_a_report_sees_what_local_training_sees(federation):
    small, pictures = federation(), "evaluation.pictures=true"
    done = small.run("apfl", "method.alpha=1.0", *FIXED, pictures)
    local = small.run("local", LAST, pictures)
    for site in names(done):
        for path in ("features_path", "embeddings_path"):
            own, expected = (
                read_embeddings(getattr(each.folder, path)(site))[1].values
                for each in (done, local)
            )
            assert own == pytest.approx(expected, abs=1e-5)


def test_the_copy_has_all_weights_of_the_network():
    net = MixedSegmenter(
        NETWORKS["resnet_fpn"](channels=1, classes=2, width=4), mixing="outputs", alpha=0.5
    )
    shared = APFL().shares(net)
    assert {f"{COPY}.{name}" for name in shared} == under(net, COPY)
    assert everything(net) == shared | under(net, COPY) | {ALPHA}
