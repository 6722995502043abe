"""Personalized federated medical image segmentation.

`import polyclinic as pc` is quick: each name below is imported when it is first used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from polyclinic.api import metrics as metrics
    from polyclinic.api.results import Results as Results
    from polyclinic.api.results import load_run as load_run
    from polyclinic.api.running import run as run
    from polyclinic.api.sites import load_site as load_site
    from polyclinic.api.study import Study as Study
    from polyclinic.config.mistakes import ConfigError as ConfigError
    from polyclinic.federation.method import Method as Method
    from polyclinic.networks.contract import Segmenter as Segmenter
    from polyclinic.predict import load as load_model
    from polyclinic.weak import weaken as weaken

__version__ = "0.1.0"

_HOMES = {
    "ConfigError": "polyclinic.config.mistakes:ConfigError",
    "Method": "polyclinic.federation.method:Method",
    "Results": "polyclinic.api.results:Results",
    "Segmenter": "polyclinic.networks.contract:Segmenter",
    "Study": "polyclinic.api.study:Study",
    "load_model": "polyclinic.predict:load",
    "load_run": "polyclinic.api.results:load_run",
    "load_site": "polyclinic.api.sites:load_site",
    "metrics": "polyclinic.api.metrics",
    "run": "polyclinic.api.running:run",
    "weaken": "polyclinic.weak:weaken",
}
"""Name → the module that has it, and what it is called there."""

__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pkgutil import resolve_name

    from polyclinic.environment import prepare_environment

    prepare_environment()
    globals()[name] = resolve_name(_HOMES[name])
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
