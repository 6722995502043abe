import subprocess
import sys

import pytest

import polyclinic as pc
from polyclinic.evaluation import METRICS, MaskPair

HEAVY = "torch numpy scipy pandas matplotlib numba PIL pydantic rich typer h5py onnxruntime IPython"


def fresh_process(code: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_importing_the_package_imports_nothing_heavy():
    code = f"import sys, polyclinic; print(*(set({HEAVY.split()!r}) & set(sys.modules)))"
    assert fresh_process(code) == []


def test_only_this_package_is_imported_beside_python_itself():
    code = (
        "import sys; before = set(sys.modules); import polyclinic;"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before};"
        "print(*(new - set(sys.stdlib_module_names)))"
    )
    assert fresh_process(code) == ["polyclinic"]


def test_metrics_and_weak_labels_do_not_wait_for_torch():
    code = "import sys, polyclinic as pc; pc.metrics.dice, pc.weaken; print('torch' in sys.modules)"
    assert fresh_process(code) == ["False"]


@pytest.mark.parametrize("name", pc.__all__)
def test_every_name_is_there_and_listed(name):
    assert getattr(pc, name) is not None
    assert name in dir(pc)


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nothing"):
        pc.nothing  # noqa: B018


def test_every_built_in_metric_of_a_region_is_a_function_of_two_masks():
    for name, metric in METRICS.items():
        if metric.of_what != "region":
            continue
        function = getattr(pc.metrics, name)
        masks = [[1, 1, 0, 0]], [[0, 1, 1, 0]]
        assert function(*masks) == metric.of(MaskPair(*masks))
    assert pc.metrics.hd([[1, 0, 0]], [[0, 0, 1]], spacing=(1.0, 0.5)) == 1.0
