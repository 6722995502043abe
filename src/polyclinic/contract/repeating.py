"""Runs that must end with the same bits, whatever happens on the way."""

from dataclasses import replace
from functools import partial

from polyclinic.contract.plans import DISTURBED, KILLS, PLAIN, Plan, Violation
from polyclinic.contract.trial import Outcome, Trial
from polyclinic.contract.watched import difference
from polyclinic.engine.states import tensors_of


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


repeats = partial(
    _same,
    plan=replace(PLAIN, repeated=True),
    words="the same run, done twice, does not give the same bits. Draw from site.seed, site.round "
    "and site.stage (or through site.fit), and keep nothing in modules or classes",
)
scored_mid_run = partial(
    _same,
    plan=replace(PLAIN, every=0),
    words="validating in the middle of a run changes its result. Finalizing and predicting must "
    "leave the server and everything drawn at random alone",
)
resumes = partial(
    _same,
    plan=replace(PLAIN, killed_at=KILLS),
    words="a run that was killed and resumed ends with other bits than one that was not. All that "
    "a method needs again belongs in site.memory, server.memory or keeps()",
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
    _same(trial, replace(PLAIN, scattered=True), words)
    if found := _difference(trial.run(), trial.run(DISTURBED)):
        raise Violation(f"{words}; {found}")


def _difference(first: Outcome, second: Outcome) -> str:
    """What differs first between the ends of two runs."""
    states = {"the server": (first.server, second.server)} | {
        f"site {site}": (state, second.states[site]) for site, state in first.states.items()
    }
    for owner, (one, another) in states.items():
        if name := difference(tensors_of(one), tensors_of(another)):
            return f"{owner} differs first in {name}"
    finals = [[s.rows for s in each.scores if s.split == "test"] for each in (first, second)]
    return "" if finals[0] == finals[1] else "the test scores differ"
