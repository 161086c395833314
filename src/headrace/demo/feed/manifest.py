"""The manifest of the feed: the data for the check that is neither in the source nor in the tables."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from headrace.demo.feed.flights import Period
from headrace.durable_files import replace_file

BadKind = Literal["malformed", "missing_field"]

MANIFEST_NAME = "feed-manifest.json"


class Parameters(msgspec.Struct, frozen=True):
    """The inputs of the whole feed. `seconds` is the wall-clock time of its writing; `slices` the number of writes."""

    seed: int
    period: Period
    seconds: float
    slices: int


class BadLine(msgspec.Struct, frozen=True):
    """A line that is not a valid event: its file, its byte offset, and its defect."""

    file: str
    offset: int
    kind: BadKind


class Manifest(msgspec.Struct, frozen=True):
    """The feed in numbers. `withheld` are the legs that never arrive; `early` counts followers that arrive before their leaders."""

    parameters: Parameters
    legs: int
    withheld: list[str]
    repeated: int
    early: int
    max_early_seconds: float
    lines: int
    files: int
    bad: list[BadLine]

    def save(self, home: Path) -> None:
        """Write the manifest into `home`, atomically."""
        replace_file(home / MANIFEST_NAME, msgspec.json.format(msgspec.json.encode(self)) + b"\n")

    @classmethod
    def load(cls, home: Path) -> Manifest | None:
        """Return the manifest in `home`, or None if there is none."""
        path = home / MANIFEST_NAME
        return msgspec.json.decode(path.read_bytes(), type=cls) if path.exists() else None
