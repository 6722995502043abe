"""A ledger in plain words: what left, how often, how much, and to whom."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from polyclinic.engine.flower.ledger import Ledger

Line = Mapping[str, Any]


@dataclass(frozen=True)
class Entry:
    """Messages of one sort that left in a run."""

    run: str  # study, method and seed; empty where a message belongs to none
    study: str  # its hash
    what: str  # in words
    times: int
    bytes: int
    rounds: tuple[int, ...]
    to: tuple[str, ...]
    noise: tuple[float, ...]  # multipliers, where there was noise


def entries(ledger: Ledger) -> list[Entry]:
    """All that left, put together by run and sort, in the order of first sight."""
    groups: dict[tuple[str, str, str], list[Line]] = {}
    for line in ledger.lines():
        key = (str(line.get("run", "")), str(line.get("study", "")), _what(line))
        groups.setdefault(key, []).append(line)
    return [
        Entry(
            *key,
            times=len(lines),
            bytes=sum(int(line.get("sent", line["bytes"])) for line in lines),
            rounds=tuple(sorted({int(line["round"]) for line in lines if "round" in line})),
            to=tuple(dict.fromkeys(str(line["to"]) for line in lines if "to" in line)),
            noise=tuple(dict.fromkeys(float(line["noise"]) for line in lines if "noise" in line)),
        )
        for key, lines in groups.items()
    ]


def as_data(ledger: Ledger) -> dict[str, Any]:
    """The same for machines."""
    return {
        "lines": len(ledger.lines()),
        "head": ledger.head(),
        "left": [asdict(each) for each in entries(ledger)],
    }


def in_words(ledger: Ledger) -> Iterator[str]:
    """The same for people: a paragraph for each run, and what all of it amounts to."""
    lines, found = ledger.lines(), entries(ledger)
    if not lines:
        yield "Nothing has left this site."
        return
    receivers = dict.fromkeys(to for each in found for to in each.to)
    total = sum(each.bytes for each in found) / 1e6
    where = f", all of it to {', '.join(receivers)}" if receivers else ""
    yield (
        f"From {lines[0]['at']} to {lines[-1]['at']} {len(lines)} messages left this site, "
        f"{total:.3f} MB{where}."
    )
    for run in dict.fromkeys((each.run, each.study) for each in found):
        yield ""
        yield f"{run[0]} (study {run[1][:12]}):" if run[0] else "In no run:"
        yield from (f"- {_sentence(each)}" for each in found if (each.run, each.study) == run)
    yield ""
    noisy = Counter(bool(line.get("noise")) for line in lines if line["bytes"])
    yield (
        "No image, mask or file was sent. Weights are the numbers of a model, learned from images; "
        "they and scores can show something of images and masks. "
        f"{noisy[True]} messages with weights had noise, {noisy[False]} had none."
    )
    yield f"The ledger has {len(lines)} lines; the hash of the last is {ledger.head()}."


def _sentence(entry: Entry) -> str:
    times = "once" if entry.times == 1 else f"{entry.times} times"
    rounds = f" (rounds {entry.rounds[0]} to {entry.rounds[-1]})" if len(entry.rounds) > 1 else ""
    noise = f", with noise {', '.join(f'{each:g}' for each in entry.noise)}" if entry.noise else ""
    few = entry.bytes < 10_000
    size = f"{entry.bytes} bytes" if few else f"{entry.bytes / 1e6:.3f} MB"
    return f"{times}{rounds} {entry.what}: {size}{noise}"


def _what(line: Line) -> str:
    """What a line's message held, in words."""
    again = "once more, because the answer got lost: " if line.get("again") else ""
    stage = str(line.get("stage", ""))
    if stage == "refusal":
        return f"a refusal ({line.get('code', 'no code')}) without names"
    if stage == "introduction":
        return "the name of this site"
    if stage == "greeting":
        return "the numbers of cases, the kind of labels and versions of programs"
    if stage.startswith("score the model of "):
        return f"{again}scores of another site's model on test cases"
    if stage.startswith("score "):
        split = {"val": "validation", "test": "test"}.get(stage.split()[1], stage.split()[1])
        return f"{again}scores of a model on {split} cases"
    held = _parts(line.get("arrays", {}))
    return f"{again}after the stage {stage!r} {' and '.join(held) or 'only counts and seconds'}"


def _parts(arrays: Mapping[str, str]) -> Sequence[str]:
    weights = sorted({name.split("/")[1].partition(".")[0] for name in arrays if name[0] == "w"})
    extras = sorted({name.split("/")[1] for name in arrays if name[0] == "e"})
    told = [f"weights of {', '.join(weights)}"] if weights else []
    words = ["private weights for other sites" if e == "disclosed" else e for e in extras]
    return [*told, *([f"extras ({', '.join(words)})"] if extras else [])]
