"""Re-estimation: a finishing step that fits norm layers' statistics to each site (AdaBN).

Li et al., "Adaptive batch normalization for practical domain adaptation", 2018, arXiv 1603.04779.
"""

from dataclasses import dataclass

from polyclinic.federation.estimating import reestimating
from polyclinic.federation.method import Method, Stage, ignore, silent, stay


@dataclass(frozen=True)
class Reestimate:
    """In the end each site computes the running statistics of its model anew, without labels.

    Nothing learns: its training images pass once, as they are, through the model that it uses.
    """

    def stages(self, method: Method) -> tuple[Stage, ...]:
        """One stage in which nothing travels."""
        stage = Stage("reestimate", silent, stay, ignore, finalizes=True)
        return (reestimating(method, stage),)
