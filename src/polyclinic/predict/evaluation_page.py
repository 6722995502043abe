"""An evaluation as files: a page that needs nothing beside itself, and a table of all scores."""

from collections.abc import Sequence
from pathlib import Path

from polyclinic.predict.evaluating import Evaluation
from polyclinic.predict.facts import ScoreFacts
from polyclinic.predict.pages import rendered
from polyclinic.predict.viewing import embedded
from polyclinic.runs import write_atomic


def write_evaluation(
    evaluation: Evaluation, to: Path, titles: Sequence[str], *, in_square: bool = False
) -> Path:
    """Write `scores.csv` and the page into a folder, and give the page's path."""
    write_atomic(to / "scores.csv", evaluation.to_csv())
    rows: dict[str, dict[tuple[str, str], dict[str, ScoreFacts]]] = {}
    for model, facts in evaluation.summary():
        of_site = rows.setdefault(facts.site, {})
        of_site.setdefault((model, facts.region), {})[facts.metric] = facts
    page = rendered(
        "evaluation.html",
        title=" and ".join(titles) if len(titles) < 3 else f"{len(titles)} models",
        evaluation=evaluation,
        in_square=in_square,
        metrics=list(evaluation.metrics.values()),
        names=list(evaluation.metrics),
        rows={
            site: [(model, region, found) for (model, region), found in groups.items()]
            for site, groups in rows.items()
        },
        pictures=[
            (model, [(worst, embedded(worst.picture)) for worst in found])
            for model, found in evaluation.worst.items()
        ],
    )
    write_atomic(to / "evaluation.html", page)
    return to / "evaluation.html"
