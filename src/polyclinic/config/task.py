"""A task as data: what is segmented, and how an image becomes what the network sees."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from polyclinic.config.mistakes import did_you_mean
from polyclinic.config.section import AtLeastOne, Count, FolderName, Section, unique

Normalisation = Literal["minmax", "standard", "channelwise", "percentile", "window"]
"""What the numbers of an image become before a network sees them."""
Fit = Literal["stretch", "pad", "crop"]
"""How an image of any size meets the network's square."""

MEANING = ("channels", "classes", "regions")
"""The settings that say what a task is, not how images are brought to a network."""
AT_A_SITE = ("fit", "normalisation", "percentiles", "window")
"""The settings of a task that a site may have otherwise."""


def _numbers(regions: Any, info: ValidationInfo) -> Any:
    """Regions with their classes as numbers, however they were given."""
    classes: tuple[str, ...] = info.data.get("classes", ())
    if not isinstance(regions, Mapping) or not classes:
        return regions
    return {region: _numbers_of(region, given, classes) for region, given in regions.items()}


def _numbers_of(region: str, given: Any, classes: tuple[str, ...]) -> Any:
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, list | tuple):
        return given
    for name in names:
        if isinstance(name, str) and name not in classes:
            there = f"there is no class {name} (classes: {', '.join(classes)})"
            raise ValueError(f"region {region}: {there}{did_you_mean(name, classes)}")
    return tuple(classes.index(name) if isinstance(name, str) else name for name in names)


def _ascending(pair: tuple[float, float]) -> tuple[float, float]:
    if pair[0] >= pair[1]:
        raise ValueError("must be two numbers, the lower one first")
    return pair


Range = tuple[float, float]
Percent = Annotated[float, Field(ge=0, le=100)]


class Task(Section):
    """One kind of segmentation: classes by number, regions as unions of classes, square input."""

    needs: ClassVar = {
        "window": ("normalisation", "window"),
        "percentiles": ("normalisation", "percentile"),
    }

    name: FolderName
    """What the task is called."""
    summary: str = ""
    """A line about it."""
    channels: Annotated[int, Field(ge=1, le=16)] = 1
    """Channels of an image: 1 for grey, 3 for colour, up to 16."""
    classes: tuple[str, ...]
    """What a pixel can be, by number from 0: background first, then up to 254 others."""
    regions: Annotated[dict[str, tuple[int, ...]], BeforeValidator(_numbers)] = Field(
        default_factory=lambda given: _each_class(given.get("classes", ()))
    )
    """What is scored: unions of classes by name; by default every class but background."""
    resolution: AtLeastOne = 384
    """Side of the square that images are brought to, in pixels."""
    fit: Fit = "stretch"
    """How an image meets the square: stretched, or `pad`ded, or `crop`ped to content and padded."""
    normalisation: Normalisation = "minmax"
    """To 0…1 by range, percentiles or a window; or to mean 0 and deviation 1, also by channel."""
    percentiles: tuple[Percent, Percent] = (0.5, 99.5)
    """The percentiles of an image that become 0 and 1; what lies beyond is clipped."""
    window: Range = (0.0, 255.0)
    """The values that become 0 and 1; what lies beyond is clipped."""
    fill: float = 0.0
    """What lies beyond an image's border, after normalisation."""
    dark: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Pixels up to this share of an image's brightness were out of the camera's view."""
    tile: Count = 0
    """Side of the tiles that the network sees, for fine structures; 0 is the whole square."""
    overlap: Annotated[float, Field(ge=0, lt=1)] = 0.25
    """Share of a tile that its neighbour covers, too, when predicting."""

    def __hash__(self) -> int:
        return hash((self.name, self.classes, self.resolution))

    @property
    def side(self) -> int:
        """The side of what the network sees, in pixels."""
        return self.tile or self.resolution

    @property
    def settings(self) -> dict[str, Any]:
        """All that makes the task in the form of its file, without what has no effect."""
        names = {
            region: [self.classes[number] for number in numbers]
            for region, numbers in self.regions.items()
        }
        values = {**dict(self), "regions": names}
        return {name: value for name, value in values.items() if self.in_effect(name, values)}

    def unlike(self, other: "Task") -> list[str]:
        """What the other task means otherwise by the same name; how images are prepared is free."""
        pairs = ((key, getattr(self, key), getattr(other, key)) for key in MEANING)
        return [
            f"its {key} are {_shown(here)}, not {_shown(there)}"
            for key, here, there in pairs
            if here != there
        ]

    def prepared_otherwise(self, other: "Task") -> dict[str, tuple[Any, Any]]:
        """The settings by which images are prepared here and otherwise there: both values."""
        keys = (key for key in type(self).model_fields if key not in (*MEANING, "name", "summary"))
        ours, theirs = self.settings, other.settings
        pairs = {key: (ours.get(key), theirs.get(key)) for key in keys}
        return {key: (here, there) for key, (here, there) in pairs.items() if here != there}

    def changed(self, **settings: Any) -> "Task":
        """The same task with other settings, checked like any other."""
        values = {**self.settings, **settings}
        return Task(**{name: each for name, each in values.items() if self.in_effect(name, values)})

    def with_resolution(self, resolution: int) -> "Task":
        """The same task on images of `resolution` × `resolution` pixels."""
        return self.changed(resolution=resolution)

    @field_validator("classes")
    @classmethod
    def _two_at_least(cls, classes: tuple[str, ...]) -> tuple[str, ...]:
        if not 2 <= len(classes) <= 255:
            raise ValueError(
                f"must be 2 to 255 names, background first, not {len(classes)} "
                "(255 stands for unlabelled pixels)"
            )
        if blank := [number for number, name in enumerate(classes) if not name.strip()]:
            raise ValueError(f"must have names; number {blank[0]} has none")
        return unique(classes)

    @field_validator("regions")
    @classmethod
    def _of_known_classes(
        cls, regions: dict[str, tuple[int, ...]], info: ValidationInfo
    ) -> dict[str, tuple[int, ...]]:
        most = len(info.data.get("classes", range(255))) - 1
        for region, numbers in regions.items():
            if not numbers or min(numbers) < 1 or max(numbers) > most:
                raise ValueError(
                    f"region {region}: must be a list of classes other than background, "
                    f"by name or as numbers from 1 to {most}"
                )
            unique(numbers)
        if not regions:
            raise ValueError("must not be empty")
        return regions

    @field_validator("percentiles", "window")
    @classmethod
    def _lower_first(cls, pair: Range) -> Range:
        return _ascending(pair)

    @field_validator("tile")
    @classmethod
    def _within_the_square(cls, tile: int, info: ValidationInfo) -> int:
        if tile > info.data.get("resolution", tile):
            raise ValueError(f"must be at most the resolution, {info.data['resolution']}")
        return tile


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        value = [f"{name} ({', '.join(map(str, numbers))})" for name, numbers in value.items()]
    return ", ".join(value) if isinstance(value, list | tuple) else str(value)


def _each_class(classes: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    return {name: (number,) for number, name in enumerate(classes) if number}
