"""What may leave a site: exactly what a method shares, and by value nothing private."""

from collections.abc import Iterable

import torch
from torch import Tensor

from polyclinic.contract.leaks import Marks, leaked, lengths, marks, owner, without
from polyclinic.contract.plans import PARTIAL, PLAIN, Violation
from polyclinic.contract.trial import Outcome, Trial
from polyclinic.contract.watched import Exchange, named
from polyclinic.data.batches import in_order
from polyclinic.data.cases import SiteData, pool
from polyclinic.data.errors import listed
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.engine.states import SiteState
from polyclinic.federation.method import DISCLOSED
from polyclinic.networks.parts import Names, statistics

ENGINE = ("images", "steps")  # numbers that the engine adds to a reply
WATCHED = (PLAIN, PARTIAL)


def shares_exactly(trial: Trial) -> None:
    """Messages and replies carry the weights that `shares` names, no more and no fewer."""
    for plan in WATCHED:
        outcome = trial.run(plan)
        method, runner = outcome.runner.assignment.method, outcome.runner
        made = method.server_made(runner.net)
        if both := made & method.shares(runner.net):
            raise Violation(f"what the server makes must not be shared: {_some(both)}")
        at_home = statistics(runner.net) if plan.private_statistics else frozenset()
        rounds = {stage.name for stage in method.each_round()}
        once: Names = frozenset().union(*map(runner.shared_in, runner.assignment.stages))
        for each in outcome.exchanges:
            shared = runner.shared_in(each.stage)
            handed = (shared | made) - at_home
            sent, came = each.reply.weights.names, each.message.weights.names
            if sent != shared and (sent or each.stage.name in rounds):
                raise Violation(_not_shared(each, "the reply", sent, shared))
            usual: tuple[Names, ...] = (handed, shared, shared | (once - at_home), frozenset())
            if came not in usual:
                raise Violation(_not_shared(each, "the message", came, handed))


def nothing_private_leaves(trial: Trial) -> None:
    """No reply holds a slice of a private weight, of the memory, or of an image or its label."""
    for plan in WATCHED:
        outcome = trial.run(plan)
        data = trial.data(plan.sites)
        seen = [*data, pool(data)] if trial.method.pools else data
        cases = {site.name: images_and_labels(site) for site in seen}
        known = {site: marks(tensors.values()) for site, tensors in cases.items()}
        for each in outcome.exchanges:
            if found := _leak(each, outcome, cases[each.site], known[each.site]):
                raise Violation(
                    f"{each}: {found[0]} that leaves holds values of {found[1]}, which is private. "
                    "Share it with shares(), say so with shared_memory, or keep it"
                )


def discloses_openly(trial: Trial) -> None:
    """Only a stage that says so discloses, only what predictions need, and it is given back."""
    outcome = trial.run()
    net = outcome.runner.net
    allowed = {f"{DISCLOSED}/{name}" for name in trial.method.predicts_with(net)}
    for each in outcome.exchanges:
        disclosed = {name for name in each.reply.extras if name.startswith(f"{DISCLOSED}/")}
        if disclosed and not each.stage.discloses:
            raise Violation(
                f"{each}: it discloses {_some(disclosed)}, and its stage does not say so"
            )
        if each.stage.discloses and (more := each.reply.extras.keys() - allowed):
            raise Violation(f"{each}: it discloses what no prediction needs: {_some(more)}")
        if own := [n for n in each.message.extras if n.startswith(f"{DISCLOSED}/{each.site}/")]:
            raise Violation(f"{each}: the site is sent what it disclosed itself: {_some(own)}")
    if kept := [name for name in outcome.server.memory if name.startswith(f"{DISCLOSED}/")]:
        raise Violation(f"the server still has what sites disclosed: {_some(kept)}")


def _leak(
    each: Exchange, outcome: Outcome, cases: dict[str, Tensor], known: Marks
) -> tuple[str, str] | None:
    """What leaves, and what it holds of what is private before or after the visit."""
    numbers = [value for name, value in each.reply.numbers.items() if name not in ENGINE]
    leaving = named(each.reply) | {"numbers": torch.tensor(numbers)}
    if not any(tensor.numel() for tensor in leaving.values()):
        return None
    now = private_tensors(each.after, outcome.runner)
    then = private_tensors(each.before, outcome.runner) if each.before else {}
    short = lengths([*now.values(), *then.values()])
    out = marks(leaving.values(), short)
    message = list(named(each.message).values())
    shared = each.network.pick(outcome.runner.shared_in(each.stage)).values()
    attempts = [(cases, known, message)]
    if not each.stage.discloses:
        attempts.append((now, marks(now.values()), [*message, *shared]))
        attempts.append((then, marks(then.values()), message))
    for private, theirs, public in attempts:
        found = leaked(out, theirs)
        secret = without(found, marks(public, short)) if len(found) else found
        if len(secret):
            return owner(leaving, secret), owner(private, secret)
    return None


def private_tensors(state: SiteState, runner: SiteRunner) -> dict[str, Tensor]:
    """A site's private weights and its memory, but for what a method says that it shares."""
    told = runner.assignment.method.shared_memory
    weights = {n: t for n, t in state.weights.items() if n not in runner.shared}
    memory = {n: t for n, t in state.memory.items() if n.partition("/")[0] not in told}
    return {f"the private weight {name}": tensor for name, tensor in weights.items()} | {
        f"site.memory[{name!r}]": tensor for name, tensor in memory.items()
    }


def images_and_labels(site: SiteData) -> dict[str, Tensor]:
    """Images as they were read and as a network sees them, labels and masks."""
    found: dict[str, Tensor] = {}
    for split in ("train", "val", "test"):
        cases = getattr(site, split)
        found |= {
            f"the {split} images": cases.images,
            f"the {split} labels": cases.labels,
            f"the {split} masks": cases.masks,
        }
        for batch in in_order(cases, batch=len(cases)):
            found[f"the normalised {split} images"] = batch.images
    return found


def _not_shared(each: Exchange, what: str, names: Names, expected: Names) -> str:
    more, less = names - expected, expected - names
    parts = [f"it holds {_some(more)}"] if more else []
    parts += [f"it lacks {_some(less)}"] if less else []
    return f"{each}: {what} does not carry exactly what is shared; {' and '.join(parts)}"


def _some(names: Iterable[str]) -> str:
    return listed(sorted(names), most=3)
