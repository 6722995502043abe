"""What stands in for labels that are not there, and where each method has it from."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from polyclinic.config.section import Positive, Section, Share

Weight = Annotated[float, Field(ge=0)]


class WeakSettings(Section):
    """Terms of the loss at sites whose labels are weak; full masks need none of them.

    A weight of 0 is off. Lengths are shares of the image's side, and differences are means over
    channels or relative to the image's own, so that values mean the same at every resolution and
    with any number of channels.
    """

    crf: Weight = 0.0
    """Weight of the gated CRF: neighbours that look alike should be predicted alike."""
    crf_reach: Positive = 0.02
    """How far the CRF looks, as a share of the image's side; one pixel at least."""
    crf_near: Positive = 0.0235
    """Distance that counts as near for the CRF, as a share of the image's side."""
    crf_alike: Positive = 0.05
    """Difference of normalised values that counts as alike for the CRF."""
    tree: Weight = 0.0
    """Weight of the tree energy: predictions should stay what the trees of image and guides say."""
    tree_alike: Positive = 0.2
    """Squared step that counts as alike in a tree, over the mean squared step of its image."""
    box_tightness: Weight = 0.0
    """Weight of the tightness of boxes: an object meets every line through its box."""
    pseudo_labels: Weight = 0.0
    """Weight of the Dice loss on pseudo labels of two branches; adds a second decoder."""
    least_share: Share = 0.7
    """Smallest share of the main branch in a pseudo label."""

    @property
    def on(self) -> bool:
        """Whether any term is."""
        return any((self.crf, self.tree, self.box_tightness, self.pseudo_labels))

    def changed(self, *given: Mapping[str, Any]) -> "WeakSettings":
        """These settings with others put over them, the last one's first."""
        merged = dict(self)
        for each in given:
            merged |= each
        return WeakSettings(**merged)

    @property
    def written(self) -> dict[str, Any]:
        """What somebody set, without the defaults."""
        return {name: getattr(self, name) for name in self.model_fields_set}
