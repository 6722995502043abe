"""Local training: every site alone, the floor of a federation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from polyclinic.federation.message import Message
from polyclinic.federation.method import Method
from polyclinic.federation.server import Server
from polyclinic.networks.contract import Segmenter
from polyclinic.networks.parts import Names


@dataclass(frozen=True)
class Local(Method):
    """Each site trains alone from the common start; nothing is shared."""

    paper_weighting: ClassVar[str] = ""
    mean_only: ClassVar[str] = ""

    def shares(self, net: Segmenter) -> Names:  # noqa: ARG002
        """Nothing."""
        return frozenset()

    def combine(self, server: Server, replies: Mapping[str, Message]) -> None:
        """Nothing to combine."""
