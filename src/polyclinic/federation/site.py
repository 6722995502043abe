"""A site during a visit, and the only training loop of the project."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from polyclinic.config import TrainingSettings
from polyclinic.data.batches import batches, steps_per_epoch
from polyclinic.data.cases import Batch, SiteData
from polyclinic.data.tasks import Task
from polyclinic.federation.message import Message
from polyclinic.federation.optimizing import autocast, clip, learning_rate, optimizing
from polyclinic.federation.weights import Weights
from polyclinic.losses import LOSSES, Loss, Marginal, Seen, weak_terms
from polyclinic.networks.contract import Segmenter
from polyclinic.networks.parts import Names, statistics
from polyclinic.runs import SiteInfo
from polyclinic.seeds import derive, torch_generator

Parameters = Mapping[str, nn.Parameter]
Guides = Sequence[Tensor]  # maps of the images' size, on which trees are built


class TrainingFailed(ValueError):
    """The loss stopped being a number."""


@dataclass(frozen=True)
class Fit:
    """What a stretch of training took and gave."""

    steps: int
    images: int
    loss: float  # mean over the steps
    rates: float  # sum of the learning rates over the steps
    stream: str = "main"  # of random draws; others than the main one may have another loss
    trains: bool = True  # the network itself, and not something else in the optimizer's place


@dataclass
class Site:
    """One participant during one visit; its network's weights and its memory outlive the visit."""

    info: SiteInfo
    sites: tuple[SiteInfo, ...]
    data: SiteData
    task: Task
    net: Segmenter
    weights: Weights  # live: training changes them, loading them changes the network
    shared: Names
    training: TrainingSettings
    seed: int
    round: int
    rounds: int
    stage: str
    message: Message = field(default_factory=Message)
    memory: dict[str, Tensor] = field(default_factory=dict)
    first: bool = True  # nothing was kept from an earlier visit
    fits: list[Fit] = field(default_factory=list)
    in_use: str = "own"  # the set of weights the network has at the moment
    loss: Loss | None = None  # the one that the study names; None for auto

    @property
    def device(self) -> torch.device:
        """Where the network lives."""
        return self.weights.flat.device

    @property
    def supervised(self) -> Loss:
        """The study's loss; `auto` is cross entropy, with Dice where masks are full.

        Classes that the site's labels do not tell apart count as one.
        """
        return self.marginal(self.loss or LOSSES["ce+dice" if self.info.kind == "mask" else "ce"])

    def marginal(self, loss: Loss, *, masks: bool = False) -> Loss:
        """A loss on the groups of classes that the site's labels, or its masks, tell apart."""
        own = (self.data.mask_groups,) if self.data.mask_groups else ()
        groups = own if masks else self.data.groups
        return Marginal(loss, groups) if groups else loss

    def task_loss(
        self, logits: Tensor, batch: Batch, *, second: Tensor | None = None, guides: Guides = ()
    ) -> Tensor:
        """The loss of labels and, where they are weak, of what stands in for missing ones.

        With the logits of a second branch it is the mean of both on the labels; trees are built on
        the `guides` beside that of the image.
        """
        labelled = self.labelled_loss(logits, batch, second)
        return labelled + self.stand_ins(logits, batch, second=second, guides=guides)

    def labelled_loss(self, logits: Tensor, batch: Batch, second: Tensor | None = None) -> Tensor:
        """The loss of the labels alone; with a second branch the mean of both."""
        branches = [logits] if second is None else [logits, second]
        losses = [self.supervised(each, batch.labels) for each in branches]
        return torch.stack(losses).mean() if len(losses) > 1 else losses[0]

    def stand_ins(
        self, logits: Tensor, batch: Batch, *, second: Tensor | None = None, guides: Guides = ()
    ) -> Tensor:
        """What `training.weak` has beside the labels; 0 where they are full masks."""
        if self.info.kind == "mask" or not self.training.weak.on:
            return logits.new_zeros(())
        seen = Seen(logits, batch.images, batch.labels, self.info.kind, batch.view, guides, second)
        return weak_terms(self.training.weak, seen)

    @property
    def steps(self) -> int:
        """The optimizer steps of one round's budget."""
        return self.steps_of(iterations=self.training.iterations, epochs=self.training.epochs)

    def steps_of(self, *, iterations: int | None = None, epochs: int | None = None) -> int:
        """A budget in optimizer steps, given in steps or in passes over the site's images."""
        if iterations is not None:
            return iterations
        return (epochs or 0) * steps_per_epoch(len(self.data.train), self.training.batch)

    def fit(
        self,
        loss: "Callable[[Site, Batch], Tensor]",
        *,
        only: Names | None = None,
        steps: int | None = None,
        training: TrainingSettings | None = None,
        stream: str = "main",
        hook: Callable[[Parameters], None] | None = None,
        update: Callable[[Parameters], None] | None = None,
    ) -> Fit:
        """Train the network in place: the training loop.

        `only` names the weights that learn; `hook` may change gradients between backward and step;
        `update` replaces the optimizer's step, and no reply counts such steps; `stream` names the
        random draws, so that two fits with the same stream in the same stage see the same batches.
        """
        training = training or self.training
        total = self.steps if steps is None else steps
        parameters = self._trainable(only)
        drawn = (self.seed, self.info.name, self.round, self.stage, stream)
        losses, rates, images = 0.0, 0.0, 0
        with (
            torch.random.fork_rng(),
            optimizing(
                parameters, training, self.memory, f"{self.in_use}/{stream}", update
            ) as step,
        ):
            torch.manual_seed(derive(*drawn, "net"))
            self.net.train()
            for done, batch in enumerate(self.batches(stream, total, training)):
                rate = learning_rate(training, (self.round - 1 + done / total) / self.rounds)
                with autocast(training, self.device):
                    value = loss(self, batch)
                value.backward()
                clip(parameters, training)
                if hook:
                    hook(parameters)
                step(rate)
                losses += self._finite(value, done)
                rates += rate
                images += len(batch.images)
        mean = losses / max(total, 1)
        self.fits.append(Fit(total, images, mean, rates, stream, trains=update is None))
        return self.fits[-1]

    def batches(
        self, stream: str, steps: int, training: TrainingSettings | None = None
    ) -> Iterator[Batch]:
        """The batches of a stream of random draws; training on it is `fit`'s alone."""
        training = training or self.training
        return batches(
            self.data.train,
            batch=training.batch,
            steps=steps,
            rng=torch_generator(self.seed, self.info.name, self.round, self.stage, stream, "data"),
            augmentation=training.augmentation,
            fill=self.task.fill,
            tile=self.task.tile,
            device=self.device,
        )

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Overwrite the network's weights with these names."""
        self.weights.load(tensors)

    def take(self, names: Names) -> Weights:
        """A copy of the network's weights with these names."""
        return self.weights.pick(names)

    def remember(self, name: str) -> None:
        """Keep a copy of the network's weights as another set, unless one has that name."""
        if not any(key.startswith(f"{name}/") for key in self.memory):
            self._keep_set(name)

    @contextmanager
    def using(self, name: str) -> Iterator[None]:
        """Let the network have another remembered set of weights for a while."""
        own, was_in_use = self.weights.copy(), self.in_use
        self.load({n: self.memory[f"{name}/{n}"] for n in self.weights})
        self.in_use = name
        try:
            yield
            self._keep_set(name)
        finally:
            self.load(own)
            self.in_use = was_in_use

    def twin(self, weights: Mapping[str, Tensor]) -> Segmenter:
        """A second network at rest (evaluating, without gradients) that has these weights."""
        net = copy.deepcopy(self.net).eval().requires_grad_(False)
        unknown = net.load_state_dict(dict(weights), strict=False).unexpected_keys
        if unknown:
            raise ValueError(f"the network has no weights called {', '.join(unknown[:3])}")
        return net

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Leave the running statistics as they are, whatever passes through the network."""
        before = self.take(statistics(self.net))
        try:
            yield
        finally:
            self.load(before)

    def _keep_set(self, name: str) -> None:
        self.memory.update({f"{name}/{n}": tensor for n, tensor in self.weights.copy().items()})

    def _trainable(self, only: Names | None) -> dict[str, nn.Parameter]:
        chosen = {}
        for name, parameter in self.net.named_parameters():
            parameter.grad = None
            parameter.requires_grad_(only is None or name in only)
            if parameter.requires_grad:
                chosen[name] = parameter
        return chosen

    def _finite(self, value: Tensor, step: int) -> float:
        number = float(value.detach())
        if number != number or abs(number) == float("inf"):
            raise TrainingFailed(
                f"the loss of site {self.info.name} became {number} in round {self.round}, "
                f"stage {self.stage}, step {step + 1}; the weights of the round before are kept. "
                "A smaller training.learning_rate or training.clip_norm usually helps"
            )
        return number
