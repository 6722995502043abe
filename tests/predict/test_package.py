"""A package is read as it was written, or refused with words."""

import json
import zipfile

import pytest

from polyclinic.predict import PackageError, load
from polyclinic.predict.facts import FORMAT
from polyclinic.predict.package import read_package
from tests.predict.hand_made import hand_made, written


def changed(path, **files):
    """The archive with these files in place of its own; None takes one away."""
    with zipfile.ZipFile(path) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    contents |= {name.replace("_", "."): content for name, content in files.items()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in contents.items():
            if content is not None:
                archive.writestr(name, content)
    return path


def refusal(path, **asked) -> str:
    with pytest.raises(PackageError) as refused:
        read_package(path, **asked)
    return str(refused.value)


def test_a_package_is_read_as_it_was_written(tmp_path):
    path = written(tmp_path)
    package = read_package(path)
    assert package.facts == hand_made().facts
    assert package.contents == hand_made().contents
    model = load(path)
    assert model.task.name == "octa"
    assert model.card.startswith("# bright is faz")
    assert "What it must not be used for" in model.card


def test_the_same_content_is_the_same_file(tmp_path):
    first = written(tmp_path).read_bytes()
    assert written(tmp_path).read_bytes() == first
    assert hand_made().content_hash != hand_made(title="another").content_hash


def test_a_changed_file_is_refused_by_its_name(tmp_path):
    assert "card.md is not as it was written" in refusal(changed(written(tmp_path), card_md=b"no"))


def test_a_missing_or_added_file_is_refused(tmp_path):
    assert "differs in card.md" in refusal(changed(written(tmp_path), card_md=None))
    assert "differs in more.bin" in refusal(changed(written(tmp_path), more_bin=b"?"))


def test_a_torn_file_is_refused(tmp_path):
    path = written(tmp_path)
    path.write_bytes(path.read_bytes()[:-200])
    assert "is no model package" in refusal(path)


def test_other_files_are_refused(tmp_path):
    other = tmp_path / "other.zip"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("a.txt", "b")
    assert "lacks contents.json" in refusal(other)
    assert "there is no file" in refusal(tmp_path / "missing.polyclinic")


def test_a_newer_format_is_refused_with_the_version_to_install(tmp_path):
    path = written(tmp_path, format=FORMAT + 1, versions={"polyclinic": "9.1"})
    told = refusal(path)
    assert "Polyclinic 9.1" in told
    assert "install the newer version" in told


def test_another_tasks_package_is_refused(tmp_path):
    told = refusal(written(tmp_path), task="fundus")
    assert "a model for the task octa, not for fundus" in told
    assert read_package(written(tmp_path), task="octa")


def test_facts_that_make_no_sense_are_all_named(tmp_path):
    path = written(tmp_path)
    package = read_package(path)
    table = json.loads(package.facts.model_dump_json())
    del table["made"], table["title"]
    content = json.dumps(table).encode()

    class Odd(type(package)):
        def _files(self):
            return {**super()._files(), "model.json": content}

    Odd(package.facts, package.contents).write(path)
    assert "title: Field required; made: Field required" in refusal(path)


def test_a_graph_that_cannot_run_is_refused(tmp_path):
    package = hand_made()
    package.contents["model.onnx"] = b"no graph"
    package.write(tmp_path / "m.polyclinic")
    with pytest.raises(PackageError, match="onnxruntime cannot run this model"):
        load(tmp_path / "m.polyclinic")
