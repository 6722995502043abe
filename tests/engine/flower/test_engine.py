"""Faults of sites and of the server, through an in-process link: who is left out, what is kept."""

import math
from dataclasses import replace

import pytest
import torch

from polyclinic.catalog import BUILT_IN
from polyclinic.engine.flower.coordinator import across_hospitals
from polyclinic.engine.flower.engine import site_names
from polyclinic.engine.flower.wire import Payload, header_of
from polyclinic.engine.loop import Notice, RoundDone, TooFewSites
from polyclinic.engine.sites import Scored
from polyclinic.engine.tensors import load_tensors
from polyclinic.runs import RoundLine, RunError, RunFolder
from tests.engine.flower.hospitals import Hospitals
from tests.engine.flower.in_process import InProcessLink
from tests.engine.flower.spoilers import SPOILERS, listing, nan, responding, shortened, transposed
from tests.federations import equal, run_locally

FAST = (
    "engine.name=flower",
    "engine.deadline=600",
    "engine.patience=0.05",
    "evaluation.every=0",
)
ONCE = (*FAST, "federation.rounds=1")
BRIEFLY = "engine.deadline=0.05"  # for a site that will never come


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory):
    return Hospitals(tmp_path_factory.mktemp("hospitals"))


@pytest.fixture(scope="module")
def services(hospitals):
    return hospitals.services()


@pytest.fixture
def link(services):
    return InProcessLink.of(services)


def spoiling(
    link, place, spoil, when=lambda asked: asked["kind"] == "stage" and asked["number"] == 1
):
    """Let one machine spoil its responses to certain requests."""
    honest = link.responding[place]

    def respond(data):
        back = honest(data)
        if not when(header_of(data)["request"]):
            return back
        return spoil(Payload.from_bytes(back)).to_bytes()

    link.responding[place] = respond


def missed(run: RunFolder):
    return {
        (line.round, line.stage, line.site): line.missed for line in run.rounds() if line.missed
    }


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        *SPOILERS.values(),
        (lambda p: responding(p, loss="low"), "no response that this version understands"),
        (lambda p: responding(p, loss=math.inf), "understands (loss"),
        (lambda p: responding(p, seconds=math.nan), "understands (seconds)"),
        (lambda p: responding(p, seconds=1e300), "understands (seconds)"),
        (lambda p: responding(p, images=-1), "understands (images)"),
        (lambda p: responding(p, images=10**40), "understands (images)"),
        (lambda p: listing(p, numbers={"images": 1e300, "steps": 1}), "how many images and steps"),
        (lambda p: listing(p, numbers={"images": 1, "steps": math.nan}), "are not numbers: steps"),
        (lambda p: replace(p, header={"site": p.header["site"]}), "no response"),
    ],
)
def test_a_site_that_responds_nonsense_is_left_out_of_the_round_by_name(
    hospitals, link, spoil, words
):
    spoiling(link, 101, spoil)
    study = hospitals.study("fedavg", *ONCE)
    hospitals.run_with(link, study)
    run = RunFolder(hospitals.run_folder(study))
    (where, reason), *more = missed(run).items()
    assert where == (1, "fit", hospitals.names[0])
    assert words in reason
    assert not more
    assert run.finished
    server = load_tensors(run.weights_path("server"))[0]
    assert all(torch.isfinite(tensor).all() for tensor in server.values())


def test_a_difference_of_another_shape_is_noticed(hospitals, link):
    spoiling(link, 101, transposed)
    study = hospitals.study("fedavg", *ONCE, "engine.encoding=difference")
    hospitals.run_with(link, study)
    run = RunFolder(hospitals.run_folder(study))
    assert "a difference of another shape" in missed(run)[1, "fit", hospitals.names[0]]
    assert run.finished


