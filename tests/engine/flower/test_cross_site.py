"""Every site's model at every site across hospitals: among those whose own file discloses."""

import csv
import json
import math
from dataclasses import replace

import pytest

from polyclinic.engine.flower.protocol import ModelRequest, requesting
from polyclinic.engine.flower.sealing import KEYS
from polyclinic.engine.flower.site_service import SiteService
from polyclinic.engine.flower.wire import Payload, header_of
from polyclinic.runs import RunFolder
from tests.engine.flower.hospitals import Hospitals, greeting, run_of
from tests.engine.flower.in_process import InProcessLink

ONCE = ("federation.rounds=1", "evaluation.every=0", "evaluation.cross_site=true")
ACROSS = ("engine.name=flower", "engine.patience=0.05")


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory):
    return Hospitals(tmp_path_factory.mktemp("hospitals"))


def matrix(folder) -> tuple[tuple[str, ...], dict[tuple[str, str], float]]:
    (table,) = [each for each in RunFolder(folder).tables() if "each site's model" in each.name]
    values = {
        (model, site): value
        for model, line in zip(table.rows, table.values, strict=True)
        for site, value in zip(table.columns, line, strict=True)
    }
    return table.rows, values


def rows(folder) -> list[tuple[str | float, ...]]:
    """All scores as they leave a hospital: rounded, without the names of cases."""
    found = csv.DictReader((folder / "cross_site.csv").read_text().splitlines())
    keys = ("model", "site", "region", "metric")
    return sorted((*(row[key] for key in keys), round(float(row["value"]), 3)) for row in found)


@pytest.mark.parametrize(
    "method",
    [
        "fedbn",
        "ditto",
        *(pytest.param(m, marks=pytest.mark.slow) for m in ("fedavg", "fedrep", "fedlc", "apfl")),
    ],
)
def test_both_engines_have_the_same_matrix_where_all_disclose(hospitals, method):
    study = hospitals.study(method, *ONCE)
    across = study.model_copy(update={"engine": hospitals.study(method, *ACROSS).engine})
    link = InProcessLink.of(hospitals.services(state=f"state-{method}"))
    hospitals.run_with(link, across)
    local = hospitals.run_locally(study)
    assert rows(hospitals.run_folder(across)) == rows(local)
    (sites, values), (expected_sites, expected) = map(matrix, (hospitals.run_folder(across), local))
    assert sites == expected_sites
    assert values == pytest.approx(expected, abs=5.1e-4)
    assert not any(math.isnan(value) for value in matrix(local)[1].values())


def services(hospitals, state: str, silent: str = "") -> dict[str, SiteService]:
    """The sites, all but the silent one disclosing."""
    found = {}
    for name in hospitals.names:
        file = hospitals.site_file(name, state=state)
        allow = file.allow.model_copy(update={"disclose": name != silent})
        found[name] = SiteService(file.model_copy(update={"allow": allow}), hospitals.tables)
    return found


def test_who_does_not_disclose_is_left_blank_with_the_reason(hospitals):
    first, silent, last = hospitals.names
    sites = services(hospitals, "state-silent", silent)
    link = InProcessLink.of(sites.values())
    study = hospitals.study("fedbn", *ONCE, *ACROSS)
    events = hospitals.run_with(link, study)
    _, values = matrix(hospitals.run_folder(study))
    blank = {pair for pair, value in values.items() if math.isnan(value)}
    assert blank == {(first, silent), (silent, first), (last, silent), (silent, last)}
    run = RunFolder(hospitals.run_folder(study))
    lines = [line for line in run.rounds() if "model" in line.stage]
    (missed,) = [line for line in lines if line.missed]
    assert missed.site == silent
    assert "to which this site has not agreed (allow.disclose = true)" in missed.missed
    assert missed in events
    told = {(line.site, line.stage) for line in lines if not line.missed}
    assert told == {
        *((name, "disclose the model") for name in (first, last)),
        (first, f"score the model of {last}"),
        (last, f"score the model of {first}"),
    }
    # The silent site was asked for its model only, and nothing private of it left.
    assert not any(
        header_of(sent).get("site") == silent and "disclosed/" in json.dumps(header_of(sent))
        for sent in link.left
    )


