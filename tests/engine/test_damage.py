"""Files that are damaged or lost: a run goes on to the very same weights, or says what is wrong."""

import random
import resource
import shutil

import pytest
import torch

from polyclinic.engine.loop import Notice, RoundDone
from polyclinic.engine.run import Run, runs_of
from polyclinic.engine.study import refuse_mistaken_runs
from polyclinic.engine.tensors import DamagedFile, load_tensors, save_tensors
from polyclinic.report.reading import read_runs
from polyclinic.runs import RunError, RunFolder
from tests.federations import Done, Federation, equal, perform
from tests.within import within

STOPPED = 3  # the round after which the run in progress was killed


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return Federation(tmp_path_factory.mktemp("damage"), sites=2, rounds=4)


@pytest.fixture(scope="module")
def whole(small):
    return small.run("fedbn", name="whole")


@pytest.fixture(scope="module")
def stopped(small):
    """A run in progress; its best round so far lies back."""
    study = small.study("fedbn", name="stopped")
    (run,) = runs_of(study, small.folder / "runs")
    for event in perform(run, small.data(study)):
        if isinstance(event, RoundDone) and event.round == STOPPED:
            break
    return run


@pytest.fixture
def copied(stopped, tmp_path) -> Run:
    return copy(stopped, tmp_path / "copy")


def copy(run: Run, to) -> Run:
    shutil.copytree(run.folder.path, to)
    return Run(run.choice, run.seed, RunFolder(to), run.study)


def resumed(small, run: Run) -> Done:
    refuse_mistaken_runs([run], resume=True)
    return Done(run, list(perform(run, small.data(run.study))))


def same(done: Done, whole: Done) -> bool:
    owners = ("server", *(site.name for site in whole.folder.about().sites))
    return all(equal(done.tensors(owner), whole.tensors(owner)) for owner in owners)


def notices(done: Done) -> str:
    return "\n".join(event.text for event in done.events if isinstance(event, Notice))


def damage(file, rng: random.Random) -> None:
    """Turn some bits of one byte around, cut the file off, or take bytes out or put some in."""
    content = bytearray(file.read_bytes())
    place = rng.randrange(len(content))
    how = rng.random()
    if how < 0.25:
        content = content[:place]
    elif how < 0.35:
        del content[place : place + rng.randint(1, 9)]
    elif how < 0.45:
        content[place:place] = rng.randbytes(rng.randint(1, 9))
    else:
        content[place] ^= rng.randrange(1, 256)
    file.write_bytes(content)


def files_of(run: Run):
    return [file for file in sorted(run.folder.path.rglob("*")) if file.is_file()]


def told(folder: RunFolder):
    """All that a run's text files say, but for the time that things took."""
    begun = folder.about().model_copy(update={"started": ""})
    rounds = [line.model_copy(update={"seconds": 0.0}) for line in folder.rounds()]
    return repr((begun, rounds, folder.scores(model=None), folder.tables()))


def damaged_everywhere(small, stopped, whole, folder, times, caplog):
    """Damage every file many times; gives how often the run went on, and how often it did not."""
    rng, went_on, refused = random.Random(0), 0, []
    for place, file in enumerate(files_of(stopped)):
        if not file.stat().st_size:
            continue
        for number in range(times):
            run = copy(stopped, folder / f"{place}-{number}")
            damage(run.folder.path / file.relative_to(stopped.folder.path), rng)
            caplog.clear()
            try:
                with within(f"damage {number} to {file.name}"):
                    done = resumed(small, run)
            except ValueError as error:
                refused.append((str(run.folder.path), str(error)))
            else:
                assert same(done, whole), f"other weights after damage to {file}"
                silent = str(run.folder.path) not in caplog.text + notices(done)
                assert not silent or told(run.folder) == told(whole.folder), f"silent: {file}"
                went_on += 1
            shutil.rmtree(run.folder.path)
    assert [said for path, said in refused if path not in said] == []
    return went_on, len(refused)


def test_damage_to_any_file_is_told_or_changes_nothing(small, stopped, whole, tmp_path, caplog):
    went_on, refused = damaged_everywhere(small, stopped, whole, tmp_path, 2, caplog)
    assert went_on
    assert refused


@pytest.mark.slow
def test_damage_at_a_thousand_places_is_told_or_changes_nothing(
    small, stopped, whole, tmp_path, caplog
):
    times = 1000 // len(files_of(stopped)) + 1
    went_on, refused = damaged_everywhere(small, stopped, whole, tmp_path, times, caplog)
    assert went_on + refused >= 1000


TEXTS = ("study.toml", "about.json", "rounds.jsonl", "tables.jsonl", "scores.csv", "finished.json")


