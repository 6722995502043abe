from dataclasses import dataclass

import pytest
import torch

from polyclinic.federation.method import Method
from polyclinic.methods import METHODS
from polyclinic.methods.scaffold import COMMON, OWN
from tests.federations import equal

SGD = (
    "training.optimizer=sgd",
    "training.momentum=0.0",
    "training.weight_decay=0.0",
    "training.learning_rate=0.1",
    "evaluation.choose=last",
)
SCAFFOLD = ("federation.weighting=uniform", "evaluation.choose=last")
PRECISE = {"network.name": "precise_unet"}


@dataclass(frozen=True)
class MessageFree(Method):
    """The form of SCAFFOLD in which sites work out their corrections from what they received."""

    def receive(self, site):
        names = [name for name, _ in site.net.named_parameters()]
        super().receive(site)
        if site.first:
            site.memory.update({f"q/{n}": torch.zeros_like(site.weights[n]) for n in names})
        else:
            for n in names:
                moved = site.weights[n] - site.memory[f"y/{n}"]
                site.memory[f"q/{n}"] += moved / site.memory["rates"]

    def train(self, site):
        names = [name for name, _ in site.net.named_parameters()]

        def correct(parameters):
            for name, parameter in parameters.items():
                parameter.grad.sub_(site.memory[f"q/{name}"])

        fit = site.fit(self.loss, hook=correct)
        site.memory["rates"] = torch.tensor(fit.rates, dtype=torch.float64)
        site.memory.update({f"y/{n}": site.weights[n].clone() for n in names})


def test_one_site_is_plain_descent(federation):
    small = federation(sites=1, rounds=3)
    assert equal(
        {
            n: t
            for n, t in small.run("scaffold", *SCAFFOLD).tensors("server").items()
            if "weights" in n
        },
        small.run("fedavg", *SGD).tensors("server"),
    )


def test_the_first_round_is_averaging_with_equal_weights(federation):
    small = federation(rounds=1)
    scaffold = small.run("scaffold", *SCAFFOLD)
    fedavg = small.run("fedavg", "federation.weighting=uniform", *SGD)
    for site in fedavg.folder.about().sites:
        assert equal(scaffold.site(site.name), fedavg.site(site.name))


def test_the_common_control_is_the_mean_of_the_sites_controls(federation):
    done = federation(rounds=3, **PRECISE).run("scaffold", *SCAFFOLD)
    server = done.tensors("server")
    sites = [done.memory(site.name) for site in done.folder.about().sites]
    controls = {n.removeprefix(f"{OWN}/") for n in sites[0] if n.startswith(f"{OWN}/")}
    assert controls
    for name in controls:
        mean = torch.stack([memory[f"{OWN}/{name}"] for memory in sites]).mean(dim=0)
        torch.testing.assert_close(server[f"memory/{COMMON}/{name}"], mean, atol=1e-12, rtol=0)


def test_the_common_control_is_weighted_as_the_weights_are(federation):
    weighted = ("federation.weighting=samples", "evaluation.choose=last")
    done = federation(rounds=2, **PRECISE).run("scaffold", *weighted)
    sites = done.folder.about().sites
    assert len({site.train for site in sites}) > 1
    total = sum(site.train for site in sites)
    server, memories = done.tensors("server"), [done.memory(site.name) for site in sites]
    names = [name for name in memories[0] if name.startswith(f"{OWN}/")]
    assert names
    for name in names:
        mean = sum(s.train / total * m[name] for s, m in zip(sites, memories, strict=True))
        common = server[f"memory/{COMMON}/{name.removeprefix(f'{OWN}/')}"]
        torch.testing.assert_close(common, mean, atol=1e-9, rtol=0)


def test_controls_exist_for_parameters_only(federation):
    done = federation().run("scaffold", *SCAFFOLD)
    assert not any("running" in name for name in done.tensors("server") if COMMON in name)


def test_controls_live_on_between_rounds(federation):
    small = federation(sites=2, rounds=2)
    two_rounds = small.run("scaffold", *SCAFFOLD).tensors("server")
    averaged = small.run("fedavg", "federation.weighting=uniform", *SGD).tensors("server")
    assert any(not torch.equal(two_rounds[name], tensor) for name, tensor in averaged.items())


def test_it_equals_the_form_without_messages(federation, monkeypatch):
    monkeypatch.setitem(METHODS, "messagefree", MessageFree)
    small = federation(rounds=3, **PRECISE, **{"training.schedule": "constant"})
    scaffold = small.run("scaffold", *SCAFFOLD).tensors("server")
    other = small.run("messagefree", "federation.weighting=uniform", *SGD).tensors("server")
    for name, tensor in other.items():
        if name.startswith("weights/"):
            torch.testing.assert_close(scaffold[name], tensor, atol=1e-12, rtol=0)


def test_identical_sites_are_plain_descent(federation, monkeypatch):
    small = federation(sites=2, rounds=3, **PRECISE)
    whole = (
        "training.batch=1000",
        "training.augmentation.flips=false",
        "training.augmentation.rotation=0",
    )
    data = small.data

    def twice_the_first(study):
        from dataclasses import replace

        first, second = data(study)
        return [first, replace(first, name=second.name)]

    monkeypatch.setattr(small, "data", twice_the_first)
    scaffold = small.run("scaffold", *whole, *SCAFFOLD).tensors("server")
    plain = small.run("fedavg", *whole, *SGD).tensors("server")
    for name, tensor in plain.items():
        torch.testing.assert_close(scaffold[name], tensor, atol=1e-12, rtol=0)


@pytest.mark.parametrize("rate", [0.5, 1.0])
def test_the_server_steps_towards_the_mean(federation, rate):
    small = federation(rounds=1)
    start = small.run("fedavg", "training.learning_rate=1e-30", *SGD[:3], SGD[-1]).tensors("server")
    whole = small.run("scaffold", *SCAFFOLD).tensors("server")
    part = small.run("scaffold", f"method.server_rate={rate}", *SCAFFOLD).tensors("server")
    for name, tensor in start.items():
        if "running" not in name:
            expected = tensor + rate * (whole[name] - tensor)
            torch.testing.assert_close(part[name], expected, atol=1e-6, rtol=1e-4)


def test_it_sends_twice_what_fedavg_sends(federation):
    small = federation(rounds=2)
    up = [line.up for line in small.run("scaffold").folder.rounds() if line.round == 2]
    plain = [line.up for line in small.run("fedavg").folder.rounds() if line.round == 2]
    assert 1.9 < up[0] / plain[0] < 2.0  # statistics have no controls


def test_a_long_server_step_leaves_statistics_at_their_mean(federation):
    small = federation(rounds=1)
    long = small.run("scaffold", "method.server_rate=50.0", *SCAFFOLD).tensors("server")
    plain = small.run("scaffold", *SCAFFOLD).tensors("server")
    statistics = [name for name in plain if "running" in name]
    assert statistics
    assert all(torch.equal(long[name], plain[name]) for name in statistics)
    assert not torch.equal(long["weights/head.weight"], plain["weights/head.weight"])
