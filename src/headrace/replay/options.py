"""What is asked of a replay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

Format: TypeAlias = Literal["parquet", "json"]


@dataclass(frozen=True, slots=True)
class Fields:
    """Where an event's fields are: the name of a column or of a field, or a path such as `$.leg.id`. None if events do not have it."""

    id: str = "id"
    follows: str | None = None
    occurred: str | None = None
    subject: str | None = None
    key: str | None = None

    def asked(self) -> dict[str, str]:
        """Return the fields that events have, by the option that names them."""
        named = {"id": self.id, "follows": self.follows, "occurred": self.occurred, "subject": self.subject, "key": self.key}
        return {option: place for option, place in named.items() if place is not None}


@dataclass(frozen=True, slots=True)
class LogAccess:
    """Where the event log is: the api, and the file that has the token to read it with."""

    api_url: str
    token_file: Path
    first: int
    head: int


@dataclass(frozen=True, slots=True)
class HistoryColumns:
    """Names of columns of the ordered history: id and occurred, and the column with the raw event as JSON text (None: the row is it)."""

    id: str
    occurred: str | None
    raw: str | None


@dataclass(frozen=True, slots=True)
class LogSelection:
    """Replay the event log of this api, as a job that the deployment key lets in."""

    api_url: str
    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """What to replay (`paths`, or `log`), and where to: `out` gets a folder `ordered`, and `tables` where pipelines run.

    `watch` names the trigger whose upstream the paths stand for: only those on the same stream are asked (None: all).
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
