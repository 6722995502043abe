"""The model card: what a model was made from, how good it is, and what it is not for."""

import math
from typing import Any

from polyclinic.evaluation.intervals import NONE_FOR_FEW
from polyclinic.predict.facts import PackageFacts, ScoreFacts
from polyclinic.predict.pages import number, rendered

NOT_FOR = (
    "Decisions about patients: it is not a medical device, and nobody has certified it.",
    "Images of another kind, organ or device than those it was trained on, without an evaluation "
    "there (`polyclinic evaluate`).",
    "Unsupervised use: somebody who can judge the masks must look at them, first of all where the "
    "quality note gives a reason.",
    "Finding out who took part in the training: weights can tell something about training images.",
)


def card_text(facts: PackageFacts) -> str:
    """The card in Markdown."""
    return rendered("card.md", **_context(facts))


def card_page(facts: PackageFacts) -> str:
    """The card as a page."""
    return rendered("card.html", **_context(facts))


def _context(facts: PackageFacts) -> dict[str, Any]:
    metrics = {score.metric: score for score in facts.scores}
    rows: dict[tuple[str, str], dict[str, ScoreFacts]] = {}
    for score in facts.scores:
        rows.setdefault((score.site, score.region), {})[score.metric] = score
    return {
        "facts": facts,
        "task": facts.task,
        "metrics": list(metrics.values()),
        "rows": [(site, region, found) for (site, region), found in rows.items()],
        "owners": {member.site for member in facts.members},
        "scored": _scored(facts),
        "few": f" {NONE_FOR_FEW}" if any(math.isnan(each.low) for each in facts.scores) else "",
        "failures": list(failures(facts)),
        "not_for": NOT_FOR,
        "settings": facts.settings,
    }


def _scored(facts: PackageFacts) -> str:
    """What was scored at each site."""
    if len(facts.members) > 1:
        return "The whole ensemble was scored at each site, when it was exported"
    if facts.members[0].site == "server":
        return "This model was scored at each site"
    return "Each site was scored with the model it uses"


def failures(facts: PackageFacts) -> list[str]:
    """What is known to go wrong, in sentences."""
    told = []
    if not facts.scores:
        told.append(
            "This model as such has no test scores: no test cases lay where it was exported. Run "
            "`polyclinic evaluate` first."
        )
    first = facts.scores[0].metric if facts.scores else ""
    scores = [score for score in facts.scores if score.metric == first]
    for score in scores:
        tenth, mean = (number(each, score.unit) for each in (score.worst_tenth, score.mean))
        word = "below" if score.better == "higher" else "above"
        told.append(
            f"At {score.site} one test case in ten has a {score.title} of {score.region} {word} "
            f"{tenth} (mean {mean}, {score.cases} cases)."
        )
    few = sorted({score.site for score in scores if score.patients < 20})
    if few:
        told.append(
            f"Fewer than 20 patients were tested at {', '.join(few)}: intervals are wide, if there "
            "are any."
        )
    weak = [f"{site.name} ({site.labels})" for site in facts.sites if site.labels != "mask"]
    if weak:
        told.append(f"Weak labels instead of full masks taught it at {', '.join(weak)}.")
    if facts.quality is None:
        told.append("No thresholds for quality notes: the cases could not be read at export.")
    return told
