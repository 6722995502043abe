from dataclasses import dataclass

import pytest
import torch

from polyclinic.methods import METHODS
from polyclinic.methods.ditto import PERSONAL, Ditto
from polyclinic.methods.pulling import towards
from tests.federations import Done, equal

LAST = "evaluation.choose=last"


def personal(done: Done, site: str) -> dict[str, torch.Tensor]:
    prefix = f"{PERSONAL}/"
    found = done.memory(site)
    return {n.removeprefix(prefix): t for n, t in found.items() if n.startswith(prefix)}


@dataclass(frozen=True)
class PersonalFirst(Ditto):
    """Ditto with its two passes the other way round."""

    def train(self, site):
        with site.using(PERSONAL):
            site.fit(self.loss, hook=towards(site.message.weights, self.pull))
        site.fit(self.loss)


@pytest.mark.parametrize(("pull", "keep"), [(0.1, "true"), (0.0, "false"), (5.0, "false")])
def test_the_shared_model_is_fedavgs_for_every_pull(federation, pull, keep):
    small = federation()
    settings = (f"training.keep_optimizer={keep}", LAST)
    ditto = small.run("ditto", f"method.pull={pull}", *settings)
    assert equal(ditto.tensors("server"), small.run("fedavg", *settings).tensors("server"))


@pytest.mark.parametrize("keep", ["true", "false"])
def test_without_pull_the_personal_model_is_local_training(federation, keep):
    small = federation()
    settings = (f"training.keep_optimizer={keep}", LAST)
    ditto = small.run("ditto", "method.pull=0.0", *settings)
    local = small.run("local", *settings)
    for site in local.folder.about().sites:
        assert equal(personal(ditto, site.name), local.site(site.name))


def test_the_order_of_the_two_passes_does_not_matter(federation, monkeypatch):
    monkeypatch.setitem(METHODS, "personalfirst", PersonalFirst)
    small = federation()
    one, other = small.run("ditto", LAST), small.run("personalfirst", LAST)
    for site in one.folder.about().sites:
        assert equal(one.tensors(site.name), other.tensors(site.name))


def test_a_stronger_pull_holds_the_personal_model_nearer(federation):
    small = federation(rounds=1, **{"training.optimizer": "sgd", "training.momentum": 0.0})
    distances = []
    start = small.run("local", "training.learning_rate=1e-12", LAST)
    name = start.folder.about().sites[0].name
    for pull in (0.0, 10.0, 50.0):
        model = personal(small.run("ditto", f"method.pull={pull}", LAST), name)
        apart = [(model[n] - t).norm() for n, t in start.site(name).items() if "running" not in n]
        distances.append(float(torch.stack(apart).norm()))
    assert distances[0] > distances[1] > distances[2]
