from polyclinic.config import changes

BEFORE = {
    "name": "first",
    "training": {"batch": 12, "iterations": 10},
    "method": [{"name": "fedavg"}],
    "engine": {"name": "local", "workers": 1, "threads": 1},
}


def test_nothing_changed():
    assert changes(BEFORE, BEFORE) == []


def test_every_changed_setting_is_named_with_both_values():
    now = BEFORE | {
        "training": {"batch": 8, "epochs": 2},
        "method": [{"name": "fedavg", "then": [{"name": "finetune", "iterations": 3}]}],
    }
    assert changes(BEFORE, now) == [
        "training.batch was 12, is 8",
        "training.iterations was 10, is not set",
        "training.epochs was not set, is 2",
        'method[0].then[0].name was not set, is "finetune"',
        "method[0].then[0].iterations was not set, is 3",
    ]


def test_what_leaves_the_weights_as_they_are_may_change_and_nothing_else():
    now = BEFORE | {"engine": {"name": "local", "workers": 4, "threads": 2}}
    assert changes(BEFORE, now) == ["engine.threads was 1, is 2"]
