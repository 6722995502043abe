"""What a study is: frozen settings read from TOML, checked completely before anything starts."""

from polyclinic.config.callables import GIVEN, Tables, describe
from polyclinic.config.comparing import changes
from polyclinic.config.loading import load_study
from polyclinic.config.mistakes import ConfigError, Mistake
from polyclinic.config.printing import to_toml
from polyclinic.config.study import (
    AugmentationSettings,
    Choice,
    DataSettings,
    EngineSettings,
    EvaluationSettings,
    FederationSettings,
    MethodChoice,
    SiteSettings,
    Study,
    TrainingSettings,
)

__all__ = [
    "GIVEN",
    "AugmentationSettings",
    "Choice",
    "ConfigError",
    "DataSettings",
    "EngineSettings",
    "EvaluationSettings",
    "FederationSettings",
    "MethodChoice",
    "Mistake",
    "SiteSettings",
    "Study",
    "Tables",
    "TrainingSettings",
    "changes",
    "describe",
    "load_study",
    "to_toml",
]
