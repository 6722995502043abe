"""The run folder: its names, its writers and its readers; everything that outlives a process."""

from polyclinic.runs.embeddings import Embedded, Moment, read_embeddings, write_embeddings
from polyclinic.runs.files import RunError, clear_errors, csv_text, replacing, write_atomic
from polyclinic.runs.folder import CONTOUR_COLOURS, MAP_KINDS, RANKS, SIZES, RunFolder
from polyclinic.runs.guests import (
    DECODER,
    ENSEMBLE,
    REESTIMATED,
    ROUTED,
    SHARED,
    TUNED,
    WAYS,
    GuestScore,
    read_guests,
    write_guests,
)
from polyclinic.runs.names import SPLITS, find_runs, run_path, slug
from polyclinic.runs.records import (
    DIAGNOSED,
    About,
    AboutMetric,
    AboutTask,
    AttentionPicture,
    Finished,
    MapKind,
    Picture,
    Rank,
    RoundLine,
    RoundTable,
    Score,
    ScoredModel,
    SiteInfo,
    Split,
)
