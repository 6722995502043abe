"""Deadlines, lost payloads and names, with a clock of the test's own."""

import pytest

from polyclinic.config import EngineSettings
from polyclinic.engine.flower.transport import Failure, Transport
from polyclinic.engine.flower.wire import Payload, header_of
from tests.engine.flower.in_process import InProcessLink, NoReply


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


def payload(**header):
    return Payload(header).to_bytes()


def named(name):
    return lambda data: Payload({"site": name, "got": header_of(data)}).to_bytes()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def transport(clock):
    link = InProcessLink(
        {1: named("north"), 2: named("south")}, registered={1: "north", 2: "south"}
    )
    settings = EngineSettings(name="flower", deadline=100.0, patience=20.0)
    greeting = payload(asks="name")
    return Transport(link, settings, greeting, silence=20.0, clock=clock, sleep=clock.sleep)


def exchange(transport, *sites, **settings):
    return dict(transport.exchange({site: payload(**{"for": site}) for site in sites}, **settings))


def test_each_site_gets_its_own_payload(transport):
    answers = exchange(transport, "north", "south")
    assert {site: header_of(answer)["got"] for site, answer in answers.items()} == {
        "north": {"for": "north"},
        "south": {"for": "south"},
    }


def test_a_silent_site_is_left_out_at_the_deadline(transport, clock):
    def silent(data):
        raise NoReply

    transport.link.responding[1] = silent
    answers = exchange(transport, "north", "south")
    assert answers["north"] == Failure("it did not answer within 100 seconds")
    assert isinstance(answers["south"], bytes)
    assert clock.now == pytest.approx(100, abs=1)


def test_a_site_that_is_away_is_waited_for_with_patience(transport, clock):
    del transport.link.responding[1]
    answers = exchange(transport, "north", "south")
    assert "could not be reached: it was not connected" in answers["north"].reason
    assert clock.now == pytest.approx(20, abs=1.1)
    clock.now = 0.0
    exchange(transport, "north", patience=50.0)
    assert clock.now == pytest.approx(50, abs=1.1)


def test_a_site_that_comes_back_in_time_takes_part(transport, clock):
    north = transport.link.responding.pop(1)
    clock.happenings.append((10, lambda: transport.link.responding.update({1: north})))
    assert exchange(transport, "north", "south")["north"] == named("north")(
        payload(**{"for": "north"})
    )


def test_a_lost_payload_is_sent_again_but_not_for_ever(transport, clock):
    calls = []

    def fails(data):
        calls.append(data)
        if len(calls) < 3:
            raise RuntimeError("ClientApp stopped responding")
        return named("north")(data)

    transport.link.responding[1] = fails
    assert isinstance(exchange(transport, "north")["north"], bytes)
    calls[:] = []
    transport.link.responding[1] = lambda data: [][calls.append(data) or 0]
    assert "list index" in exchange(transport, "north")["north"].reason
    assert len(calls) == 3


def losing(answers, lost, calls):
    """A site whose first answers get lost on their way."""

    def answer(data):
        calls.append(data)
        if len(calls) <= lost:
            raise NoReply
        return answers(data)

    return answer


def test_a_lost_answer_is_asked_for_again_once_the_others_have_answered(transport, clock):
    calls = []
    transport.link.responding[1] = losing(named("north"), 2, calls)
    answers = exchange(transport, "north", "south")
    assert isinstance(answers["north"], bytes)
    assert len(calls) == 3
    assert clock.now == pytest.approx(40, abs=2.1)


def test_a_site_that_falls_silent_and_leaves_is_counted_once(transport, clock):
    transport.link.responding[1] = losing(named("north"), 1, [])
    clock.happenings.append((10, lambda: transport.link.responding.pop(1)))
    answers = list(transport.exchange({"north": payload()}))
    assert answers == [("north", Failure("it did not answer within 100 seconds"))]


def test_no_more_sites_work_at_once_than_may(transport, clock):
    transport.settings = EngineSettings(name="flower", deadline=100.0, at_once=1)
    calls = []
    transport.link.responding[1] = losing(named("north"), 1, calls)
    transport.link.responding[2] = lambda data: calls.append("south") or named("south")(data)
    answers = list(transport.exchange({site: payload() for site in ("north", "south")}))
    assert [site for site, _ in answers] == ["north", "south"]
    assert calls == [payload(), payload(), "south"]


