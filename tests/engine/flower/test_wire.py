import io
import json

import pytest
import torch

from polyclinic.engine.flower.payload import Blob, Payload, PayloadError
from polyclinic.engine.flower.records import STORED_AS, from_records, to_records
from polyclinic.engine.flower.wire import bytes_by_part, pack, unpack
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
    """Down a stream, and through Flower's records."""
    stream = io.BytesIO()
    payload.write(stream)
    stream.seek(0)
    return from_records(to_records(Payload.read(stream)))


def test_float32_gives_back_every_bit():
    sent = message()
    back = unpack(journey(pack(sent, "float32")))
    assert back.weights.layout == sent.weights.layout
    assert torch.equal(back.weights.flat, sent.weights.flat)
    assert back.numbers == sent.numbers
    for name, tensor in sent.extras.items():
        assert torch.equal(back.extras[name], tensor)
        assert back.extras[name].dtype == tensor.dtype


@pytest.mark.parametrize(("encoding", "loss"), [("float16", 1 / 2048), ("bfloat16", 1 / 256)])
def test_half_encodings_lose_what_they_say_and_halve_the_bytes(encoding, loss):
    sent = message()
    payload = pack(sent, encoding)
    back = unpack(journey(payload))
    error = (back.weights.flat - sent.weights.flat).abs()
    assert (error <= sent.weights.flat.abs() * loss + 3e-8).all()
    assert error.max() > 0
    assert back.weights.flat.dtype == torch.float32
    assert torch.equal(back.extras["exact"], sent.extras["exact"])
    sizes = bytes_by_part(payload)
    assert sizes["encoder"] == 2 * (4 * 27 + 4)
    assert sizes["extra control"] == 2 * 5


def test_differences_lose_only_a_part_of_the_change():
    received, change = message(0), message(1, scale=1e-4)
    trained = Message(Weights(received.weights.layout, received.weights.flat + change.weights.flat))
    payload = pack(trained, "difference", received.weights)
    back = unpack(journey(payload), received.weights)
    truth = trained.weights.flat - received.weights.flat
    error = (back.weights.flat - trained.weights.flat).abs()
    rounding = 2e-7 * trained.weights.flat.abs()  # of the sum itself, in float32
    assert (error <= truth.abs() / 2048 + 3e-8 * truth.abs().max() + rounding).all()
    assert payload.nbytes == trained.weights.nbytes // 2
    half = unpack(journey(pack(trained, "float16"))).weights.flat - trained.weights.flat
    assert error.max() < half.abs().max() / 20


def test_weights_that_were_not_received_travel_whole():
    received = Weights.pack({"encoder.b": torch.zeros(4)})
    back = unpack(journey(pack(message(), "difference", received)), received)
    assert torch.equal(back.weights["encoder.a"], message().weights["encoder.a"])


def test_an_unchanged_tensor_has_no_difference():
    sent = message()
    back = unpack(journey(pack(sent, "difference", sent.weights)), sent.weights)
    assert torch.equal(back.weights.flat, sent.weights.flat)
    nothing = Message(Weights.pack({"empty": torch.empty(0)}))
    assert unpack(pack(nothing, "difference", nothing.weights), nothing.weights).weights.names == {
        "empty"
    }


