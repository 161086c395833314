"""Schemas as a registry describes them, and the values that they decode."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

ValueDecoder: TypeAlias = Callable[[bytes], bytes]
"""Return the JSON of a value without its header. Raises `MalformedEvent` if the value does not have the schema."""


class ReferencedSchema(NamedTuple):
    """A schema that another one names, and its own text."""

    name: str
    text: str


class Schema(NamedTuple):
    """A schema with all schemas that it needs: each comes after the schemas that it names itself."""

    id: int
    type: str
    text: str
    references: tuple[ReferencedSchema, ...] = ()
