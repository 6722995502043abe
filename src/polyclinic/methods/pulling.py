"""A pull towards the weights received: the gradient of half the squared distance to them."""

from collections.abc import Callable

from polyclinic.federation.site import Parameters, Site


def towards_received(site: Site, pull: float) -> Callable[[Parameters], None]:
    """A hook that adds `pull` times the way from the weights received in this stage to gradients.

    Whatever the loss is, this is the same as adding pull / 2 · |w − received|² to it. Parameters
    alone are pulled, running statistics never.
    """

    def towards(parameters: Parameters) -> None:
        for name, parameter in parameters.items():
            if parameter.grad is not None and pull:
                distance = parameter.detach() - site.message.weights[name].to(site.device)
                parameter.grad.add_(distance, alpha=pull)

    return towards
