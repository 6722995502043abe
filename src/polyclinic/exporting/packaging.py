"""A package out of trained models: their graph, their weights, and what there is to say of them."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version

import numpy as np
import torch
from safetensors.torch import save

from polyclinic.data.cases import SiteData
from polyclinic.data.pictures import COLOURS
from polyclinic.data.site_files import SiteToml
from polyclinic.data.tasks import Task
from polyclinic.engine.flower.ledger import Ledger
from polyclinic.evaluation.scoring import ScoreRow, score_cases
from polyclinic.exporting.choosing import SERVER, Origin
from polyclinic.exporting.graph import core_of, whole_graph
from polyclinic.exporting.judging import known_cases, look_at, usual
from polyclinic.exporting.trained import as_at_its_site, cases_of, in_use, same_everywhere
from polyclinic.federation.scoring import predictions
from polyclinic.networks.contract import likeliest
from polyclinic.networks.parts import parameters
from polyclinic.predict.card import card_page, card_text
from polyclinic.predict.facts import Member, PackageFacts, QualityFacts, ScoreFacts, SiteFacts
from polyclinic.predict.package import CARD, GRAPH, PAGE, Package
from polyclinic.runs import RunError

PACKAGES = ("polyclinic", "torch", "onnx", "numpy")
KEPT_SETTINGS = ("task", "network", "method", "training", "federation")  # none names a folder


def packaged(origins: Sequence[Origin], *, title: str | None = None) -> Package:
    """One package of one model or, of several, of the ensemble that they are."""
    task, toml = _same_task(origins)
    data = _cases(origins)
    owners = {origin.owner for origin in origins}
    own = [site for site in data.values() if site.name in owners or SERVER in owners]
    known = known_cases(own)
    cores, looks, weights, members = [], [], {}, []
    for number, origin in enumerate(origins, 1):
        with in_use(origin) as (method, site):
            cores.append(core_of(method, site))
            numbered = f"-{number}" if len(origins) > 1 else ""
            weights[f"weights{numbered}.safetensors"] = save(
                {name: tensor.detach().cpu().contiguous() for name, tensor in site.weights.items()}
            )
            count = sum(site.weights[name].numel() for name in parameters(site.net))
            members.append(_member(origin, count))
            if known is not None and len(known.cases):
                looks.append(look_at(method, site, known.cases))
    judged = usual(task, known, looks) if known is not None and looks else None
    facts = _facts(origins, task, toml, data, tuple(members), judged, title)
    contents = {GRAPH: whole_graph(task, cores).SerializeToString(), **weights}
    cards = {CARD: card_text(facts).encode(), PAGE: card_page(facts).encode()}
    return Package(facts, {**contents, **cards})


def _same_task(origins: Sequence[Origin]) -> tuple[Task, SiteToml]:
    found = [as_at_its_site(origin) for origin in origins]
    first, toml = found[0]
    if any(task != first for task, _ in found):
        told = ", ".join(f"{task.name} at {task.resolution}², {task.fit}" for task, _ in found)
        raise RunError(f"an ensemble has one task and preparing; these differ: {told}")
    return first, toml


def _cases(origins: Sequence[Origin]) -> dict[str, SiteData]:
    """The cases of all sites of these runs that lie here, each site once."""
    found: dict[str, SiteData] = {}
    for origin in origins:
        if not found or origin.owner not in {SERVER, *found}:
            found |= {site.name: site for site in cases_of(origin)}
    return found


def _member(origin: Origin, count: int) -> Member:
    folder = origin.run.folder
    end = folder.end()
    assert end is not None, "the run is finished"
    return Member(
        study=origin.run.study.name,
        study_hash=hashlib.sha256(folder.settings_text().encode()).hexdigest(),
        method=origin.run.choice.title,
        network=origin.run.study.network.name,
        seed=origin.run.seed,
        round=end.chosen_round,
        site=origin.owner,
        parameters=count,
    )


def _facts(
    origins: Sequence[Origin],
    task: Task,
    toml: SiteToml,
    data: Mapping[str, SiteData],
    members: tuple[Member, ...],
    judged: QualityFacts | None,
    title: str | None,
) -> PackageFacts:
    about = origins[0].run.folder.about()
    node = origins[0].node
    ledger = Ledger(node.state / "ledger.jsonl") if node is not None else None
    settings = origins[0].run.folder.settings()
    return PackageFacts(
        title=title or _title(members, task),
        task=task,
        colours={
            name: "#{:02x}{:02x}{:02x}".format(*COLOURS[number % len(COLOURS)])
            for number, name in enumerate(task.classes[1:])
        },
        axis=toml.axis,
        stored_window=toml.stored_window,
        spacing=_spacing([data[m.site] for m in members if m.site in data] or data.values()),
        members=members,
        sites=tuple(
            SiteFacts(name=s.name, labels=s.kind, train=s.train, val=s.val, test=s.test)
            for s in about.sites
        ),
        scores=tuple(_scores_of(origins, data)),
        quality=judged,
        ledger=ledger.head() if ledger and ledger.path.exists() else None,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        versions={**{name: version(name) for name in PACKAGES}, **origins[0].run.study.packages},
        settings={name: settings[name] for name in KEPT_SETTINGS if name in settings},
    )


def _title(members: Sequence[Member], task: Task) -> str:
    first = members[0]
    if len(members) > 1:
        return f"{task.name}: ensemble of {len(members)} models"
    whose = "the server's model" if first.site == SERVER else f"model of {first.site}"
    return f"{task.name}: {whose}, {first.method}"


def _spacing(data: Iterable[SiteData]) -> tuple[float, float] | None:
    """The middle size of a pixel in the task's square; None where no site says one."""
    sizes = [site.train.spacing.numpy() for site in data if len(site.train)]
    if not sizes or all((each == 1).all() for each in sizes):
        return None
    rows, columns = np.median(np.concatenate(sizes), axis=0)
    return float(rows), float(columns)


