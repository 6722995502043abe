"""A small federation on which a method shows what it does; each run is done once and kept."""

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache, cached_property
from pathlib import Path

import torch

from polyclinic.config import (
    DataSettings,
    EvaluationSettings,
    Factory,
    FederationSettings,
    NetworkChoice,
    SiteSettings,
    TrainingSettings,
    WeakSettings,
)
from polyclinic.config.callables import parameters
from polyclinic.contract.plans import PLAIN, Plan, Violation
from polyclinic.contract.watched import Exchange, ScatteredSites, WatchedSites
from polyclinic.data import synthetic
from polyclinic.data.cases import SiteData
from polyclinic.data.load import load_federation
from polyclinic.data.tasks import TASKS
from polyclinic.engine.checkpoint import Checkpoint
from polyclinic.engine.local import LocalSites
from polyclinic.engine.loop import Event, Loop
from polyclinic.engine.process import prepare_process
from polyclinic.engine.run import Assignment, site_info
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.engine.sites import Scored
from polyclinic.engine.states import SiteState
from polyclinic.engine.study import first_server
from polyclinic.federation.method import Finish, Method
from polyclinic.federation.server import Server
from polyclinic.methods.calibration import IGC
from polyclinic.methods.finetune import FineTune
from polyclinic.methods.learned_mixing import Mixing
from polyclinic.networks import NETWORKS
from polyclinic.networks.contract import Segmenter
from polyclinic.runs import RunFolder

WIDTH = 2
SIDE, LARGER = 32, 64  # pixels; the larger for networks that halve the smaller to one
CPU = torch.device("cpu")
TASK = "octa"
CASES = (1, 4, 3, 2, 3)  # each site trains on, at most
KINDS = ("mask", "scribble", "block", "point", "mask")  # of their labels


@dataclass(frozen=True)
class Outcome:
    """What a finished run leaves."""

    runner: SiteRunner
    server: Server
    states: Mapping[str, SiteState]
    scores: Sequence[Scored]
    exchanges: Sequence[Exchange]


