import io
import json

import pytest
import torch
from safetensors.torch import save

from polyclinic.engine.flower.carrier import PayloadError, receive, send
from polyclinic.engine.flower.wire import HEADER, Payload, header_of, pack, unpack
from polyclinic.federation.message import Message
from polyclinic.federation.weights import Weights

SHAPES = {"encoder.a": (4, 3, 3, 3), "encoder.b": (4,), "head.c": (2, 4, 1, 1), "head.d": ()}


def message(seed: int = 0, scale: float = 1.0) -> Message:
    rng = torch.Generator().manual_seed(seed)
    tensors = {name: scale * torch.randn(shape, generator=rng) for name, shape in SHAPES.items()}
    extras = {
        "control/a": torch.randn(5, generator=rng),
        "count": torch.tensor([1, 2**40]),
        "mask": torch.tensor([True, False]),
        "exact": torch.randn(2, generator=rng).double(),
        "empty": torch.empty(0, 3),
    }
    return Message(Weights.pack(tensors), extras, {"images": 3.0, "steps": 0.1 + 0.2})


def journey(payload: Payload) -> Payload:
    """Down a socket, as bytes."""
    stream = io.BytesIO()
    send(stream, payload.to_bytes())
    stream.seek(0)
    return Payload.from_bytes(receive(stream))


def test_float32_gives_back_every_bit():
    sent = message()
    back = unpack(journey(pack({}, sent, "float32")))
    assert back.weights.layout == sent.weights.layout
    assert torch.equal(back.weights.flat, sent.weights.flat)
    assert back.numbers == sent.numbers
    for name, tensor in sent.extras.items():
        assert torch.equal(back.extras[name], tensor)
        assert back.extras[name].dtype == tensor.dtype


@pytest.mark.parametrize(("encoding", "loss"), [("float16", 1 / 2048), ("bfloat16", 1 / 256)])
def test_half_encodings_lose_what_they_say_and_halve_the_bytes(encoding, loss):
    sent = message()
    payload = pack({}, sent, encoding)
    back = unpack(journey(payload))
    error = (back.weights.flat - sent.weights.flat).abs()
    assert (error <= sent.weights.flat.abs() * loss + 3e-8).all()
    assert error.max() > 0
    assert back.weights.flat.dtype == torch.float32
    assert torch.equal(back.extras["exact"], sent.extras["exact"])
    sizes = payload.bytes_by_part(sent)
    assert sizes["encoder"] == 2 * (4 * 27 + 4)
    assert sizes["extra control"] == 2 * 5


def test_differences_lose_only_a_part_of_the_change():
    received, change = message(0), message(1, scale=1e-4)
    trained = Message(Weights(received.weights.layout, received.weights.flat + change.weights.flat))
    payload = pack({}, trained, "difference", received.weights)
    back = unpack(journey(payload), received.weights)
    truth = trained.weights.flat - received.weights.flat
    error = (back.weights.flat - trained.weights.flat).abs()
    rounding = 2e-7 * trained.weights.flat.abs()  # of the sum itself, in float32
    assert (error <= truth.abs() / 2048 + 3e-8 * truth.abs().max() + rounding).all()
    assert payload.nbytes == trained.weights.nbytes // 2
    half = unpack(journey(pack({}, trained, "float16"))).weights.flat - trained.weights.flat
    assert error.max() < half.abs().max() / 20


def test_weights_that_were_not_received_travel_whole():
    received = Weights.pack({"encoder.b": torch.zeros(4)})
    back = unpack(journey(pack({}, message(), "difference", received)), received)
    assert torch.equal(back.weights["encoder.a"], message().weights["encoder.a"])


def test_an_unchanged_tensor_has_no_difference():
    sent = message()
    back = unpack(journey(pack({}, sent, "difference", sent.weights)), sent.weights)
    assert torch.equal(back.weights.flat, sent.weights.flat)
    nothing = Message(Weights.pack({"empty": torch.empty(0)}))
    assert unpack(
        pack({}, nothing, "difference", nothing.weights), nothing.weights
    ).weights.names == {"empty"}


