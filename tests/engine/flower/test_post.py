"""Deadlines, lost parcels and names, with a clock of the test's own."""

import pytest
from flwr.app import Message

from polyclinic.config import EngineSettings
from polyclinic.engine.flower.parcel import Parcel
from polyclinic.engine.flower.post import Post, Trouble
from polyclinic.engine.flower.records import to_records
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
    return lambda parcel: Parcel({"site": name, "got": parcel.about})


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def post(clock):
    grid = InProcessGrid(
        {1: named("north"), 2: named("south")}, registered={1: "north", 2: "south"}
    )
    settings = EngineSettings(name="flower", deadline=100.0, patience=20.0)
    introduction = Parcel({"ask": "name"})
    return Post(grid, settings, introduction, silence=20.0, clock=clock, sleep=clock.sleep)


def exchange(post, *sites, **settings):
    return dict(post.exchange({site: Parcel({"for": site}) for site in sites}, **settings))


def test_each_site_gets_its_own_parcel(post):
    answers = exchange(post, "north", "south")
    assert {site: answer.about["got"] for site, answer in answers.items()} == {
        "north": {"for": "north"},
        "south": {"for": "south"},
    }


def test_a_silent_site_is_left_out_at_the_deadline(post, clock):
    def silent(parcel):
        raise NoAnswer

    post.grid.answering[1] = silent
    answers = exchange(post, "north", "south")
    assert answers["north"] == Trouble("it did not answer within 100 seconds")
    assert isinstance(answers["south"], Parcel)
    assert clock.now == pytest.approx(100, abs=1)


def test_a_site_that_is_away_is_waited_for_with_patience(post, clock):
    del post.grid.answering[1]
    answers = exchange(post, "north", "south")
    assert "could not be reached: it was not connected" in answers["north"].reason
    assert clock.now == pytest.approx(20, abs=1.1)
    clock.now = 0.0
    exchange(post, "north", patience=50.0)
    assert clock.now == pytest.approx(50, abs=1.1)


def test_a_site_that_comes_back_in_time_takes_part(post, clock):
    north = post.grid.answering.pop(1)
    clock.happenings.append((10, lambda: post.grid.answering.update({1: north})))
    assert exchange(post, "north", "south")["north"].about["site"] == "north"


def test_a_lost_parcel_is_sent_again_but_not_for_ever(post, clock):
    calls = []

    def fails(parcel):
        calls.append(parcel)
        if len(calls) < 3:
            raise RuntimeError("ClientApp stopped responding")
        return named("north")(parcel)

    post.grid.answering[1] = fails
    assert isinstance(exchange(post, "north")["north"], Parcel)
    calls[:] = []
    post.grid.answering[1] = lambda parcel: [][calls.append(parcel) or 0]
    assert "list index" in exchange(post, "north")["north"].reason
    assert len(calls) == 3


def losing(answers, lost, calls):
    """A site whose first answers get lost on their way."""

    def answer(parcel):
        calls.append(parcel)
        if len(calls) <= lost:
            raise NoAnswer
        return answers(parcel)

    return answer


def test_a_lost_answer_is_asked_for_again_once_the_others_have_answered(post, clock):
    calls = []
    post.grid.answering[1] = losing(named("north"), 2, calls)
    answers = exchange(post, "north", "south")
    assert isinstance(answers["north"], Parcel)
    assert len(calls) == 3
    assert clock.now == pytest.approx(40, abs=2.1)


def test_a_site_that_falls_silent_and_leaves_is_counted_once(post, clock):
    post.grid.answering[1] = losing(named("north"), 1, [])
    clock.happenings.append((10, lambda: post.grid.answering.pop(1)))
    answers = list(post.exchange({"north": Parcel({})}))
    assert answers == [("north", Trouble("it did not answer within 100 seconds"))]


def test_no_more_sites_work_at_once_than_may(post, clock):
    post.settings = EngineSettings(name="flower", deadline=100.0, at_once=1)
    calls = []
    post.grid.answering[1] = losing(named("north"), 1, calls)
    post.grid.answering[2] = lambda parcel: calls.append("south") or named("south")(parcel)
    answers = list(post.exchange({site: Parcel({}) for site in ("north", "south")}))
    assert [site for site, _ in answers] == ["north", "south"]
    assert calls == [Parcel({}), Parcel({}), "south"]


