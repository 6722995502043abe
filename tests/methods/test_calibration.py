from dataclasses import dataclass, replace
from itertools import combinations

import pytest
import torch

from polyclinic.engine.local import LocalSites, assign
from polyclinic.engine.run import runs_of
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.engine.tensors import load_tensors
from polyclinic.evaluation.diagnostics import warnings_about
from polyclinic.federation.message import Message, models_in
from polyclinic.federation.method import DISCLOSED
from polyclinic.federation.server import Server
from polyclinic.federation.weights import Weights
from polyclinic.losses.inconsistency import guided_entropy
from polyclinic.methods import FINISHING_STEPS, METHODS
from polyclinic.methods.calibration import IGC, fingerprint, fingerprints, hand_on, keep
from polyclinic.methods.feddp import FedDP
from polyclinic.methods.finetune import FineTune
from polyclinic.networks.parts import everything, norms, part
from polyclinic.runs import DIAGNOSED
from tests.federations import a_site, equal, perform

pytestmark = pytest.mark.usefixtures("narrow_pyramids")
LAST = "evaluation.choose=last"
BARE = {"feddp": ("method.calibrate=false",)}  # what lets calibration follow it but once


@dataclass(frozen=True)
class Alike(FineTune):
    """Fine-tuning under the name of a calibration, so that it draws the same batches."""

    def stages(self, method):
        return tuple(replace(stage, name="calibrate") for stage in super().stages(method))


@dataclass(frozen=True)
class EqualQueries(FedDP):
    """FedDP whose queries stay as they began until the last round, the same at every site."""

    def train(self, site):
        site.fit(self.loss, only=everything(site.net) - part(site.net, "queries"))


def igc(**settings):
    values = {"iterations": 2, **settings}
    texts = (f"{key} = {str(value).lower()}" for key, value in values.items())
    return f'{{name = "igc", {", ".join(texts)}}}'


def lines(done, stage):
    return [line for line in done.folder.rounds() if line.stage == stage]


@pytest.mark.parametrize(
    "method", ["fedbn", "ditto", pytest.param("feddp", marks=pytest.mark.slow)]
)
def test_without_a_weight_it_is_fine_tuning(federation, monkeypatch, method):
    monkeypatch.setitem(FINISHING_STEPS, "alike", Alike)
    small = federation()
    bare = BARE.get(method, ())
    tuned = small.run(method, *bare, LAST, then='{name = "alike", iterations = 2}')
    calibrated = small.run(method, *bare, LAST, then=igc(weight=0.0))
    for site in tuned.folder.about().sites:
        assert equal(tuned.tensors(site.name), calibrated.tensors(site.name))
    assert not lines(calibrated, "disclose")


def test_equal_models_disagree_nowhere_so_it_is_fine_tuning_and_nothing_travels(
    federation, monkeypatch
):
    monkeypatch.setitem(FINISHING_STEPS, "alike", Alike)
    small = federation()
    tuned = small.run("fedavg", LAST, then='{name = "alike", iterations = 2}')
    calibrated = small.run("fedavg", LAST, then=igc())
    for site in tuned.folder.about().sites:
        assert equal(tuned.tensors(site.name), calibrated.tensors(site.name))
    shared = len(tuned.tensors("server"))
    assert all(line.up == 16 and line.down == 8 * shared for line in lines(calibrated, "disclose"))
    assert all(line.up == 16 and line.down == 0 for line in lines(calibrated, "calibrate"))


@pytest.mark.parametrize("formula", ['"distance"', '"deviation"'])
def test_equal_queries_are_disclosed_and_disagree_nowhere_so_it_is_fine_tuning(
    federation, monkeypatch, formula
):
    monkeypatch.setitem(FINISHING_STEPS, "alike", Alike)
    monkeypatch.setitem(METHODS, "equal-queries", EqualQueries)
    small = federation(sites=2, rounds=1, resolution=64)
    settings = ("network.name=pvt_fpn", *BARE["feddp"], LAST)
    tuned = small.run("equal-queries", *settings, then='{name = "alike", iterations = 2}')
    calibrated = small.run("equal-queries", *settings, then=igc(inconsistency=formula))
    assert all(line.parts["extra disclosed"] for line in lines(calibrated, "disclose"))
    for site in tuned.folder.about().sites:
        found = calibrated.tensors(site.name)
        assert found.pop("memory/noted/guided share") == 0
        assert equal(tuned.tensors(site.name), found)