def test_extras_of_another_shape_are_noticed(hospitals, link):
    def flatten(payload):
        name = next(n for n, t in payload.tensors.items() if n[:3] == "ext" and t.ndim > 1)
        flat = payload.tensors[name].reshape(-1)
        return replace(payload, tensors={**payload.tensors, name: flat})

    spoiling(link, 101, flatten)
    study = hospitals.study("scaffold", *ONCE)
    hospitals.run_with(link, study)
    assert "extras that differ" in next(
        iter(missed(RunFolder(hospitals.run_folder(study))).values())
    )


def test_a_round_without_a_quorum_stops_the_study_and_is_resumed(hospitals, services, link):
    study = hospitals.study("fedbn", *FAST)
    spoiling(link, 101, shortened, lambda asked: asked.get("number") == 2)
    spoiling(link, 102, nan, lambda asked: asked.get("number") == 2)
    with pytest.raises(TooFewSites) as told:
        hospitals.run_with(link, study)
    assert "only 1 of 3 sites answered in round 2, stage fit, and 2 are needed" in str(told.value)
    assert all(name in str(told.value) for name in hospitals.names[:2])
    honest = InProcessLink.of(services)
    hospitals.run_with(honest, study, resume=True)
    whole = hospitals.study("fedbn", *FAST)
    hospitals.run_with(honest, whole)
    for name in hospitals.names:
        assert equal(hospitals.site_model(study, name), hospitals.site_model(whole, name))


def test_no_reply_at_all_is_an_error_not_a_finished_round(hospitals, link):
    study = hospitals.study("fedavg", *ONCE, "engine.quorum=0.01")
    for place in list(link.responding):
        spoiling(link, place, nan, lambda asked: asked["kind"] == "stage")
    with pytest.raises(TooFewSites, match="only 0 of 3 sites"):
        hospitals.run_with(link, study)
    assert not RunFolder(hospitals.run_folder(study)).finished


def test_a_site_that_misses_a_round_rejoins_with_its_own_state(hospitals, link):
    study = hospitals.study("fedbn", *FAST, "federation.rounds=3")
    away = link.responding[101]

    def absent_in_round_two(data):
        if header_of(data)["request"].get("number") == 2:
            raise RuntimeError("Node Unavailable")
        return away(data)

    link.responding[101] = absent_in_round_two
    hospitals.run_with(link, study)
    run = RunFolder(hospitals.run_folder(study))
    assert list(missed(run)) == [(2, "fit", hospitals.names[0])]
    lines = {(line.round, line.site) for line in run.rounds() if not line.missed}
    assert (3, hospitals.names[0]) in lines


def test_a_reply_that_comes_too_late_does_not_move_the_site_on(hospitals, link):
    """The site saved a state that the server never heard of; it restores the one named."""
    study = hospitals.study("fedbn", *FAST, "federation.rounds=3")
    works = link.responding[101]
    asked = []

    def too_late(data):
        asked.append(header_of(data)["request"])
        back = works(data)
        if asked[-1].get("number") == 2:
            raise RuntimeError("ClientApp stopped responding")
        return back

    link.responding[101] = too_late
    hospitals.run_with(link, study)
    fits = {each["number"]: each for each in asked if each.get("stage") == "fit"}
    assert fits[3]["reads"] == fits[2]["reads"] == fits[1]["writes"]
    assert RunFolder(hospitals.run_folder(study)).finished


def test_a_ring_goes_on_without_a_missing_site(hospitals, link):
    study = hospitals.study("metafed", *ONCE)
    spoiling(link, 102, nan)
    hospitals.run_with(link, study)
    run = RunFolder(hospitals.run_folder(study))
    assert list(missed(run)) == [(1, "fit", hospitals.names[1])]
    assert run.finished


