"""Options of one pipeline process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.core.values.locations import TableLocation


@dataclass(frozen=True, slots=True)
class PipelineOptions:
    """The API, what to read and where to write. `conf` is for Spark; `lookback` is in seconds.

    A new scope begins with event `begin`, or with the next one stored if None. `home` is scratch.
    """

    api_url: str
    key: str = field(repr=False)
    home: Path
    tables: Path | TableLocation
    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    scope: str = "default"
    lookback: float = 900.0
    max_rows: int = 20_000
    log_url: str | None = None
    begin: int | None = 1
