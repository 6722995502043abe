"""A study in words, for the people at a site who decide about it."""

from collections.abc import Iterator, Mapping
from math import inf, isfinite

from polyclinic.config import Study
from polyclinic.config.node_file import NodeFile
from polyclinic.engine.flower.limits import validations
from polyclinic.engine.flower.open_runs import OpenRuns
from polyclinic.engine.flower.privacy import epsilon_of
from polyclinic.engine.flower.protocol import RunRequest
from polyclinic.engine.run import Assignment
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.federation.method import Stage
from polyclinic.networks.parts import statistics

DROWNED = 10.0  # lengths of an update, measured: docs/lab/2026-11-18-noise.md
DISCLOSING = (
    "what it calls disclosed is encrypted to their keys, which the coordinator names unless "
    "allow.recipients does; models that the server itself combines (FedSM, LC-Fed) it reads"
)


def described(study_hash: str, request: RunRequest, runs: OpenRuns) -> str:
    """The study of a request in words, without a look at any data."""
    study, labels = runs.study(request.study), runs.kind(request.study)
    sites = runs.sites(request.sites, labels, runs.site.allow.cases)
    first = runs.runs(request.study)[: len(study.method)]  # with the first seed
    runners = {run.choice.title: runs.untaught(run, sites) for run in first}
    return description(study_hash, study, runs.site, labels, runners)


def description(
    study_hash: str, study: Study, site: NodeFile, labels: str, runners: Mapping[str, SiteRunner]
) -> str:
    """What is trained, what leaves and how often, and what that means; a runner by method."""
    lines = [
        f'# The study "{study.name}" asks {site.name} to take part',
        "",
        f"hash: {study_hash}",
        f"asked by: {site.server.address}",
        f"approve: polyclinic approve node.toml {study_hash[:12]}",
        "",
        *("## What will be trained", "", *_trained(study, labels, runners), ""),
        *("## What leaves this site, and how often", "", *_leaving(study, site, runners), ""),
        *("## What the settings mean for privacy", "", *_meaning(study, site, runners), ""),
    ]
    return "\n".join(lines)


def stages_of(assignment: Assignment) -> Iterator[Stage]:
    """Every stage of a run as often as the run has it."""
    yield from assignment.method.before()
    for number in range(1, assignment.rounds + 1):
        yield from assignment.stages_in(number)
    yield from assignment.after


def _trained(study: Study, labels: str, runners: Mapping[str, SiteRunner]) -> Iterator[str]:
    task, training = study.task.built, study.training
    side = task.resolution
    budget = f"{training.iterations} steps" if training.iterations else f"{training.epochs} epochs"
    start, taught = study.network.pretrained, training.pretrain_steps
    yield f"- task: {task.name} ({', '.join(task.classes)}), images of {side} × {side} pixels"
    yield f"- this site trains on: {labels}"
    yield (
        f"- network: {study.network.name}, starting from "
        + (f"the weights with the SHA-256 {start.name}" if start else "random weights")
        + (f", then {taught} steps on drawn images" if training.pretrain == "synthetic" else "")
    )
    seeds = ", ".join(map(str, study.seeds))
    yield f"- methods: {', '.join(runners)}; each with the seeds {seeds}"
    yield f"- in each run {study.federation.rounds} rounds of {budget} with {training.batch} images"
    if study.packages:
        packages = ", ".join(f"{name} {version}" for name, version in study.packages.items())
        yield f"- code of installed packages beside Polyclinic: {packages}"


def _leaving(study: Study, site: NodeFile, runners: Mapping[str, SiteRunner]) -> Iterator[str]:
    seeds = len(study.seeds)
    yield "- once for each method: the numbers of cases, the kind of labels, versions of programs"
    for title, runner in runners.items():
        stages = list(stages_of(runner.assignment))
        sending = [stage for stage in stages if not stage.finalizes]
        size = sum(runner.first_weights(stage).nbytes for stage in sending) / 1e6
        parts = sorted({name.partition(".")[0] for s in sending for name in runner.shared_in(s)})
        yield (
            f"- {title}: {len(stages) * seeds} messages, {len(sending) * seeds} of them with "
            f"weights of {', '.join(parts)}, together {size * seeds:.3g} MB"
        )
        if any(stage.discloses for stage in stages):
            yield f"- {title} discloses private weights to the other sites: {DISCLOSING}"
        if any(stage.from_images for stage in stages):
            yield f"- {title} sends tensors that are made from images"
    runs = len(runners) * seeds
    if study.evaluation.cross_site:
        yield "- if allow.disclose: this site's final models to the other sites, to be scored there"
    form = "of each case" if site.allow.scores == "cases" else "as means and spreads over the cases"
    yield (
        f"- scores {form}, rounded: of validation cases {_times(validations(study) * runs)}, of "
        f"test cases {_times(runs)}"
    )
    loss = "" if site.privacy else ", the mean loss and what a method counts of its own"
    yield f"- with every message of a stage: the numbers of images and steps{loss}, the seconds"


def _meaning(study: Study, site: NodeFile, runners: Mapping[str, SiteRunner]) -> Iterator[str]:
    batch, rounds = study.training.batch, study.federation.rounds
    yield (
        f"- batches of {batch} images: what leaves mixes that many; the fewer, the more of one "
        "image can show"
    )
    yield f"- {rounds} rounds: every round adds to what can be learned about the images"
    shared = {r: [r.shared_in(s) for s in r.assignment.stages] for r in runners.values()}
    if any(names & statistics(r.net) for r, each in shared.items() for names in each):
        yield "- running statistics leave: means and spreads of what the network sees in images"
    else:
        yield "- running statistics of norm layers stay here"
    if site.privacy is None:
        yield "- no noise ([privacy] is off): there is no bound on what shared weights reveal"
    else:
        sent = max(sum(not s.finalizes for s in stages_of(r.assignment)) for r in runners.values())
        releases = sent * len(study.seeds) * len(runners)
        noise = site.privacy.noise
        epsilon = epsilon_of([noise] * releases, site.privacy.delta) if noise else inf
        told = f"{epsilon:.1f}" if isfinite(epsilon) else "infinite"
        yield (
            f"- noise of {noise:g} × {site.privacy.clip:g}: ε {told} at δ = {site.privacy.delta:g} "
            "for all updates of the study; each that is asked for again (allow.repeats = "
            f"{site.allow.repeats} in a run) adds to it; scores have no noise and are not in it"
        )
        # The expected length of the noise in a message, in multiples of the clip.
        louder = max(noise * r.first_weights().flat.numel() ** 0.5 for r in runners.values())
        if louder > DROWNED:
            yield (
                f"- WARNING: this noise is {louder:.0f} times as long as the longest update; "
                f"beyond {DROWNED:g} times models get worse, and soon useless"
            )
    yield (
        "- scores tell how well a model fits the masks here, without noise; a coordinator that "
        "means harm can read masks from some tens of them where few cases are scored"
    )
    yield "- the coordinator sees all of this; approve only what the consortium has agreed on"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"