def test_a_site_that_cannot_be_scored_is_told_apart(hospitals, link):
    study = hospitals.study("fedavg", *ONCE)
    spoiling(
        link, 101, lambda p: responding(p, split="val"), lambda asked: asked.get("split") == "test"
    )
    events = hospitals.run_with(link, study)
    run = RunFolder(hospitals.run_folder(study))
    assert list(missed(run)) == [(1, "score test", hospitals.names[0])]
    assert [e.site for e in events if isinstance(e, Scored) and e.missed] == [hospitals.names[0]]
    assert {score.site for score in run.scores("test")} == set(hospitals.names[1:])


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (0, "test 1\r\n"),
        (0, "\x00"),
        (0, "patient"),
        (1, "[red]"),
        (2, "\x1b"),
        (3, math.inf),
        (3, 1.5),
    ],
)
def test_scores_that_cannot_be_are_left_out(hospitals, link, place, value):
    def spoil(payload):
        first, *rows = payload.header["response"]["rows"]
        first[place] = value
        return responding(payload, rows=[first, *rows])

    study = hospitals.study("fedavg", *ONCE)
    spoiling(link, 101, spoil, lambda asked: asked.get("split") == "test")
    hospitals.run_with(link, study)
    run = RunFolder(hospitals.run_folder(study))
    assert list(missed(run)) == [(1, "score test", hospitals.names[0])]
    assert {score.site for score in run.scores("test")} == set(hospitals.names[1:])


def test_what_a_site_says_of_itself_must_be_possible(hospitals, link):
    def spoil(payload):
        about = {**payload.header["response"]["about"], "train": -3}
        return responding(payload, about=about)

    spoiling(link, 101, spoil, lambda asked: asked["kind"] == "greeting")
    with pytest.raises(RunError, match="does not say how many cases of which kind it has"):
        hospitals.run_with(link, hospitals.study())


def test_sites_that_refuse_are_all_named_before_anything_is_trained(hospitals, link):
    strict = InProcessLink.of(hospitals.services("epochs = 1\niterations = 1\n", state="strict"))
    with pytest.raises(RunError) as told:
        hospitals.run_with(strict, hospitals.study())
    assert all(f"{name}: it refused: training.it" in str(told.value) for name in hospitals.names)
    assert not any(line["stage"] == "fit" for line in _ledger_lines(strict))


def _ledger_lines(link):
    return [line for answer in link.responding.values() for line in answer.__self__.ledger.lines()]


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("sweep.training.batch=[2, 4]", "nothing is swept"),
        ("data.folds=2", "set data.fold"),
        ("data.leave_out=each", "no site is left out"),
    ],
)
def test_runs_that_differ_in_more_than_method_and_seed_are_refused(hospitals, link, setting, told):
    with pytest.raises(RunError, match=told):
        hospitals.run_with(link, hospitals.study("fedavg", setting))


def test_a_site_that_never_comes_is_named(hospitals, link):
    del link.responding[103]
    study = hospitals.study("fedavg", *FAST, BRIEFLY)
    with pytest.raises(RunError, match=f"{hospitals.names[2]}: it could not be reached"):
        hospitals.run_with(link, study)


def test_sites_without_keys_are_believed_only_where_nothing_is_secure(hospitals, link):
    link.registered.clear()
    with pytest.raises(RunError, match="it could not be reached"):
        hospitals.run_with(link, hospitals.study("fedavg", *ONCE, BRIEFLY))
    study = hospitals.study("fedavg", *ONCE)
    hospitals.run_with(link, study, insecure=True)
    assert RunFolder(hospitals.run_folder(study)).finished


def test_a_resumed_study_goes_on_without_a_site_that_is_away(hospitals, link):
    study = hospitals.study("fedavg", *FAST, "federation.rounds=3")

    class Killed(Exception):
        pass

    def die(run, event):
        if isinstance(event, RoundDone) and event.round == 1:
            raise Killed

    with pytest.raises(Killed):
        hospitals.host(study, link, watch=die)
    del link.responding[103]
    hospitals.run_with(link, study, resume=True)
    run = RunFolder(hospitals.run_folder(study))
    assert run.finished
    assert {site for _, _, site in missed(run)} == {hospitals.names[2]}


