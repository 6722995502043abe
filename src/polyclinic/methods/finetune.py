"""Fine-tuning: a finishing step that fits the final model of any method to each site."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from polyclinic.federation.message import Message
from polyclinic.federation.method import Method, Stage, ignore, plain_loss, silent
from polyclinic.federation.optimizing import after_rounds
from polyclinic.federation.site import Site
from polyclinic.networks.contract import Segmenter
from polyclinic.networks.parts import Names, everything, part


@dataclass(frozen=True)
class FineTune:
    """After the last round each site trains the model it uses a little further, on its own.

    The loss is the plain supervised one, the optimizer new.
    """

    epochs: Annotated[int, Field(ge=0)] = 20
    """Passes over the site's images."""
    iterations: Annotated[int, Field(ge=0)] | None = None
    """Steps, in place of epochs."""
    rate: Annotated[float, Field(gt=0)] = 0.1
    """Learning rate over the study's."""
    part: Literal["all", "body", "head", "decoder", "encoder"] = "all"
    """Part of the network that is tuned; the body is all but the head."""

    def stages(self, method: Method) -> tuple[Stage, ...]:
        """One stage in which nothing travels."""

        def tune(site: Site) -> Message:
            steps = site.steps_of(iterations=self.iterations, epochs=self.epochs)
            training = after_rounds(site.training, self.rate)
            with method.in_use(site):
                site.fit(plain_loss, only=self._learning(site.net), steps=steps, training=training)
            return Message()

        return (Stage("finetune", silent, tune, ignore, finalizes=True),)

    def _learning(self, net: Segmenter) -> Names:
        if self.part == "body":
            return everything(net) - part(net, "head")
        return everything(net) if self.part == "all" else part(net, self.part)
