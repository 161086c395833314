"""Changes of PostgreSQL tables as an upstream."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from headrace.errors import UpstreamError
from headrace.sources.arguments import check_text, one_or_several
from headrace.sources.postgres.decoding.formats import FORMATS, Format
from headrace.sources.postgres.producer import Description, PostgresProducer
from headrace.triggers.upstream import Upstream

MAX_NAME_CHARS: Final = 63
DEFAULT_SCHEMA: Final = "public"
_SLOT: Final = re.compile(r"[a-z0-9_]+")


class Postgres(Upstream):
    """Changes of tables of one PostgreSQL database, read from a logical replication slot.

    A committed change becomes a raw event, in the order of commits. A lane is the slot, or a value of the outbox's column `lane`.

    Args:
        tables: The name of a table, or several names. Without a schema, a table is in `public`.
        slot: The logical replication slot. Use it for this upstream only.
        connection: The id of a connection of kind `postgresql`, with address, database and credentials.
        publication: The publication that has the tables, by default the one with the name of the slot.
        format: `"changes"` for all changes as objects, `"debezium"` for Debezium's envelope, `"outbox"` for inserted rows only.
        payload: For an outbox, the column with the message. Without it, the message is the row.
        key: For an outbox, the column with the key.
        lane: For an outbox, the column with the lane.
        progress_table: A table in the same database for the position of each lane. Without it, the slot alone keeps the progress.
        create_publication: Whether to create the publication, and add tables to it, if they are missing.
    """

    def __init__(
        self,
        tables: str | Sequence[str],
        *,
        slot: str,
        connection: str = "postgresql",
        publication: str | None = None,
        format: Format = "changes",
        payload: str | None = None,
        key: str | None = None,
        lane: str | None = None,
        progress_table: str | None = None,
        create_publication: bool = False,
    ) -> None:
        if not _SLOT.fullmatch(check_text("slot", slot)) or len(slot) > MAX_NAME_CHARS:
            raise UpstreamError(
                f"Invalid slot {slot!r}.", hint=f"A name has up to {MAX_NAME_CHARS} lowercase letters, digits and underscores."
            )
        if format not in FORMATS:
            raise UpstreamError(f"Invalid format {format!r}.", hint=f"Use one of: {', '.join(FORMATS)}.")
        if format != "outbox" and (payload or key or lane):
            raise UpstreamError(
                f"payload, key and lane name columns of an outbox, and the format is {format!r}.", hint='Set format="outbox", or omit them.'
            )
        if not isinstance(create_publication, bool):
            raise UpstreamError(f"Invalid create_publication {create_publication!r}.", hint="Give True or False.")
        self._description = Description(
            tables=_tables(tables),
            slot=slot,
            connection=check_text("connection", connection),
            publication=slot if publication is None else check_text("publication", publication),
            format=format,
            payload=None if payload is None else check_text("payload", payload),
            key=None if key is None else check_text("key", key),
            lane=None if lane is None else check_text("lane", lane),
            progress_table=None if progress_table is None else _table(progress_table),
            create_publication=create_publication,
        )

    def stream_key(self) -> str:
        """Return `postgres:` with the connection, the slot and the tables."""
        description = self._description
        return f"postgres:{description.connection}/{description.slot}/{','.join(description.tables)}"

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments as plain JSON."""
        arguments = self._description._asdict() | {"tables": list(self._description.tables)}
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments

    def producer(self) -> PostgresProducer:
        """Return a new producer. It connects in `open_stream`."""
        producer = PostgresProducer(self._description)
        producer.upstream = self
        return producer

    @property
    def reader_names(self) -> tuple[str, ...]:
        """The replication slot."""
        return (f"replication slot {self._description.slot!r} of connection {self._description.connection!r}",)

    @property
    def event_type(self) -> str:
        """The default type of an event from a change."""
        return "headrace.postgres.row" if self._description.format == "outbox" else "headrace.postgres.change"


def _tables(tables: str | Sequence[str]) -> tuple[str, ...]:
    names = one_or_several("tables", tables)
    if not names:
        raise UpstreamError("No tables are given.", hint='Name one or several: Postgres("orders", slot="shop").')
    return tuple(sorted({_table(name) for name in names}))


def _table(name: object) -> str:
    text = check_text("table", name)
    schema, _, table = text.rpartition(".")
    if not table or "." in schema or text.startswith("."):
        raise UpstreamError(f"Invalid table {text!r}.", hint="Write it like orders, or sales.orders. Names need no quotes.")
    return f"{schema or DEFAULT_SCHEMA}.{table}"
