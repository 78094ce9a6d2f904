"""The types in the signatures of `tool_table`, as a notebook would define them."""

import dataclasses
import enum
import typing
from typing import Annotated, Literal, Optional

import typing_extensions
from pydantic import BaseModel, ConfigDict, Field, field_validator


class Color(enum.Enum):
    RED = "red"
    BLUE = 2


class Size(str, enum.Enum):
    S = "small"
    L = "large"


class Point(BaseModel):
    x: int
    y: float = 0.5


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")
    a: int


class Renamed(BaseModel):
    source: str = Field(alias="from")


class Even(BaseModel):
    n: int

    @field_validator("n")
    @classmethod
    def check(cls, value: int) -> int:
        if value % 2:
            raise ValueError("must be even")
        return value


class Node(BaseModel):
    v: int
    kids: "list[Node]" = []


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    tricks: list[str]


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]


@dataclasses.dataclass
class Edit:
    path: str
    line: int = 1


class Options(typing_extensions.TypedDict, total=False):
    deep: bool
    depth: typing_extensions.Required[int]


class Pair(typing.NamedTuple):
    left: int
    right: str = "r"


Doc = typing_extensions.Doc
MaybeText = Optional[str]  # noqa: UP045 - the spelling is what is tested