def _scores_of(origins: Sequence[Origin], data: Mapping[str, SiteData]) -> Iterator[ScoreFacts]:
    """The test scores of the models that these make, site by site.

    A run scores each site's own model. An ensemble, or a server's model that no site uses as it
    is, is scored here, on the test cases that lie here; it has no scores where none do.
    """
    origin = origins[0]
    if len(origins) > 1 or (origin.owner == SERVER and not same_everywhere(origin)):
        for name, site in data.items():
            yield from _told(origin, name, _computed(origins, site), site)
        return
    rows: dict[str, list[ScoreRow]] = defaultdict(list)
    for row in origin.run.folder.scores("test"):
        rows[row.site].append(ScoreRow(row.case, row.region, row.metric, row.value))
    for name, found in rows.items():
        yield from _told(origin, name, found, data.get(name))


def _computed(origins: Sequence[Origin], there: SiteData) -> list[ScoreRow]:
    """Rows of the mean of all models' probabilities on a site's test cases."""
    study = origins[0].run.study
    regions = study.task.built.regions
    cases = there.scorable("test", regions)
    if not len(cases):
        return []
    total = torch.zeros(())
    for origin in origins:
        with in_use(origin) as (method, site):
            found = torch.cat([batch.cpu() for batch in predictions(method, site, cases)])
        total = total + found / len(origins)
    metrics = {metric.name: metric.built for metric in study.metric}
    true, spacing = cases.masks.cpu().numpy(), cases.spacing.numpy()
    known = there.known(regions)
    predicted = likeliest(total).numpy()
    return score_cases(predicted, true, cases.names, known, spacing, list(metrics), metrics)


def _told(
    origin: Origin, site: str, rows: Iterable[ScoreRow], data: SiteData | None
) -> Iterator[ScoreFacts]:
    """Means of a site's rows with intervals; without its cases, each is taken for a patient."""
    metrics = origin.run.folder.about().metrics
    patients = dict(zip(data.test.names, data.test.patients, strict=True)) if data else {}
    groups: dict[tuple[str, str], list[ScoreRow]] = defaultdict(list)
    for row in rows:
        groups[row.region, row.metric].append(row)
    for (region, metric), found in groups.items():
        drawn = [patients.get(row.case, row.case) for row in found]
        values = [row.value for row in found]
        yield ScoreFacts.of((site, region, metric), metrics[metric], values, drawn)
