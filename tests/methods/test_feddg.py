import numpy as np
import pytest
import torch

from polyclinic.config.node_file import Permissions
from polyclinic.engine.flower.ledger import Ledger
from polyclinic.engine.flower.policy import Policy, PolicyRefusal
from polyclinic.federation.message import Message
from polyclinic.federation.method import SPECTRUM, plain_loss
from polyclinic.methods.feddg import FedDG, centre, restyled
from polyclinic.networks.parts import parameters, statistics
from tests.federations import equal
from tests.methods.toy import batches_of, opened

LAST = "evaluation.choose=last"


@pytest.mark.parametrize("setting", ["method.spectra=0", "method.weight=0.0"])
def test_without_exchange_it_is_fedavg(federation, setting):
    small = federation(rounds=2)
    feddg, fedavg = small.run("feddg", setting, LAST), small.run("fedavg", LAST)
    assert equal(feddg.tensors("server"), fedavg.tensors("server"))
    for site in fedavg.folder.about().sites:
        assert equal(feddg.site(site.name), fedavg.site(site.name))


def test_one_site_has_nobody_to_exchange_with_and_is_fedavg(federation):
    small = federation(sites=1, rounds=2)
    feddg, fedavg = (small.run(name, LAST).tensors("server") for name in ("feddg", "fedavg"))
    assert equal(feddg, fedavg)


def test_an_exchange_changes_what_is_learned(federation):
    small = federation(rounds=1)
    feddg, fedavg = (small.run(name, LAST).tensors("server") for name in ("feddg", "fedavg"))
    assert not equal(feddg, fedavg)


def test_images_are_restyled_as_by_numpy():
    rng = torch.Generator().manual_seed(0)
    images, others = torch.randn(2, 2, 1, 32, 48, generator=rng)
    strengths = centre(torch.fft.fft2(others), 0.05).abs()
    share = torch.tensor([0.3, 1.0]).view(2, 1, 1, 1)
    found = restyled(images, strengths, share, 0.05)
    rows, columns = 2, 2  # 0.05 of 32 and of 48
    for image, other, part, done in zip(images, others, (0.3, 1.0), found, strict=True):
        spectrum = np.fft.fftshift(np.fft.fft2(image[0].numpy()))
        strength, phase = np.abs(spectrum), np.angle(spectrum)
        theirs = np.abs(np.fft.fftshift(np.fft.fft2(other[0].numpy())))
        window = (slice(16 - rows, 16 + rows + 1), slice(24 - columns, 24 + columns + 1))
        strength[window] = (1 - part) * strength[window] + part * theirs[window]
        changed = np.fft.ifft2(np.fft.ifftshift(strength * np.exp(1j * phase)))
        assert np.abs(changed.imag).max() < 1e-6
        np.testing.assert_allclose(done[0].numpy(), changed.real, atol=1e-5)


def test_a_share_of_nothing_leaves_images_as_they_are():
    images = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    strengths = torch.rand(3, 3, 3, 3)
    found = restyled(images, strengths, torch.zeros(3, 1, 1, 1), 0.01)
    torch.testing.assert_close(found, images, rtol=0, atol=1e-5)
    own = centre(torch.fft.fft2(images), 0.01).abs()
    found = restyled(images, own, torch.ones(3, 1, 1, 1), 0.01)
    torch.testing.assert_close(found, images, rtol=0, atol=1e-5)


def test_only_low_frequencies_and_no_phase_travel_once_to_the_others(federation):
    done = federation(rounds=2).run("feddg", LAST)
    sites = [site.name for site in done.folder.about().sites]
    lines = done.folder.rounds()
    with_spectra = {line.stage for line in lines if any(SPECTRUM in name for name in line.extras)}
    assert with_spectra == {"show spectra", "hand on spectra"}
    assert {line.round for line in lines if line.stage in with_spectra} == {0}
    for site in sites:
        shown = {n: t for n, t in done.memory(site).items() if n.startswith(SPECTRUM)}
        assert {name.split("/")[1] for name in shown} == set(sites) - {site}
        assert all(t.shape == (1, 3, 3) and not t.is_complex() for t in shown.values())
    assert not any(SPECTRUM in name for name in done.tensors("server"))


def test_the_step_follows_the_published_rule(federation):
    """The slope of the plain loss here, and of the restyled one after a plain step, first order."""
    sgd = (
        "training.optimizer=sgd",
        "training.momentum=0.0",
        "training.weight_decay=0.0",
        "training.schedule=constant",
        "training.learning_rate=0.1",
        "network.dropout=[0, 0, 0, 0, 0]",
    )
    small = federation(**{"training.iterations": 1})
    small.base.remove("training.iterations=2")
    site, twin = (opened(small, "feddg", *sgd) for _ in range(2))
    method = FedDG(inner_rate=0.4, weight=0.5)
    strengths = torch.rand(1, 3, 3) * 20
    site.memory[f"{SPECTRUM}/other/0"] = strengths
    seen = []
    original = torch.rand

    def noted(*shape, **settings):
        seen.append(original(*shape, **settings))
        return seen[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "rand", noted)
        method.train(site)
    share = next(each for each in seen if each.dim() == 4)
    (batch,) = batches_of(twin, 1)
    twin.net.train()
    start = twin.weights.copy()
    slopes = []
    changed = restyled(batch.images, strengths.expand(len(share), 1, 3, 3), share, 0.01)
    for images in (batch.images, changed):
        twin.net.zero_grad()
        plain_loss(twin, type(batch)(images, batch.labels)).backward()
        slopes.append({n: p.grad.clone() for n, p in twin.net.named_parameters()})
        if len(slopes) == 1:
            moved = twin.take(statistics(twin.net))
            twin.load({n: start[n] - 0.4 * slope for n, slope in slopes[0].items()})
    for name in parameters(site.net):
        expected = start[name] - 0.1 * (slopes[0][name] + 0.5 * slopes[1][name])
        torch.testing.assert_close(site.weights[name], expected, rtol=1e-3, atol=1e-5)
    for name in moved:  # the restyled images leave running statistics alone
        torch.testing.assert_close(site.weights[name], moved[name])


@pytest.mark.parametrize("kinds", [("point", "scribble"), ("mask",)])
def test_it_learns_from_any_labels(federation, kinds):
    assert federation(kinds=kinds, rounds=1).run("feddg", LAST).folder.finished


def test_hospitals_refuse_what_is_made_from_images_unless_they_name_it(federation, tmp_path):
    study = federation().study("feddg")
    spectra = Message(extras={f"{SPECTRUM}/0": torch.zeros(1, 3, 3)})
    for extras in (("*",), ("control", "*"), ("spec*",)):
        policy = Policy(Permissions(extras=extras, iterations=5), None, Ledger(tmp_path))
        with pytest.raises(PolicyRefusal, match=r"made from images.*allow\.extras must name it"):
            policy.check_message(spectra)
        with pytest.raises(PolicyRefusal, match="made from images"):
            policy.check_study(study, 9, ["head.weight"], from_images=True)
        policy.check_study(study, 9, ["head.weight"])
    agreed = Policy(Permissions(extras=("*", SPECTRUM)), None, Ledger(tmp_path))
    agreed.check_message(spectra)
    agreed.check_study(study, 9, ["head.weight"], from_images=True)
    assert any(stage.from_images for stage in FedDG().before())
    assert not FedDG(spectra=0).before()
