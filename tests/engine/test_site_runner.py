"""The site's half of a stage: what a visit starts from, answers with and leaves behind."""

from dataclasses import dataclass, replace

import pytest
import torch

from polyclinic.engine.local import assign
from polyclinic.engine.run import Assignment, runs_of
from polyclinic.engine.site_runner import Scoring, SiteRunner
from polyclinic.engine.states import SiteState
from polyclinic.federation.message import Message
from polyclinic.federation.method import Method, Stage, silent
from polyclinic.methods.fedrep import FedRep
from polyclinic.networks.parts import everything, part, statistics

CPU = torch.device("cpu")


@pytest.fixture
def machine(federation):
    """A function that makes a runner for a method and gives it with the sites' data."""
    small = federation(sites=2)
    study = small.study()
    (run,) = runs_of(study, small.folder / "runs")
    data = small.data(study)

    def make(method=None, **changes) -> tuple[SiteRunner, list]:
        assignment = replace(assign(run, data), method=method or Method(), **changes)
        return SiteRunner(assignment, CPU), data

    return make


def visit(runner, data, state=None, number=1, stage=None, index=0, message=None):
    stage = stage or runner.assignment.method.each_round()[0]
    info = runner.assignment.sites[index]
    first = Message(runner.first_weights()) if message is None else message
    return runner.visit(info, data[index], stage, first, state, number)


def test_a_reply_tells_images_and_steps_and_the_line_what_it_took(machine):
    runner, data = machine()
    done = visit(runner, data)
    assert done.reply.numbers == {"images": float(len(data[0].train)), "steps": 2.0}
    assert done.images == 2 * 4
    assert done.loss > 0
    assert done.seconds > 0


@dataclass(frozen=True)
class Several(Method):
    """Trains, learns something that is no training, and trains apart."""

    def train(self, site):
        site.fit(self.loss)
        site.fit(lambda s, b: 100 + self.loss(s, b), update=lambda _: None, stream="mixture")
        site.fit(lambda s, b: 100 + self.loss(s, b), steps=1, stream="apart")


def test_steps_are_those_that_train_and_the_loss_that_of_the_main_stream(machine):
    runner, data = machine(Several())
    done = visit(runner, data)
    assert done.reply.numbers["steps"] == 2 + 1
    assert done.images == (2 + 2 + 1) * 4
    assert done.loss < 50


@dataclass(frozen=True)
class Uneven(Method):
    """Three steps with a loss of 1, then one with a loss of 5."""

    def train(self, site):
        for value, steps in ((1, 3), (5, 1)):
            site.fit(lambda s, b, v=value: v + 0 * self.loss(s, b), steps=steps)


def test_the_loss_of_a_visit_is_the_mean_over_its_steps(machine):
    runner, data = machine(Uneven())
    assert visit(runner, data).loss == 2


def test_a_stage_without_training_has_no_loss(machine):
    runner, data = machine()
    done = visit(runner, data, stage=runner.assignment.method.finalizing())
    assert done.loss != done.loss
    assert done.reply.numbers["steps"] == 0


def test_a_site_keeps_what_is_private_and_after_finalizing_everything(machine):
    runner, data = machine(FedRep(), statistics="private")
    private = part(runner.net, "head") | statistics(runner.net)
    done = visit(runner, data)
    assert set(done.state.weights) == private
    assert done.reply.weights.names == everything(runner.net) - private
    final = visit(runner, data, done.state, 3, runner.assignment.method.finalizing())
    assert set(final.state.weights) == everything(runner.net)


@dataclass(frozen=True)
class Keeping(Method):
    """Needs its own shared head again."""

    def keeps(self, net):
        return part(net, "head")


def test_what_a_method_keeps_is_kept_though_it_is_shared(machine):
    runner, data = machine(Keeping())
    done = visit(runner, data)
    assert set(done.state.weights) == part(runner.net, "head")
    assert torch.equal(done.state.weights["head.bias"], done.reply.weights["head.bias"])


@dataclass(frozen=True)
class Noting(Method):
    """Remembers whether a visit was the first, and what the head was at its start."""

    def shares(self, net):
        return everything(net) - part(net, "head")

    def receive(self, site):
        site.memory["first"] = torch.tensor(float(site.first))
        site.memory["start"] = site.weights["head.weight"].clone()
        super().receive(site)


def test_a_visit_starts_from_the_site_s_state_and_a_first_one_from_the_common_start(machine):
    runner, data = machine(Noting())
    start = runner.initial["head.weight"].clone()
    first = visit(runner, data)
    other = visit(runner, data, index=1)  # in between, with the same network
    again = visit(runner, data, first.state, 2)
    assert [v.state.memory["first"].item() for v in (first, other, again)] == [1, 1, 0]
    assert torch.equal(first.state.memory["start"], start)
    assert torch.equal(other.state.memory["start"], start)
    assert torch.equal(again.state.memory["start"], first.state.weights["head.weight"])
    assert not torch.equal(again.state.memory["start"], start)


def test_what_a_visit_leaves_does_not_change_with_the_next(machine):
    runner, data = machine(Noting())
    first = visit(runner, data)
    reply, kept = first.reply.weights.copy(), first.state.weights.copy()
    visit(runner, data, index=1)
    assert torch.equal(first.reply.weights.flat, reply.flat)
    assert torch.equal(first.state.weights.flat, kept.flat)


def test_scoring_finalizes_on_a_copy_and_keeps_nothing(machine):
    runner, data = machine(FedRep())
    state = visit(runner, data).state
    kept = SiteState(dict(state.weights.copy()), dict(state.memory))
    info, message = runner.assignment.sites[0], Message(runner.first_weights())
    scoring = Scoring(1, "val", ("dice",))
    found = [runner.score(info, data[0], scoring, message, kept)[0] for _ in range(2)]
    assert found[0] == found[1]
    assert all(torch.equal(kept.weights[name], state.weights[name]) for name in state.weights)
    assert torch.equal(message.weights.flat, runner.first_weights().flat)


def test_every_machine_starts_with_the_same_network_whatever_it_drew_before(machine):
    torch.manual_seed(5)
    first, _ = machine()
    torch.manual_seed(6)
    second, _ = machine()
    assert torch.equal(first.initial.flat, second.initial.flat)
    other, _ = machine(seed=1)
    assert not torch.equal(first.initial.flat, other.initial.flat)


def test_weights_that_are_neither_kept_nor_received_are_the_method_s_mistake(machine):
    runner, data = machine()
    partial = Message(runner.first_weights().pick(part(runner.net, "encoder")))
    state = visit(runner, data).state
    with pytest.raises(AssertionError, match=r"neither keeps nor receives .* Method.keeps\(\)"):
        visit(runner, data, state, 2, message=partial)


def test_a_stage_is_found_by_its_name_and_two_of_one_name_are_refused(machine):
    runner, _ = machine()
    assert runner.assignment.stage("finalize").finalizes
    twice = Stage("fit", silent, lambda site: Message(), lambda server, replies: None)

    @dataclass(frozen=True)
    class Twice(Method):
        def before(self):
            return (twice,)

    with pytest.raises(ValueError, match="only one stage called fit"):
        replace(runner.assignment, method=Twice())
    assert isinstance(runner.assignment, Assignment)