def test_what_an_encoding_cannot_hold_is_refused():
    huge = Message(Weights.pack({"a": torch.tensor([1e6])}))
    with pytest.raises(PayloadError, match="cannot hold; use bfloat16"):
        pack(huge, "float16")
    with pytest.raises(PayloadError, match="do not travel"):
        pack(Message(extras={"a": torch.zeros(1, dtype=torch.complex64)}), "float32")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda p: p.about.pop("message"), "no message"),
        (lambda p: p.about["message"].update(weights="encoder.a"), "not listed by name"),
        (lambda p: p.about["message"]["weights"].append("encoder.a"), "twice"),
        (lambda p: p.about["message"].update(numbers={"images": "many"}), "not numbers"),
        (lambda p: p.about["message"].update(numbers=None), "not numbers"),
        (lambda p: p.about["message"].update(numbers={"images": 10**400}), "too large"),
        (lambda p: p.about["message"]["weights"].remove("encoder.a"), "does not name"),
        (lambda p: p.arrays.pop("weights/encoder.a"), "lacks weights/encoder.a"),
        (lambda p: p.arrays.update({"weights/head.d": Blob("object", (), b"x")}), "do not travel"),
        (lambda p: p.arrays.update({"weights/head.d": Blob("float32", (9,), b"x")}), "has 1 bytes"),
        (lambda p: p.arrays.update({"weights/head.d": Blob("float32", (-1,), b"")}), "0 bytes"),
        (lambda p: p.arrays.update({"weights/head.d": Blob("int8", (0, 2**70), b"")}), "0 bytes"),
        (lambda p: p.arrays.update({"weights/head.d": Blob("int8", (), b"x")}), "of type int8"),
        (lambda p: p.about["message"].update(scales={"head.d": 1.0}), "difference to nothing"),
    ],
)
def test_spoilt_messages_are_refused(spoil, words):
    payload = journey(pack(message(), "float32"))
    spoil(payload)
    with pytest.raises(PayloadError, match=words):
        unpack(payload)


def test_a_difference_of_another_shape_is_refused():
    sent = message()
    payload = journey(pack(sent, "difference", sent.weights))
    spoilt = Blob("float16", (2, 2), payload.arrays["weights/encoder.b"].data)
    payload.arrays.update({"weights/encoder.b": spoilt})
    with pytest.raises(PayloadError, match=r"encoder\.b is a difference of another shape"):
        unpack(payload, sent.weights)


def test_a_stream_that_ends_early_is_noticed():
    stream = io.BytesIO()
    pack(message(), "float32").write(stream)
    for length in (0, 3, 40, len(stream.getvalue()) - 1):
        with pytest.raises(EOFError):
            Payload.read(io.BytesIO(stream.getvalue()[:length]))


def test_records_that_are_no_parcels_are_refused():
    from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

    def content(text, stored=STORED_AS, part="weights/a"):
        array = Array("uint8", (4,), stored, b"1234")
        arrays = ArrayRecord({part: array})
        return RecordDict({"text": ConfigRecord({"json": text}), "arrays": arrays})

    def saying(*entries, about=None):
        return json.dumps({"about": about or {}, "contents": {"weights/a": entries}})

    good = saying(("weights/a", "int8", [4], 4))
    assert from_records(content(good)).arrays["weights/a"].data == b"1234"
    untyped = from_records(content(saying(("weights/a", ["int8"], [4], 4))))
    with pytest.raises(PayloadError, match="do not travel"):
        untyped.arrays["weights/a"].check("weights/a")
    for wrong, words in [
        (RecordDict(), "not a payload"),
        (RecordDict({"text": ConfigRecord({"json": "{}"})}), "not a payload"),
        (content(good, stored="pickle"), "not as plain bytes"),
        (content(good, part="weights/b"), "does not say"),
        (content("{}"), "does not say"),
        (content("{"), "not JSON"),
        (content("[" * 100_000), "not JSON"),
        (content("[]"), "not a table"),
        (content(saying(("weights/a", "int8", [2], 2))), "of which 2 are named"),
        (content(saying("nonsense")), "cannot be read"),
        (content(saying(("weights/a", "int8", None, 4))), "cannot be read"),
        (content(saying(("weights/a", "int8", [float("inf")], 4))), "cannot be read"),
    ]:
        with pytest.raises(PayloadError, match=words):
            from_records(wrong)


def test_bytes_by_part_agree_with_the_messages_own():
    sent = message()
    assert bytes_by_part(pack(sent, "float32")) == sent.bytes_by_part()
    assert json.dumps(sent.bytes_by_part())
