"""Flower's grid as a link to machines, with messages made by Flower's public classes."""

from collections import namedtuple

import pytest
from flwr.app import (
    Array,
    ArrayRecord,
    Error,
    Message,
    RecordDict,
)

from polyclinic.engine.flower.carrier import (
    NAME,
    STORED_AS,
    PayloadError,
    from_records,
    to_records,
)
from polyclinic.engine.flower.transport import Failure, Link
from tests.engine.flower.metadata import about

Node = namedtuple("Node", ("node_id", "name"))


class Replies:
    """The two questions that the link asks of a grid, answered with what a test wants."""

    def __init__(self, *replies):
        self.replies = replies

    def get_nodes(self):
        return [Node(7, "north"), Node(8, "")]

    def pull_messages(self, messages):
        return self.replies


def record(name: str = NAME, stored: str = STORED_AS, array: str = NAME) -> RecordDict:
    return RecordDict({name: ArrayRecord({array: Array("uint8", (4,), stored, b"1234")})})


def test_machines_are_told_with_their_registered_names():
    assert Link(Replies()).machines() == {7: "north", 8: ""}


def test_replies_are_told_by_the_message_that_they_answer():
    grid = Replies(
        Message(content=to_records(b"bytes"), metadata=about("a")),
        Message(error=Error(5), metadata=about("b")),
        Message(error=Error(5, "it\x1b[31m died"), metadata=about("c")),
        Message(content=RecordDict(), metadata=about("d")),
    )
    assert dict(Link(grid).receive(["a", "b", "c", "d"])) == {
        "a": b"bytes",
        "b": Failure("Flower's error 5"),
        "c": Failure("it[31m died"),
        "d": Failure("its reply cannot be read: it is not a payload of Polyclinic", final=True),
    }


def test_a_payload_is_one_array_of_flowers():
    content = to_records(bytes(20_000_000))
    assert [list(content[name]) for name in content] == [[NAME]]
    assert from_records(content) == bytes(20_000_000)
    assert from_records(record()) == b"1234"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (RecordDict(), "not a payload"),
        (record(name="text"), "not a payload"),
        (record(array="weights"), "not a payload"),
        (record(stored="pickle"), "stored as 'pickle'"),
    ],
)
def test_content_that_is_no_payload_is_refused(content, words):
    with pytest.raises(PayloadError, match=words):
        from_records(content)
