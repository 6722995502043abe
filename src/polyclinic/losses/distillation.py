"""Learning from what another model says of the same pixels."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import kl_div


def teaching(logits: Tensor, said: Tensor, temperature: float = 1.0) -> Tensor:
    """Give T² · KL(teacher ‖ student), of classes at temperature T, as the mean over pixels.

    Logits are batch × classes × height × width; the teacher's get no gradient.
    """
    student = (logits.float() / temperature).log_softmax(1)
    teacher = (said.detach().float() / temperature).log_softmax(1)
    divergence = kl_div(student, teacher, reduction="none", log_target=True).sum(1)
    return temperature**2 * divergence.mean()
