from polyclinic.config.titles import default_title
from polyclinic.methods import FINISHING_STEPS, METHODS
from tests.config.example import load, mistakes


def labels(folder, methods):
    return [method.title for method in load(folder, f'task = "octa"\nmethod = {methods}\n').method]


def test_a_label_is_made_of_the_names_of_the_classes(tmp_path):
    methods = '["fedavg", {name = "fedavg", then = ["finetune"]}, "fedprox"]'
    assert labels(tmp_path, methods) == ["FedAvg", "FedAvg + FineTune", "FedProx"]


def test_a_method_with_a_title_is_called_by_it():
    pieces = [METHODS["fc-pflfe"](), FINISHING_STEPS["finetune"]()]
    assert default_title(pieces) == "FC-pFLFE + FineTune"
    assert default_title([METHODS["pflfe"]()]) == "pFLFE"


def test_equal_labels_are_told_apart_by_the_settings_that_differ(tmp_path):
    methods = '["fedprox", {name = "fedprox", mu = 0.1}, "fedavg"]'
    assert labels(tmp_path, methods) == ["FedProx (mu=0.01)", "FedProx (mu=0.1)", "FedAvg"]


def test_settings_inside_tables_and_finishing_steps_tell_labels_apart(tmp_path):
    methods = """[
        {name = "fedprox", strength = "none"}, {name = "fedprox", projector = {depth = 3}},
        {name = "fedavg", then = "finetune"},
        {name = "fedavg", then = {name = "finetune", epochs = 2}},
    ]"""
    assert labels(tmp_path, methods) == [
        "FedProx (projector.depth=2, strength=none)",
        "FedProx (projector.depth=3, strength=learned)",
        "FedAvg + FineTune (finetune.epochs=1)",
        "FedAvg + FineTune (finetune.epochs=2)",
    ]


def test_written_labels_stay_as_they_are(tmp_path):
    methods = '[{name = "fedprox", title = "a"}, {name = "fedprox", title = "b"}]'
    assert labels(tmp_path, methods) == ["a", "b"]


def test_equal_written_labels_are_refused_whatever_the_case(tmp_path):
    methods = '[{name = "fedavg", title = "Ours"}, {name = "fedprox", title = "ours"}]'
    found = mistakes(tmp_path, f'task = "octa"\nmethod = {methods}\n')
    assert list(found) == ["method.fedavg.title", "method.fedprox.title"]
    assert 'title = "Ours": is the title of another method too' in found["method.fedavg.title"]


def test_a_written_label_that_equals_a_made_one_is_refused(tmp_path):
    methods = '[{name = "fedavg"}, {name = "fedprox", title = "FedAvg"}]'
    found = mistakes(tmp_path, f'task = "octa"\nmethod = {methods}\n')
    assert list(found) == ["method.fedavg.title", "method.fedprox.title"]


def test_labels_that_name_the_same_folder_are_refused(tmp_path):
    methods = '[{name = "fedavg", title = "Fed+Avg"}, {name = "fedprox", title = "fed avg."}]'
    assert len(mistakes(tmp_path, f'task = "octa"\nmethod = {methods}\n')) == 2
    methods = '[{name = "fedprox", strength = 1}, {name = "fedprox", strength = -1}]'
    (line, _) = mistakes(tmp_path, f'task = "octa"\nmethod = {methods}\n').values()
    assert 'title = "FedProx (strength=1.0)": ' in line
    assert "names the same folder" in line


def test_the_same_method_twice_is_refused(tmp_path):
    found = mistakes(tmp_path, 'task = "octa"\nmethod = ["fedavg", "fedavg"]\n')
    assert list(found) == ["method.fedavg.title", "method.fedavg#2.title"]