def test_what_an_encoding_cannot_hold_is_refused():
    huge = Message(Weights.pack({"a": torch.tensor([1e6])}))
    with pytest.raises(PayloadError, match="cannot hold; use bfloat16"):
        pack({}, huge, "float16")
    with pytest.raises(PayloadError, match="do not travel"):
        pack({}, Message(extras={"a": torch.zeros(1, dtype=torch.complex64)}), "float32")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda h, t: h.pop("message"), "no message"),
        (lambda h, t: h["message"].update(weights="encoder.a"), "not listed by name"),
        (lambda h, t: h["message"]["weights"].append("encoder.a"), "twice"),
        (lambda h, t: h["message"]["extras"].append("a\x1b[31m"), "cannot be printed"),
        (lambda h, t: h["message"]["extras"].append("a" * 301), "cannot be printed"),
        (lambda h, t: h["message"].update(numbers={"images": "many"}), "not numbers"),
        (lambda h, t: h["message"].update(numbers=None), "not numbers"),
        (lambda h, t: h["message"].update(numbers={"images": 10**400}), "too large"),
        (lambda h, t: h["message"].update(numbers={"a\nb": 1.0}), "cannot be printed"),
        (lambda h, t: h["message"]["weights"].remove("encoder.a"), "does not name"),
        (lambda h, t: t.pop("weights/encoder.a"), "lacks weights/encoder.a"),
        (lambda h, t: t.update({"weights/head.d": torch.zeros((), dtype=torch.int8)}), "int8"),
        (lambda h, t: h["message"].update(scales={"head.d": 1.0}), "difference to nothing"),
    ],
)
def test_spoilt_messages_are_refused(spoil, words):
    payload = journey(pack({}, message(), "float32"))
    spoil(payload.header, payload.tensors)
    with pytest.raises(PayloadError, match=words):
        unpack(journey(payload))


def test_a_difference_of_another_shape_is_refused():
    sent = message()
    payload = journey(pack({}, sent, "difference", sent.weights))
    payload.tensors["weights/encoder.b"] = payload.tensors["weights/encoder.b"].view(2, 2)
    with pytest.raises(PayloadError, match=r"encoder\.b is a difference of another shape"):
        unpack(payload, sent.weights)


def test_a_stream_that_ends_early_is_noticed():
    stream = io.BytesIO()
    send(stream, pack({}, message(), "float32").to_bytes())
    for length in (0, 3, 40, len(stream.getvalue()) - 1):
        with pytest.raises(EOFError):
            receive(io.BytesIO(stream.getvalue()[:length]))


def raw(table: dict | str, tensors: bytes = b"") -> bytes:
    """Bytes as safetensors writes them, with whatever table of contents a test wants."""
    text = (table if isinstance(table, str) else json.dumps(table)).encode()
    return len(text).to_bytes(8, "little") + text + tensors


def entry(dtype: str, shape: list, end: int) -> dict:
    return {"a": {"dtype": dtype, "shape": shape, "data_offsets": [0, end]}}


GOOD = {"__metadata__": {HEADER: "{}"}}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not a payload"),
        (b"12345678", "not a payload"),
        ((2**60).to_bytes(8, "little") + b"{}", "not a payload"),
        (raw("{"), "header cannot be read"),
        (raw("[" * 100_000), "header cannot be read"),
        (raw([]), "header cannot be read"),
        (raw({}), "header cannot be read"),
        (raw({"__metadata__": {}}), "header cannot be read"),
        (raw({"__metadata__": {HEADER: "["}}), "header cannot be read"),
        (raw({"__metadata__": {HEADER: "[" * 100_000}}), "header cannot be read"),
        (raw({"__metadata__": {HEADER: "[]"}}), "not a table"),
        (raw({**GOOD, **entry("F32", [4], 4)}, b"1234"), "cannot be read"),
        (raw({**GOOD, **entry("F32", [1], 4)}, b"12"), "cannot be read"),
        (raw({**GOOD, **entry("F32", [1], 4)}, b"12345678"), "cannot be read"),
        (raw({**GOOD, **entry("F32", [-1], 4)}, b"1234"), "cannot be read"),
        (raw({**GOOD, **entry("F32", [2**62, 2**62], 4)}, b"1234"), "cannot be read"),
        (raw({**GOOD, **entry("NOTHING", [1], 4)}, b"1234"), "cannot be read"),
        (save({"a": torch.zeros(1, dtype=torch.complex64)}, {HEADER: "{}"}), "do not travel"),
        (save({"a": torch.zeros(2**20)}, {HEADER: "{}"}), "4 MB is larger than the 2 MB allowed"),
    ],
)
def test_bytes_that_are_no_payload_are_refused(data, words):
    with pytest.raises(PayloadError, match=words):
        Payload.from_bytes(data, 2_000_000)


def test_no_damage_to_the_bytes_is_more_than_a_refusal():
    """Cut off or changed anywhere, a payload is read or refused; nothing else happens."""
    whole = pack({"site": "north"}, message(), "float32").to_bytes()
    for place in range(0, len(whole), 7):
        changed = bytearray(whole)
        changed[place] ^= 0x5A
        for data in (whole[:place], bytes(changed)):
            try:
                unpack(Payload.from_bytes(data))
            except PayloadError:
                continue


def test_the_header_is_read_without_the_tensors():
    payload = pack({"site": "north"}, message(), "float32")
    assert header_of(payload.to_bytes()) == payload.header
    assert header_of(payload.to_bytes())["site"] == "north"


def test_bytes_by_part_agree_with_the_messages_own():
    sent = message()
    assert pack({}, sent, "float32").bytes_by_part(sent) == sent.bytes_by_part()
    assert json.dumps(sent.bytes_by_part())
