import json
import shutil
from pathlib import Path

import pytest

from polyclinic.catalog import BUILT_IN, installed
from polyclinic.config.node_file import NodeFile, load_node_file
from polyclinic.data.tasks import PRESETS
from polyclinic.engine.flower import commands
from polyclinic.engine.flower.deploy import own_side
from polyclinic.engine.flower.deploy.certificates import (
    Authority,
    make_authority,
    make_certificate,
)
from polyclinic.engine.flower.deploy.checks import check_site
from polyclinic.engine.flower.deploy.folder import Deployment
from polyclinic.engine.flower.deploy.keys import make_key
from tests.data.folders import write_labels, write_site
from tests.engine.flower.deploy.loopback import deployed
from tests.engine.flower.deploy.stand_in import stand_in

ALL = [
    *("versions", "quiet", "key", "authority", "disk", "server", "certificate", "clock"),
    *("control interface", "same versions", "task", "permissions", "known", "data"),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Deployment:
    folder = tmp_path_factory.mktemp("checked")
    deployment = deployed(folder, "127.0.0.1:1")
    write_site(deployment.site("north") / "data", cases=6)
    return deployment


@pytest.fixture
def coordinator(made):
    with stand_in(made.coordinator / "certificates") as answers:
        answers.published = (made.coordinator / "published" / "study.json").read_bytes()
        yield answers


@pytest.fixture
def folder(made, tmp_path, coordinator) -> Path:
    """The folder of the site north, as its hospital has it."""
    shutil.copytree(made.site("north"), tmp_path / "north")
    file = tmp_path / "north" / "node.toml"
    file.write_text(file.read_text().replace("127.0.0.1:1", f"127.0.0.1:{coordinator.port}"))
    return file.parent


def changed(folder: Path, before: str, after: str) -> None:
    file = folder / "node.toml"
    assert before in file.read_text()
    file.write_text(file.read_text().replace(before, after))


def site_in(folder: Path) -> NodeFile:
    return load_node_file(folder / "node.toml")


def wrong(folder: Path) -> dict[str, str]:
    """What is wrong, by what it is about; the line says what to do."""
    return {
        each.about: str(each) for each in check_site(site_in(folder), BUILT_IN) if not each.good
    }


def test_a_sound_site_gets_a_tick_for_every_check(folder):
    findings = list(check_site(site_in(folder), BUILT_IN))
    assert [finding.about for finding in findings] == ALL
    assert [str(each) for each in findings if not each.good] == []
    assert all(str(each).startswith("✓ ") for each in findings)


def test_a_wrong_line_says_what_to_do(folder, coordinator):
    coordinator.control = 200
    line = wrong(folder)["control interface"]
    assert line.startswith("✗ control interface: /v1/control/ answers with 200")
    assert "\n    → do not start" in line


@pytest.mark.parametrize(
    ("late", "good"), [(2.5, True), (-280, True), (6, False), (-310, False), (3600, False)]
)
def test_the_clock_may_differ_as_much_as_flower_bears(folder, coordinator, late, good):
    coordinator.late = late
    assert ("clock" not in wrong(folder)) == good


def test_a_server_that_does_not_tell_the_time_is_told(folder, coordinator):
    coordinator.dated = False
    assert "does not say what time it is" in wrong(folder)["clock"]


def test_a_site_learns_whether_the_coordinator_knows_its_key(folder, coordinator):
    (folder / "keys" / "north").unlink()
    make_key(folder / "keys" / "north")
    line = wrong(folder)["known"]
    assert line.startswith("✗ known: the coordinator does not know this site's key (SHA256:")
    assert f"→ send {folder / 'keys' / 'north.pub'} to the coordinator" in line
    older = json.loads(coordinator.published)
    del older["keys"]
    coordinator.published = json.dumps(older).encode()
    lines = [str(each) for each in check_site(site_in(folder), BUILT_IN) if each.about == "known"]
    assert lines == ["✓ known: not told: the coordinator does not publish the keys it knows"]


def test_a_key_that_others_can_read_is_told_with_the_remedy(folder):
    (folder / "keys" / "north").chmod(0o644)
    assert f"chmod 600 {folder / 'keys' / 'north'}" in wrong(folder)["key"]


def test_a_missing_key_is_made_at_the_hospital(folder):
    (folder / "keys" / "north").unlink()
    assert f"polyclinic deploy key {folder / 'keys' / 'north'}" in wrong(folder)["key"]


def test_a_file_that_is_no_key_is_told(folder):
    (folder / "keys" / "north").write_text("nothing")
    assert "no key in OpenSSH's format" in wrong(folder)["key"]


def test_a_missing_authority_is_told_twice_where_it_matters(folder):
    (folder / "certificates" / "ca.crt").unlink()
    found = wrong(folder)
    assert "ca.crt" in found["authority"]
    assert "cannot use the authority" in found["server"]


def test_another_authority_is_not_trusted(folder, tmp_path):
    other = Authority(folder / "certificates" / "ca.crt", tmp_path / "ca.key")
    make_authority(other, "others")
    line = wrong(folder)["server"]
    assert "certificate is refused" in line
    assert "TLS inspection" in line


def served_by(made: Deployment, folder: Path, hosts: list[str], days: int):
    """A stand-in with a certificate of the consortium for these hosts and days."""
    target = folder / "other"
    make_certificate(made.authority, target / "server.crt", target / "server.key", hosts, days)
    return stand_in(target)


def test_a_certificate_that_soon_ends_is_told(made, folder, tmp_path, coordinator):
    with served_by(made, tmp_path, ["127.0.0.1"], 10) as other:
        other.published = coordinator.published
        changed(folder, str(coordinator.port), str(other.port))
        line = wrong(folder)["certificate"]
    assert "for localhost, 127.0.0.1" in line
    assert "deploy init` again" in line


def test_a_certificate_for_another_name_is_refused(made, folder, coordinator):
    with stand_in(made.coordinator / "certificates", "127.0.0.2") as other:
        changed(folder, f"127.0.0.1:{coordinator.port}", f"127.0.0.2:{other.port}")
        line = wrong(folder)["server"]
    assert "IP address mismatch" in line
    assert "make a certificate for this name" in line


def test_a_closed_port_is_a_matter_of_the_firewall(folder, coordinator):
    changed(folder, f":{coordinator.port}", ":9")
    assert "allow outgoing TCP to 127.0.0.1:9" in wrong(folder)["server"]


def test_a_server_that_publishes_nothing_is_told(folder, coordinator):
    coordinator.status = 404
    found = wrong(folder)
    assert "does not publish /polyclinic/study.json (answer 404)" in found["study"]
    assert "say for which task" in found["data"]


def test_an_answer_of_something_else_is_told(folder, coordinator):
    coordinator.published = b"<html>welcome</html>"
    assert "not what a coordinator of Polyclinic publishes" in wrong(folder)["study"]


def test_other_versions_tasks_and_classes_are_told(folder, coordinator):
    told = json.loads(coordinator.published)
    coordinator.published = json.dumps(told | {"polyclinic": "9.9", "flower": "2.0"}).encode()
    assert "at the coordinator Polyclinic 9.9, Flower 2.0" in wrong(folder)["same versions"]
    classes = ["background", "disc"]
    disc = {"name": "fundus", "channels": 3, "classes": classes}
    changed = {"classes": classes, "definition": disc}
    coordinator.published = json.dumps(told | changed).encode()
    assert (
        "here its classes are background, rim, cup, not background, disc" in wrong(folder)["task"]
    )
    assert "its regions are disc (1, 2), cup (2), not disc (1)" in wrong(folder)["task"]
    coordinator.published = json.dumps(told | {"classes": classes}).encode()
    assert "its definition is of another task" in wrong(folder)["task"]
    coordinator.published = json.dumps(told | {"definition": {"name": "fundus"}}).encode()
    assert "its definition is wrong" in wrong(folder)["task"]
    coordinator.published = json.dumps(told | {"task": "knee", "definition": None}).encode()
    assert "not known here" in wrong(folder)["task"]


def test_a_package_that_the_study_needs_must_be_here_and_allowed(coordinator, folder):
    told = json.loads(coordinator.published) | {"packages": {"fed-mine": "1.2"}}
    coordinator.published = json.dumps(told).encode()
    found = wrong(folder)
    assert "fed-mine is missing, at the coordinator Polyclinic" in found["same versions"]
    assert "code of the package fed-mine is not allowed" in found["permissions"]


def test_a_task_that_only_the_coordinator_knows_comes_with_its_definition(coordinator, folder):
    (folder / "data" / "site.toml").write_text('task = "eye"')
    eye = {"name": "eye", "channels": 3, "classes": ["background", "rim", "cup"]}
    needed = {"task": "eye", "classes": eye["classes"], "definition": eye}
    coordinator.published = json.dumps(json.loads(coordinator.published) | needed).encode()
    found = {each.about: each for each in check_site(site_in(folder), installed())}

    assert "eye: background, rim, cup; defined by the coordinator" in str(found["task"])
    assert found["task"].good
    assert found["data"].good


def test_a_hospital_that_has_the_file_of_another_task_is_told(coordinator, folder):
    (folder / "data" / "site.toml").write_text('task = "fundus.task.toml"')
    own = 'channels = 3\nclasses = ["background", "disc", "cup"]\n'
    (folder / "data" / "fundus.task.toml").write_text(own)

    told = wrong(folder)["data"]
    assert "knows another task fundus: its classes are background, disc, cup, not" in told


def test_a_hospital_whose_task_file_prepares_images_otherwise_is_told(folder):
    (folder / "data" / "site.toml").write_text('task = "fundus.task.toml"\nfit = "crop"\n')
    preset = (PRESETS / "fundus.task.toml").read_text()
    (folder / "data" / "fundus.task.toml").write_text(
        f'{preset}\nfit = "pad"\nnormalisation = "percentile"\n'
    )
    found = {each.about: each for each in check_site(site_in(folder), BUILT_IN)}

    assert found["data"].good
    told = str(found["data"])
    assert "images are prepared otherwise than fundus.task.toml says" in told
    assert 'normalisation "minmax", not "percentile"' in told
    assert 'to keep its own way write normalisation = "percentile" into site.toml' in told
    assert "fit " not in told  # as site.toml says, in any study


def test_data_of_another_task_are_told(folder):
    (folder / "data" / "site.toml").write_text('task = "polyp"')
    assert "is for the task polyp, not fundus" in wrong(folder)["data"]


def test_a_task_that_nobody_names_is_asked_for_in_site_toml(folder, coordinator):
    assert "data" not in wrong(folder)  # the server's study tells it
    changed(folder, f"127.0.0.1:{coordinator.port}", "127.0.0.1:1")
    for text in ("", 'task = "fundsu"'):
        (folder / "data" / "site.toml").write_text(text)
        line = wrong(folder)["data"]
        assert f'task = "fundus" into {folder / "data" / "site.toml"}' in line
        assert "node.toml" not in line
    (folder / "data" / "site.toml").write_text('task = "fundus"')
    assert "data" not in wrong(folder)


def test_a_study_that_asks_for_more_than_is_allowed_is_told(folder, coordinator):
    changed(folder, "iterations = 1000", "iterations = 19")
    changed(folder, 'methods = ["fedavg", "fedbn"]', 'methods = ["fedb*"]')
    line = wrong(folder)["permissions"]
    assert "method fedavg is not among those allowed (fedb*)" in line
    assert "training.iterations = 20 is more than the 19 allowed" in line
    told = json.loads(coordinator.published) | {"budgets": {"finetune.epochs": 21}}
    coordinator.published = json.dumps(told).encode()
    assert "finetune.epochs = 21 is more than the 20 allowed" in wrong(folder)["permissions"]


def test_data_are_checked_like_polyclinic_data_check(folder):
    (folder / "data" / "masks" / "00.png").write_bytes(b"broken")
    line = wrong(folder)["data"]
    assert "masks/00.png" in line
    assert f"polyclinic data check {folder / 'data'} --task fundus" in line


def test_data_that_are_not_there_or_too_few_or_of_several_sites_are_told(folder):
    changed(folder, "cases = 5", "cases = 7")
    assert "allow.cases asks for 7" in wrong(folder)["data"]
    changed(folder, 'data = "data"', 'data = "elsewhere"')
    assert "there is no folder" in wrong(folder)["data"]
    for name in ("a", "b"):
        shutil.copytree(folder / "data", folder / "elsewhere" / name)
    assert "holds several sites: a, b" in wrong(folder)["data"]


def test_the_labels_that_the_site_says_it_trains_on_must_be_there(folder):
    write_labels(folder / "data", "block", only=4)
    changed(folder, "device =", 'labels = "block"\ndevice =')
    assert "no block label for 04, 05" in wrong(folder)["data"]
    write_labels(folder / "data", "block")
    assert "data" not in wrong(folder)


def test_a_full_disk_is_told(folder):
    changed(folder, "message_megabytes = 500", "message_megabytes = 5e9")
    assert "GB needed" in wrong(folder)["disk"]


def test_a_state_that_is_no_folder_is_told(folder):
    (folder / "state").write_text("a file")
    assert "cannot be written to" in wrong(folder)["disk"]


def test_an_unencrypted_site_is_told_and_still_checked(folder, coordinator):
    with stand_in(None) as other:
        other.published = coordinator.published
        (folder / "node.toml").write_text(
            'name = "north"\ndata = "data"\n[server]\ninsecure = true\n'
            f'address = "127.0.0.1:{other.port}"'
        )
        found = wrong(folder)
    assert list(found) == ["encryption"]
    assert "messages travel open" in found["encryption"]


def test_an_unknown_flower_is_told(folder, monkeypatch):
    monkeypatch.setattr(commands, "RELEASES", ("0.9",))
    assert "which was never tried" in wrong(folder)["versions"]


def test_a_flower_that_would_talk_is_told(folder, monkeypatch):
    loud = (*commands.SUPERNODE, "--allow-runtime-dependency-installation")
    monkeypatch.setattr(commands, "SUPERNODE", loud)
    assert "not off: --allow-runtime" in wrong(folder)["quiet"]


def test_a_certificate_from_the_future_blames_the_clock(made, monkeypatch):
    certificate = own_side.read_certificate(made.authority.certificate)

    class Early:
        not_valid_before_utc = certificate.not_valid_after_utc
        not_valid_after_utc = certificate.not_valid_after_utc

    assert own_side.validity("authority", Early()).advice == "set the clock"  # type: ignore[arg-type]
