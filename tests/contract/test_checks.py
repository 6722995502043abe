"""Every check is seen to fail."""

import pytest

from polyclinic.contract import CHECKS, Trial, Violation
from tests.contract.broken import BROKEN
from tests.small_unet import SmallUNet


def test_there_is_a_broken_method_for_every_check():
    assert BROKEN.keys() == CHECKS.keys()


@pytest.mark.parametrize(
    ("check", "kind", "told"),
    [(check, kind, told) for check, kinds in BROKEN.items() for kind, told in kinds],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_a_method_that_breaks_a_point_is_told_so(tmp_path, check, kind, told):
    with pytest.raises(Violation, match=f"(?s){told}"):
        CHECKS[check](Trial(kind, tmp_path, {SmallUNet.name: SmallUNet}))