def test_of_two_copies_that_are_under_way_one_answer_counts(transport, clock):
    waiting = []
    send = transport.link._send

    def sent(machine, data):  # the first copy is answered after the second was sent
        number = send(machine, data)
        if machine == 1:
            waiting.append((number, transport.link.replies.pop(number)))
        return number

    transport.link._send = sent
    clock.happenings.append((30, lambda: transport.link.replies.update(waiting)))
    answers = list(transport.exchange({site: payload() for site in ("north", "south")}))
    assert [site for site, _ in answers] == ["south", "north"]
    assert len(waiting) == 2


def test_a_copy_that_fails_does_not_count_while_the_other_is_under_way(transport, clock):
    calls = []

    def answer(data):
        calls.append(data)
        if len(calls) == 1:
            raise NoReply
        if len(calls) == 2:
            raise RuntimeError("ClientApp stopped responding")
        return named("north")(data)

    transport.link.responding[1] = answer
    assert isinstance(exchange(transport, "north")["north"], bytes)
    assert len(calls) == 3


def test_machines_without_a_registered_name_are_asked_for_it(transport, clock):
    transport.link.registered.clear()
    replies = exchange(transport, "north", "south").values()
    assert {header_of(reply)["site"] for reply in replies} == {"north", "south"}
    assert transport.names == {1: "north", 2: "south"}


def test_a_machine_that_fails_to_say_its_name_is_asked_again(transport, clock):
    transport.link.registered.clear()
    calls = []

    def hesitates(data):
        calls.append(data)
        if len(calls) == 1:
            raise RuntimeError("not yet")
        return named("north")(data)

    transport.link.responding[1] = hesitates
    assert isinstance(exchange(transport, "north")["north"], bytes)


def test_two_machines_of_one_name_are_both_left_out(transport):
    transport.link.responding[3] = named("north")
    transport.link.registered[3] = "north"
    answers = exchange(transport, "north", "south")
    assert "more than one machine is connected under its name" in answers["north"].reason
    assert isinstance(answers["south"], bytes)


def test_machines_without_a_registered_name_get_nothing_where_names_are_proven(transport):
    heard = []
    transport.greeting = None
    transport.link.responding[3] = lambda data: heard.append(data) or named("north")(data)
    assert header_of(exchange(transport, "north")["north"])["got"] == {"for": "north"}
    del transport.link.responding[1]
    assert isinstance(exchange(transport, "north")["north"], Failure)
    assert not heard


def test_the_site_takes_part_again_once_its_double_is_gone(transport, clock):
    transport.link.responding[3] = named("north")
    transport.link.registered[3] = "north"
    clock.happenings.append((10, lambda: transport.link.responding.pop(3)))
    assert isinstance(exchange(transport, "north")["north"], bytes)


def test_unregistered_machines_of_one_name_are_left_out_too(transport):
    transport.link.registered.clear()
    transport.link.responding[3] = named("north")
    exchange(transport, "south")  # all have said their names now
    assert "more than one machine" in exchange(transport, "north")["north"].reason


def test_a_reply_that_cannot_be_read_is_not_asked_for_again(transport):
    calls = []

    def broken(machine, data):
        calls.append(data)
        transport.link.replies["broken"] = Failure("it is not a payload", final=True)
        return "broken"

    transport.link._send = broken
    assert exchange(transport, "north")["north"].reason == "it is not a payload"
    assert len(calls) == 1


def test_a_machine_whose_name_cannot_be_read_gets_nothing(transport):
    transport.link.registered.clear()
    transport.link.responding[1] = lambda data: b"nonsense"
    assert "could not be reached" in exchange(transport, "north")["north"].reason


def test_replies_to_other_messages_are_ignored(transport):
    receive = transport.link.receive
    stranger = ("nobody's", named("south")(payload()))
    transport.link.receive = lambda messages: [stranger, *receive(messages)]
    assert header_of(exchange(transport, "north")["north"])["site"] == "north"
