"""Options of a replay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

Format: TypeAlias = Literal["parquet", "json"]


@dataclass(frozen=True, slots=True)
class Fields:
    """Paths of an event's fields: the name of a column or field, or a path such as `$.leg.id`, or None if events do not have it."""

    id: str = "id"
    follows: str | None = None
    occurred: str | None = None
    subject: str | None = None
    key: str | None = None

    def paths(self) -> dict[str, str]:
        """Return the paths of the fields that events have, by option."""
        named = {"id": self.id, "follows": self.follows, "occurred": self.occurred, "subject": self.subject, "key": self.key}
        return {option: path for option, path in named.items() if path is not None}


@dataclass(frozen=True, slots=True)
class LogAccess:
    """Access to the event log: the API's URL, and the file with the token for reading."""

    api_url: str
    token_file: Path
    first: int
    head: int


@dataclass(frozen=True, slots=True)
class HistoryColumns:
    """Columns of the ordered history: id, occurred, and the raw event as JSON text, or None if the row itself is the event."""

    id: str
    occurred: str | None
    raw: str | None


@dataclass(frozen=True, slots=True)
class LogSelection:
    """Replay the event log of this API, as a job that is registered with the deployment key."""

    api_url: str
    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """What to replay (`paths` or `log`) and the output: `out` receives a folder `ordered`, and `tables` if pipelines run.

    `watch` names the trigger whose upstream the paths represent. Only triggers on the same stream are run, or all if
    None.
    """

    out: Path
    work: Path
    paths: tuple[Path, ...] = ()
    log: LogSelection | None = None
    fields: Fields = field(default_factory=Fields)
    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    watch: str | None = None
    backtest: bool = False
    pipelines: bool = False
