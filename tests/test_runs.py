import errno
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyclinic.runs import (
    About,
    AboutTask,
    Finished,
    RoundLine,
    RoundTable,
    RunError,
    RunFolder,
    Score,
    SiteInfo,
    find_runs,
    replacing,
    run_path,
    slug,
    write_atomic,
)
from polyclinic.runs.files import clear_errors


def about(method="FedAvg", seed=0, started="2026-01-02T03:04:05+00:00"):
    return About(
        method=method,
        seed=seed,
        task=AboutTask(name="octa", classes=("background", "faz"), regions={"faz": (1,)}),
        sites=(SiteInfo("alpha", 0, "mask", train=7, val=1, test=2),),
        network="unet",
        parameters=1813474,
        device="cpu",
        threads=2,
        started=started,
        versions={"polyclinic": "0.1.0"},
    )


def score(**changes):
    return Score(1, "val", "alpha", "a", "faz", "dice", 0.5)._replace(**changes)


def lined(number):
    return RoundLine(round=number, stage="fit", site="alpha")


@pytest.fixture
def folder(tmp_path):
    run = RunFolder(tmp_path / "run")
    run.create('name = "demo"\n', about())
    return run


def test_a_new_run_folder_gives_back_its_settings_and_its_about(folder):
    assert folder.exists
    assert not folder.finished
    assert folder.end() is None
    assert folder.settings() == {"name": "demo"}
    assert folder.settings_text() == 'name = "demo"\n'
    assert folder.about() == about()


def test_looking_at_a_folder_does_not_make_it(tmp_path):
    run = RunFolder(tmp_path / "nothing")
    assert not run.exists
    assert run.rounds() == []
    assert run.scores() == []
    assert run.pictures("alpha") == []
    assert not run.path.exists()


def test_a_folder_with_a_run_is_not_begun_twice(folder):
    with pytest.raises(RunError, match="already holds a run"):
        folder.create("", about())


def test_clearing_leaves_only_the_lock(folder):
    (folder.path / "weights").mkdir()
    folder.weights_path("server").write_bytes(b"w")
    with folder.lock():
        folder.clear()
        assert [entry.name for entry in folder.path.iterdir()] == ["lock"]
        folder.create("", about())


def test_the_end_is_marked_with_the_chosen_round(folder):
    folder.finish(Finished(chosen_round=20, seconds=12.5))
    assert folder.finished
    assert folder.end() == Finished(chosen_round=20, seconds=12.5)


def test_round_lines_come_back_as_written(folder):
    first = RoundLine(
        round=1, stage="fit", site="alpha", loss=0.7, seconds=1.5, images=120, down=10, up=11,
        extras=("control/a",), numbers={"steps": 10.0},
    )  # fmt: skip
    second = RoundLine(round=1, stage="fit", site="beta")
    folder.append([first, second])
    folder.append([first])
    assert [line.site for line in folder.rounds()] == ["alpha", "beta", "alpha"]
    assert folder.rounds()[0] == first
    assert math.isnan(folder.rounds()[1].loss)


def test_numbers_that_are_none_are_written_as_plain_json(folder):
    folder.append([RoundLine(round=1, stage="fit", site="a", numbers={"x": math.inf})])
    text = (folder.path / "rounds.jsonl").read_text()
    assert "null" in text
    assert "NaN" not in text
    assert "Infinity" not in text
    assert math.isnan(folder.rounds()[0].numbers["x"])


def test_lines_of_a_newer_version_are_still_read(folder):
    (folder.path / "rounds.jsonl").write_text(
        '{"round": 1, "stage": "fit", "site": "a", "energy": 3}\n'
    )
    assert folder.rounds()[0].site == "a"


names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)
numbers = st.floats(allow_nan=False)
rows = st.builds(
    Score, st.integers(0, 99), st.sampled_from(["val", "test"]), names, names, names, names, numbers
)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(rows, max_size=4), max_size=3))
def test_scores_come_back_exactly_whatever_the_names(tmp_path_factory, batches):
    run = RunFolder(tmp_path_factory.mktemp("run"))
    for batch in batches:
        run.append(scores=batch)
    assert run.scores(model=None) == [row for batch in batches for row in batch]


def test_scores_are_chosen_by_split(folder):
    folder.append(scores=[score(split="val"), score(split="test", value=math.inf)])
    assert folder.scores("val") == [score(split="val")]
    assert folder.scores("test") == [score(split="test", value=math.inf)]


def test_the_score_file_begins_with_its_header_once(folder):
    folder.append(scores=[score()])
    folder.append(scores=[score()])
    lines = (folder.path / "scores.csv").read_text().splitlines()
    assert lines[0] == "round,split,site,case,region,metric,value,patient,model"
    assert lines[1:] == ["1,val,alpha,a,faz,dice,0.5,0,shared"] * 2