def test_one_site_alone_only_tunes(federation, monkeypatch):
    monkeypatch.setitem(FINISHING_STEPS, "alike", Alike)
    small = federation(sites=1)
    tuned = small.run("fedbn", LAST, then='{name = "alike", iterations = 2}')
    calibrated = small.run("fedbn", LAST, then=igc())
    (site,) = tuned.folder.about().sites
    assert equal(tuned.tensors(site.name), calibrated.tensors(site.name))


def test_only_what_differs_travels_once_and_is_measured(federation):
    done = federation(sites=3).run("fedbn", LAST, then=igc())
    (first, *_) = (done.site(site.name) for site in done.folder.about().sites)
    small = federation(sites=3)
    runner = SiteRunner(assign(done.run, small.data(done.run.study)), torch.device("cpu"))
    private = 4 * sum(first[name].numel() for name in norms(runner.net))
    shared = len(runner.shared)
    for line in lines(done, "disclose"):
        assert line.down == 8 * shared
        assert line.up == private + 16
        assert line.parts == {"extra disclosed": private}
    for line in lines(done, "calibrate"):
        assert line.down == 2 * private
        assert line.up == 16


@pytest.mark.parametrize("method", ["fedbn", pytest.param("ditto", marks=pytest.mark.slow)])
def test_the_weight_the_formula_and_the_scale_matter(federation, method):
    small = federation()
    results = [
        small.run(method, LAST, then=igc(**settings))
        for settings in (
            {},
            {"weight": 0.0},
            {"weight": 5.0},
            {"loss": '"dice"'},
            {"mean": '"guide"'},
            {"inconsistency": '"deviation"'},
            {"relative": False},
        )
    ]
    name = results[0].folder.about().sites[0].name
    models = [done.tensors(name) for done in results]
    for place, one in enumerate(models):
        assert not any(equal(one, other) for other in models[place + 1 :])


def test_a_weight_counts_once_the_mean_is_over_the_disagreement(federation):
    """Over all pixels the guided loss is a small share of the whole, and a weight of 1 is lost."""
    moved = {}
    small = federation()
    site = small.data(small.study("fedbn"))[0].name
    start = small.run("fedbn", LAST, then=igc(weight=0.0)).tensors(site)
    for mean in ("pixels", "guide"):
        for weight in (1.0, 100.0):
            done = small.run("fedbn", LAST, then=igc(weight=weight, mean=f'"{mean}"'))
            apart = [(done.tensors(site)[n] - t).norm() for n, t in start.items()]
            moved[mean, weight] = float(torch.stack(apart).norm())
    assert moved["guide", 1.0] > 2 * moved["pixels", 1.0]
    assert moved["pixels", 100.0] > 2 * moved["pixels", 1.0]


def test_dice_alone_is_the_loss_of_the_labels_where_the_calibration_says_so(federation):
    small = federation()
    site = small.data(small.study("fedbn"))[0].name
    own = small.run("fedbn", LAST, then=igc(weight=0.0, loss='"dice"')).tensors(site)
    studys = small.run("fedbn", LAST, then=igc(weight=0.0)).tensors(site)
    both = small.run("fedbn", LAST, then=igc(weight=0.0, loss='"ce+dice"')).tensors(site)
    assert not equal(own, studys)
    assert equal(both, studys)  # masks are full, so that is what `auto` is


class Exchange:
    """A federation after one round, whose sites disclose and calibrate one step at a time."""

    def __init__(self, small, method: str, *overrides: str) -> None:
        study = small.study(method, *BARE.get(method, ()), *overrides, then=igc())
        (run,) = runs_of(study, small.folder / "runs")
        data = small.data(study)
        self.runner = SiteRunner(assign(run, data), torch.device("cpu"))
        self.data = data
        self.method = self.runner.assignment.method
        self.sites = LocalSites(self.runner, data, run.folder)
        first = self.runner.first_weights()
        self.server = Server(self.sites.trained, first, study.federation, 0)
        self.method.start(self.server)
        for stage in self.method.each_round():
            self.ask(stage, 1)
        self.finalize, self.disclose, self.calibrate = self.runner.assignment.after

    def ask(self, stage, number):
        messages = {info.name: stage.message(self.server, info) for info in self.sites.trained}
        asked = self.sites.ask(stage, messages, number=number, since=number)
        replies = {site: reply.message for site, reply in asked}
        stage.combine(self.server, replies)
        return messages, replies

    def model(self, name):
        return self.kept(name, 2)

    def kept(self, name, number):
        return self.sites.states.load(name, number).weights


