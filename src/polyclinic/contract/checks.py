"""The contract: named checks, each a function of a trial that raises a Violation."""

import pickle
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from polyclinic.catalog import BUILT_IN
from polyclinic.config import ConfigError, load_study, to_toml
from polyclinic.contract import privacy, repeating
from polyclinic.contract.plans import ALONE, PARTIAL, PLAIN, Plan, Violation
from polyclinic.contract.trial import TASK, Trial, told
from polyclinic.contract.watched import difference
from polyclinic.data.batches import in_order
from polyclinic.engine.states import SiteState, tensors_of
from polyclinic.federation.method import Method
from polyclinic.federation.server import Server
from polyclinic.federation.site import Site
from polyclinic.networks.parts import parameters

Check = Callable[[Trial], None]


def settings_survive(trial: Trial) -> None:
    """The method is a frozen dataclass whose settings come back from a study's file."""
    kind = trial.kind
    own = vars(kind).get("__dataclass_params__")  # not those of the class above it
    if own is None or not own.frozen:
        raise Violation("it is no frozen dataclass: put @dataclass(frozen=True) above the class")
    tables = replace(BUILT_IN, method={"mine": kind})
    file = trial.folder / "study.toml"
    file.write_text(f'name = "trial"\ntask = "{TASK}"\nmethod = "mine"\n')
    try:
        first = load_study(file, [], tables)
        file.write_text(to_toml(first))
        second = load_study(file, [], tables)
    except (ConfigError, TypeError) as error:
        raise Violation(f"its settings cannot be read from a study's file: {error}") from error
    if first != second or second.method[0].built != first.method[0].built:
        raise Violation("its settings do not come back from a file as they were written")


def pickles(trial: Trial) -> None:
    """The method travels to worker processes."""
    try:
        back = pickle.loads(pickle.dumps(trial.method))  # noqa: S301 (our own bytes)
    except Exception as error:
        raise Violation(f"it cannot travel to worker processes: {error}") from error
    if back != trial.method:
        raise Violation("it reaches worker processes as another one than it was")


def stages_are_sound(trial: Trial) -> None:
    """Stages have names of their own, and from finalizing on each keeps the whole network."""
    method = trial.method
    early, late = (*method.before(), *method.each_round()), (method.finalizing(), *method.after())
    names = [stage.name for stage in (*early, *late)]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise Violation(f"two of its stages are called {', '.join(twice)}")
    if wrong := [stage.name for stage in early if stage.finalizes]:
        raise Violation(f"stages before the end must not finalize: {', '.join(wrong)}")
    if wrong := [stage.name for stage in late if not stage.finalizes]:
        raise Violation(f"stages after the last round must finalize: {', '.join(wrong)}")


def ends_in_numbers(trial: Trial, plan: Plan) -> None:
    """A run leaves finite numbers everywhere, and scores of every site."""
    outcome = trial.run(plan)
    owners: dict[str, Server | SiteState] = {"the server": outcome.server, **outcome.states}
    for owner, state in owners.items():
        for name, tensor in tensors_of(state).items():
            if not torch.isfinite(tensor).all():
                raise Violation(f"a run with {plan.words} leaves {name} of {owner} not finite")
    scored = {each.site for each in outcome.scores if each.split == "test" and each.rows}
    if missing := sorted(outcome.states.keys() - scored):
        raise Violation(f"a run with {plan.words} leaves sites unscored: {', '.join(missing)}")


def leaves_messages_alone(trial: Trial) -> None:
    """A visit does not change the message that the other sites get too."""
    for each in trial.run().exchanges:
        if each.message_changed:
            raise Violation(f"{each}: the visit changed its message, which others get too")


def replies_with_copies(trial: Trial) -> None:
    """A reply's tensors are not the network's own, which the next site trains on."""
    for each in trial.run().exchanges:
        if each.reply_is_live:
            raise Violation(f"{each}: the reply is not a copy of the weights: use site.take")


