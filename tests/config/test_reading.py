import tomllib

import pytest

from polyclinic.config.mistakes import ConfigError
from polyclinic.config.reading import parsed_toml, read_toml

HOSTILE = {
    "nested too deeply": "a = " + "[" * 5000,
    "line 2 has a key of more than 100 parts": "b = 1\n" + ".".join("a" * 30_000) + " = 1",
    "line 1 has a key": "[" + ".".join("a" * 30_000) + "]",
    "longer than 1,048,576 characters": "#" * 2**20 + "\n",
}


@pytest.mark.parametrize("words", HOSTILE)
def test_files_that_would_take_ages_are_refused_at_once(tmp_path, words):
    with pytest.raises(tomllib.TOMLDecodeError, match=words):
        parsed_toml(HOSTILE[words])
    (tmp_path / "study.toml").write_text(HOSTILE[words])
    with pytest.raises(ConfigError, match=words):
        read_toml(tmp_path / "study.toml")


def test_dots_in_words_and_remarks_are_no_key():
    text = f'# {"." * 200}\nname = "a.b.c" # {"." * 50}\n[a.b]\nc.d = 1.5\n'

    assert parsed_toml(text) == {"name": "a.b.c", "a": {"b": {"c": {"d": 1.5}}}}
