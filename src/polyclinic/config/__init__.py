"""What a study is: frozen settings read from TOML, checked completely before anything starts."""

from polyclinic.config.callables import describe
from polyclinic.config.chosen import Choice, Factory, MethodChoice, NetworkChoice
from polyclinic.config.comparing import changes
from polyclinic.config.data_settings import DataSettings, SiteSettings
from polyclinic.config.engine_settings import EngineSettings
from polyclinic.config.loading import load_study, read_study
from polyclinic.config.mistakes import ConfigError, Mistake
from polyclinic.config.picking import only_methods
from polyclinic.config.printing import to_toml
from polyclinic.config.study import (
    AugmentationSettings,
    EvaluationSettings,
    FederationSettings,
    Study,
    TrainingSettings,
)
from polyclinic.config.tables import Origin, Tables, file_of, package_name
from polyclinic.config.task import Task
from polyclinic.config.task_entry import read_task
from polyclinic.config.weak_settings import WeakSettings
from polyclinic.config.weightings import uniform_row_told, weighting_of
