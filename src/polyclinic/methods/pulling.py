"""A pull towards other weights: the gradient of half the squared distance to them."""

from collections.abc import Callable, Mapping

from torch import Tensor

from polyclinic.federation.site import Parameters


def towards(goal: Mapping[str, Tensor], pull: float) -> Callable[[Parameters], None]:
    """A hook that adds `pull` times the way from the goal to the gradients of what it names.

    Whatever the loss is, this is the same as adding pull / 2 · |w − goal|² to it. Parameters alone
    are pulled, running statistics never.
    """

    def hook(parameters: Parameters) -> None:
        for name, parameter in parameters.items():
            if pull and name in goal and parameter.grad is not None:
                way = parameter.detach() - goal[name].to(parameter.device)
                parameter.grad.add_(way, alpha=pull)

    return hook
