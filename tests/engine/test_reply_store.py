from pathlib import Path

import torch

from polyclinic.engine.reply_store import ReplyStore
from polyclinic.federation.message import Message
from polyclinic.federation.weights import Weights


def message(size=8):
    weights = Weights.pack({"w": torch.randn(size, 3, 3, 3), "b": torch.randn(size)})
    extras = {
        "drift": torch.randn(2, 4, 5, 5).to(memory_format=torch.channels_last),
        "count": torch.arange(3),
        "half": torch.randn(7).bfloat16(),
    }
    return Message(weights, extras, {"images": 12.0})


def own_megabytes():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


def test_a_stored_message_is_the_same_message(tmp_path):
    sent = message()
    stored = ReplyStore(tmp_path / "replies").store("north", sent)

    assert stored.weights.layout == sent.weights.layout
    assert stored.weights.flat.equal(sent.weights.flat)
    assert stored.extras.keys() == sent.extras.keys()
    assert all(stored.extras[name].equal(sent.extras[name]) for name in sent.extras)
    assert {t.dtype for t in stored.extras.values()} == {t.dtype for t in sent.extras.values()}
    assert stored.numbers == sent.numbers


def test_an_empty_message_can_wait_too(tmp_path):
    stored = ReplyStore(tmp_path).store("north", Message())

    assert len(stored.weights) == 0
    assert stored.extras == {}


def test_a_message_outlives_the_clearing_of_the_store(tmp_path):
    store, sent = ReplyStore(tmp_path / "replies"), message()
    stored = store.store("north", sent)
    store.clear()

    assert not store.folder.exists()
    assert stored.weights.flat.equal(sent.weights.flat)


def test_stored_messages_take_no_memory_of_the_process(tmp_path):
    store, before = ReplyStore(tmp_path), own_megabytes()
    stored = [store.store(str(site), message(100_000)) for site in range(20)]  # 10.7 MB each

    assert sum(waiting.weights.flat.sum() for waiting in stored).isfinite()
    assert own_megabytes() - before < 20 * 10.7 / 2


def test_a_message_on_another_device_stays_where_it_is(tmp_path):
    weights = Weights.pack({"w": torch.empty(3, device="meta")})
    sent = Message(weights)

    assert ReplyStore(tmp_path).store("north", sent) is sent
