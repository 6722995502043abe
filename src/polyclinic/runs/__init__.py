"""The run folder: its names, its writers and its readers; everything that outlives a process."""

from polyclinic.runs.embeddings import Embedded, Moment, read_embeddings, write_embeddings
from polyclinic.runs.files import RunError, clear_errors, replacing, write_atomic
from polyclinic.runs.folder import CONTOUR_COLOURS, RANKS, SIZES, RunFolder
from polyclinic.runs.names import SPLITS, find_runs, run_path, slug
from polyclinic.runs.records import (
    DIAGNOSED,
    About,
    AboutMetric,
    AboutTask,
    AttentionPicture,
    Finished,
    Picture,
    Rank,
    RoundLine,
    RoundTable,
    Score,
    ScoredModel,
    SiteInfo,
    Split,
)

__all__ = [
    "CONTOUR_COLOURS",
    "DIAGNOSED",
    "RANKS",
    "SIZES",
    "SPLITS",
    "About",
    "AboutMetric",
    "AboutTask",
    "AttentionPicture",
    "Embedded",
    "Finished",
    "Moment",
    "Picture",
    "Rank",
    "RoundLine",
    "RoundTable",
    "RunError",
    "RunFolder",
    "Score",
    "ScoredModel",
    "SiteInfo",
    "Split",
    "clear_errors",
    "find_runs",
    "read_embeddings",
    "replacing",
    "run_path",
    "slug",
    "write_atomic",
    "write_embeddings",
]
