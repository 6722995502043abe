"""A section of a study's TOML file, and the types that several sections use."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
)
from pydantic_core import PydanticCustomError

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=0)]
AtLeastOne = Annotated[int, Field(ge=1)]
Items = TypeVar("Items", bound=tuple[Any, ...])


def _usable_as_folder(name: str) -> str:
    if name != name.strip() or name.startswith("."):
        raise ValueError("must not begin with a dot, nor begin or end with space")
    if re.search(r'[\x00-\x1f/\\:*?"<>|]', name):
        raise ValueError('becomes the name of a folder, so it must not contain / \\ : * ? " < > |')
    return _readable(name)


def known_in(table: str, *more: str) -> AfterValidator:
    """Refuses a name that is neither in this table of the validation context nor one of `more`."""

    def check(name: str, info: ValidationInfo) -> str:
        if info.context is not None and name not in more:
            try:
                info.context.find(table, name)
            except KeyError:
                names = {"table": table, "allowed": [*more, *getattr(info.context, table)]}
                raise PydanticCustomError(
                    "unknown_name", "there is no such {table}", names
                ) from None
        return name

    return AfterValidator(check)


def _readable(text: str) -> str:
    if not any(letter.isalnum() for letter in text):
        raise ValueError("must have a letter or a digit")
    return text


def _looks_like_a_device(device: str) -> str:
    if not re.fullmatch(r"auto|cpu|mps|(cuda|xpu)(:\d+)?", device):
        raise ValueError("must be auto, cpu, mps, cuda or xpu, or one of several as cuda:0")
    return device


def _there_unless_insecure(value: Any, info: ValidationInfo) -> Any:
    if value is None and not info.data.get("insecure"):
        raise PydanticCustomError("missing", "is required")
    return value


FolderName = Annotated[str, AfterValidator(_usable_as_folder)]
Title = Annotated[str, AfterValidator(_readable)]
Device = Annotated[str, AfterValidator(_looks_like_a_device)]
Value = TypeVar("Value")
UnlessInsecure = Annotated[
    Value | None, Field(validate_default=True), AfterValidator(_there_unless_insecure)
]


class Section(BaseModel):
    """A table of the TOML file; a setting that could have no effect is refused when given."""

    # The validators are built at the first study, not at import: `polyclinic --help` needs none.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    needs: ClassVar[Mapping[str, tuple[str, str]]] = {}
    """Setting → the other setting, declared before it, and the value that gives it an effect."""

    @field_validator("*")
    @classmethod
    def _has_an_effect(cls, value: Any, info: ValidationInfo) -> Any:
        if info.field_name is not None and not cls.in_effect(info.field_name, info.data):
            other, wanted = cls.needs[info.field_name]
            raise ValueError(
                f'has no effect with {other} = "{info.data[other]}"; it needs {other} = "{wanted}"'
            )
        return value

    @classmethod
    def in_effect(cls, name: str, values: Mapping[str, Any]) -> bool:
        """Whether this setting does anything beside these values of the others."""
        other, wanted = cls.needs.get(name, ("", ""))
        return other not in values or bool(values[other] == wanted)


def unique(items: Items) -> Items:
    """The items themselves if there are any and no two are equal."""
    if not items:
        raise ValueError("must not be empty")
    twice = [item for item in dict.fromkeys(items) if items.count(item) > 1]
    if twice:
        raise ValueError(f"has {', '.join(map(str, twice))} more than once")
    return items
