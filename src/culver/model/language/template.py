"""A filter whose values are still to come: the tree that `language` makes and `prepared` binds."""

from dataclasses import dataclass, field
from typing import Any

from culver.model.language.predicate import Condition, Constant


@dataclass(frozen=True, slots=True)
class Parameter:
    """Stands in a template where a literal's value will be; `number` is its place among them, from 0."""

    number: int


@dataclass(slots=True)
class Template:
    """A filter with parameters, as a tree: a Literal or the values of an In may hold a Parameter. In a
    Comparison it is always the right side, and the left one is no literal."""

    positions: list[int] = field(default_factory=list)  # where each parameter stands in the text
    pairs: list[tuple[Any, Any]] = field(default_factory=list)  # values that must be of one type
    condition: Condition = Constant(True)  # noqa: RUF009 (immutable)
