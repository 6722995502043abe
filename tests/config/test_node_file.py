from pathlib import Path

import pytest

from polyclinic.config import ConfigError
from polyclinic.config.node_file import load_node_file, split_address

SMALLEST = """
name = "north"
data = "data"
[server]
address = "fl.example.org:443"
ca = "certificates/ca.crt"
key = "keys/north"
"""


@pytest.fixture
def write(tmp_path):
    def to_file(text: str) -> Path:
        file = tmp_path / "node.toml"
        file.write_text(text)
        return file

    return to_file


def mistakes_of(file: Path, kinds=None) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        load_node_file(file, kinds)
    return {mistake.key: str(mistake) for mistake in caught.value.mistakes}


def test_paths_are_relative_to_the_file_wherever_one_stands(write, tmp_path, monkeypatch):
    file = write(SMALLEST)
    monkeypatch.chdir("/")
    site = load_node_file(file)
    assert site.data == tmp_path / "data"
    assert site.state == tmp_path / "state"
    assert site.server.ca == tmp_path / "certificates" / "ca.crt"
    assert site.server.key == tmp_path / "keys" / "north"


def test_absolute_and_home_paths_stay_what_they_are(write, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "elsewhere"))
    text = SMALLEST.replace('"data"', '"~/images"').replace('"keys/north"', '"/keys/north"')
    site = load_node_file(write(text))
    assert site.data == tmp_path / "elsewhere" / "images"
    assert site.server.key == Path("/keys/north")


def test_the_defaults_are_those_of_the_documentation(write):
    site = load_node_file(write(SMALLEST))
    assert (site.labels, site.device, site.threads, site.privacy) == (None, "auto", 0, None)
    assert site.server.host == "fl.example.org"
    assert site.allow.model_dump() == {
        "studies": (),
        "iterations": 1000,
        "epochs": 20,
        "parts": ("*",),
        "extras": ("*",),
        "disclose": False,
        "recipients": (),
        "methods": ("*",),
        "packages": (),
        "weights": (),
        "rounds": 1000,
        "batch": 4,
        "learning_rate": 0.1,
        "resolution": 1024,
        "augmentation": True,
        "network_millions": 50,
        "validations": 20,
        "scores": "mean",
        "cases": 5,
        "repeats": 10,
        "message_megabytes": 500,
    }


def test_a_full_file_is_read(write):
    site = load_node_file(
        write(
            'labels = "block"\ndevice = "cuda:1"\nthreads = 4\nstate = "/var/state"\n'
            + SMALLEST
            + '[allow]\nparts = ["encoder", "head"]\ncases = 20\n[privacy]\nclip = 1.0\nnoise = 0.5'
        ),
        kinds=["block"],
    )
    assert (site.labels, site.device, site.threads) == ("block", "cuda:1", 4)
    assert site.state == Path("/var/state")
    assert site.allow.parts == ("encoder", "head")
    assert site.privacy is not None
    assert (site.privacy.clip, site.privacy.noise, site.privacy.delta) == (1.0, 0.5, 1e-5)


def test_all_mistakes_are_told_at_once(write):
    found = mistakes_of(
        write(
            'nmae = "north"\ndata = ""\nlabels = "blok"\ndevice = "gpu"\n[server]\n'
            'address = "fl.example.org"\n[allow]\nepochs = 0\nparts = []\n'
            "[privacy]\nclip = -1\nnoise = -2"
        ),
        kinds=["block", "point"],
    )
    assert "did you mean name?" in found["nmae"]
    assert "is required" in found["name"]
    assert "must not be empty" in found["data"]
    assert "did you mean block?" in found["labels"]
    assert "must be auto, cpu, mps, cuda" in found["device"]
    assert "fl.example.org:443" in found["server.address"]
    assert "is required" in found["server.ca"]
    assert "is required" in found["server.key"]
    assert found.keys() >= {"allow.epochs", "allow.parts", "privacy.clip", "privacy.noise"}


@pytest.mark.parametrize(
    ("key", "meant"), [("message_megabytes", "allow.message_megabytes"), ("momentum", "")]
)
def test_a_setting_at_the_wrong_place_is_sent_to_its_section_of_this_file(write, key, meant):
    text = mistakes_of(write(f"{key} = 3\n{SMALLEST}"))[key]
    assert ("did you mean" in text) == bool(meant)
    assert f"did you mean {meant}?" in text or not meant


def test_a_settings_name_that_a_study_has_elsewhere_is_not_confused(write):
    assert "did you mean allow.epochs?" in mistakes_of(write(f"epochs = 3\n{SMALLEST}"))["epochs"]


def test_insecure_must_be_typed_and_needs_neither_authority_nor_key(write):
    text = 'name = "a"\ndata = "d"\n[server]\naddress = "127.0.0.1:8000"\ninsecure = true'
    server = load_node_file(write(text)).server
    assert (server.insecure, server.ca, server.key) == (True, None, None)


def test_a_file_that_is_not_there_names_the_one_that_is(write, tmp_path):
    write(SMALLEST)
    with pytest.raises(ConfigError, match=r"did you mean .*node\.toml"):
        load_node_file(tmp_path / "nodes.toml")


def test_tables_that_are_no_tables_are_told(write):
    found = mistakes_of(write('name = "a"\ndata = 3\nserver = "fl.example.org:443"'))
    assert "must be a table" in found["server"]
    assert "data" in found


@pytest.mark.parametrize("address", ["fl.example.org:443", "10.0.0.1:1", "[::1]:65535"])
def test_addresses_have_a_host_and_a_port(address):
    host, port = split_address(address)
    assert address in (f"{host}:{port}", f"[{host}]:{port}")


@pytest.mark.parametrize(
    "address", ["", "host", "host:", ":443", "host:0", "host:65536", "https://host:443", "a b:1"]
)
def test_what_is_no_address_is_refused(address):
    with pytest.raises(ValueError, match="a host and a port"):
        split_address(address)
