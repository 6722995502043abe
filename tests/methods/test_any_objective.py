"""Whatever a study wants to be minimised, every method minimises, and adds to it at most."""

import pytest

from polyclinic.losses import LOSSES
from polyclinic.methods import METHODS

KINDS = ("point", "mask")
SETTINGS = {
    "pflfe": ("method.enhancement.share=0",),  # whose steps look at no labels
    "fc-pflfe": ("method.enhancement.share=0",),
    "consensus": ("method.warm_up=1",),
    "fedsoup": ("method.warm_up=0.5",),
    "metafed": ("method.skilled_above=-1",),  # so that sites are taught and do not copy
}
QUICK = ("moon", "apfl", "fedgkd", "consensus", "virtual-classes")  # with losses of their own


@pytest.mark.usefixtures("narrow_pyramids")
@pytest.mark.parametrize(
    "name",
    [each if each in QUICK else pytest.param(each, marks=pytest.mark.slow) for each in METHODS],
)
def test_every_step_of_every_method_asks_for_the_studys_loss(federation, monkeypatch, name):
    asked = []

    def counted(logits, labels):
        asked.append(logits.requires_grad)
        return LOSSES["ce"](logits, labels)

    monkeypatch.setitem(LOSSES, "counted", counted)
    small = federation(rounds=2, kinds=KINDS)
    choices = ("training.loss=counted", "evaluation.choose=last", *SETTINGS.get(name, ()))
    done = small.run(name, *choices)
    steps = sum(line.numbers["steps"] for line in done.folder.rounds())
    assert asked.count(True) >= steps > 0
