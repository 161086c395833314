"""Upstreams as an operator sees them: the streams that projects declare, who reads each and how far, and their next messages."""

from __future__ import annotations

from typing import Final

from headrace.wire.base import Timestamp, WireModel

KINDS: Final = frozenset(
    {
        "directory",
        "http",
        "kafka",
        "kinesis",
        "memory",
        "mqtt",
        "nats",
        "objects",
        "postgres",
        "pubsub",
        "pulsar",
        "queue",
        "rabbitmq",
        "rabbitmq-streams",
        "redis",
        "servicebus",
        "sqs",
    }
)
"""The first parts of the names of built-in upstreams."""
MAX_LANES: Final = 20
"""Lanes of one upstream, those furthest behind first."""
MAX_COUNTED_LANES: Final = 10_000
"""Recorded lanes of one upstream that are counted."""
MAX_PROBLEMS: Final = 10
"""Problems of one upstream."""


class UpstreamLane(WireModel):
    """One lane: the last position that the event log has recorded, and the last one that the upstream was advanced to.

    `end` is the position of its last message, if the upstream reports it.
    """

    lane: str
    stored: int | None = None
    advanced: int | None = None
    end: int | None = None


class UpstreamStatus(WireModel):
    """One upstream: the stream that the `triggers` of these projects share.

    Copies of its dead letters go to `dead_letter_target`, or nowhere if that is null. `uncopied` dead letters (up to 10,000) wait for it.

    `kind` is the first part of its name, such as `kafka`, or null for one that is not built in. `job_id` is the triggerer that reads it.
    If there is none, `unread_because` says why. `state` is that of its last report: `polling`, `paused`, `stopped` and others, or
    `starting` before the triggerer's first report, and `silent` if the triggerer sends no heartbeats.

    `lag` counts the messages that the upstream has and that are not advanced: unread ones (`unread`) and read ones (`outstanding`). It is
    null if no triggerer reads the upstream, or if the upstream does not report its number of unread messages.
    `lanes_open` lanes have messages in process, and `lanes_recorded` (up to 10,000) are in the event log. `lanes` has at most 20: open
    lanes, those furthest behind first, then the lanes that moved last. `advanced` of a lane that is not open is known only if the lag is 0.
    """

    stream: str
    kind: str | None
    projects: list[str]
    triggers: int
    state: str
    job_id: int | None = None
    unread_because: str | None = None
    lag: int | None = None
    unread: int | None = None
    outstanding: int = 0
    lanes_open: int = 0
    lanes_recorded: int = 0
    lanes: list[UpstreamLane] = []
    dead_letter_target: str | None = None
    uncopied: int | None = None
    problems: list[str] = []


class UpstreamList(WireModel):
    """GET /api/v1/upstreams: upstreams by name. Continue with `after`, which is null at the end."""

    upstreams: list[UpstreamStatus]
    after: str | None = None


class PeekedMessage(WireModel):
    """One message that is not advanced yet, as triggers get it. `raw` is its JSON text.

    `malformed` is the reason why triggers cannot read it: it becomes a dead letter.
    """

    lane: str
    position: int | None
    raw: str
    key: str | None = None
    headers: dict[str, str] = {}
    timestamp: Timestamp | None = None
    malformed: str | None = None


class PeekedMessages(WireModel):
    """The next messages of an upstream, in order within each lane. `notes` say what is missing or unreadable."""

    stream: str
    messages: list[PeekedMessage]
    notes: list[str] = []


class SeekPreviewLane(WireModel):
    """A lane of a stream that a seek moves. Positions are those of the message that is read next: `now`, and `position` after the seek.

    `first` is the position of the first message that the upstream has, and `end` the one after its last.
    """

    stream: str
    lane: str
    first: int
    end: int
    now: int
    position: int
    skipped: int
    read_again: int


class SeekPreview(WireModel):
    """What a seek would move. `skipped` and `read_again` are numbers of positions, some of which may have no message.

    For Redis, they are numbers of entries.
    """

    stream: str
    lanes: list[SeekPreviewLane]
    skipped: int
    read_again: int
