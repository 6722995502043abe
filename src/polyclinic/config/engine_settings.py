"""Settings of the engine: what carries the messages, on one machine or across hospitals."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from polyclinic.config.section import AtLeastOne, Count, Device, Positive, Section


class EngineSettings(Section):
    """What carries the messages, and what computes; with Flower each site decides the latter."""

    needs: ClassVar = {
        **dict.fromkeys(("jobs", "workers", "threads", "device"), ("name", "local")),
        **dict.fromkeys(
            ("encoding", "quorum", "deadline", "patience", "at_once", "stray"), ("name", "flower")
        ),
    }

    name: Literal["local", "flower"] = "local"
    """`local` runs all sites on this machine, `flower` each on its own."""
    jobs: Count = 0
    """Runs at once; 0 is one per core as far as memory allows, and one on an accelerator."""
    workers: Count = 0
    """Processes that a run's sites are divided among; 0 is one per core that no other run has."""
    threads: Count = 0
    """Threads in each process; 0 is OMP_NUM_THREADS, else all cores shared by jobs and workers."""
    device: Device = "auto"
    """`auto` is CUDA where there is one, else the CPU."""
    encoding: Literal["float32", "float16", "bfloat16", "difference"] = "float32"
    """How weights travel; all but float32 are smaller and lose precision."""
    quorum: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Share of the sites that must answer a stage; with fewer the study stops."""
    deadline: Positive = 14400.0
    """Seconds that a stage may take."""
    patience: Positive = 180.0
    """Seconds to wait for an unreachable site once all others have answered."""
    at_once: AtLeastOne | None = None
    """How many sites may work at the same time; by default all."""
    stray: Annotated[float, Field(gt=1)] = 100.0
    """Replies whose change is more than so many times as long as the median one are left out."""
