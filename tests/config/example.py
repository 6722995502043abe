"""Tables as the program has them, with small stand-ins for tasks, networks and methods."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from polyclinic.config import ConfigError, Study, Tables, Task, load_study


@dataclass(frozen=True)
class Projector:
    depth: Annotated[int, Field(ge=1)] = 2
    width: int | None = None


@dataclass(frozen=True)
class FedAvg:
    """Averages everything."""


@dataclass(frozen=True)
class FedProx:
    """Holds every site near the average."""

    mu: Annotated[float, Field(ge=0)] = 0.01
    projector: Projector = Projector()
    layers: tuple[int, ...] = field(default_factory=lambda: (16, 32))
    strength: Literal["learned", "none"] | float = "learned"


@dataclass(frozen=True)
class Contrast:
    projector: Projector = Projector(depth=7, width=None)
    second: Projector | None = None


@dataclass(frozen=True)
class Ranged:
    low: float
    high: float = 1.0

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("low must not be above high")


@dataclass(frozen=True)
class FineTune:
    """Trains on alone."""

    epochs: Annotated[int, Field(ge=1)] = 1


def half(logits: object, labels: object) -> float:
    """Always a half."""
    return 0.5


def unet(channels: int, classes: int, *, width: Annotated[int, Field(ge=1)] = 16) -> str:
    """The papers' U-Net."""
    return f"{channels} {classes} {width}"


unet.divisor = 16


class ClassicUNet:
    """The U-Net of 2015."""

    def __init__(self, channels: int, classes: int, copy: bool = True, **rest: object) -> None:
        self.copy = copy


FUNDUS = Task(
    name="fundus", summary="Disc and cup", channels=3, classes=("background", "rim", "cup")
)
OCTA = Task(name="octa", summary="FAZ", classes=("background", "faz"), resolution=256)
TABLES = Tables(
    task={"fundus": FUNDUS, "octa": OCTA},
    network={"unet": unet, "classic_unet": ClassicUNet},
    method={"fedavg": FedAvg, "fedprox": FedProx, "ranged": Ranged},
    finish={"finetune": FineTune},
    kind=dict.fromkeys(("point", "scribble", "block", "box")),
    metric=dict.fromkeys(("dice", "iou", "hd", "hd95", "assd")),
    loss=dict.fromkeys(("ce", "dice", "ce+dice"), half),
)
SMALLEST = 'task = "fundus"\nmethod = "fedavg"\n'


def load(folder: Path, text: str, *overrides: str, tables: Tables = TABLES) -> Study:
    file = folder / "demo.toml"
    file.write_text(text, encoding="utf-8")
    return load_study(file, overrides, tables)


def mistakes(folder: Path, text: str, *overrides: str, tables: Tables = TABLES) -> dict[str, str]:
    """Key → the whole line that tells the mistake."""
    try:
        load(folder, text, *overrides, tables=tables)
    except ConfigError as error:
        lines = str(error).splitlines()[1:]
        return dict(zip((mistake.key for mistake in error.mistakes), lines, strict=True))
    return {}
