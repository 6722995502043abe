"""The round loop alone, with sites in memory that train nothing."""

from dataclasses import dataclass, replace

import pytest
import torch

from polyclinic.engine.loop import RoundDone, TooFewSites
from polyclinic.federation.message import Message
from polyclinic.federation.method import Method, Stage
from polyclinic.federation.site import TrainingFailed
from tests.engine.memory_sites import MemorySites, a_loop

MEAN = (1 * 1 + 2 * 2 + 5 * 5) / 8  # what a round adds: each site its images, weighted by them
ALL = ("east", "north", "west")


def finished(events):
    return [event.round for event in events if isinstance(event, RoundDone)]


def test_rounds_are_counted_from_what_comes_before_to_what_closes_the_run(tmp_path):
    sites = MemorySites()
    loop, recorded = a_loop(tmp_path, sites, choose="last")
    assert finished(loop.run()) == [0, 1, 2, 3, 4]
    assert sites.asked == [
        (1, "fit", ALL, 0),
        (2, "fit", ALL, 1),
        (3, "fit", ALL, 2),
        (4, "finalize", ALL, 3),
    ]
    assert loop.server.weights["w"].tolist() == [3 * MEAN] * 2
    assert [len(lines) for lines, _, _ in recorded] == [0, 3, 3, 3, 3, 0]


def test_validation_is_done_when_due_and_the_test_once_at_the_end(tmp_path):
    sites = MemorySites()
    list(a_loop(tmp_path, sites, rounds=5, every=2, choose="last")[0].run())
    validated = [("val", number, number, True) for number in (2, 4, 5)]
    assert sites.scorings == [*validated, ("test", 5, 6, False)]
    sites = MemorySites()
    list(a_loop(tmp_path / "never", sites, every=0, choose="last")[0].run())
    assert [number for split, number, *_ in sites.scorings if split == "val"] == [3]


@pytest.mark.parametrize(
    ("dice", "best"),
    [({1: 0.1, 2: 0.9, 3: 0.3}, 2), ({1: 0.6, 2: 0.6, 3: 0.6}, 1), ({1: 0.1, 2: 0.2, 3: 0.3}, 3)],
)
def test_the_best_round_is_used_and_of_equals_the_first(tmp_path, dice, best):
    sites = MemorySites(dice=dice)
    loop, _ = a_loop(tmp_path, sites)
    list(loop.run())
    assert loop.chosen_round == best
    assert sites.asked[-1] == (4, "finalize", ALL, best)
    assert sites.scorings[-1] == ("test", best, 4, False)
    assert loop.server.weights["w"].tolist() == [best * MEAN] * 2


def test_states_are_kept_of_the_best_and_of_the_last_two_rounds(tmp_path):
    sites = MemorySites(dice={1: 0.9})
    list(a_loop(tmp_path, sites)[0].run())
    assert [set(needed) for needed in sites.needed[2:]] == [{1, 2}, {1, 2, 3}, {1, 3, 4}]


@pytest.mark.parametrize("killed_after", [0, 1, 2, 3])
def test_a_loop_goes_on_after_its_last_finished_round(tmp_path, killed_after):
    dice = {1: 0.9, 2: 0.2, 3: 0.3}
    whole, _ = a_loop(tmp_path / "whole", MemorySites(dice=dice))
    list(whole.run())
    for event in a_loop(tmp_path, MemorySites(dice=dice))[0].run():
        if isinstance(event, RoundDone) and event.round == killed_after:
            break
    resumed, _ = a_loop(tmp_path, MemorySites(dice=dice))
    assert finished(resumed.run()) == list(range(killed_after + 1, 5))
    assert resumed.chosen_round == whole.chosen_round == 1
    assert resumed.server.weights["w"].equal(whole.server.weights["w"])


def test_a_share_of_the_sites_is_drawn_anew_each_round_and_the_same_twice(tmp_path):
    drawn = []
    for folder in ("one", "other"):
        sites = MemorySites()
        list(a_loop(tmp_path / folder, sites, rounds=12, participation=0.6)[0].run())
        drawn.append([asked[2] for asked in sites.asked])
    *rounds, closing = drawn[0]
    assert drawn[0] == drawn[1]
    assert {len(sites) for sites in rounds} == {2}
    assert set(rounds) == {("east", "north"), ("east", "west"), ("north", "west")}
    assert closing == ALL


@dataclass(frozen=True)
class Ring(Method):
    """Each site works on what the one before it sent."""

    def each_round(self):
        return (Stage("fit", self.message, self.visit, self.pass_on, ring=True),)

    def pass_on(self, server, replies):
        (reply,) = replies.values()
        server.weights = reply.weights.copy()


