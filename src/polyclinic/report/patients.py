"""Who is who in several runs, each of which numbers the patients of its own test cases."""

from collections.abc import Mapping
from itertools import count

from polyclinic.evaluation.ranking import Patients
from polyclinic.report.reading import Comparison


def patients_of(comparison: Comparison) -> Patients:
    """Numbers of patients by site and case that hold for all runs; 0 is unknown.

    Cases are of one patient where a run says so: another fold's patient of the same number is
    somebody else, unless both have a case in common. A case is unknown as soon as one run does not
    tell.
    """
    found: dict[str, dict[str, int]] = {}
    untold: set[tuple[str, str]] = set()
    numbers = count(1)
    for run in comparison.runs:
        for site, cases in run.patients.items():
            known = found.setdefault(site, {})
            untold.update((site, case) for case, number in cases.items() if not number)
            for own in _by_patient(cases):
                before = {known.get(case, 0) for case in own}
                if len(before) > 1 or 0 in before:
                    joined = [case for case, number in known.items() if number in before]
                    known.update(dict.fromkeys([*joined, *own], next(numbers)))
    return {
        site: {case: 0 if (site, case) in untold else number for case, number in cases.items()}
        for site, cases in found.items()
    }


def all_known(comparison: Comparison) -> bool:
    """Whether every run tells which cases are of one patient."""
    return all(
        number
        for run in comparison.runs
        for cases in run.patients.values()
        for number in cases.values()
    )


def _by_patient(cases: Mapping[str, int]) -> list[list[str]]:
    """The cases of each patient, each alone whose patient is unknown."""
    found: dict[int | str, list[str]] = {}
    for case, number in cases.items():
        found.setdefault(number or case, []).append(case)
    return list(found.values())
