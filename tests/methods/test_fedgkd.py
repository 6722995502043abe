from dataclasses import replace

import pytest
import torch
from torch.nn.functional import kl_div

from polyclinic.engine.local import LocalSites, assign
from polyclinic.engine.run import runs_of
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.federation.message import Message
from polyclinic.federation.scoring import validation_loss
from polyclinic.federation.server import Server
from polyclinic.federation.weights import Weights
from polyclinic.losses.supervised import segmentation_loss
from polyclinic.methods.fedgkd import PAST, FedGKD, past_models, teaching
from tests.federations import NETS, Done, a_site, equal, small_data

LAST = "evaluation.choose=last"
TEACHERS = pytest.mark.parametrize("teacher", ["mean", "vote"])


def same(first: Done, second: Done) -> bool:
    weights = [
        {n: t for n, t in done.tensors("server").items() if n.startswith("weights/")}
        for done in (first, second)
    ]
    return equal(*weights)


@NETS
@TEACHERS
def test_without_a_weight_it_is_fedavg(federation, network, teacher):
    small = federation(**{"network.name": network})
    done = small.run("fedgkd", "method.weight=0.0", f"method.teacher={teacher}", LAST)
    average = small.run("fedavg", LAST)
    assert same(done, average)
    assert [(r.down, r.up) for r in done.folder.rounds()] == [
        (r.down, r.up) for r in average.folder.rounds()
    ]


def test_nobody_teaches_in_the_first_round(federation):
    small = federation(rounds=1)
    assert same(small.run("fedgkd", "method.weight=9.0", LAST), small.run("fedavg", LAST))


@TEACHERS
def test_one_model_and_five_are_the_same_in_the_first_round_with_a_teacher(federation, teacher):
    small, longer = federation(), federation(rounds=3)
    settings = (f"method.teacher={teacher}", LAST)
    one, five = (
        [each.run("fedgkd", f"method.models={m}", *settings) for each in (small, longer)]
        for m in (1, 5)
    )
    assert same(one[0], five[0])
    assert not same(one[1], five[1])
    assert not same(one[0], small.run("fedavg", LAST))


def test_what_is_remembered_are_copies_of_the_last_shared_models(federation):
    small = federation(rounds=4)
    ends = [
        small.run(
            "fedgkd",
            "method.models=2",
            f"federation.rounds={n}",
            "training.schedule=constant",
            LAST,
        )
        for n in (3, 4)
    ]
    past = [done.memory("server")[f"{PAST}/001"] for done in ends]
    assert set(ends[1].memory("server")) == {f"{PAST}/000", f"{PAST}/001"}
    assert torch.equal(ends[1].memory("server")[f"{PAST}/000"], past[0])
    assert not torch.equal(*past)


def exchange(federation, *overrides):
    """Server and sites of a federation, to ask round by round."""
    small = federation()
    study = small.study("fedgkd", *overrides)
    (run,) = runs_of(study, small.folder / "runs")
    data = small.data(study)
    runner = SiteRunner(assign(run, data), torch.device("cpu"))
    sites = LocalSites(runner, data, run.folder)
    server = Server(sites.trained, runner.first_weights(), study.federation, 0)
    method = runner.assignment.method
    method.start(server)
    return method, server, sites


def rounds(method, server, sites, number):
    for each in range(1, number + 1):
        (stage,) = method.each_round()
        messages = {info.name: stage.message(server, info) for info in sites.trained}
        asked = sites.ask(stage, messages, number=each, since=each - 1)
        stage.combine(server, {site: reply.message for site, reply in asked})
        yield messages, server.weights.copy()


def test_the_teacher_is_the_mean_of_the_last_models_and_only_then_travels(federation):
    method, server, sites = exchange(federation, "method.models=2")
    shared, extras = [], []
    for messages, weights in rounds(method, server, sites, 4):
        shared.append(weights)
        extras.append(next(iter(messages.values())).extras)
    assert [len(each) for each in extras[:2]] == [0, 0]  # none yet, then the one received
    for number in (2, 3):
        for name in shared[0]:
            mean = (shared[number - 2][name].double() + shared[number - 1][name].double()) / 2
            torch.testing.assert_close(extras[number][f"teacher/0/{name}"], mean.float())
    assert not method.finalizing().message(server, server.sites[0]).extras


def test_every_past_model_travels_where_they_vote(federation):
    method, server, sites = exchange(federation, "method.models=3", "method.teacher=vote")
    extras = [next(iter(m.values())).extras for m, _ in rounds(method, server, sites, 4)]
    numbers = [sorted({key.split("/")[1] for key in each}) for each in extras]
    assert numbers == [[], [], ["0", "1"], ["0", "1", "2"]]
    past = past_models(server)
    assert all(torch.equal(extras[3]["teacher/2/" + n], past[1][n]) for n in past[0])


def test_one_model_needs_no_further_message(federation):
    small = federation(rounds=3)
    done, average = small.run("fedgkd", "method.models=1", LAST), small.run("fedavg", LAST)
    assert [r.down for r in done.folder.rounds()] == [r.down for r in average.folder.rounds()]


