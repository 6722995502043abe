import json
import math

import pytest
import torch

from polyclinic.engine.flower.ledger import Ledger, LedgerBroken, summary
from polyclinic.engine.flower.wire import Payload


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger(tmp_path / "state" / "ledger.jsonl")
    for number in range(3):
        payload = Payload({}, {"weights/head.a": torch.full((2,), float(number))})
        ledger.add(payload, {"run": "trial", "round": number, "stage": "fit"})
    return ledger


def test_a_line_tells_what_left(ledger):
    line = ledger.lines()[1]
    assert (line["round"], line["stage"], line["bytes"]) == (1, "fit", 8)
    assert line["arrays"] == {"weights/head.a": "float32 [2]"}
    assert ledger.mistakes() == []
    assert summary(ledger)[0] == "trial: 3 messages, 0.0 MB"
    assert ledger.head() in summary(ledger)[-1]


def test_what_left_is_summed_up_in_megabytes_of_a_million_bytes(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.add(Payload({}, {"a": torch.zeros(2_500_000)}), {"run": "trial"})
    assert summary(ledger)[0] == "trial: 1 messages, 10.0 MB"


def rewrite(ledger, change):
    lines = ledger.path.read_text().splitlines()
    change(lines)
    ledger.path.write_text("".join(f"{line}\n" for line in lines))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda lines: lines.pop(1), ["line 2", "does not follow"]),
        (lambda lines: lines.insert(1, lines[0]), ["line 2", "does not follow"]),
        (lambda lines: lines.reverse(), ["line 1", "does not follow"]),
        (
            lambda lines: lines.__setitem__(1, lines[1].replace('"bytes": 8', '"bytes": 4')),
            ["line 2", "was changed"],
        ),
        (lambda lines: lines.__setitem__(1, "nonsense"), ["line 2", "not a line of a ledger"]),
        (lambda lines: lines.__setitem__(1, "[]"), ["line 2", "not a line of a ledger"]),
    ],
)
def test_every_tampering_is_noticed(ledger, change, words):
    rewrite(ledger, change)
    mistakes = ledger.mistakes()
    assert mistakes
    assert all(word in mistakes[0] for word in words)


@pytest.mark.parametrize("text", ["nonsense", "[]", "{}", "\udcff"])
def test_a_broken_line_is_named_with_the_way_to_go_on(ledger, text):
    content = ledger.path.read_bytes()
    ledger.path.write_bytes(content + text.encode(errors="surrogateescape") + b"\n")
    for reading in (ledger.refuse_broken, ledger.head, lambda: ledger.epsilon(1e-5)):
        with pytest.raises(LedgerBroken) as told:
            reading()
        assert f"line 4 of {ledger.path} is not a line of a ledger" in str(told.value)
        assert f"move {ledger.path} aside" in str(told.value)
    with pytest.raises(LedgerBroken):
        ledger.add(Payload({}), {"run": "trial"})
    ledger.path.rename(ledger.path.with_suffix(".old"))
    ledger.add(Payload({}), {"run": "trial"})
    ledger.refuse_broken()


def test_a_changed_line_with_a_new_hash_breaks_the_next_one(ledger):
    from polyclinic.engine.flower.ledger import _hash

    def forge(lines):
        line = json.loads(lines[0])
        line.pop("hash")
        line["bytes"] = 0
        lines[0] = json.dumps({**line, "hash": _hash(line)})

    rewrite(ledger, forge)
    assert ["line 2" in text for text in ledger.mistakes()] == [True]


def test_what_was_cut_off_is_seen_by_whoever_noted_the_last_hash(ledger):
    noted = ledger.head()
    rewrite(ledger, lambda lines: lines.pop())
    assert ledger.mistakes() == []
    assert ledger.head() != noted


def test_epsilon_grows_with_every_noisy_message(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    assert ledger.epsilon(1e-5) == 0
    update = Payload({}, {"weights/head.a": torch.zeros(2)})
    spent = []
    for _ in range(3):
        spent.append(ledger.epsilon(1e-5, [2.0]))
        ledger.add(update, {"run": "trial", "noise": 2.0, "epsilon": spent[-1]})
    assert 0 < spent[0] < spent[1] < spent[2]
    assert ledger.epsilon(1e-5) == spent[-1]
    ledger.add(update, {"run": "trial", "again": True})
    assert ledger.epsilon(1e-5) == spent[-1]
    assert "ε of the updates so far" in summary(ledger)[0]
    assert "infinite" not in summary(ledger)[0]
    ledger.add(Payload({}), {"run": "trial", "bare": "scores"})
    assert "infinite with the 1 messages of scores" in summary(ledger)[0]


def test_epsilon_is_infinite_as_soon_as_weights_leave_without_noise(ledger):
    assert ledger.epsilon(1e-5) == math.inf
    assert ledger.epsilon(1e-5, [100.0]) == math.inf
