"""The lines for site.toml that would explain values or colours which stand for no class.

They are proposed to a person, who knows what was drawn; nothing is read by them on its own.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from polyclinic.config.printing import literal
from polyclinic.data.case_reading import Content
from polyclinic.data.code_tables import SOFT, TRANSPARENT
from polyclinic.data.coding import NOTHING
from polyclinic.data.errors import Findings
from polyclinic.data.tasks import Task
from polyclinic.masks import UNLABELLED

HANDFUL = 12  # codes that someone may have chosen; more come from smoothing or from JPEG
COMMON = 0.02  # the share of the drawn pixels that a stroke's colour has at least
UNDRAWN = (str(UNLABELLED), TRANSPARENT)  # what strokes leave free
PAGE = "docs/data.md, Masks with other values or colours"


def note_contents(contents: Sequence[Content], task: Task, mistakes: Findings) -> None:
    """Add what is wrong with the files of a site, and what to write where that would mend it."""
    for content in contents:
        for file, text in content.mistakes:
            mistakes.add(text, file)
    kinds = dict.fromkeys(kind for content in contents for kind in content.seen)
    for kind in kinds:
        seen = [content.seen[kind] for content in contents if kind in content.seen]
        files = [
            each
            for each in contents
            if (each.case.mask if kind == "mask" else kind in each.case.labels)
        ]
        # A stray value in a few files is their mistake, and no other way to write classes.
        if len(seen) * 2 >= len(files):
            mistakes.add(proposal(kind, sum(seen, Counter[str]()), task))


def proposal(kind: str, seen: Counter[str], task: Task) -> str:
    """What to write into site.toml about masks or a kind of label with these codes."""
    files = "masks" if kind == "mask" else f"{kind} labels"
    if kind != "mask":
        drawn = seen.total() - sum(seen[code] for code in (*UNDRAWN, SOFT))
        kept = {code: n for code, n in seen.items() if n >= COMMON * drawn and code != SOFT}
        seen = Counter(kept)
    codes = [code for code, _ in seen.most_common()]
    if len(codes) > HANDFUL or not codes or SOFT in codes:
        return (
            f"its {files} have too many values or colours to be classes: they were smoothed, or "
            f"saved as JPEG; save them as PNG without smoothing ({PAGE})"
        )
    found = ", ".join(sorted(codes, key=_order))
    lines = "\n      or\n    ".join(dict.fromkeys(_lines(kind, codes, task)))
    return (
        f"its {files} have {found}; after a look at one of them, say in site.toml what these stand "
        f"for ({PAGE}), such as:\n    {lines}"
    )


def _lines(kind: str, codes: Sequence[str], task: Task) -> Iterator[str]:
    """One line where there are as many codes as classes, else one for each region."""
    classes, label = list(task.classes), kind != "mask"
    key = "colours" if any(not code.isdecimal() for code in codes) else "values"
    key = f"weak.{key}" if label else key
    rest = list(codes)
    nothing = next((code for code in UNDRAWN if label and code in rest), None)
    if nothing:
        rest.remove(nothing)
    # Background is what most pixels are, but 0 where there are only two values.
    if len(rest) == 2 and "0" in rest:
        rest.sort(key="0".__ne__)
    unlabelled: dict[str, str | list[str]] = {nothing: NOTHING} if nothing else {}
    if len(rest) == 2 < len(classes) and not label:
        for region in task.regions.values():
            inside = [name for number, name in enumerate(classes) if number in region]
            outside = [name for name in classes if name not in inside]
            yield _line(key, {rest[0]: _few(outside), rest[1]: _few(inside)})
        return
    names = [*classes, *["…"] * len(rest)]
    if label and len(rest) < len(classes):
        names = [*classes[1:], "…"]
    yield _line(key, {**dict(zip(rest, names, strict=False)), **unlabelled})


def _few(names: list[str]) -> str | list[str]:
    return names[0] if len(names) == 1 else names


def _line(key: str, table: dict[str, str | list[str]]) -> str:
    entries = (
        f"{code if code.isalnum() else literal(code)} = {literal(table[code])}"
        for code in sorted(table, key=_order)
    )
    return f"{key} = {{ {', '.join(entries)} }}"


def _order(code: str) -> tuple[int, str]:
    return (int(code), "") if code.isdecimal() else (-1, code)