def test_teaching_is_the_mean_divergence_over_pixels_and_zero_between_equals():
    rng = torch.Generator().manual_seed(0)
    student, teacher = (torch.randn(2, 3, 4, 5, generator=rng) for _ in range(2))
    for temperature in (1.0, 2.0):
        s, t = (student / temperature).softmax(1), (teacher / temperature).softmax(1)
        expected = temperature**2 * (t * (t / s).log()).sum(1).mean()
        torch.testing.assert_close(teaching(student, teacher, temperature), expected)
        whole = kl_div(s.log(), t, reduction="batchmean") * temperature**2
        torch.testing.assert_close(20 * teaching(student, teacher, temperature), whole)
    student.requires_grad_()
    value = teaching(student, student.detach())
    value.backward()
    assert value == 0
    assert student.grad.abs().max() < 1e-8


def test_teaching_has_a_gradient_for_the_student_and_none_for_the_teacher():
    student, teacher = torch.rand(1, 2, 4, 4, requires_grad=True), torch.rand(1, 2, 4, 4)
    teacher.requires_grad_()
    teaching(student, teacher).backward()
    assert student.grad.abs().sum() > 0
    assert teacher.grad is None


@TEACHERS
def test_the_taught_loss_adds_the_teaching_to_the_labels(federation, teacher):
    method, site, batch = a_site(federation, "fedgkd", f"method.teacher={teacher}")
    shifted = {n: t + 0.3 for n, t in site.weights.items() if n.startswith("head.")}
    teachers = [(0.25, site.twin({})), (0.75, site.twin(shifted))]
    before = [{n: t.clone() for n, t in net.state_dict().items()} for _, net in teachers]
    site.net.eval()
    loss = method.taught_loss(teachers, site, batch)
    logits = site.net(batch.images)
    plain = segmentation_loss(logits, batch.labels, kind="ce")  # weak labels
    said = [net(batch.images) for _, net in teachers]
    expected = plain + 0.1 * (0.25 * teaching(logits, said[0]) + 0.75 * teaching(logits, said[1]))
    torch.testing.assert_close(loss, expected)
    site.net.train()
    method.taught_loss(teachers, site, batch).backward()
    for (_, net), kept in zip(teachers, before, strict=True):
        assert not net.training
        assert all(p.grad is None for p in net.parameters())
        assert equal(dict(net.state_dict()), kept)


def test_a_teacher_that_is_the_student_does_not_change_the_first_step(federation):
    """Without norms over batches and without dropout, where training and resting are one."""
    small = federation(
        rounds=2,
        **{
            "network.name": "pvt_fpn",
            "training.iterations": 1,
            "training.optimizer": "sgd",
            "training.momentum": 0.0,
        },
    )
    study = small.study("fedgkd", "method.models=1", "method.weight=1.0")
    (run,) = runs_of(study, small.folder / "runs")
    data = small.data(study)
    runner = SiteRunner(assign(run, data), torch.device("cpu"))
    for module in runner.net.modules():
        for name in ("p", "drop", "drop_path"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    method, info = runner.assignment.method, runner.assignment.sites[0]
    found = []
    for weight in (1.0, 0.0):
        stage = replace(method, weight=weight).each_round()[0]
        message = Message(runner.first_weights())
        visit = runner.visit(info, data[0], stage, message, None, 2)
        found.append(visit.reply.weights.flat)
    torch.testing.assert_close(*found, rtol=0, atol=1e-6)


def test_better_models_are_heard_more(federation):
    method, site, _ = a_site(federation, "fedgkd", "method.teacher=vote", kinds=("mask",))
    biases = [site.weights["head.bias"], torch.tensor([50.0, -50.0]), torch.tensor([1.0, -1.0])]
    extras = {
        f"teacher/{number}/{name}": {**site.weights, "head.bias": each}[name].clone()
        for number, each in enumerate(biases)
        for name in site.weights
    }
    site.message = Message(Weights.pack(dict(site.weights)), extras=extras)
    teachers = method.teachers(site)
    losses = [validation_loss(site, net) for _, net in teachers]
    shares = [share for share, _ in teachers]
    assert sum(shares) == pytest.approx(1)
    assert shares == pytest.approx(torch.tensor(losses).neg().softmax(0).tolist())
    assert len(set(shares)) == 3


def test_voting_without_validation_cases_is_refused_in_the_first_round(federation):
    small = federation()
    study = small.study("fedgkd", "method.teacher=vote", LAST)
    (run,) = runs_of(study, small.folder / "runs")
    data = [replace(site, val=site.val.select([])) for site in small_data("octa", 3)]
    runner = SiteRunner(assign(run, data), torch.device("cpu"))
    method, info = runner.assignment.method, runner.assignment.sites[0]
    (stage,) = method.each_round()
    with pytest.raises(ValueError, match="teacher = 'mean' needs none"):
        runner.visit(info, data[0], stage, Message(runner.first_weights()), None, 1)


def test_it_trains_on_weak_labels(federation):
    done = federation(rounds=3, kinds=("point", "scribble", "mask")).run("fedgkd", LAST)
    assert all(line.loss == line.loss for line in done.folder.rounds() if line.stage == "fit")


def test_nothing_is_private(federation):
    method, site, _ = a_site(federation, "fedgkd")
    assert isinstance(method, FedGKD)
    assert method.shares(site.net) == site.shared == frozenset(site.weights)
