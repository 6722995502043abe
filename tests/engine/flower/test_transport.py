"""Deadlines, lost payloads and names, with a clock of the test's own."""

import pytest
from flwr.app import Message as FlowerMessage

from polyclinic.config import EngineSettings
from polyclinic.engine.flower.payload import Payload
from polyclinic.engine.flower.records import to_records
from polyclinic.engine.flower.transport import Transport, Trouble
from tests.engine.flower.grid import InProcessGrid, NoAnswer


class Clock:
    """Time that passes only while somebody sleeps; things can happen at a time."""

    def __init__(self):
        self.now = 0.0
        self.happenings = []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        for at, happening in [each for each in self.happenings if each[0] <= self.now]:
            self.happenings.remove((at, happening))
            happening()


def named(name):
    return lambda payload: Payload({"site": name, "got": payload.about})


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def transport(clock):
    grid = InProcessGrid(
        {1: named("north"), 2: named("south")}, registered={1: "north", 2: "south"}
    )
    settings = EngineSettings(name="flower", deadline=100.0, patience=20.0)
    introduction = Payload({"ask": "name"})
    return Transport(grid, settings, introduction, silence=20.0, clock=clock, sleep=clock.sleep)


def exchange(transport, *sites, **settings):
    return dict(transport.exchange({site: Payload({"for": site}) for site in sites}, **settings))


def test_each_site_gets_its_own_payload(transport):
    answers = exchange(transport, "north", "south")
    assert {site: answer.about["got"] for site, answer in answers.items()} == {
        "north": {"for": "north"},
        "south": {"for": "south"},
    }


def test_a_silent_site_is_left_out_at_the_deadline(transport, clock):
    def silent(payload):
        raise NoAnswer

    transport.grid.answering[1] = silent
    answers = exchange(transport, "north", "south")
    assert answers["north"] == Trouble("it did not answer within 100 seconds")
    assert isinstance(answers["south"], Payload)
    assert clock.now == pytest.approx(100, abs=1)


def test_a_site_that_is_away_is_waited_for_with_patience(transport, clock):
    del transport.grid.answering[1]
    answers = exchange(transport, "north", "south")
    assert "could not be reached: it was not connected" in answers["north"].reason
    assert clock.now == pytest.approx(20, abs=1.1)
    clock.now = 0.0
    exchange(transport, "north", patience=50.0)
    assert clock.now == pytest.approx(50, abs=1.1)


def test_a_site_that_comes_back_in_time_takes_part(transport, clock):
    north = transport.grid.answering.pop(1)
    clock.happenings.append((10, lambda: transport.grid.answering.update({1: north})))
    assert exchange(transport, "north", "south")["north"].about["site"] == "north"


def test_a_lost_parcel_is_sent_again_but_not_for_ever(transport, clock):
    calls = []

    def fails(payload):
        calls.append(payload)
        if len(calls) < 3:
            raise RuntimeError("ClientApp stopped responding")
        return named("north")(payload)

    transport.grid.answering[1] = fails
    assert isinstance(exchange(transport, "north")["north"], Payload)
    calls[:] = []
    transport.grid.answering[1] = lambda payload: [][calls.append(payload) or 0]
    assert "list index" in exchange(transport, "north")["north"].reason
    assert len(calls) == 3


def losing(answers, lost, calls):
    """A site whose first answers get lost on their way."""

    def answer(payload):
        calls.append(payload)
        if len(calls) <= lost:
            raise NoAnswer
        return answers(payload)

    return answer


def test_a_lost_answer_is_asked_for_again_once_the_others_have_answered(transport, clock):
    calls = []
    transport.grid.answering[1] = losing(named("north"), 2, calls)
    answers = exchange(transport, "north", "south")
    assert isinstance(answers["north"], Payload)
    assert len(calls) == 3
    assert clock.now == pytest.approx(40, abs=2.1)


def test_a_site_that_falls_silent_and_leaves_is_counted_once(transport, clock):
    transport.grid.answering[1] = losing(named("north"), 1, [])
    clock.happenings.append((10, lambda: transport.grid.answering.pop(1)))
    answers = list(transport.exchange({"north": Payload({})}))
    assert answers == [("north", Trouble("it did not answer within 100 seconds"))]


def test_no_more_sites_work_at_once_than_may(transport, clock):
    transport.settings = EngineSettings(name="flower", deadline=100.0, at_once=1)
    calls = []
    transport.grid.answering[1] = losing(named("north"), 1, calls)
    transport.grid.answering[2] = lambda payload: calls.append("south") or named("south")(payload)
    answers = list(transport.exchange({site: Payload({}) for site in ("north", "south")}))
    assert [site for site, _ in answers] == ["north", "south"]
    assert calls == [Payload({}), Payload({}), "south"]


