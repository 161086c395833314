"""All that one pipeline process needs to know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class PipelineOptions:
    """Where the api is, what to read and where to write. `conf` is for Spark; `lookback` is in seconds.

    A scope that is new begins with the event `begin`, or with what is stored from now on (None). `home` is scratch.
    """

    api_url: str
    key: str = field(repr=False)
    home: Path
    tables: Path
    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    scope: str = "default"
    lookback: float = 900.0
    max_rows: int = 20_000
    log_url: str | None = None
    begin: int | None = 1
