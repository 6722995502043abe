import pytest

import polyclinic as pc
from polyclinic.data.errors import DataError
from tests.data.folders import write_site

CELLS = {"name": "cells", "classes": ["background", "wall", "core"], "resolution": 32}


def test_a_site_is_loaded_as_a_study_would_see_it(tmp_path):
    write_site(tmp_path / "north")
    site = pc.load_site(tmp_path / "north", task=CELLS)
    assert (site.name, site.kind) == ("north", "mask")
    assert len(site.train) > 0
    assert site.train.images.shape[1:] == (1, 32, 32)
    smaller = pc.load_site(tmp_path / "north", "fundus", labels="point", resolution=16)
    assert (smaller.kind, smaller.train.images.shape[2]) == ("point", 16)
    assert not list((tmp_path / "north").glob("*.csv"))


def test_the_task_is_the_one_that_the_site_names(tmp_path):
    write_site(tmp_path / "north")
    with pytest.raises(pc.ConfigError, match="task: is required"):
        pc.load_site(tmp_path / "north")
    (tmp_path / "north" / "site.toml").write_text('task = "fundus"\n')
    assert pc.load_site(tmp_path / "north").train.images.shape[1:] == (3, 384, 384)


def test_mistakes_of_the_task_and_of_the_files_are_told(tmp_path):
    write_site(tmp_path / "north")
    with pytest.raises(pc.ConfigError, match=r"task\.clases.*did you mean classes"):
        pc.load_site(tmp_path / "north", {"name": "octa", "clases": ["a", "b"]})
    (tmp_path / "north" / "images" / "broken.png").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"broken\.png"):
        pc.load_site(tmp_path / "north", "fundus")


def test_a_task_of_ones_own_may_be_a_file_as_on_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_site(tmp_path / "north")
    file = tmp_path / "cells.task.toml"
    file.write_text('classes = ["background", "wall", "core"]\nresolution = 32\n')
    for given in ("cells.task.toml", file):
        assert pc.load_site("north", given).train.images.shape[1:] == (1, 32, 32)
    assert pc.load_site("north", "cells.task.toml", resolution=16).train.images.shape[2] == 16
    file.rename(tmp_path / "north" / "cells.task.toml")  # site.toml names a file beside itself
    (tmp_path / "north" / "site.toml").write_text('task = "cells.task.toml"\n')
    assert pc.load_site("north").train.images.shape[1:] == (1, 32, 32)
    with pytest.raises(pc.ConfigError, match=r"task\.file = \"cell\.task\.toml\""):
        pc.load_site("north", "cell.task.toml")