@pytest.mark.parametrize("at", [1, *(pytest.param(at, marks=pytest.mark.slow) for at in (0, 3))])
def test_a_study_killed_between_rounds_resumes_to_the_same_weights(hospitals, link, at):
    whole = hospitals.run_locally(hospitals.study("scaffold", "federation.rounds=2"))
    study = hospitals.study("scaffold", "federation.rounds=2")

    def die(run, event):
        if isinstance(event, RoundLine | RoundDone) and event.round == at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hospitals.host(study, link, watch=die)
    restarted = InProcessLink.of(hospitals.services())
    hospitals.run_with(restarted, study, resume=True)
    for name in hospitals.names:
        local = load_tensors(whole / "weights" / f"{name}.safetensors")[0]
        assert equal(hospitals.site_model(study, name), local)


def test_a_study_whose_best_round_lies_back_resumes_and_takes_it_up(hospitals, link):
    study = hospitals.study("fedbn", "federation.rounds=4", "evaluation.every=1")

    def first_round_is_best(payload):
        rows = [
            (*row[:3], 1.0 if payload.header["response"]["number"] == 1 else 0.0, row[4])
            for row in payload.header["response"]["rows"]
        ]
        return responding(payload, rows=rows)

    for place in link.responding:
        spoiling(link, place, first_round_is_best, lambda asked: asked.get("split") == "val")

    def die(run, event):
        if isinstance(event, RoundDone) and event.round == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hospitals.host(study, link, watch=die)
    hospitals.run_with(link, study, resume=True)
    run = RunFolder(hospitals.run_folder(study))
    assert run.end().chosen_round == 1
    assert not missed(run)
    whole = hospitals.study("fedbn", "federation.rounds=4", "evaluation.every=1")
    hospitals.run_with(link, whole)
    for name in hospitals.names:
        assert equal(hospitals.site_model(study, name), hospitals.site_model(whole, name))


@pytest.fixture
def interrupted(hospitals, link):
    """A study that was killed after its second round."""
    study = hospitals.study("fedbn", *FAST, "federation.rounds=3")

    def die(run, event):
        if isinstance(event, RoundDone) and event.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hospitals.host(study, link, watch=die)
    return study


def test_a_damaged_checkpoint_gives_way_to_the_round_before(hospitals, link, interrupted):
    checkpoint = hospitals.run_folder(interrupted) / "checkpoint"
    (checkpoint / "server" / "round-00002.safetensors").write_bytes(b"nonsense")
    events = hospitals.run_with(link, interrupted, resume=True)
    told = [event.text for event in events if isinstance(event, Notice)]
    assert sum("round-00002.safetensors is damaged" in text for text in told) == 1
    assert not missed(RunFolder(hospitals.run_folder(interrupted)))
    whole = hospitals.run_locally(interrupted)
    for name in hospitals.names:
        local = load_tensors(whole / "weights" / f"{name}.safetensors")[0]
        assert equal(hospitals.site_model(interrupted, name), local)


@pytest.mark.parametrize("damage", [lambda text: text.replace("2", "1"), lambda text: text[:-9]])
def test_a_run_that_forgot_its_sites_states_does_not_go_on(hospitals, link, interrupted, damage):
    file = hospitals.run_folder(interrupted) / "checkpoint" / "sites.json"
    file.write_text(damage(file.read_text()))
    with pytest.raises(RunError, match=rf"{file} is damaged or lost.*--fresh"):
        hospitals.run_with(link, interrupted, resume=True)
    file.unlink()
    with pytest.raises(RunError, match=rf"{file} is damaged or lost.*--fresh"):
        hospitals.run_with(link, interrupted, resume=True)


def test_a_broken_about_is_made_anew_from_what_the_sites_say(hospitals, link, interrupted):
    file = hospitals.run_folder(interrupted) / "about.json"
    before = RunFolder(file.parent).about()
    file.write_text("{")
    hospitals.run_with(link, interrupted, resume=True)
    assert RunFolder(file.parent).about().sites == before.sites
    (file.parent / "finished.json").unlink()
    events = hospitals.run_with(link, interrupted, resume=True)
    assert [type(event) for event in events] == [Notice]
    assert RunFolder(file.parent).finished


