"""FedDP: local queries and calibration (Wang et al., IEEE TMI 2024, 10.1109/TMI.2023.3299206).

The second half, calibration guided by inconsistency, can follow any method: calibration.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from torch import Tensor

from polyclinic.federation.method import Method, Stage
from polyclinic.federation.site import Site
from polyclinic.methods.calibration import IGC
from polyclinic.networks.attention_maps import middle_attention
from polyclinic.networks.contract import Segmenter
from polyclinic.networks.parts import Names, everything, nonempty


@dataclass(frozen=True)
class FedDP(Method):
    """Averaging of all but the queries of a transformer's attention, then calibration."""

    private: Literal["queries", "keys", "values", "queries+keys", "none"] = "queries"
    """The part of the attention that is private."""
    calibrate: bool = True
    """Calibrate after the last round (IGC)."""
    calibration: IGC = field(default_factory=IGC)
    """The settings of the calibration."""

    paper_weighting: ClassVar[str] = "uniform"
    late: ClassVar[frozenset[str]] = frozenset({"calibrate", "calibration"})

    def shares(self, net: Segmenter) -> Names:
        """All but the private parts of the attention."""
        names = everything(net)
        for name in self.private.split("+") if self.private != "none" else ():
            own = net.parts().get(name, frozenset())
            reason = f"FedDP keeps the {name} of a transformer's attention private"
            advice = 'take the network pvt_fpn, or private = "none" for calibration alone'
            names -= nonempty(own, net, reason, advice)
        return names

    def after(self) -> tuple[Stage, ...]:
        """Each site discloses its queries and calibrates its model with those of the others."""
        return self.calibration.stages(self) if self.calibrate else ()

    def attention_maps(self, site: Site, images: Tensor) -> Mapping[str, Tensor]:
        """What the middle of each image attends to with the site's queries."""
        return middle_attention(site.net, images)