def test_only_what_is_private_is_disclosed_and_the_ledger_says_so(hospitals):
    sites = services(hospitals, "state-ledger")
    link = InProcessLink.of(sites.values())
    study = hospitals.study("fedbn", *ONCE, *ACROSS)
    hospitals.run_with(link, study)
    run = RunFolder(hospitals.run_folder(study))
    disclosed = [line for line in run.rounds() if line.stage == "disclose the model"]
    assert all(line.up > 0 and line.extras for line in disclosed)
    names = {name for line in disclosed for name in line.extras} - {f"disclosed/{KEYS}"}
    assert all("norm" in name or "running" in name for name in names), names
    for service in sites.values():
        stages = [line.get("stage") for line in service.ledger.lines()]
        assert stages.count("disclose the model") == 1
        assert sum(str(stage).startswith("score the model of") for stage in stages) == 2


def test_a_model_is_given_only_where_the_study_compares_and_is_over(hospitals):
    (name, *_) = hospitals.names
    service = services(hospitals, "state-early")[name]
    for cross, words in (("false", "does not compare final models"), ("true", "no final model")):
        study = hospitals.study("fedbn", *ONCE[:2], f"evaluation.cross_site={cross}")
        train = header_of(service.respond(greeting(study)))["response"]["about"]["train"]
        request = ModelRequest(
            **run_of(study, run="r", labels="mask", train=train),
            number=2,
            reads=-1,
            keep=(),
            encoding="float32",
            recipients=(),
        )
        header = requesting(request) | {
            "message": {"weights": [], "extras": [], "numbers": {}, "scales": {}}
        }
        back = header_of(service.respond(Payload(header).to_bytes()))
        assert words in back["refused"]


def test_a_model_that_cannot_be_used_is_left_out_by_name(hospitals):
    spoilt, secretive, honest = hospitals.names
    link = InProcessLink.of(services(hospitals, "state-spoilt").values())

    def no_numbers(payload: Payload) -> Payload:
        return replace(payload, tensors={n: t * math.nan for n, t in payload.tensors.items()})

    def nothing(payload: Payload) -> Payload:
        message = {**payload.header["message"], "extras": []}
        return Payload({**payload.header, "message": message})

    for place, spoil in ((101, no_numbers), (102, nothing)):
        link.responding[place] = spoiling(link.responding[place], spoil)
    study = hospitals.study("fedbn", *ONCE, *ACROSS)
    hospitals.run_with(link, study)
    run = RunFolder(hospitals.run_folder(study))
    missed = {line.site: line.missed for line in run.rounds() if line.missed}
    assert "discloses what the network does not have" in missed[spoilt]
    assert "holds back what only it has" in missed[secretive]
    assert honest not in missed
    _, values = matrix(run.path)
    assert all(math.isnan(value) == (model != site) for (model, site), value in values.items())


def spoiling(respond, spoil):
    """What a site sends when it is asked for its model, spoilt."""

    def responding(data: bytes) -> bytes:
        back = respond(data)
        if header_of(data)["request"]["kind"] != "model":
            return back
        return spoil(Payload.from_bytes(back)).to_bytes()

    return responding


def test_a_site_scores_nothing_but_models_of_the_study(hospitals):
    sites = services(hospitals, "state-guest")
    link = InProcessLink.of(sites.values())
    hospitals.run_with(link, hospitals.study("fedbn", *ONCE, *ACROSS))
    asked = [each for each in link.crossed if "request" in header_of(each)]
    guest = next(each for each in asked if header_of(each)["request"]["kind"] == "guest")
    # The first model is the first site's, and the second site is the first to score it.
    first, second, _ = hospitals.names
    payload, service = Payload.from_bytes(guest), sites[second]
    request = payload.header["request"]
    assert request["owner"] == request["sites"][0] != first
    unknown = {**payload.header, "request": {**request, "owner": "nobody"}}
    back = header_of(service.respond(replace(payload, header=unknown).to_bytes()))
    assert "has no site 'nobody'" in back["refused"]
    name = min(each for each in payload.tensors if KEYS not in each)
    message = payload.header["message"]
    fewer = {**message, "extras": [n for n in message["extras"] if f"extras/{n}" != name]}
    tensors = {n: tensor for n, tensor in payload.tensors.items() if n != name}
    short = Payload({**payload.header, "message": fewer}, tensors)
    back = header_of(service.respond(short.to_bytes()))
    lacking = name.removeprefix(f"extras/disclosed/{request['owner']}/")
    assert f"no model of the study: it differs in {lacking}" in back["refused"]
    assert "refused" not in header_of(service.respond(guest))