@pytest.mark.parametrize("name", TEXTS)
def test_a_changed_digit_of_a_finished_run_is_told(whole, tmp_path, caplog, name):
    run = copy(whole.run, tmp_path / "copy")
    file = run.folder.path / name
    text = file.read_text()
    place = max(place for place, letter in enumerate(text) if letter.isdigit())
    read_runs([run.folder.path])
    assert caplog.text == ""
    file.write_text(text[:place] + str((int(text[place]) + 1) % 10) + text[place + 1 :])
    read_runs([run.folder.path])
    assert f"{file} is not as it was written" in caplog.text


def test_a_removed_line_of_a_finished_run_is_told(whole, tmp_path, caplog):
    run = copy(whole.run, tmp_path / "copy")
    file = run.folder.path / "scores.csv"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    assert len(run.folder.scores()) == len(whole.folder.scores()) - 1
    assert f"{file} is not as it was written" in caplog.text


def test_a_stopped_run_needs_its_best_round_and_two_generations(copied):
    files = sorted((copied.folder.path / "checkpoint" / "server").iterdir())
    best = int(load_tensors(files[-1])[1]["best_round"])
    assert {int(file.stem[-5:]) for file in files} == {best, STOPPED - 1, STOPPED}
    assert best < STOPPED - 1


def test_a_damaged_checkpoint_gives_way_to_the_round_before(small, copied, whole):
    newest = copied.folder.path / "checkpoint" / "server" / f"round-{STOPPED:05d}.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1])
    done = resumed(small, copied)
    assert same(done, whole)
    assert f"{newest} is damaged" in notices(done)
    assert f"goes on from round {STOPPED - 1}" in notices(done)
    rounds = [event.round for event in done.events if isinstance(event, RoundDone)]
    assert rounds == [STOPPED, STOPPED + 1, STOPPED + 2]
    assert len(done.folder.rounds()) == len(whole.folder.rounds())


def test_a_checkpoint_without_a_whole_file_is_never_wiped(small, copied):
    for file in (copied.folder.path / "checkpoint" / "server").iterdir():
        file.write_bytes(b"")
    with pytest.raises(RunError, match=r"(?s)every checkpoint .* is damaged.*--fresh"):
        resumed(small, copied)
    assert copied.folder.rounds()


def test_a_lost_checkpoint_is_never_wiped(small, copied):
    shutil.rmtree(copied.folder.path / "checkpoint")
    with pytest.raises(RunError, match=r"its checkpoint is lost.*backup.*--fresh"):
        resumed(small, copied)
    assert copied.folder.rounds()


def test_a_damaged_state_of_a_site_is_told_with_what_to_do(small, copied, whole):
    checkpoint = copied.folder.path / "checkpoint"
    file = max((checkpoint / "sites").rglob("*.safetensors"))
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(DamagedFile, match=rf"{file} is damaged.*backup") as told:
        resumed(small, copied)
    newest = checkpoint / "server" / f"round-{STOPPED:05d}.safetensors"
    assert f"remove {newest}" in str(told.value)
    newest.unlink()
    assert same(resumed(small, copied), whole)


def test_a_finished_run_whose_end_is_lost_is_finished_again(small, whole, tmp_path):
    run = copy(whole.run, tmp_path / "copy")
    end = run.folder.end()
    (run.folder.path / "finished.json").unlink()
    done = resumed(small, run)
    assert run.folder.end() == end
    assert "finished.json was lost" in notices(done)
    assert same(done, whole)
    assert run.folder.scores() == whole.folder.scores()


def test_a_finished_run_with_more_lost_is_never_wiped(small, whole, tmp_path):
    run = copy(whole.run, tmp_path / "copy")
    (run.folder.path / "finished.json").unlink()
    run.folder.weights_path("server").unlink()
    with pytest.raises(RunError, match="its checkpoint is lost"):
        resumed(small, run)
    assert run.folder.scores() == whole.folder.scores()


def test_what_is_known_of_a_run_is_written_again_where_it_is_broken(small, copied, whole):
    (copied.folder.path / "about.json").write_text("{")
    done = resumed(small, copied)
    assert same(done, whole)
    assert "about.json is broken" in notices(done)
    assert copied.folder.about().sites == whole.folder.about().sites


def test_tensors_that_find_no_room_say_why_and_leave_the_old_ones(tmp_path):
    file, before = tmp_path / "a.safetensors", resource.getrlimit(resource.RLIMIT_FSIZE)
    save_tensors(file, {"a": torch.zeros(1)}, {})
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
        with pytest.raises(RunError, match=r"cannot write .*a\.safetensors: File too large"):
            save_tensors(file, {"a": torch.zeros(100_000)}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [each.name for each in tmp_path.iterdir()] == ["a.safetensors"]
    assert load_tensors(file)[0]["a"].numel() == 1