def test_every_site_can_rebuild_every_other_s_model(federation):
    exchange = Exchange(federation(), "fedrep")
    exchange.ask(exchange.finalize, 2)
    exchange.ask(exchange.disclose, 2)
    info = exchange.sites.trained[0]
    message = exchange.calibrate.message(exchange.server, info)
    models = models_in(message.extras, DISCLOSED)
    assert list(models) == [other.name for other in exchange.sites.trained[1:]]
    own = exchange.runner.opened(info, exchange.data[0], exchange.sites.states.load(info.name, 2))
    for name, disclosed in models.items():
        twin = own.twin(disclosed).state_dict()
        theirs = exchange.model(name)
        assert all(torch.equal(twin[key], theirs[key]) for key in theirs)
        assert any(not torch.equal(theirs[key], own.weights[key]) for key in theirs)


@pytest.mark.parametrize(("method", "private"), [("fedrep", "head"), ("feddp", "queries")])
def test_every_site_keeps_its_own_private_weights_through_the_exchange(federation, method, private):
    exchange = Exchange(federation(resolution=64), method)
    sites = [info.name for info in exchange.sites.trained]
    own = part(exchange.runner.net, private)
    trained = {site: dict(exchange.kept(site, 1)) for site in sites}
    for one, other in combinations(sites, 2):
        assert not all(torch.equal(trained[one][name], trained[other][name]) for name in own)
    exchange.ask(exchange.finalize, 2)
    finalized = {site: dict(exchange.model(site)) for site in sites}
    exchange.ask(exchange.disclose, 2)
    for site in sites:  # the first as well
        assert equal(finalized[site], dict(exchange.model(site)))
        assert all(torch.equal(finalized[site][name], trained[site][name]) for name in own)


def test_where_one_site_discloses_what_another_shares_all_get_both(federation):
    exchange = Exchange(federation(sites=3), "fedavg")
    first, second, third = (info.name for info in exchange.sites.trained)
    server = exchange.server
    odd = {"disclosed/head.bias": torch.full_like(server.weights["head.bias"], 7.0)}
    keep(server, {first: Message(), second: Message(extras=odd), third: Message()})
    info = exchange.sites.trained[0]
    models = models_in(hand_on(server, info).extras, DISCLOSED)
    assert set(models) == {second, third}  # who discloses nothing is a judge all the same
    assert torch.equal(models[second]["head.bias"], odd["disclosed/head.bias"])
    assert torch.equal(models[third]["head.bias"], server.weights["head.bias"])


def test_who_holds_back_what_the_server_does_not_have_is_no_judge(federation):
    exchange = Exchange(federation(sites=3), "fedavg")
    first, second, third = (info.name for info in exchange.sites.trained)
    private = {"disclosed/private.bias": torch.ones(2)}
    keep(exchange.server, {first: Message(), second: Message(extras=private), third: Message()})
    models = models_in(hand_on(exchange.server, exchange.sites.trained[0]).extras, DISCLOSED)
    assert set(models) == {second}


def test_what_no_prediction_needs_is_not_disclosed(federation):
    exchange = Exchange(federation(), "pflfe")
    exchange.ask(exchange.finalize, 2)
    _, replies = exchange.ask(exchange.disclose, 2)
    for reply in replies.values():
        parts = {name.split("/")[1].partition(".")[0] for name in reply.extras}
        assert parts == {"decoder", "head"}


@pytest.mark.parametrize(
    ("method", "unheard"),
    [("fedlppa", "second"), pytest.param("fedicra", "guides", marks=pytest.mark.slow)],
)
def test_neither_a_second_decoder_nor_guides_are_disclosed(federation, method, unheard):
    small = federation(kinds=("point", "scribble", "block"))
    exchange = Exchange(small, method, "method.uses=trained")
    exchange.ask(exchange.finalize, 2)
    _, replies = exchange.ask(exchange.disclose, 2)
    for reply in replies.values():
        parts = {name.split("/")[1].partition(".")[0] for name in reply.extras}
        assert "decoder" in parts
        assert unheard not in parts


def test_nothing_disclosed_is_ever_in_a_file_of_the_server(federation, monkeypatch):
    small = federation()
    study = small.study("fedbn", LAST, then=igc())
    (run,) = runs_of(study, small.folder / "runs")
    kept = run.folder.path / "checkpoint"
    seen = []

    def look(server, replies):
        assert all(reply.extras for reply in replies.values())
        files = [file for file in kept.rglob("*.safetensors") if kept / "sites" not in file.parents]
        seen.extend(name for file in files for name in load_tensors(file)[0])
        keep(server, replies)

    monkeypatch.setattr("polyclinic.methods.calibration.keep", look)
    list(perform(run, small.data(study)))
    assert seen
    assert not any("disclosed" in name for name in seen)


def test_a_site_that_missed_the_finalizing_is_told_so(federation):
    exchange = Exchange(federation(), "fedavg")
    with pytest.raises(ValueError, match="no whole model for stage disclose: it was away"):
        exchange.ask(exchange.disclose, 2)


