"""Runs that must end with the same bits, whatever happens on the way."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from polyclinic.contract.plans import DISTURBED, KILLS, PLAIN, Plan
from polyclinic.contract.trial import Outcome, Trial
from polyclinic.contract.violation import Violation
from polyclinic.contract.watched import difference
from polyclinic.engine.states import SiteState
from polyclinic.engine.tensors import nested
from polyclinic.federation.server import Server

REPEATED = replace(PLAIN, repeated=True)
UNSCORED = replace(PLAIN, every=0)
KILLED = replace(PLAIN, killed_at=KILLS)
SCATTERED = replace(PLAIN, scattered=True)


def repeats(trial: Trial) -> None:
    """The same run twice gives the same bits."""
    _same(
        trial,
        REPEATED,
        "the same run, done twice, does not give the same bits. Draw from site.seed, site.round "
        "and site.stage (or through site.fit), and keep nothing in modules or classes",
    )


def scored_mid_run(trial: Trial) -> None:
    """Validating every round or only the last gives the same bits."""
    _same(
        trial,
        UNSCORED,
        "validating in the middle of a run changes its result. Finalizing and predicting must "
        "leave the server and everything drawn at random alone",
    )


def resumes(trial: Trial) -> None:
    """A run that is killed between and amid rounds and resumed gives the same bits."""
    _same(
        trial,
        KILLED,
        "a run that was killed and resumed ends with other bits than one that was not. All that a "
        "method needs again belongs in site.memory, server.memory or keeps()",
    )


def state_is_elsewhere(trial: Trial) -> None:
    """Nothing lives in the method: a new one for each visit, in another order, does the same."""
    method = trial.run().runner.assignment.method
    fresh = trial.assignment(PLAIN).method
    changed = sorted(
        {name for name in vars(method) if vars(method)[name] != vars(fresh).get(name)}
        | (vars(fresh).keys() - vars(method).keys())
    )
    if changed:
        raise Violation(f"a run changed the method itself: {', '.join(changed)}")
    words = (
        "with a new method and network for each visit, and sites in another order, the result is "
        "another one. State must live in the network, in site.memory or in server.memory"
    )
    _same(trial, SCATTERED, words)
    if found := _difference(trial.run(), trial.run(DISTURBED)):
        raise Violation(f"{words}; {found}")


def _same(trial: Trial, plan: Plan, words: str) -> None:
    """One run with all disturbances is enough where it is the same; else each is tried alone."""
    plain = trial.run()
    try:
        if not _difference(plain, trial.run(DISTURBED)):
            return
    except Violation:
        pass  # it will show which disturbance it is
    if found := _difference(plain, trial.run(plan)):
        raise Violation(f"{words}; {found}")


def _difference(first: Outcome, second: Outcome) -> str:
    """What differs first between the ends of two runs."""
    states = {"the server": (_of(first.server), _of(second.server))} | {
        f"site {site}": (_of(state), _of(second.states[site]))
        for site, state in first.states.items()
    }
    for owner, (one, another) in states.items():
        if name := difference(one, another):
            return f"{owner} differs first in {name}"
    finals = [[s.rows for s in each.scores if s.split == "test"] for each in (first, second)]
    return "" if finals[0] == finals[1] else "the test scores differ"


def _of(owner: SiteState | Server) -> dict[str, Tensor]:
    return nested(weights=owner.weights, memory=owner.memory)
