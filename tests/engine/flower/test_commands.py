import os
import subprocess
import tomllib
from pathlib import Path

import pytest

from polyclinic.config.coordinator_file import ServerCertificates
from polyclinic.config.node_file import ServerAddress
from polyclinic.engine.flower import commands

CERTIFICATES = ServerCertificates(
    ca=Path("ca.crt"), certificate=Path("server.crt"), key=Path("server.key")
)
SECURE = ServerAddress(address="fl.example.org:443", ca=Path("ca.crt"), key=Path("north"))


def test_a_superlink_encrypts_and_asks_who_calls_unless_it_is_insecure():
    secure = commands.superlink("127.0.0.1", 8000, Path("x.db"), CERTIFICATES)
    assert "--enable-supernode-auth" in secure
    assert "--insecure" not in secure
    open_ = commands.superlink("127.0.0.1", 8000, Path("x.db"), None)
    assert "--insecure" in open_
    assert "--disable-runtime-dependency-installation" in secure
    assert "--disable-runtime-dependency-installation" in open_


def test_a_supernode_has_its_key_and_the_authority_unless_it_is_insecure():
    secure = commands.supernode("north", SECURE, 9094)
    assert secure[-4:] == (
        *("--root-certificates", "ca.crt"),
        *("--auth-supernode-private-key", "north"),
    )
    insecure = ServerAddress(address="127.0.0.1:8000", insecure=True)
    assert commands.supernode("north", insecure, 9094)[-1] == "--insecure"


def test_nothing_is_reported_home_and_nothing_installed(monkeypatch):
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "1")
    given = commands.environment(Path("home"))
    assert given["FLWR_TELEMETRY_ENABLED"] == "0"
    assert given["FLWR_DISABLE_UPDATE_CHECK"] == "1"
    assert given["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1"
    assert given["FLWR_HOME"] == "home"


def test_flowers_programs_are_found_even_without_a_path(monkeypatch):
    monkeypatch.delenv("PATH")
    first = commands.environment(Path("home"))["PATH"].split(os.pathsep)[0]
    assert (Path(first) / "flower-superexec").exists()


def test_what_runs_on_this_machine_is_never_asked_through_a_proxy(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "example.org")
    given = commands.environment(Path("home"))
    assert given["NO_PROXY"] == given["no_proxy"] == "example.org,localhost,127.0.0.1,::1"


@pytest.mark.slow  # a real federation shows it of all but --insecure
def test_every_option_that_we_use_is_known_to_the_installed_flower(tmp_path):
    """Flower's own parser is asked, because its options change from release to release."""
    asked = {
        commands.superlink("127.0.0.1", 1, tmp_path / "x", CERTIFICATES),
        commands.superlink("127.0.0.1", 1, tmp_path / "x", None),
        commands.supernode("north", SECURE, 1),
    }
    helps = {}
    for command in asked:
        if command[0] not in helps:
            done = subprocess.run(
                [command[0], "--help"],
                env=commands.environment(tmp_path),
                capture_output=True,
                text=True,
            )
            helps[command[0]] = done.stdout
        assert all(word in helps[command[0]] for word in command if word.startswith("--"))


@pytest.mark.parametrize(("found", "text"), [("1.40.3", "never tried"), ("2.41.0", "never tried")])
def test_an_untried_flower_is_refused(monkeypatch, found, text):
    monkeypatch.setattr(commands, "version", lambda _: found)
    with pytest.raises(ValueError, match=text):
        commands.refuse_untried()


def test_a_missing_flower_is_named_with_the_remedy(monkeypatch):
    def missing(_: str) -> str:
        raise commands.PackageNotFoundError

    monkeypatch.setattr(commands, "version", missing)
    with pytest.raises(ValueError, match=r"not installed; install polyclinic\[flower\]"):
        commands.refuse_untried()


def test_settings_of_a_run_survive_as_toml(tmp_path):
    settings = {"study": 'a "b" = c', "round": 3, "resume": True}
    command = commands.run(tmp_path, settings)
    given = [command[place + 1] for place, word in enumerate(command) if word == "--run-config"]
    assert {key: value for text in given for key, value in tomllib.loads(text).items()} == settings


def test_the_other_commands_name_the_coordinator_and_answer_in_json():
    for command in (
        commands.register(Path("north.pub"), "north"),
        commands.sites(),
    ):
        assert commands.CONNECTION in command
        assert command[-2:] == ("--format", "json")


def test_flowers_config_names_the_address_and_the_authority(tmp_path):
    file = commands.write_connection(tmp_path / "home", "127.0.0.1:8000", Path("/x/ca.crt"))
    read = tomllib.loads(file.read_text())["superlink"]
    assert read[read["default"]] == {"address": "127.0.0.1:8000", "root-certificates": "/x/ca.crt"}
    file = commands.write_connection(tmp_path / "home", "127.0.0.1:8000", None)
    assert tomllib.loads(file.read_text())["superlink"]["coordinator"]["insecure"] is True