def predicts_without_trace(trial: Trial) -> None:
    """Predicting gives probabilities, the same twice, and changes neither weights nor memory."""
    site = _final_site(trial)
    state = SiteState(site.weights, site.memory)
    before = {name: tensor.clone() for name, tensor in tensors_of(state).items()}
    images = _images(site, 2)
    site.net.eval()
    with torch.no_grad(), trial.method.in_use(site):
        first, second = (trial.method.predict(site, images) for _ in range(2))
    if not torch.equal(first, second):
        raise Violation("predicting the same images twice gives two results")
    expected = (2, len(site.task.classes), *images.shape[2:])
    if tuple(first.shape) != expected:
        raise Violation(f"predictions have the shape {tuple(first.shape)} instead of {expected}")
    if not torch.allclose(first.sum(dim=1), torch.ones(()), atol=1e-4) or bool((first < 0).any()):
        raise Violation("predictions are no probabilities: they must sum to one over the classes")
    if name := difference(before, tensors_of(state)):
        raise Violation(f"predicting changed {name}")


def names_what_it_predicts_with(trial: Trial) -> None:
    """`predicts_with` names the weights that a prediction depends on, and no others."""
    site, method = _final_site(trial), trial.method
    learned = dict(site.net.eval().requires_grad_(True).named_parameters())
    value = method.predict(site, _images(site, 2)).square().sum()
    gradients = torch.autograd.grad(value, list(learned.values()), allow_unused=True)
    heard = {name for name, each in zip(learned, gradients, strict=True) if each is not None}
    named = method.predicts_with(site.net) & parameters(site.net)
    if silent := sorted(named - heard):
        raise Violation(f"predicts_with names what no prediction depends on: {silent[0]}")
    if missing := sorted(heard - named):
        raise Violation(f"predicts_with lacks what predictions depend on: {missing[0]}")
    if made := sorted(method.predicts_with(site.net) & method.server_made(site.net)):
        raise Violation(f"predicts_with names what the server made: {made[0]}")


def can_be_finished(trial: Trial) -> None:
    """Fine-tuning and calibration can follow, and change the model that every site uses."""
    outcome = trial.run()
    names = {s.name for step in trial.finishing for s in step.stages(trial.method)} - {"disclose"}
    for each in outcome.exchanges:
        if each.stage.name not in names or each.before is None:
            continue
        if not difference(tensors_of(each.before), tensors_of(each.after)):
            raise Violation(
                f"{each}: the finishing step changed nothing at the site. It trains the weights in "
                "use: in_use() must open the model that is scored, and keep what is learned"
            )


CHECKS: Mapping[str, Check] = {
    "its settings survive a file": settings_survive,
    "it travels to worker processes": pickles,
    "its stages are sound": stages_are_sound,
    "it runs on unequal sites, one of a single case": partial(ends_in_numbers, plan=PLAIN),
    "it runs with one site": partial(ends_in_numbers, plan=ALONE),
    "it runs with sites away and private statistics": partial(ends_in_numbers, plan=PARTIAL),
    "the same run gives the same bits": repeating.repeats,
    "scoring in the middle changes nothing": repeating.scored_mid_run,
    "a killed run resumes to the same bits": repeating.resumes,
    "no state lives in the method": repeating.state_is_elsewhere,
    "a visit leaves its message alone": leaves_messages_alone,
    "a reply is a copy": replies_with_copies,
    "exactly what is shared travels": privacy.shares_exactly,
    "nothing private leaves": privacy.nothing_private_leaves,
    "it discloses only where it says so": privacy.discloses_openly,
    "predicting leaves no trace": predicts_without_trace,
    "it names what it predicts with": names_what_it_predicts_with,
    "finishing steps can follow": can_be_finished,
}


@dataclass(frozen=True)
class Finding:
    """One check and what the method breaks of it; nothing where it keeps it."""

    check: str
    broken: str = ""


def examine(kind: type[Method]) -> Iterator[Finding]:
    """Check after check, as they are done; runs are made once and thrown away at the end."""
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(kind, Path(folder))
        for name, check in CHECKS.items():
            try:
                check(trial)
            except Violation as violation:
                yield Finding(name, str(violation))
            except Exception as error:  # noqa: BLE001 (a stranger's code may raise anything)
                yield Finding(name, f"it stopped: {told(error)}")
            else:
                yield Finding(name)


def _final_site(trial: Trial) -> Site:
    """The second site (of four cases) with the model that the plain run left it."""
    outcome = trial.run()
    info = outcome.runner.assignment.sites[1]
    return outcome.runner.opened(info, trial.data(3)[1], outcome.states[info.name])


def _images(site: Site, count: int) -> torch.Tensor:
    return next(in_order(site.data.train, batch=count)).images
