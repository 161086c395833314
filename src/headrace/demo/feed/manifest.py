"""What the feed says about itself: all that the check must know and that is neither in the source nor in the tables."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from headrace.demo.feed.flights import Period
from headrace.durable_files import replace_file

BadKind = Literal["malformed", "missing_field"]

MANIFEST_NAME = "feed-manifest.json"


class Parameters(msgspec.Struct, frozen=True):
    """What the whole feed is computed from. `seconds` is the wall-clock time it takes to write; `slices` the writings."""

    seed: int
    period: Period
    seconds: float
    slices: int


class BadLine(msgspec.Struct, frozen=True):
    """A line that no event can be made of: in which file, at which byte, and what is wrong."""

    file: str
    offset: int
    kind: BadKind


class Manifest(msgspec.Struct, frozen=True):
    """The feed in numbers. `withheld` are the legs that never come; `early` counts followers that come before their leaders."""

    parameters: Parameters
    legs: int
    withheld: list[str]
    repeated: int
    early: int
    longest_early: float
    lines: int
    files: int
    bad: list[BadLine]

    def save(self, home: Path) -> None:
        """Write the manifest into `home`, atomically."""
        replace_file(home / MANIFEST_NAME, msgspec.json.format(msgspec.json.encode(self)) + b"\n")

    @classmethod
    def load(cls, home: Path) -> Manifest | None:
        """Return the manifest in `home`, or None where there is none."""
        path = home / MANIFEST_NAME
        return msgspec.json.decode(path.read_bytes(), type=cls) if path.exists() else None