@pytest.mark.parametrize("torn", [0, 1, 5, 20])
def test_a_torn_last_line_is_ignored_and_then_cut_off(folder, torn):
    folder.append([RoundLine(round=1, stage="fit", site="alpha")])
    folder.append(scores=[score()])
    for name, line in (("rounds.jsonl", b'{"round": 2, "stage": "fit"'), ("scores.csv", b"2,val,")):
        with (folder.path / name).open("ab") as file:
            file.write(line[:torn])
    assert len(folder.rounds()) == 1
    assert folder.scores() == [score()]
    folder.append([RoundLine(round=2, stage="fit", site="alpha")])
    folder.append(scores=[score(round=2)])
    assert [line.round for line in folder.rounds()] == [1, 2]
    assert folder.scores() == [score(), score(round=2)]


def test_a_torn_header_is_written_anew(folder):
    (folder.path / "scores.csv").write_text("round,sp")
    folder.append(scores=[score()])
    assert folder.scores() == [score()]


def test_a_torn_line_longer_than_a_block_is_cut_off(folder):
    folder.append(scores=[score()])
    with (folder.path / "scores.csv").open("a") as file:
        file.write("x" * 200_000)
    folder.append(scores=[score(round=2)])
    assert [row.round for row in folder.scores()] == [1, 2]


def table(number, value=0.5):
    names = ("a", "b")
    return RoundTable(
        round=number, name="affinity", rows=names, columns=names, values=((1, value), (value, 1))
    )


def test_tables_come_back_as_written_and_without_one_there_is_no_file(folder):
    folder.append(tables=[])
    assert folder.tables() == []
    assert not (folder.path / "tables.jsonl").exists()
    folder.append(tables=[table(1), table(1, math.nan)])
    folder.append(tables=[table(2)])
    assert [(each.round, each.values[0][1]) for each in folder.tables()[::2]] == [
        (1, 0.5),
        (2, 0.5),
    ]
    assert math.isnan(folder.tables()[1].values[0][1])


def test_a_resumed_run_forgets_tables_after_its_checkpoint(folder):
    folder.append(tables=[table(1), table(2), table(3)])
    folder.forget_after(2)
    assert [each.round for each in folder.tables()] == [1, 2]


def test_a_resumed_run_forgets_what_came_after_its_checkpoint(folder):
    folder.append(RoundLine(round=n, stage="fit", site="alpha") for n in (1, 2, 3))
    folder.append(scores=[score(round=n) for n in (1, 2, 3)])
    folder.append(scores=[score(round=2, split="test")])
    folder.finish(Finished(chosen_round=2, seconds=1))
    folder.forget_after(2)
    assert [line.round for line in folder.rounds()] == [1, 2]
    assert folder.scores() == [score(round=1), score(round=2)]
    assert not folder.finished


def test_forgetting_in_an_empty_run_is_harmless(folder):
    folder.forget_after(0)
    assert folder.rounds() == []
    assert folder.scores() == []


