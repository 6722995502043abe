from pathlib import Path

import pytest

from polyclinic.config import ConfigError
from polyclinic.config.coordinator_file import load_coordinator_file

WHOLE = """
port = 9000
[certificates]
ca = "certificates/ca.crt"
certificate = "certificates/server.crt"
key = "certificates/server.key"
[keys]
north = "public-keys/north.pub"
"St. Mary's" = "/keys/mary.pub"
"""


def load(folder: Path, text: str):
    file = folder / "coordinator.toml"
    file.write_text(text)
    return load_coordinator_file(file)


def test_a_whole_file_is_read_with_its_paths_beside_it(tmp_path):
    read = load(tmp_path, WHOLE)
    assert (read.host, read.port, read.insecure) == ("127.0.0.1", 9000, False)
    assert read.state == tmp_path / "state"
    assert read.certificates is not None
    assert read.certificates.key == tmp_path / "certificates" / "server.key"
    assert read.keys == {
        "north": tmp_path / "public-keys" / "north.pub",
        "St. Mary's": Path("/keys/mary.pub"),
    }


def test_all_mistakes_are_told_at_once(tmp_path):
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, 'prot = 9\nport = 0\n[keys]\n"a/b" = "x.pub"\nc = ""\n')
    text = str(caught.value)
    assert "did you mean port?" in text
    assert "certificates: is required" in text
    assert {"port", "keys.c"} <= {mistake.key for mistake in caught.value.mistakes}
    assert "becomes the name of a folder" in text


def test_an_insecure_coordinator_needs_no_certificates(tmp_path):
    read = load(tmp_path, "insecure = true")
    assert (read.insecure, read.certificates, read.keys) == (True, None, {})


def test_keys_that_are_no_table_are_told(tmp_path):
    with pytest.raises(ConfigError, match="keys = 3: must be a table"):
        load(tmp_path, "insecure = true\nkeys = 3")
