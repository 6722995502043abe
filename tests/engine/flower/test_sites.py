"""Every method across hospitals, through an in-process link: bit-equal to the local engine."""

import pytest

from polyclinic.contract.leaks import leaked, lengths, marks, owner, without
from polyclinic.contract.privacy import images_and_labels
from polyclinic.data.load import load_federation
from polyclinic.engine.flower.leaving import DIGITS
from polyclinic.engine.flower.wire import Payload
from polyclinic.engine.tensors import load_tensors
from polyclinic.methods import METHODS
from polyclinic.runs import RunError, RunFolder
from tests.engine.flower.hospitals import WEAK, Hospitals
from tests.engine.flower.in_process import InProcessLink
from tests.federations import equal

FEDERATED = [name for name, method in METHODS.items() if not method.pools]
KINDS = ("fedavg", "fedbn", "ditto", "scaffold", "metafed", "feddg", "fedlppa", "fedsm", "pflfe")
"""One method of each kind: what travels, in which order, and what is made of it."""
pytestmark = pytest.mark.usefixtures("narrow_pyramids")
TRAIN = (1, 4, 3)  # cases of each site
PYRAMID = ("network.name=resnet_fpn", "task.resolution=64")
OTHER_PYRAMID = {"feddp": ("network.name=pvt_fpn", "task.resolution=64")}  # resnet_fpn is refused


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory):
    return Hospitals(tmp_path_factory.mktemp("hospitals"), train=TRAIN)


@pytest.fixture(scope="module")
def link(hospitals):
    return InProcessLink.of(hospitals.services('extras = ["*", "spectrum"]\n'))


@pytest.mark.parametrize(
    "method",
    [pytest.param(m, marks=[] if m in KINDS else [pytest.mark.slow]) for m in FEDERATED],
)
def test_weights_are_bit_equal_to_the_local_engine(hospitals, link, method):
    then = '{name = "finetune", iterations = 1}' if method == "fedavg" else ""
    check_equal(hospitals, link, hospitals.study(method, "evaluation.scores=both", then=then))


@pytest.mark.slow
@pytest.mark.parametrize("method", FEDERATED)
def test_they_are_bit_equal_with_a_feature_pyramid(hospitals, link, method):
    check_equal(hospitals, link, hospitals.study(method, *OTHER_PYRAMID.get(method, PYRAMID)))


def check_equal(hospitals, link, study):
    """In both engines the same weights, scores and lines; and nothing private left a site."""
    method = study.method[0].name
    here = hospitals.run_locally(study)
    link.left.clear()
    link.crossed.clear()
    hospitals.run_with(link, study)
    there = hospitals.run_folder(study)
    server = load_tensors(there / "weights" / "server.safetensors")[0]
    assert equal(server, load_tensors(here / "weights" / "server.safetensors")[0])
    for name in hospitals.names:
        local = load_tensors(here / "weights" / f"{name}.safetensors")[0]
        assert equal(hospitals.site_model(study, name), local)
        assert not (there / "weights" / f"{name}.safetensors").exists()
    ours, theirs = RunFolder(there), RunFolder(here)
    assert _values(ours) == _values(theirs)
    assert _lines(ours) == _lines(theirs)
    assert ours.end().chosen_round == theirs.end().chosen_round
    sites = ours.about().sites
    assert tuple(site.train for site in sites) == TRAIN
    kinds = [site.kind for site in sites]
    assert kinds == list(WEAK.get(method, ["mask"] * 3))[:3]  # so that all terms of a loss are met
    private = {}
    for site in load_federation(study.task.built, study.data, study.site):
        own = images_and_labels(site)
        if not any(stage.discloses for stage in _stages(study.method[0].built)):
            own |= _private(hospitals.site_model(study, site.name), server, METHODS[method])
        private |= {f"{name} of {site.name}": tensor for name, tensor in own.items()}
    left = set(link.left)
    arrived = [payload for payload in link.crossed if payload not in left]
    assert not _held(link.left, private, arrived)


def test_what_left_a_site_is_found_in_the_payloads(hospitals, link):
    link.left.clear()
    study = hospitals.study("fedavg", "federation.rounds=1")
    hospitals.run_with(link, study)
    server = load_tensors(hospitals.run_folder(study) / "weights" / "server.safetensors")[0]
    here = hospitals.run_locally(hospitals.study("local", "federation.rounds=1"))
    trained = load_tensors(here / "weights" / f"{hospitals.names[0]}.safetensors")[0]
    assert _held(link.left, trained)  # what FedAvg averages is what each site trained
    assert not _held(link.left, server)


def test_pictures_stay_at_the_site(hospitals, link):
    study = hospitals.study("fedavg", "evaluation.pictures=true", "federation.rounds=1")
    hospitals.run_with(link, study)
    for name in hospitals.names:
        there = RunFolder(hospitals.run_folder(study, f"state/{name}/runs"))
        assert len(there.pictures(name)) == 6
        assert not RunFolder(hospitals.run_folder(study)).pictures(name)


def test_methods_that_pool_images_are_refused(hospitals, link):
    with pytest.raises(RunError, match="images of all sites together"):
        hospitals.run_with(link, hospitals.study("centralized"))


def _stages(method):
    return (*method.before(), *method.each_round(), *method.after())


def _private(model, server, method):
    """What of a site's final model the server never has, and its memory."""
    return {
        name: tensor
        for name, tensor in model.items()
        if name not in server
        and name.split("/")[1] not in method.shared_memory
        and not name.rpartition(".")[2].startswith("running_")  # may be the first model's
    }


def _held(left, private, arrived=()):
    """The first private tensor that is, as a slice, among the arrays that left sites.

    Slices that the server itself sent are no secret: weights that no gradient reached are alike
    everywhere.
    """
    short = lengths(private.values())
    found = leaked(_marks(left, short), marks(private.values()))
    found = without(found, _marks(arrived, short))
    return owner(private, found) if len(found) else ""


def _marks(payloads, short):
    read = [tensor for data in payloads for tensor in Payload.from_bytes(data).tensors.values()]
    return marks(read, short)


def _values(run):
    """The scores, rounded as they leave sites."""
    rows = run.scores(model=None)
    return [(*s[:3], s.region, s.metric, round(s.value, DIGITS), s.model) for s in rows]


def _lines(run):
    """Without seconds and, where something is disclosed, without sizes: it travels encrypted."""
    lines = []
    for line in run.rounds():
        hidden = any(name.startswith("disclosed/") for name in line.extras)
        sizes = {"extras", "parts", "up", "down"} if hidden else set()
        lines.append(line.model_dump(exclude={"seconds", *sizes}))
    return sorted(map(repr, lines))
