"""What a report says of folds: which there are, and what they took turns at."""

from collections.abc import Iterable

from polyclinic.report.reading import Comparison, Run
from polyclinic.report.words import amount, enumeration


def folds_of(runs: Iterable[Run]) -> list[int]:
    """The folds of these runs in their order; none without folds."""
    return sorted({run.about.fold for run in runs if run.about.fold is not None})


def seeds_and_folds(runs: Iterable[Run]) -> str:
    """Each seed once and, where there are folds, each fold: `0 and 1; folds 0, 1 and 2`."""
    found = list(runs)
    seeds = enumeration([str(seed) for seed in sorted({run.about.seed for run in found})])
    folds = folds_of(found)
    word = "fold" if len(folds) == 1 else "folds"
    return f"{seeds}; {word} {enumeration(list(map(str, folds)))}" if folds else seeds


def folds_sentence(comparison: Comparison) -> str:
    """How cases were cut into folds, and what each fold was for; nothing without folds."""
    folds = folds_of(comparison.runs)
    if not folds:
        return ""
    data = comparison.runs[0].settings.get("data", {})
    cut = f"Cases were cut into {amount(int(data.get('folds', len(folds))), 'fold')} by patients"
    if len(folds) == 1:
        return f"{cut}, of which fold {folds[0]} was run."
    stayed = _tested_alike(comparison)
    if set(stayed) == set(comparison.sites):
        turns = "which took turns to validate, while test cases stayed the same"
    else:
        turns = "each of which was the test set in turn"
        turns += f", but at {enumeration(stayed)}, whose test cases stayed" if stayed else ""
    return f"{cut}, {turns}; numbers of images are those with fold {folds[0]}."


def _tested_alike(comparison: Comparison) -> list[str]:
    """The sites of which some case was tested in several folds."""
    found: dict[tuple[str, str], set[int]] = {}
    for run in comparison.runs:
        for site, cases in run.patients.items():
            for case in cases:
                found.setdefault((site, case), set()).add(run.fold)
    several = {site for (site, _), folds in found.items() if len(folds) > 1}
    return [site for site in comparison.sites if site in several]
