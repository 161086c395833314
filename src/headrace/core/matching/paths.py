"""Paths of fields in a JSON value: `$.a.b[0]`, or in the metadata of a message: `@.key`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.errors import ProjectError

_STEP = re.compile(r"\.(?P<name>[^.\[\]\s]+)|\[(?P<index>\d+)\]|\['(?P<quoted>[^']+)'\]")


METADATA: Final = "@"
"""Begins a path into the metadata of a message, and names them in a pattern."""
METADATA_FIELD: Final = "\0@"
"""The field of a value that has the metadata of its message, while paths and patterns read them. No pattern or path names it otherwise."""


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A path into a JSON value, equal to every path with the same text. Create one with `parse`."""

    text: str
    steps: tuple[str | int, ...] = field(compare=False)

    @classmethod
    def parse(cls, text: str) -> JsonPath:
        """Return the path that `text` describes: `$` or `@`, then `.name`, `['name']` or `[0]`, at least once. Raises `ProjectError`."""
        steps: list[str | int] = []
        at = 1
        while text.startswith(("$", METADATA)) and (step := _STEP.match(text, at)):
            index = step["index"]
            steps.append(int(index) if index is not None else step["name"] or step["quoted"])
            at = step.end()
        if not steps or at != len(text):
            raise ProjectError(
                f"{text!r} is not a path into the event.",
                hint="Write it like $.carrier or $.legs[0].id, or like @.key for the metadata of a message.",
            )
        return cls(text, tuple(steps if text.startswith("$") else [METADATA_FIELD, *steps]))

    @property
    def reads_metadata(self) -> bool:
        """Whether the path is one into the metadata of a message."""
        return self.steps[0] == METADATA_FIELD

    def find(self, value: Any) -> Any:
        """Return the field of `value`, or None if it is absent or null."""
        for step in self.steps:
            if isinstance(step, str):
                if type(value) is not dict and not isinstance(value, Mapping):  # the second test takes long
                    return None
                value = value.get(step)
            else:
                if not isinstance(value, list) or step >= len(value):
                    return None
                value = value[step]
        return value

    def __str__(self) -> str:
        return self.text