@pytest.mark.parametrize(
    ("name", "content", "read", "message"),
    [
        ("about.json", "{", RunFolder.about, "about.json is broken"),
        ("about.json", "{}", RunFolder.about, "method: Field required.*seed: Field required"),
        ("study.toml", "a = = 1", RunFolder.settings, "study.toml is not TOML"),
        ("study.toml", b"\xff\xfe", RunFolder.settings, "study.toml is not text"),
    ],
)
def test_a_broken_file_is_named_with_what_is_wrong(folder, name, content, read, message):
    (folder.path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(RunError, match=message):
        read(folder)


BROKEN_ROWS = [
    *("1,val,a,b,c,dice,good", "1,train,a,b,c,dice,0.5", "1,val", "", "1,v\ral"),
    *(
        '"1,val,a,b,c,dice,0.5',
        "1,val,a,b\x00,c,dice,\x1b",
        "1,val,a,b,c,dice,\udcff",
        "x" * 200_000,
    ),
]


@pytest.mark.parametrize("row", BROKEN_ROWS)
def test_a_broken_score_is_named_by_its_line_and_left_out(folder, caplog, row):
    folder.append(scores=[score()])
    with (folder.path / "scores.csv").open("a", errors="surrogateescape", newline="") as file:
        file.write(row + "\n")
    folder.append(scores=[score(round=2)])
    assert folder.scores() == [score(), score(round=2)]
    (said,) = caplog.messages
    assert f"line 3 of {folder.path / 'scores.csv'} is" in said
    assert "the line is left out" in said


def test_a_broken_header_of_the_scores_is_named_and_left_out(folder, caplog):
    folder.append(scores=[score()])
    file = folder.path / "scores.csv"
    file.write_text(file.read_text().replace("round,", "found,"))
    assert folder.scores() == [score()]
    assert "line 1 of" in caplog.text


@pytest.mark.parametrize("text", [b'{"round": 1}', b"", b"\xff\xfe", b"{", b"[" * 10_000])
def test_a_broken_line_of_a_round_is_named_and_left_out(folder, caplog, text):
    folder.append([lined(1)])
    with (folder.path / "rounds.jsonl").open("ab") as file:
        file.write(text + b"\n")
    folder.append([lined(2)])
    assert [each.round for each in folder.rounds()] == [1, 2]
    (said,) = caplog.messages
    assert f"line 2 of {folder.path / 'rounds.jsonl'} is broken" in said


def test_what_does_not_fit_into_json_can_be_read_again_or_is_left_out(folder, caplog):
    """A line that an earlier version wrote: no number of seconds is infinite."""
    folder.append([lined(1), lined(2).model_copy(update={"seconds": math.inf}), lined(3)])
    assert [each.round for each in folder.rounds()] == [1, 3]
    folder.forget_after(3)
    caplog.clear()
    assert [each.round for each in folder.rounds()] == [1, 3]
    assert not caplog.messages


def test_the_reason_why_a_site_is_left_out_commands_no_terminal(folder):
    folder.append([lined(1).model_copy(update={"missed": "it\x1b[2J refused\x07:\ttwo\nlines"})])
    assert folder.rounds()[0].missed == "it[2J refused: two\nlines"


def test_a_missing_file_says_that_the_folder_is_incomplete(folder):
    (folder.path / "about.json").unlink()
    with pytest.raises(RunError, match=r"not a complete run folder: it has no about\.json"):
        folder.about()


def test_pictures_come_back_best_first_with_site_and_case(folder):
    for rank in ("worst", "best", "median"):
        path = folder.picture_path("alpha", rank, f"case-{rank}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    found = folder.pictures("alpha")
    assert [(picture.rank, picture.case) for picture in found] == [
        ("best", "case-best"),
        ("median", "case-median"),
        ("worst", "case-worst"),
    ]
    assert folder.pictures("beta") == []


def test_names_cannot_leave_the_folder(folder):
    assert folder.picture_path("../../x", "best", "a/b").parent.parent.parent == folder.path
    assert folder.weights_path("../server").parent == folder.path / "weights"


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    write_atomic(path, "old")
    with pytest.raises(ZeroDivisionError), replacing(path) as unfinished:
        unfinished.write_text(f"half {1 / 0}")
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("file", "old")]


def test_a_full_disk_is_said_in_plain_words(tmp_path):
    message = "No space left on device; free some space"
    with pytest.raises(RunError, match=message), replacing(tmp_path / "file"):
        Path("/dev/full").write_bytes(b"x")


def test_a_folder_that_cannot_be_made_is_said_in_plain_words(tmp_path):
    (tmp_path / "file").write_text("")
    run = RunFolder(tmp_path / "file" / "run")
    with pytest.raises(RunError, match=r"cannot write .*study\.toml: Not a directory; a part"):
        run.create("", about())
    with pytest.raises(RunError, match=r"cannot write .*lock: "), run.lock():
        pass


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_a_forbidden_folder_is_said_in_plain_words(number):
    message = "choose a folder that you may write to"
    with pytest.raises(RunError, match=message), clear_errors(Path("runs")):
        raise OSError(number, os.strerror(number))


HOLD = """
import sys, time
from pathlib import Path
from polyclinic.runs import RunFolder
with RunFolder(Path(sys.argv[1])).lock():
    print("held", flush=True)
    time.sleep(300)
"""


def hold(folder):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder.path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_process_is_refused_by_name_of_the_first(folder):
    process = hold(folder)
    try:
        expected = f"run is in use by process {process.pid} on .* since 20.*--resume"
        with pytest.raises(RunError, match=expected), folder.lock():
            pass
    finally:
        process.kill()
        process.communicate()
    with folder.lock():
        assert str(os.getpid()) in (folder.path / "lock").read_text()
    assert (folder.path / "lock").read_text() == ""


def test_one_process_does_not_lock_twice(folder):
    mine = pytest.raises(RunError, match=f"process {os.getpid()}")
    with folder.lock(), mine, folder.lock():
        pass
    with folder.lock():
        pass


FORK = """
import os, sys, time
from pathlib import Path
from polyclinic.runs import RunFolder
with RunFolder(Path(sys.argv[1])).lock():
    child = os.fork()
    if child == 0:
        time.sleep(300)
        os._exit(0)
    print(child, flush=True)
    time.sleep(300)
"""


def test_a_lock_that_only_orphans_hold_is_taken_over(folder):
    process = subprocess.Popen(
        [sys.executable, "-c", FORK, str(folder.path)], stdout=subprocess.PIPE, text=True
    )
    orphan = int(process.stdout.readline())
    try:
        process.kill()
        process.wait()
        mine = pytest.raises(RunError, match=f"process {os.getpid()}")
        with folder.lock(), mine, folder.lock():
            pass
    finally:
        os.kill(orphan, signal.SIGKILL)
        process.communicate()


def test_an_unsigned_lock_still_refuses(folder):
    process = hold(folder)
    try:
        os.truncate(folder.path / "lock", 0)
        with pytest.raises(RunError, match="in use by another process"), folder.lock():
            pass
    finally:
        process.kill()
        process.communicate()


WRITE = """
import sys
from pathlib import Path
from polyclinic.runs import RoundLine, RunFolder
run = RunFolder(Path(sys.argv[1]))
for n in range(1, 10**6):
    run.append(RoundLine(round=n, stage="fit", site=s) for s in ("alpha", "beta"))
    print(n, flush=True)
"""


def test_a_kill_loses_no_round_that_was_written(folder):
    process = subprocess.Popen(
        [sys.executable, "-c", WRITE, str(folder.path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "1\n"
    time.sleep(0.2)
    process.kill()
    said = process.communicate()[0].split("\n")
    done = max([1, *(int(number) for number in said[:-1])])
    rounds = [line.round for line in folder.rounds()]
    assert rounds[: 2 * done] == [n for n in range(1, done + 1) for _ in range(2)]


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("FedAvg", "fedavg"),
        ("FedAvg + fine-tuning", "fedavg-fine-tuning"),
        ("FedProx (μ = 0.1)", "fedprox-μ-0.1"),
        ("../../etc", "etc"),
        (" a / b ", "a-b"),
    ],
)
def test_a_label_becomes_a_folder_name(title, name):
    assert slug(title) == name


def test_a_label_without_messages_is_refused():
    with pytest.raises(RunError, match="no letter or digit"):
        slug("+ / .")


@given(st.text(min_size=1))
def test_a_slug_is_one_folder_and_its_own_slug(title):
    try:
        name = slug(title)
    except RunError:
        return
    assert Path("x", name).parts == ("x", name)
    assert slug(name) == name


def test_a_run_lies_under_study_method_and_seed():
    assert run_path("runs", "My Study", "FedAvg", 3) == Path("runs/my-study/fedavg/seed-3")


def make(root, title, seed, started):
    run = RunFolder(run_path(root, "demo", title, seed))
    run.create("", about(title, seed, started))
    return run.path


def test_runs_are_found_by_run_method_or_study_folder_in_the_order_of_their_start(tmp_path):
    local = make(tmp_path, "Local", 0, "2026-01-01")
    ditto = make(tmp_path, "Ditto", 0, "2026-01-02")
    later = make(tmp_path, "Local", 1, "2026-01-03")
    assert find_runs([ditto]) == [ditto]
    assert find_runs([tmp_path / "demo" / "local"]) == [local, later]
    assert find_runs([tmp_path / "demo"]) == [local, ditto, later]
    assert find_runs([ditto, tmp_path / "demo", ditto]) == [ditto, local, later]


def test_a_broken_run_is_found_all_the_same(tmp_path):
    good = make(tmp_path, "Local", 0, "2026-01-01")
    bad = make(tmp_path, "Ditto", 0, "2026-01-02")
    (bad / "about.json").write_text("{")
    assert find_runs([tmp_path / "demo"]) == [good, bad]


def test_all_paths_without_a_run_are_named_at_once(tmp_path):
    with pytest.raises(
        RunError, match=r"holds no run; .*missing is not a folder; give run folders"
    ):
        find_runs([tmp_path, tmp_path / "missing"])
    with pytest.raises(RunError, match="no run was given"):
        find_runs([])


def test_what_a_killed_process_added_is_no_change(folder, caplog):
    folder.append(lines=[lined(1)])
    with (folder.path / "rounds.jsonl").open("a") as file:
        file.write(lined(2).model_dump_json() + "\n{")
    assert [line.round for line in folder.rounds()] == [1, 2]
    folder.append(lines=[lined(3)])
    assert [line.round for line in folder.rounds()] == [1, 2, 3]
    assert caplog.text == ""


@pytest.mark.parametrize("sums", ["", "{", "[]", '{"about.json": 3}', '{"about.json": ["x", 1]}'])
def test_sums_that_cannot_be_read_say_nothing(folder, caplog, sums):
    (folder.path / "sums.json").write_text(sums)
    assert folder.about() == about()
    assert caplog.text == ""
    folder.finish(Finished(chosen_round=1, seconds=1.0))
    assert "finished.json" in (folder.path / "sums.json").read_text()
