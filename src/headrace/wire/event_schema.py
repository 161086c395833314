"""The columns of an event: the one list that tables, Arrow, Spark, CloudEvents and the reference page are derived from.

This module imports no SQLAlchemy, PyArrow or PySpark. Each layer maps `ColumnType` to the types of its library.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from headrace.wire.base import WireModel

ColumnType = Literal["text", "integer", "time", "digest", "texts"]
"""`time` is a UTC time in microseconds, `digest` are the bytes of an event key, `texts` is a list of texts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventColumn:
    """One column of an event.

    `sent`: triggerers send it as a field of `EventItem`; otherwise the log or the scope fills it. `stored`: table `events` has it.
    `in_log`: pipelines read it from the API. `in_pipeline`: the DataFrame of a pipeline has it. `cloudevents` is the name of the
    CloudEvents attribute, or None.
    """

    name: str
    type: ColumnType
    meaning: str
    nullable: bool = False
    sent: bool = False
    stored: bool = True
    in_log: bool = True
    in_pipeline: bool = True
    cloudevents: str | None = None


EVENT_COLUMNS: Final = (
    EventColumn(name="seq", type="integer", cloudevents="sequence", meaning="number of the event in the log: 1, 2, 3, … without gaps"),
    EventColumn(name="key", type="digest", in_pipeline=False, meaning="digest of `source` and `id`, which identify the event"),
    EventColumn(name="leader_key", type="digest", nullable=True, in_pipeline=False, meaning="`key` of the leader"),
    EventColumn(
        name="leader_seq",
        type="integer",
        in_pipeline=False,
        meaning="`seq` of the leader if the log had it when the event was stored, otherwise -1",
    ),
    EventColumn(name="source", type="text", sent=True, cloudevents="source", meaning="context in which the event happened"),
    EventColumn(name="id", type="text", sent=True, cloudevents="id", meaning="id of the event, unique within its `source`"),
    EventColumn(name="type", type="text", sent=True, cloudevents="type", meaning="kind of the event"),
    EventColumn(name="subject", type="text", nullable=True, sent=True, cloudevents="subject", meaning="what the event is about"),
    EventColumn(
        name="occurred", type="time", cloudevents="time", meaning="time at which the event occurred; `received` if the event has none"
    ),
    EventColumn(name="received", type="time", cloudevents="recordedtime", meaning="time at which the log stored the event"),
    EventColumn(name="follows", type="text", nullable=True, sent=True, cloudevents="causationid", meaning="`id` of the leader"),
    EventColumn(
        name="trace", type="text", nullable=True, sent=True, cloudevents="traceparent", meaning="trace of the event, as a `traceparent`"
    ),
    EventColumn(name="payload", type="text", sent=True, cloudevents="data", meaning="payload of the event"),
    EventColumn(name="triggers", type="texts", stored=False, meaning="names of the project's triggers that fired on the event"),
    EventColumn(
        name="stream",
        type="text",
        nullable=True,
        sent=True,
        in_log=False,
        in_pipeline=False,
        meaning="shared stream that delivered the raw event",
    ),
    EventColumn(
        name="lane", type="text", nullable=True, sent=True, in_log=False, in_pipeline=False, meaning="lane of the raw event in its stream"
    ),
    EventColumn(
        name="position",
        type="integer",
        nullable=True,
        sent=True,
        in_log=False,
        in_pipeline=False,
        meaning="position of the raw event in its lane",
    ),
)
"""Columns of the event log, in the order of the table and of the Arrow schema."""

SCOPE_COLUMNS: Final = (
    EventColumn(
        name="position",
        type="integer",
        stored=False,
        in_log=False,
        meaning="position in the order of the scope: greater than the leader's, the same in all pipelines, and never changed",
    ),
    EventColumn(
        name="mark",
        type="text",
        nullable=True,
        stored=False,
        in_log=False,
        cloudevents="headracemark",
        meaning="null, `lost` (the leader did not arrive), `late` (followers were released before) or `cycle`",
    ),
)
"""Columns that the ordering of a scope adds before the columns of the log."""


class OptionalEventFields(WireModel):
    """The optional fields of an event, as a triggerer sends them and the admin API returns them."""

    subject: str | None = None
    follows: str | None = None
    trace: str | None = None
    stream: str | None = None
    lane: str | None = None
    position: int | None = None