def test_a_finished_study_is_left_alone(hospitals, link):
    study = hospitals.study("fedavg", *ONCE)
    hospitals.run_with(link, study)
    with pytest.raises(RunError, match="already holds a run"):
        hospitals.run_with(link, study)
    assert hospitals.run_with(InProcessLink(), study, resume=True) == []
    assert hospitals.run_with(link, study, fresh=True)


def test_another_version_of_polyclinic_is_refused(hospitals, link):
    spoiling(
        link,
        101,
        lambda p: responding(p, version="0.0.1"),
        lambda asked: asked["kind"] == "greeting",
    )
    with pytest.raises(RunError, match=r"it runs Polyclinic 0\.0\.1"):
        hospitals.run_with(link, hospitals.study())


def test_data_of_another_site_are_refused(hospitals, link):
    def other(payload):
        about = {**payload.header["response"]["about"], "name": "elsewhere"}
        return responding(payload, about=about)

    spoiling(link, 101, other, lambda asked: asked["kind"] == "greeting")
    with pytest.raises(RunError, match="its data are those of a site called 'elsewhere'"):
        hospitals.run_with(link, hospitals.study())


def test_the_best_round_needs_validation_cases_somewhere(hospitals, link):
    for place in list(link.responding):
        spoiling(
            link,
            place,
            lambda p: responding(p, scorable=0),
            lambda asked: asked["kind"] == "greeting",
        )
    with pytest.raises(RunError, match="needs validation cases"):
        hospitals.run_with(link, hospitals.study())


def test_sites_are_known_by_the_names_in_the_study(hospitals, tmp_path):
    study = hospitals.study()
    assert site_names(study) == hospitals.names
    synthetic = study.data.model_copy(update={"source": "synthetic"})
    drawn = study.model_copy(update={"site": (), "data": synthetic})
    assert site_names(drawn)[:3] == hospitals.names
    with pytest.raises(RunError, match="lists its sites"):
        site_names(study.model_copy(update={"site": ()}))


def test_the_local_command_refuses_a_study_for_hospitals(hospitals):
    study = hospitals.study("fedavg", "engine.name=flower")
    with pytest.raises(RunError, match="polyclinic server runs it"):
        run_locally(study, hospitals.folder, watch=lambda run, event: None)
    assert across_hospitals(study) is study
    assert BUILT_IN.method


def test_lossy_encodings_halve_what_leaves_and_stay_close(hospitals, link):
    exact = hospitals.study("fedavg", *ONCE)
    hospitals.run_with(link, exact)
    truth = load_tensors(hospitals.run_folder(exact) / "weights" / "server.safetensors")[0]
    for encoding, closeness in (("float16", 0.1), ("bfloat16", 0.2), ("difference", 1e-3)):
        study = hospitals.study("fedavg", *ONCE, f"engine.encoding={encoding}")
        hospitals.run_with(link, study)
        run = RunFolder(hospitals.run_folder(study))
        found = load_tensors(run.weights_path("server"))[0]
        assert not equal(found, truth)
        assert max(float((found[n] - truth[n]).abs().max()) for n in truth) < closeness
        ours, theirs = run.rounds()[0], RunFolder(hospitals.run_folder(exact)).rounds()[0]
        assert ours.up < 0.51 * theirs.up + 20
        assert sum(ours.parts.values()) == ours.up - 8 * len(ours.numbers)


def test_a_message_beyond_all_measure_is_refused(hospitals, link, monkeypatch):
    monkeypatch.setattr("polyclinic.engine.flower.sites.SPARE", 0)

    def bloated(payload):
        return replace(
            payload, tensors={**payload.tensors, "x": torch.zeros(10**7, dtype=torch.int8)}
        )

    spoiling(link, 101, bloated)
    study = hospitals.study("fedavg", *ONCE)
    hospitals.run_with(link, study)
    assert "message of 10 MB is larger than" in next(
        iter(missed(RunFolder(hospitals.run_folder(study))).values())
    )