def test_equal_models_that_were_disclosed_disagree_nowhere_too(federation):
    method, site, batch = a_site(federation, "fedbn", kinds=("mask",))
    models = [site.twin({}), site.twin(dict(site.weights))]
    site.net.eval()
    _, guided = IGC(weight=5.0).terms(method, models, site, batch)
    assert guided == 0


@pytest.mark.parametrize("formula", ["distance", "deviation"])
def test_under_mixed_precision_judges_and_their_entropy_are_those_of_full_precision(
    federation, monkeypatch, formula
):
    method, site, batch = a_site(federation, "fedbn", kinds=("mask",))
    shifted = {n: 1.01 * t for n, t in site.weights.items() if n.startswith("head.")}
    igc = IGC(inconsistency=formula, relative=False)
    seen = []

    def look(probabilities, label, guide, mean):
        seen.append((probabilities.detach(), guide))
        return guided_entropy(probabilities, label, guide, mean)

    monkeypatch.setattr("polyclinic.methods.calibration.guided_entropy", look)
    site.net.eval()
    models = [site.twin({}), site.twin(shifted)]
    igc.terms(method, models, site, batch)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        igc.terms(method, models, site, batch)
        logits = site.net(batch.images)
    (_, exact), (probabilities, mixed) = seen
    assert logits.dtype == torch.bfloat16  # what is trained stays mixed
    assert exact.any()
    assert torch.equal(mixed, exact)
    assert torch.equal(probabilities, logits.float().softmax(1))


def test_a_model_with_unknown_weights_is_refused(federation):
    _, site, _ = a_site(federation, "fedbn", kinds=("mask",))
    with pytest.raises(ValueError, match=r"no weights called head\.gain"):
        site.twin({"head.gain": torch.zeros(1)})


def test_a_fingerprint_tells_values_apart_and_travels_exactly_as_a_number():
    tensor = torch.rand(3, 4, 5, 5).to(memory_format=torch.channels_last)
    assert fingerprint(tensor) == fingerprint(tensor.contiguous())
    other = tensor.clone()
    other[0, 0, 0, 0] += 1e-6
    assert fingerprint(other) != fingerprint(tensor)
    assert fingerprint(tensor) == int(fingerprint(tensor)) < 2**53


def test_fingerprints_are_of_all_shared_weights():
    weights = Weights.pack({"a": torch.rand(3), "b": torch.rand(2, 2)})
    message = fingerprints(Server((), weights, None, 0), None)
    assert message.numbers == {name: fingerprint(weights[name]) for name in weights}
    assert not message.weights


def test_the_models_at_rest_have_no_gradient_and_keep_their_statistics(federation):
    method, site, batch = a_site(federation, "fedbn", kinds=("mask",))
    shifted = {n: t + 0.3 for n, t in site.weights.items() if n.startswith("head.")}
    models = [site.twin({}), site.twin(shifted)]
    before = [{n: t.clone() for n, t in each.state_dict().items()} for each in models]
    site.net.train()
    plain, guided = IGC().terms(method, models, site, batch)
    (plain + guided).backward()
    assert all(p.grad is None for each in models for p in each.parameters())
    assert all(
        equal(dict(each.state_dict()), kept) for each, kept in zip(models, before, strict=True)
    )
    assert guided > 0


def test_what_share_of_the_loss_was_guided_is_noted_and_warned_of_where_it_is_nothing(federation):
    def shares(weight):
        done = federation().run("fedbn", LAST, then=igc(weight=weight))
        *_, table = [each for each in done.folder.tables() if each.name == DIAGNOSED]
        if "guided share" not in table.columns:
            return []
        return [row[table.columns.index("guided share")] for row in table.values]

    assert shares(0) == []
    little, much = shares(0.001), shares(10)
    assert all(0 < low < 0.01 < high < 1 for low, high in zip(little, much, strict=True))
    (line,) = warnings_about("fjord", {"guided share": little[0]})
    assert "it is fine-tuning" in line
    assert list(warnings_about("fjord", {"guided share": 0.3})) == []


@pytest.mark.parametrize("method", ["pflfe", "fc-pflfe"])
def test_it_follows_private_decoders_without_enhancement(federation, method):
    done = federation().run(method, "method.enhancement.share=0.0", LAST, then=igc())
    assert {line.numbers["steps"] for line in lines(done, "calibrate")} == {2}


def test_calibrating_twice_is_refused(federation):
    with pytest.raises(ValueError, match="only one stage called"):
        federation().run("feddp", then=igc())
