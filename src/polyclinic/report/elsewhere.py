"""Models at sites whose cases they did not learn from: at unseen sites, and each at every site.

What is tried there stands where other tables have a method: "FedAvg, ensemble".
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from polyclinic.evaluation.statistics import OVERALL, summarise
from polyclinic.report.reading import Comparison, MethodRuns, Run
from polyclinic.report.score_tables import Table, comparison_table
from polyclinic.report.sheets import Sheet, sheet_of
from polyclinic.runs import DECODER, WAYS, GuestScore, Score, SiteInfo, read_guests

EACH = "models, mean"
Scored = tuple[Run, list[GuestScore]]
Tried = list[tuple[str, MethodRuns, list[Scored]]]  # way, method, and a run for each seed and fold


@dataclass(frozen=True)
class Elsewhere:
    """Tables of one kind, a metric each; `methods` tells whose row it is."""

    name: str
    title: str
    told: str
    tables: tuple[Table, ...]
    methods: Mapping[str, str]

    @property
    def sheets(self) -> list[Sheet]:
        """The tables as files are made from them."""
        return [
            replace(
                sheet_of(table),
                name=f"{self.name}-{table.measure.name}",
                title=f"{self.title}: {table.measure.title_with_unit} {table.measure.arrow}",
                notes=(),
                told=(),
            )
            for table in self.tables
        ]


def elsewhere(comparison: Comparison) -> list[Elsewhere]:
    """Tables of unseen sites and of every model at every site, as far as these were scored."""
    return list(filter(None, (unseen(comparison), cross_site(comparison))))


def unseen(comparison: Comparison) -> Elsewhere | None:
    """Methods and ways to predict by sites that took no part in the run."""
    found = [
        (method, _by_run((*method.runs, *method.left_out), _unseen_rows))
        for method in comparison.methods
    ]
    sites = {row.site for _, runs in found for _, rows in runs for row in rows}
    tried: Tried = []
    for method, runs in found:
        models = {row.model for _, rows in runs for row in rows}
        own = sorted(models - set(WAYS))
        ways = [*(own if len(sites) == 1 else ()), EACH, *(way for way in WAYS if way in models)]
        for way in ways if runs else ():
            chosen = own if way == EACH else [way]
            tried.append((way, method, [(run, _mean(rows, chosen)) for run, rows in runs]))
    told = (
        f"Sites (columns) that took no part in a run, by what is tried there. {EACH}: each site's "
        "model by itself; ensemble: their mean probability; statistics re-estimated: the shared "
        f"model with running statistics of the site's training images; {DECODER}: all but the "
        "encoder trained at the site, what the sites do not share from its mean over them."
    )
    return _made("unseen", "Unseen sites", told, comparison, tried)


def cross_site(comparison: Comparison) -> Elsewhere | None:
    """Methods and sites' models by sites."""
    tried: Tried = []
    for method in comparison.methods:
        runs = _by_run(method.runs, lambda run: read_guests(run.folder, unseen=False))
        owners = dict.fromkeys(row.model for _, rows in runs for row in rows)
        by_owner = [
            (owner, [(run, _mean(rows, [owner])) for run, rows in runs]) for owner in owners
        ]
        alike = len({repr([rows for _, rows in each]) for _, each in by_owner}) == 1
        for owner, each in by_owner[: 1 if alike else None]:
            tried.append(("every site's model" if alike else f"model of {owner}", method, each))
    told = "Every site's model (rows) on every site's test cases (columns)."
    return _made("cross-site", "Every model at every site", told, comparison, tried)


def _unseen_rows(run: Run) -> list[GuestScore]:
    own = {site.name for site in run.about.sites}
    return [row for row in read_guests(run.folder, unseen=True) if row.site not in own]


def _by_run(runs: Iterable[Run], read: Callable[[Run], list[GuestScore]]) -> list[Scored]:
    """The rows of each seed and fold, those of runs with different sites left out together."""
    found: dict[tuple[int, int], tuple[Run, list[GuestScore]]] = {}
    for run in runs:
        rows = read(run) if run.end else []
        if rows:
            found.setdefault((run.fold, run.about.seed), (run, []))[1].extend(rows)
    return list(found.values())


def _mean(rows: Iterable[GuestScore], models: Sequence[str]) -> list[GuestScore]:
    """Each case's score, the mean over these models."""
    values: dict[tuple[str, str, str, str, int], list[float]] = {}
    for row in rows:
        if row.model in models:
            key = (row.site, row.case, row.region, row.metric, row.patient)
            values.setdefault(key, []).append(row.value)
    return [GuestScore("", *key[:4], fmean(each), key[4]) for key, each in values.items()]


def _made(
    name: str, title: str, told: str, comparison: Comparison, tried: Tried
) -> Elsewhere | None:
    if not tried:
        return None
    found = {row.site: 0 for _, _, runs in tried for _, rows in runs for row in rows}
    known = {site.name: site for site in comparison.about_sites}
    sites = [*(each for each in known if each in found), *(s for s in found if s not in known)]
    infos = tuple(
        known.get(site, SiteInfo(site, index, "mask", 0)) for index, site in enumerate(sites)
    )
    rows = tuple(
        MethodRuns(f"{method.title}, {way}", tuple(_runs(runs)), note=_missing(runs, sites))
        for way, method, runs in tried
    )
    whole = Comparison(rows, infos, comparison.regions)
    tables = (comparison_table(whole, metric, [OVERALL]) for metric in whole.metrics)
    owners = {f"{method.title}, {way}": method.title for way, method, _ in tried}
    shown = tuple(replace(table, conditions=told) for table in tables)
    return Elsewhere(name, title, told, shown, owners)


def _runs(runs: Sequence[Scored]) -> Iterator[Run]:
    """The runs with these as their test scores, at the sites that all of them have."""
    common = _common(runs)
    for run, rows in runs:
        scores = tuple(
            Score(0, "test", row.site, row.case, row.region, row.metric, row.value, row.patient)
            for row in rows
            if row.site in common
        )
        settings = {**run.settings, "evaluation": {}}  # which models are scored is said in titles
        yield replace(
            run, settings=settings, scores=scores, trained=(), summaries=summarise(scores)
        )


def _common(runs: Sequence[Scored]) -> set[str]:
    return set.intersection(*({row.site for row in rows} for _, rows in runs))


def _missing(runs: Sequence[Scored], sites: Sequence[str]) -> str:
    common = len(_common(runs))
    return "" if common == len(sites) else f"{common} of {len(sites)} sites"