def test_noisy_messages_are_accounted_for_and_other_methods_say_why_not(hospitals):
    privacy = "[privacy]\nclip = 1.0\nnoise = 2.0\nstatistics = true\n"
    noisy = InProcessLink.of(hospitals.services(privacy, state="noisy"))
    study = hospitals.study("fedavg", *FAST)
    hospitals.run_with(noisy, study)
    run = RunFolder(hospitals.run_folder(study))
    spent = [
        line.numbers["epsilon"]
        for line in run.rounds()
        if line.site == hospitals.names[0] and line.stage == "fit"
    ]
    assert 0 < spent[0] < spent[1]
    assert _ledger_lines(noisy)[-1].get("noise") is None  # scores are not blurred
    with pytest.raises(TooFewSites, match="cannot run with privacy: its messages carry more"):
        hospitals.run_with(noisy, hospitals.study("scaffold", *ONCE))


def test_nothing_private_crosses_the_wire_or_lies_at_the_coordinator(hospitals, link):
    study = hospitals.study("fedbn", "training.keep_optimizer=true")
    hospitals.run_with(link, study)
    crossed = b"\n".join(link.crossed)
    here = [f.read_bytes() for f in (hospitals.folder / "runs").rglob("*") if f.is_file()]
    everything = crossed + b"\n".join(here)
    for name in hospitals.names:
        model = hospitals.site_model(study, name)
        private = {n: t for n, t in model.items() if "memory/" in n or "norm" in n}
        varied = [t for t in private.values() if t.numel() > 1 and t.min() != t.max()]
        assert varied
        for tensor in varied:
            assert tensor.numpy().tobytes() not in everything
        cases = [file.stem for file in (hospitals.folder / "data" / name / "images").iterdir()]
        assert not any(case.encode() in everything for case in cases)
    assert str(hospitals.folder / "data").encode() not in crossed
    assert b"memory/" not in crossed


def test_a_second_coordinator_of_the_same_study_does_not_stop_the_first(hospitals):
    """It may have another folder, so that no lock stops it; the sites keep the two apart."""
    study = hospitals.study("fedbn", *FAST)
    local = hospitals.run_locally(study)
    services = hospitals.services(state="twice")
    link, other = InProcessLink.of(services), InProcessLink.of(services)
    honest, begun = link.responding[101], []

    def respond(data):
        asked = header_of(data)["request"]
        if asked.get("number") == 2 and not begun:
            begun.append(asked["run"])
            hospitals.host(study, other, root="other", watch=lambda run, event: None)
        return honest(data)

    link.responding[101] = respond
    hospitals.run_with(link, study)
    assert begun
    for root in ("runs", "other"):
        run = RunFolder(hospitals.run_folder(study, root))
        assert run.finished
        assert not missed(run)
        server = load_tensors(run.weights_path("server"))[0]
        assert equal(server, load_tensors(local / "weights" / "server.safetensors")[0])


def test_a_hospital_that_knows_the_size_of_its_pixels_finds_its_own_distances_in_mm(tmp_path):
    hospitals = Hospitals(tmp_path, sites=2)
    first, second = hospitals.names
    with (tmp_path / "data" / first / "site.toml").open("a") as file:
        file.write("spacing = 0.1\n")
    study = hospitals.study("fedavg", *ONCE, 'evaluation.metrics=["hd95", "dice"]')
    hospitals.run_with(InProcessLink.of(hospitals.services()), study)
    about = {
        name: RunFolder(hospitals.run_folder(study, f"state/{name}/runs")).about()
        for name in hospitals.names
    }

    assert [about[name].metrics["hd95"].unit for name in (first, second)] == ["mm", "px"]
    assert about[first].metrics["dice"].unit == about[second].metrics["dice"].unit
    (own,) = (site for site in about[first].sites if site.name == first)
    assert own.measured
    assert own.test > 0
    assert RunFolder(hospitals.run_folder(study)).about().metrics["hd95"].unit == "mm or px"
