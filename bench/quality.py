"""How well quality notes find the worst predictions, on test cases that nothing was chosen by.

    python -m bench.quality models/ data/ [--cross]

`models/` holds a package of each site (`polyclinic export RUN --all --to models/`), `data/` the
sites' folders by the same names. A case is bad if its Dice is in the worst tenth of its site, or
of all cases together. The AUC is the chance that a bad case has more doubt than another one.
"""

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polyclinic.predict import load
from polyclinic.predict.labelled import labelled_site

WORST = 0.1
Array = NDArray[np.generic]
Found = list[tuple[float, dict[str, float], bool]]  # Dice, measures of doubt, has it a reason?


def main(models: Path, data: Path, cross: bool) -> None:
    files = sorted(models.glob("*.polyclinic"))
    pooled: Found = []
    print(
        f"{'model':<14}{'site':<14}{'cases':>6}{'Dice':>7}{'worst 10 %':>11}{'AUC':>6}  by measure"
    )
    for file in files:
        model = load(file, threads=1)
        for folder in sorted(path for path in data.iterdir() if path.is_dir()):
            if not cross and folder.name != file.stem:
                continue
            found = []
            for case in labelled_site(folder, model.task).cases(model.task):
                seen = model.look(case.image)
                dice = float(
                    np.mean(
                        [_dice(seen.classes, case.mask, c) for c in model.task.regions.values()]
                    )
                )
                measures = {"doubt": seen.note.doubt, **seen.note.measures}
                found.append((dice, measures, bool(seen.note.reasons)))
            _tell(file.stem, folder.name, found)
            pooled += found
    _tell("all", "all", pooled)


def _dice(predicted: Array, true: Array, classes: tuple[int, ...]) -> float:
    one, other = np.isin(predicted, classes), np.isin(true, classes)
    total = one.sum() + other.sum()
    return 2 * (one & other).sum() / total if total else 1.0


def _tell(model: str, site: str, found: Found) -> None:
    dice = np.array([each for each, _, _ in found])
    limit = np.quantile(dice, WORST)
    bad = dice <= limit
    aucs = {name: auc(np.array([each[name] for _, each, _ in found]), bad) for name in found[0][1]}
    rest = "  ".join(f"{name} {value:.2f}" for name, value in aucs.items() if name != "doubt")
    flagged = np.array([noted for _, _, noted in found])
    print(
        f"{model:<14}{site:<14}{len(dice):>6}{100 * dice.mean():>7.1f}{100 * limit:>11.1f}"
        f"{aucs['doubt']:>6.2f}  {rest}  "
        f"noted {flagged.mean():.0%} of all, {flagged[bad].mean():.0%} of bad"
    )


def auc(values: Array, positive: Array) -> float:
    """The chance that a positive has the higher value, ties counting half."""
    above = values[positive][:, None] - values[~positive][None]
    return float(np.mean((above > 0) + 0.5 * (above == 0)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), "--cross" in sys.argv)
