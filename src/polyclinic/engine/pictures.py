"""Pictures of a site's best, median and worst test case, with true and predicted contours.

Of a site whose cases cannot be scored, the first ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from polyclinic.data.cases import Cases
from polyclinic.data.pictures import compared
from polyclinic.data.tasks import Task
from polyclinic.evaluation import METRICS
from polyclinic.evaluation.scoring import ScoreRow
from polyclinic.runs import Rank, RunFolder, replacing

SIDE = 256  # pixels
UNSCORED: Rank = "unscored"


def draw_pictures(
    run: RunFolder,
    site: str,
    task: Task,
    cases: Cases,
    predicted: NDArray[np.uint8],
    rows: Sequence[ScoreRow],
) -> None:
    """Write the pictures of one site into the run folder."""
    places = [*ranked(cases.names, rows).items()]
    for rank, index in places or [(UNSCORED, index) for index in range(len(cases))]:
        image, mask = cases.images[index].cpu().numpy(), cases.masks[index].cpu().numpy()
        picture = compared(image, mask, predicted[index], task, SIDE)
        with replacing(run.picture_path(site, rank, cases.names[index])) as unfinished:
            Image.fromarray(picture).save(unfinished, format="PNG")


def ranked(names: Sequence[str], rows: Sequence[ScoreRow]) -> dict[Rank, int]:
    """Where the best, median and worst case are by the first metric; nowhere without scores."""
    if not rows:
        return {}
    values = defaultdict(list)
    for row in rows:
        if row.metric == rows[0].metric:
            values[row.case].append(row.value)
    sign = -1 if METRICS[rows[0].metric].better == "higher" else 1
    order = sorted(range(len(names)), key=lambda index: sign * np.mean(values[names[index]]))
    places: dict[Rank, int] = {"best": 0, "median": len(order) // 2, "worst": len(order) - 1}
    return {rank: order[place] for rank, place in places.items()}
