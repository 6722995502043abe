"""What every method must keep, as checks that say in words what a method breaks."""

from polyclinic.contract.checks import CHECKS, Finding, examine
from polyclinic.contract.plans import Violation
from polyclinic.contract.trial import Trial
