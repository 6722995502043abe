"""Messages that may leave a site: without its paths and without the names of its cases."""

import re
from pathlib import Path

from polyclinic.config.node_file import NodeFile

LONGEST = 2000  # characters


class DataRefusal(ValueError):
    """The site's data cannot be used; the reason names files, so it stays in the site's log."""

    refuses = "data"


def code_of(error: Exception) -> str:
    """What sort of refusal an error becomes: its class says, others are mistakes or failures."""
    usual = "settings" if isinstance(error, ValueError) else "failure"
    return str(getattr(error, "refuses", usual))


def refusal(error: Exception, code: str, site: NodeFile) -> str:
    """What may be told of an error: the words of a refusal, of anything else only its kind.

    What went wrong with files, or in other people's code, may name cases in ways nobody thought of.
    """
    if isinstance(error, DataRefusal):
        return f"its data cannot be used; the log of the site says why under the code {code}"
    if isinstance(error, ValueError):
        return scrubbed(str(error), site)
    kind = type(error).__name__
    return f"its program failed ({kind}); the log of the site says why under the code {code}"


def scrubbed(text: str, site: NodeFile) -> str:
    """The text with everything taken out that names a file, a folder or a case of the site."""
    for folder in (site.data, site.state):
        text = re.sub(rf"{re.escape(str(folder))}[^\s:;,'\"]*", "<path>", text)
    text = re.sub(r"(?<![\w>])(~|[A-Za-z]:)?[/\\][^\s:;,'\"]+", "<path>", text)
    for name in sorted(_case_names(site.data), key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(name)}(\.\w+)*(?!\w)", "<case>", text)
    return text[:LONGEST]


def _case_names(folder: Path) -> set[str]:
    """What cases and patients are called: files, folders of files, and what a table names."""
    names = set()
    for file in folder.rglob("*"):
        if file.parent not in (folder, folder / "labels"):  # else a part's, or a kind's
            names |= {file.name, file.name.split(".")[0]}
        if file.name == "cases.csv":
            cells = re.split(r"[,\n\r]+", file.read_text("utf-8", errors="replace"))
            names |= {cell.strip() for cell in cells if len(cell.strip()) > 1}
    return names - {"train", "val", "test", "case", "patient", "split", ""}
