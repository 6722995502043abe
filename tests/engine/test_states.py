import torch

from polyclinic.engine.states import SiteState, StateFolder


def state(value):
    weights = {"w": torch.full((2, 3), float(value))}
    return SiteState(weights, {"mixture/w": torch.full((2,), -float(value))})


def a_folder(tmp_path, *rounds):
    folder = StateFolder(tmp_path / "sites")
    for number in rounds:
        folder.save("north", number, state(number), {"round": str(number)})
    return folder


def test_the_newest_state_up_to_a_round_is_the_one_in_force(tmp_path):
    folder = a_folder(tmp_path, 1, 3, 7)
    for since, number in ((1, 1), (2, 1), (3, 3), (6, 3), (7, 7), (99, 7)):
        found = folder.load("north", since)
        assert found.weights["w"].eq(number).all()
        assert found.memory["mixture/w"].eq(-number).all()
    assert folder.load("north", 0) is None
    assert folder.load("south", 7) is None


def test_a_state_comes_with_what_is_noted_about_it(tmp_path):
    found, about = a_folder(tmp_path, 3).read("north", 3)
    assert about == {"round": "3"}
    assert found.weights["w"].tolist() == [[3.0] * 3] * 2


def test_writing_a_round_again_replaces_it(tmp_path):
    folder = a_folder(tmp_path, 2)
    folder.save("north", 2, state(5), {})
    assert folder.rounds("north") == [2]
    assert folder.load("north", 2).weights["w"].eq(5).all()


def test_only_states_that_a_round_could_ask_for_are_kept(tmp_path):
    folder = a_folder(tmp_path, 1, 2, 4, 5, 9)
    folder.keep_only("north", [3, 5])
    assert folder.rounds("north") == [2, 5]  # round 3 would ask for that of round 2
    folder.keep_only("north", [0])
    assert folder.rounds("north") == []
