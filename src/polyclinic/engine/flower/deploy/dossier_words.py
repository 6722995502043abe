"""A hospital's settings and a study's in words: what flows, who sees what, and what it costs."""

from collections.abc import Iterator
from math import inf, isfinite
from typing import NamedTuple

from polyclinic.config import Study
from polyclinic.config.callables import meanings
from polyclinic.config.node_file import NodeFile
from polyclinic.config.section import Section
from polyclinic.engine.flower.ledger import Ledger
from polyclinic.engine.flower.limits import validations
from polyclinic.engine.flower.privacy import epsilon_of

Facts = list[tuple[str, str]]


class Flow(NamedTuple):
    """Something that could leave a hospital, and whether it does."""

    what: str
    leaves: str
    by: str  # the setting that decides


class Seen(NamedTuple):
    """What a coordinator learns of something, if it only looks and if it means harm."""

    what: str
    curious: str
    malicious: str


def study_facts(study: Study) -> Facts:
    """The settings of a study that matter for privacy."""
    task, training, rounds = study.task.built, study.training, study.federation.rounds
    budget = f"{training.iterations} steps" if training.iterations else f"{training.epochs} epochs"
    start = study.network.pretrained
    varied = [name for name, value in training.augmentation.model_dump().items() if value]
    runs = len(study.method) * len(study.seeds)
    packages = ", ".join(f"{name} {version}" for name, version in study.packages.items())
    return [
        ("task", f"{task.name}: {', '.join(task.classes)}"),
        ("images", f"brought to {task.resolution} × {task.resolution} pixels"),
        ("network", study.network.name),
        ("begins with", f"weights of the file {start.name}" if start else "random weights"),
        ("methods", ", ".join(method.title for method in study.method)),
        ("runs", f"{runs}: each method with the seeds {', '.join(map(str, study.seeds))}"),
        ("rounds", f"{rounds} in each run, of {budget} with {training.batch} images each"),
        ("learning rate", f"{training.learning_rate:g}"),
        ("training images are varied by", ", ".join(varied) or "nothing"),
        ("times that validation cases are scored", f"in each run: {validations(study)}"),
        ("final models are scored at other sites", "yes" if study.evaluation.cross_site else "no"),
        ("replies are combined by", study.federation.combine),
        (
            "sites named in it",
            ", ".join(site.name for site in study.site) or "all of the study's source",
        ),
        ("code of other packages", packages or "none"),
    ]


def permissions(node: NodeFile) -> list[tuple[str, str, str]]:
    """Every setting of `[allow]` and `[privacy]`, its value and its meaning."""
    sections: dict[str, Section | None] = {"allow": node.allow, "privacy": node.privacy}
    found = []
    for title, section in sections.items():
        told = meanings(type(section))
        found += [
            (f"{title}.{name}", _told(getattr(section, name)), told[name].replace("`", ""))
            for name in (type(section).model_fields if section else ())
        ]
    off = ("privacy", "off", "updates are neither clipped nor blurred")
    return found if node.privacy else [*found, off]


def flows(node: NodeFile) -> Iterator[Flow]:
    """What could leave the hospital, and whether it does by its own file."""
    allow, privacy = node.allow, node.privacy
    noise = f"clipped to {privacy.clip:g}, noise {privacy.noise:g} × that" if privacy else "as is"
    yield Flow("images, masks, labels, files", "never", "there is no such message")
    yield Flow("names of cases and patients", "never", "scores carry places instead of names")
    yield Flow("shared weights", f"of {_told(allow.parts)}, {noise}", "allow.parts, privacy")
    yield Flow("running statistics of norm layers", _statistics(node), "privacy.statistics")
    yield Flow("private weights", _disclosed(node), "allow.disclose, allow.recipients")
    yield Flow(
        "extras of a method",
        f"{_told(allow.extras)}; those made from images only where named",
        "allow.extras",
    )
    form = "rounded means and spreads" if allow.scores == "mean" else "of each case, rounded"
    yield Flow("scores", f"{form}, without noise, at most {allow.validations} times a run", "allow")
    yield Flow("numbers of cases, kind of labels, versions", "when a study begins", "always")
    yield Flow("numbers of images and steps, seconds", "with every stage", "always")
    if privacy is None:
        yield Flow("the mean loss, what a method counts of its own", "with every stage", "privacy")