def test_in_a_ring_each_site_gets_what_the_one_before_it_sent(tmp_path):
    sites = MemorySites()
    loop, _ = a_loop(tmp_path, sites, rounds=1, method=Ring(), choose="last")
    list(loop.run())
    assert [asked[2] for asked in sites.asked] == [("east",), ("north",), ("west",), ALL]
    assert loop.server.weights["w"].tolist() == [1 + 2 + 5] * 2


@dataclass(frozen=True)
class Warm(Method):
    """Its first two rounds prepare it."""

    def warm_rounds(self, rounds):
        return 2

    def warm_round(self):
        return (replace(*self.each_round(), name="prepare"),)


def test_the_best_round_is_none_of_those_that_only_prepare(tmp_path):
    sites = MemorySites(dice={1: 0.7, 2: 0.9, 3: 0.3})
    loop, _ = a_loop(tmp_path, sites, method=Warm())
    list(loop.run())
    assert loop.chosen_round == 3


@dataclass(frozen=True)
class InOrder(Method):
    """Looks at the order in which replies are combined."""

    def combine(self, server, replies):
        assert tuple(replies) == ALL
        super().combine(server, replies)


def test_replies_are_combined_in_the_order_of_the_sites_whoever_answered_first(tmp_path):
    list(a_loop(tmp_path, MemorySites(), method=InOrder())[0].run())


def test_a_site_that_is_away_is_left_out_and_said(tmp_path):
    sites = MemorySites(quorum=0.5, away={2: {"west"}})
    loop, recorded = a_loop(tmp_path, sites, rounds=2, choose="last")
    list(loop.run())
    without = (1 * 1 + 2 * 2) / 3
    assert loop.server.weights["w"].tolist() == pytest.approx([MEAN + without] * 2)
    missed = {line.site: line.missed for line in recorded[2][0]}
    assert missed == {"east": "", "north": "", "west": "no answer"}


def test_too_few_answers_stop_the_run_and_keep_the_round_before(tmp_path):
    sites = MemorySites(quorum=0.5, away={2: {"west", "east"}})
    loop, _ = a_loop(tmp_path, sites)
    with pytest.raises(TooFewSites, match=r"only 1 of 3 .* round 2, stage fit, and 2 are needed"):
        list(loop.run())
    assert loop.progress.round == 1
    assert not loop.replies.folder.exists()


@pytest.mark.parametrize("spoils", [float("nan"), float("inf")])
def test_a_reply_that_is_not_numbers_stops_the_run_with_the_site_named(tmp_path, spoils):
    loop, _ = a_loop(tmp_path, MemorySites(spoils=spoils))
    with pytest.raises(TrainingFailed, match=r"site west .* in round 1, stage fit"):
        list(loop.run())


def test_the_record_holds_what_the_server_noted_once(tmp_path):
    @dataclass(frozen=True)
    class Noting(Method):
        def combine(self, server, replies):
            server.note("likeness", torch.eye(3))

    loop, recorded = a_loop(tmp_path, MemorySites(), rounds=2, method=Noting())
    list(loop.run())
    assert [[table.round for table in tables] for *_, tables in recorded] == [[], [1], [2], [], []]


def test_a_message_without_weights_is_an_answer_too(tmp_path):
    @dataclass(frozen=True)
    class Quiet(Method):
        def message(self, server, info):
            return Message()

        def combine(self, server, replies):
            assert all(not reply.weights for reply in replies.values())

    list(a_loop(tmp_path, MemorySites(), method=Quiet())[0].run())


@pytest.mark.parametrize("discloses", [False, True])
def test_replies_wait_in_files_unless_they_disclose_what_is_private(tmp_path, discloses):
    files = []

    @dataclass(frozen=True)
    class Watched(Method):
        def each_round(self):
            return tuple(replace(each, discloses=discloses) for each in super().each_round())

        def combine(self, server, replies):
            files.append({file.stem for file in loop.replies.folder.glob("*")})
            super().combine(server, replies)

    loop, _ = a_loop(tmp_path, MemorySites(), method=Watched())
    list(loop.run())
    assert files == [set() if discloses else set(ALL)] * 3


@dataclass(frozen=True)
class Spoilt(Method):
    """Makes weights from the second round's replies that nobody could use."""

    factor: float = 1.0

    def combine(self, server, replies):
        super().combine(server, replies)
        if server.round == 2:
            server.weights.flat.mul_(self.factor)


@pytest.mark.parametrize("factor", [float("inf"), 1e30])
def test_combined_weights_that_nobody_could_use_never_replace_a_good_checkpoint(tmp_path, factor):
    loop, _ = a_loop(tmp_path, MemorySites(), method=Spoilt(factor), choose="last")
    with pytest.raises(TrainingFailed, match=r"combined in round 2.*the round before are kept"):
        list(loop.run())
    resumed, _ = a_loop(tmp_path, MemorySites(), choose="last")
    list(resumed.run())
    assert resumed.server.weights["w"].tolist() == [3 * MEAN] * 2
