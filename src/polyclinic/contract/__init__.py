"""What every method must keep, as checks that say in words what a method breaks."""

from polyclinic.contract.checks import CHECKS
from polyclinic.contract.examining import Finding, examine
from polyclinic.contract.trial import Trial
from polyclinic.contract.violation import Violation

__all__ = ["CHECKS", "Finding", "Trial", "Violation", "examine"]