@dataclass
class Trial:
    """One method on a few tiny sites; their images, labels and networks are made here."""

    kind: type[Method]
    folder: Path
    networks: Mapping[str, Callable[..., Segmenter]] = field(default_factory=lambda: NETWORKS)
    _done: dict[Plan, Outcome | Violation] = field(default_factory=dict)

    @cached_property
    def method(self) -> Method:
        """The method with its defaults, except that it does briefly what it repeats."""
        try:
            return brief(self.kind())
        except TypeError as error:
            raise Violation(f"it cannot be made with its defaults: {error}") from error

    @cached_property
    def network(self) -> str:
        """The first of the networks that the method can work with."""
        reasons = []
        for name in self.networks:
            try:
                SiteRunner(self.assignment(PLAIN, name), CPU)
            except ValueError as error:
                reasons.append(f"  {name}: {error}")
            else:
                return name
        raise Violation("\n".join(["no network suits it:", *reasons]))

    @property
    def finishing(self) -> tuple[Finish, ...]:
        """The finishing steps whose stages the method does not have already."""
        steps = (FineTune(iterations=1), IGC(iterations=1))
        taken = {stage.name for stage in self.method.after()}
        return tuple(
            step for step in steps if not taken & {s.name for s in step.stages(self.method)}
        )

    def data(self, sites: int) -> list[SiteData]:
        """The cases of the first sites."""
        return list(small_sites(self._side(self.network))[:sites])

    def run(self, plan: Plan = PLAIN) -> Outcome:
        """The run by this plan, done when it is asked for first."""
        if plan not in self._done:
            try:
                self._done[plan] = self._walk(plan, self.folder / f"run-{len(self._done)}")
            except Violation as violation:
                self._done[plan] = violation
            except Exception as error:  # noqa: BLE001 (a stranger's code may raise anything)
                self._done[plan] = Violation(f"a run with {plan.words} stopped: {told(error)}")
        outcome = self._done[plan]
        if isinstance(outcome, Violation):
            raise outcome
        return outcome

    def assignment(self, plan: Plan, network: str | None = None) -> Assignment:
        """What the machines of a run would agree on, with a method of its own."""
        network = network or self.network
        side = self._side(network)
        make = self.networks[network]
        settings = {"width": WIDTH} if "width" in parameters(make) else {}
        data = small_sites(side)[: plan.sites]
        infos = tuple(site_info(site, TASKS[TASK], index) for index, site in enumerate(data))
        return Assignment(
            method=replace(self.method),
            then=self.finishing if plan.finishing else (),
            network=NetworkChoice(name=network, built=Factory(make, settings)),
            task=TASKS[TASK].with_resolution(side),
            sites=infos,
            training=TrainingSettings(
                batch=4,
                iterations=2,
                keep_optimizer=plan.keep_optimizer,
                weak=WeakSettings(**self.method.weak_terms()),
            ),
            loss=None,
            metrics={},
            rounds=plan.rounds,
            statistics="private" if plan.private_statistics else "shared",
            seed=0,
        )

    def _side(self, network: str) -> int:
        return SIDE if getattr(self.networks[network], "divisor", SIDE) < SIDE else LARGER

    def _walk(self, plan: Plan, folder: Path) -> Outcome:
        """The whole run; where it is killed, everything but its files is made anew."""
        prepare_process(threads=1)  # more only wait for each other, with so little to do
        moments = list(plan.killed_at)
        while True:
            runner = SiteRunner(self.assignment(plan), CPU)
            sites = self._sites(plan, runner, folder)
            loop = self._loop(plan, runner, sites, folder)
            events = []
            for event in loop.run():
                events.append(event)
                if moments and (type(event), getattr(event, "round", None)) == moments[0]:
                    break
            else:
                return self._outcome(loop, runner, sites, events)
            del moments[0]

    def _sites(self, plan: Plan, runner: SiteRunner, folder: Path) -> LocalSites:
        data, run = self.data(plan.sites), RunFolder(folder)
        if plan.scattered:
            return ScatteredSites(lambda: self.assignment(plan), runner, data, run)
        return WatchedSites(runner, data, run)

    def _loop(self, plan: Plan, runner: SiteRunner, sites: LocalSites, folder: Path) -> Loop:
        settings = FederationSettings(rounds=plan.rounds, participation=plan.participation)
        evaluation = EvaluationSettings.model_construct(
            every=plan.every, metrics=("dice",), choose="last", pictures=False
        )
        return Loop(
            runner.assignment,
            first_server(settings, sites),
            sites,
            evaluation,
            Checkpoint(folder / "checkpoint"),
            lambda *_: None,  # no record: what counts is what sites and server end with
        )

    def _outcome(
        self, loop: Loop, runner: SiteRunner, sites: LocalSites, events: Sequence[Event]
    ) -> Outcome:
        last = runner.assignment.rounds + 1
        states = {info.name: sites.states.load(info.name, last) for info in sites.scored}
        return Outcome(
            runner=runner,
            server=loop.server,
            states={name: state for name, state in states.items() if state is not None},
            scores=[event for event in events if isinstance(event, Scored)],
            exchanges=sites.exchanges if isinstance(sites, WatchedSites) else (),
        )


@cache
def small_sites(side: int) -> tuple[SiteData, ...]:
    """Five unequal sites with labels of several kinds, the first with a single case."""
    drawn = zip(synthetic.federation(TASK), KINDS, strict=True)
    chosen = [SiteSettings(name=site.name, labels=kind) for site, kind in drawn]
    sites = load_federation(TASKS[TASK].with_resolution(side), DataSettings(size=0.2), chosen)
    return tuple(
        replace(
            site,
            train=site.train.select(range(len(site.train))[:count]),
            test=site.test.select([0]),
        )
        for site, count in zip(sites, CASES, strict=True)
    )


def brief(method: Method) -> Method:
    """The same method where mixtures are learned in two passes, and all tuning is one step."""
    changes: dict[str, object] = {}
    for each in fields(method):
        value = getattr(method, each.name)
        if isinstance(value, Mixing):
            changes[each.name] = replace(value, first_passes=2)
        elif is_dataclass(value) and not isinstance(value, type) and hasattr(value, "iterations"):
            changes[each.name] = replace(value, iterations=1)
    return replace(method, **changes)


def told(error: Exception) -> str:
    """An error in one line, with the place it came from."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(place.filename).name}, line {place.lineno})"