def test_of_two_copies_that_are_under_way_one_answer_counts(post, clock):
    waiting = []
    push = post.grid._push

    def pushed(message):  # the first copy is answered after the second was sent
        number = push(message)
        if message.metadata.dst_node_id == 1:
            waiting.append((number, message))
            post.grid.replies.pop(number, None)
        return number

    def both_answer():
        for number, message in waiting:
            reply = to_records(named("north")(Parcel({})))
            post.grid.replies[number] = Message(reply, reply_to=message)

    post.grid._push = pushed
    clock.happenings.append((30, both_answer))
    answers = list(post.exchange({site: Parcel({}) for site in ("north", "south")}))
    assert [site for site, _ in answers] == ["south", "north"]
    assert len(waiting) == 2


def test_a_copy_that_fails_does_not_count_while_the_other_is_under_way(post, clock):
    calls = []

    def answer(parcel):
        calls.append(parcel)
        if len(calls) == 1:
            raise NoAnswer
        if len(calls) == 2:
            raise RuntimeError("ClientApp stopped responding")
        return named("north")(parcel)

    post.grid.answering[1] = answer
    assert isinstance(exchange(post, "north")["north"], Parcel)
    assert len(calls) == 3


def test_machines_without_a_registered_name_are_asked_for_it(post, clock):
    post.grid.registered.clear()
    assert {a.about["site"] for a in exchange(post, "north", "south").values()} == {
        "north",
        "south",
    }
    assert post.names == {1: "north", 2: "south"}


def test_a_machine_that_fails_to_say_its_name_is_asked_again(post, clock):
    post.grid.registered.clear()
    calls = []

    def hesitates(parcel):
        calls.append(parcel)
        if len(calls) == 1:
            raise RuntimeError("not yet")
        return named("north")(parcel)

    post.grid.answering[1] = hesitates
    assert isinstance(exchange(post, "north")["north"], Parcel)


def test_two_machines_of_one_name_are_both_left_out(post):
    post.grid.answering[3] = named("north")
    post.grid.registered[3] = "north"
    answers = exchange(post, "north", "south")
    assert "more than one machine is connected under its name" in answers["north"].reason
    assert isinstance(answers["south"], Parcel)


def test_machines_without_a_registered_name_get_nothing_where_names_are_proven(post):
    heard = []
    post.introduction = None
    post.grid.answering[3] = lambda parcel: heard.append(parcel) or named("north")(parcel)
    assert exchange(post, "north")["north"].about["got"] == {"for": "north"}
    del post.grid.answering[1]
    assert isinstance(exchange(post, "north")["north"], Trouble)
    assert not heard


def test_the_site_takes_part_again_once_its_double_is_gone(post, clock):
    post.grid.answering[3] = named("north")
    post.grid.registered[3] = "north"
    clock.happenings.append((10, lambda: post.grid.answering.pop(3)))
    assert isinstance(exchange(post, "north")["north"], Parcel)


def test_unregistered_machines_of_one_name_are_left_out_too(post):
    post.grid.registered.clear()
    post.grid.answering[3] = named("north")
    exchange(post, "south")  # all have said their names now
    assert "more than one machine" in exchange(post, "north")["north"].reason


def test_content_that_is_no_parcel_is_an_answer_but_a_broken_one(post):
    from flwr.app import Message, RecordDict

    pushed = post.grid._push

    def push(message):
        number = pushed(message)
        post.grid.replies[number] = Message(RecordDict(), reply_to=message)
        return number

    post.grid._push = push
    assert "not a parcel" in exchange(post, "north")["north"].about["broken"]


def test_errors_of_flower_itself_name_no_site_but_are_mapped_to_one(post):
    from flwr.app import Error, Message

    pushed = post.grid._push

    def push(message):
        number = pushed(message)
        if message.metadata.dst_node_id == 1:
            error = Message(Error(5), reply_to=message)
            error.metadata.__dict__["_src_node_id"] = 1
            post.grid.replies[number] = error
        return number

    post.grid._push = push
    answers = exchange(post, "north", "south")
    assert answers["north"] == Trouble("Flower's error 5")
    assert isinstance(answers["south"], Parcel)


def test_replies_to_other_messages_are_ignored(post):
    from flwr.app import Message, RecordDict

    pull = post.grid.pull_messages

    def with_stranger(message_ids):
        real = list(pull(message_ids))
        strangers = []
        for message in real[:1]:
            stranger = Message(RecordDict(), reply_to=message)
            stranger.metadata.__dict__["_reply_to_message_id"] = "nobody's"
            strangers.append(stranger)
        return strangers + real

    post.grid.pull_messages = with_stranger
    assert isinstance(exchange(post, "north")["north"], Parcel)
