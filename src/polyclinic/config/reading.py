"""Reads TOML files, and says why one cannot be read."""

import tomllib
from pathlib import Path
from typing import Any

from polyclinic.config.mistakes import ConfigError, Mistake, nearest


def read_toml(file: Path) -> dict[str, Any]:
    """The content of a TOML file; ConfigError says why it cannot be read."""
    content = b""
    try:
        content = file.read_bytes()
        return tomllib.loads(content.decode("utf-8-sig"))
    except OSError as error:
        near = nearest(file.name, [other.name for other in file.parent.glob("*.toml")])
        meant = str(file.with_name(near)) if near else ""
        reason = (error.strerror or str(error)).lower()
        mistake = Mistake("the file", f"cannot be read: {reason}", meant=meant)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        mistake = Mistake(f"line {line}", "is not UTF-8 text")
    except tomllib.TOMLDecodeError as error:
        mistake = Mistake("the file", f"is not valid TOML: {error}")
    raise ConfigError(file, [mistake])
