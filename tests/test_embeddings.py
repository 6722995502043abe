"""The file of embeddings in a run folder."""

import numpy as np
import pytest

from polyclinic.runs import (
    MAP_KINDS,
    Embedded,
    RunError,
    RunFolder,
    read_embeddings,
    write_embeddings,
)


def tables(pixels=5, channels=3):
    rng = np.random.default_rng(0)
    classes = np.arange(pixels) % 2
    return [
        Embedded(moment, classes, rng.normal(size=(pixels, channels)))
        for moment in ("before", "after")
    ]


def test_what_is_written_is_read_to_five_digits(tmp_path):
    path = tmp_path / "inside" / "alpha.csv"
    write_embeddings(path, tables())
    for mine, read in zip(tables(), read_embeddings(path), strict=True):
        assert mine.moment == read.moment
        assert np.array_equal(mine.classes, read.classes)
        np.testing.assert_allclose(read.values, mine.values, rtol=1e-4)


def test_any_tool_can_read_it(tmp_path):
    path = tmp_path / "alpha.csv"
    write_embeddings(path, tables())
    lines = path.read_text().splitlines()
    assert lines[0] == "moment,class,0,1,2"
    assert len(lines) == 1 + 2 * 5
    assert lines[1].startswith("before,0,")


def test_no_file_and_no_pixels_are_no_embeddings(tmp_path):
    assert read_embeddings(tmp_path / "nothing.csv") == []
    write_embeddings(tmp_path / "empty.csv", tables(pixels=0))
    assert read_embeddings(tmp_path / "empty.csv") == []


@pytest.mark.parametrize(
    "text",
    ["a,b\nbefore,1\n", "moment,class,0\nbefore,0,x\n", "moment,class,0,1\nbefore,0,1\n"],
)
def test_a_broken_file_is_named(tmp_path, text):
    path = tmp_path / "broken.csv"
    path.write_text(text)
    with pytest.raises(RunError, match=r"broken.csv holds no embeddings"):
        read_embeddings(path)


def test_pictures_of_attention_are_found_case_by_case(tmp_path):
    run = RunFolder(tmp_path)
    for case in ("b", "a/1"):
        for name in ("own query", "../other"):
            path = run.attention_path("alpha", name, case)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"")
            assert path.is_relative_to(tmp_path / "attention" / "alpha")
            assert path.resolve().is_relative_to(tmp_path.resolve())
    found = run.attention_pictures("alpha")
    assert [each.case for each in found] == ["a-1", "a-1", "b", "b"]
    assert {each.name for each in found} == {"own query", "-other"}
    assert run.attention_pictures("beta") == []


def test_a_map_is_found_as_what_it_shows(tmp_path):
    run = RunFolder(tmp_path)
    paths = [run.attention_path("alpha", kind, "a", kind) for kind in MAP_KINDS]
    for path in (*paths, paths[0].with_name("classes.png")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    found = {(each.shows, each.name) for each in run.attention_pictures("alpha")}
    # Without a kind it is of a run before there were kinds.
    assert found == {*zip(MAP_KINDS, MAP_KINDS, strict=True), ("attention", "classes")}
