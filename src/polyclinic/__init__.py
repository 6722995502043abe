"""Personalized federated medical image segmentation.

`import polyclinic as pc` is quick: each name below is imported when it is first used.
"""

from __future__ import annotations

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
    from polyclinic.weak import weaken as weaken

__version__ = "0.1.0"

_HOMES = {
    "ConfigError": "polyclinic.config.mistakes",
    "Method": "polyclinic.federation.method",
    "Results": "polyclinic.api.results",
    "Segmenter": "polyclinic.networks.contract",
    "Study": "polyclinic.api.study",
    "load_run": "polyclinic.api.results",
    "load_site": "polyclinic.api.sites",
    "metrics": "polyclinic.api",
    "run": "polyclinic.api.running",
    "weaken": "polyclinic.weak",
}
"""Name → the module that has it."""

__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    from polyclinic.engine.environment import prepare_environment

    prepare_environment()
    home = import_module(_HOMES[name])
    thing = import_module(f"{home.__name__}.{name}") if name == "metrics" else getattr(home, name)
    globals()[name] = thing
    return thing


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