def seen_by(node: NodeFile) -> Iterator[Seen]:
    """What an honest-but-curious and a malicious coordinator learn, by the hospital's file."""
    allow, privacy = node.allow, node.privacy
    yield Seen("images", *_images(node))
    yield Seen(
        "masks",
        "how well models fit them: " + ("means" if allow.scores == "mean" else "case by case"),
        f"can ask {allow.validations} times a run, and {allow.repeats} times again with weights of "
        "its making"
        + (
            ", and read single masks from the answers"
            if allow.scores == "cases"
            else "; means of one or two cases show their masks roughly, more runs less roughly"
        ),
    )
    yield Seen(
        "whether a patient was trained on",
        "may be inferred from shared weights; see the audit",
        f"bounded by ε for updates ({privacy.noise:g} × {privacy.clip:g}), not for scores"
        if privacy and privacy.noise
        else "no bound: there is no noise",
    )
    yield Seen(
        "private weights",
        "encrypted to other sites" if allow.disclose else "never",
        ("can name a key of its own and read them" if not allow.recipients else "unreadable to it")
        if allow.disclose
        else "never; updates and scores depend on them, so something can be inferred",
    )
    yield Seen(
        "another study, or other settings",
        "only what was approved",
        "approved in advance by allow.studies, within [allow]"
        if "*" in allow.studies
        else "refused: requests are bound to the hash of an approved study",
    )
    yield Seen("code that runs here", "none", "none: the hospital runs what it has installed")
    if node.server.insecure:
        everybody = "everybody on the way sees it too: nothing is encrypted"
        yield Seen("all of the above", everybody, everybody)


def spent(node: NodeFile, ledger: Ledger) -> Iterator[str]:
    """The ε of what left, with its unit."""
    lines = ledger.lines()
    noises = [
        float(line.get("noise") or 0) for line in lines if line["bytes"] and not line.get("again")
    ]
    delta = node.privacy.delta if node.privacy else 1e-5
    scores = sum("bare" in line for line in lines)
    if not noises:
        yield "No weights have left this hospital yet: ε is 0."
    else:
        update = epsilon_of(noises, delta)
        patient = epsilon_of([noise / 2 for noise in noises], delta)
        yield f"Of {len(noises)} messages with weights, at δ = {delta:g}:"
        yield f"- unit one update of this site: ε = {_epsilon(update)}"
        yield f"- unit one patient, for whom the noise counts half: ε = {_epsilon(patient)}"
    if scores:
        yield f"- with the {scores} messages of scores, which have no noise: ε = {_epsilon(inf)}"


def _images(node: NodeFile) -> tuple[str, str]:
    batch = f"batches of at least {node.allow.batch} images"
    varied = ", varied" if node.allow.augmentation else ", not necessarily varied"
    if node.privacy and node.privacy.noise:
        return "not seen; updates have noise", f"{batch}{varied}; noise bounds what updates show"
    return (
        "not seen; shared weights can show something of them",
        f"{batch}{varied} make it harder to reconstruct them, no more: there is no noise",
    )


def _statistics(node: NodeFile) -> str:
    if node.privacy is None:
        return f"leave where the method shares them, of at least {node.allow.batch} images"
    return "leave, clipped and blurred" if node.privacy.statistics else "stay here"


def _disclosed(node: NodeFile) -> str:
    if not node.allow.disclose:
        return "never"
    to = (
        _told(node.allow.recipients) if node.allow.recipients else "keys that the coordinator names"
    )
    return f"where a method discloses them, encrypted to {to}"


def _told(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join("any" if each == "*" else str(each) for each in value) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _epsilon(value: float) -> str:
    return f"{value:.2f}" if isfinite(value) else "infinite"