def test_of_two_copies_that_are_under_way_one_answer_counts(transport, clock):
    waiting = []
    push = transport.grid._push

    def pushed(message):  # the first copy is answered after the second was sent
        number = push(message)
        if message.metadata.dst_node_id == 1:
            waiting.append((number, message))
            transport.grid.replies.pop(number, None)
        return number

    def both_answer():
        for number, message in waiting:
            reply = to_records(named("north")(Payload({})))
            transport.grid.replies[number] = FlowerMessage(reply, reply_to=message)

    transport.grid._push = pushed
    clock.happenings.append((30, both_answer))
    answers = list(transport.exchange({site: Payload({}) for site in ("north", "south")}))
    assert [site for site, _ in answers] == ["south", "north"]
    assert len(waiting) == 2


def test_a_copy_that_fails_does_not_count_while_the_other_is_under_way(transport, clock):
    calls = []

    def answer(payload):
        calls.append(payload)
        if len(calls) == 1:
            raise NoAnswer
        if len(calls) == 2:
            raise RuntimeError("ClientApp stopped responding")
        return named("north")(payload)

    transport.grid.answering[1] = answer
    assert isinstance(exchange(transport, "north")["north"], Payload)
    assert len(calls) == 3


def test_machines_without_a_registered_name_are_asked_for_it(transport, clock):
    transport.grid.registered.clear()
    assert {a.about["site"] for a in exchange(transport, "north", "south").values()} == {
        "north",
        "south",
    }
    assert transport.names == {1: "north", 2: "south"}


def test_a_machine_that_fails_to_say_its_name_is_asked_again(transport, clock):
    transport.grid.registered.clear()
    calls = []

    def hesitates(payload):
        calls.append(payload)
        if len(calls) == 1:
            raise RuntimeError("not yet")
        return named("north")(payload)

    transport.grid.answering[1] = hesitates
    assert isinstance(exchange(transport, "north")["north"], Payload)


def test_two_machines_of_one_name_are_both_left_out(transport):
    transport.grid.answering[3] = named("north")
    transport.grid.registered[3] = "north"
    answers = exchange(transport, "north", "south")
    assert "more than one machine is connected under its name" in answers["north"].reason
    assert isinstance(answers["south"], Payload)


def test_machines_without_a_registered_name_get_nothing_where_names_are_proven(transport):
    heard = []
    transport.introduction = None
    transport.grid.answering[3] = lambda payload: heard.append(payload) or named("north")(payload)
    assert exchange(transport, "north")["north"].about["got"] == {"for": "north"}
    del transport.grid.answering[1]
    assert isinstance(exchange(transport, "north")["north"], Trouble)
    assert not heard


def test_the_site_takes_part_again_once_its_double_is_gone(transport, clock):
    transport.grid.answering[3] = named("north")
    transport.grid.registered[3] = "north"
    clock.happenings.append((10, lambda: transport.grid.answering.pop(3)))
    assert isinstance(exchange(transport, "north")["north"], Payload)


def test_unregistered_machines_of_one_name_are_left_out_too(transport):
    transport.grid.registered.clear()
    transport.grid.answering[3] = named("north")
    exchange(transport, "south")  # all have said their names now
    assert "more than one machine" in exchange(transport, "north")["north"].reason


def test_content_that_is_no_parcel_is_an_answer_but_a_broken_one(transport):
    from flwr.app import Message as FlowerMessage
    from flwr.app import RecordDict

    pushed = transport.grid._push

    def push(message):
        number = pushed(message)
        transport.grid.replies[number] = FlowerMessage(RecordDict(), reply_to=message)
        return number

    transport.grid._push = push
    assert "not a payload" in exchange(transport, "north")["north"].about["broken"]


def test_errors_of_flower_itself_name_no_site_but_are_mapped_to_one(transport):
    from flwr.app import Error
    from flwr.app import Message as FlowerMessage

    pushed = transport.grid._push

    def push(message):
        number = pushed(message)
        if message.metadata.dst_node_id == 1:
            error = FlowerMessage(Error(5), reply_to=message)
            error.metadata.__dict__["_src_node_id"] = 1
            transport.grid.replies[number] = error
        return number

    transport.grid._push = push
    answers = exchange(transport, "north", "south")
    assert answers["north"] == Trouble("Flower's error 5")
    assert isinstance(answers["south"], Payload)


def test_replies_to_other_messages_are_ignored(transport):
    from flwr.app import Message as FlowerMessage
    from flwr.app import RecordDict

    pull = transport.grid.pull_messages

    def with_stranger(message_ids):
        real = list(pull(message_ids))
        strangers = []
        for message in real[:1]:
            stranger = FlowerMessage(RecordDict(), reply_to=message)
            stranger.metadata.__dict__["_reply_to_message_id"] = "nobody's"
            strangers.append(stranger)
        return strangers + real

    transport.grid.pull_messages = with_stranger
    assert isinstance(exchange(transport, "north")["north"], Payload)
