"""Upstreams as users declare them, and the producers that read them: the broker side of a shared stream."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Hashable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from headrace.core.ledger.outcome import AdvanceItem
from headrace.errors import HeadraceError, ProjectError
from headrace.triggers.import_allowlist import IMPORT_ALLOWLIST, OURS

if TYPE_CHECKING:
    from headrace.triggers.raw_event import Message
    from headrace.triggers.stream_log import StreamLog

FOLDER_STREAM: Final = "directory:"
"""Prefix of the stream keys of folders. The folder and a pattern for names follow."""
_NAMED: Final = re.compile(r"The connection is '|headrace connections set \S")
"""A part of a hint that names a connection."""


class SharedStreamProducer(ABC):
    """Yields raw events and advances the broker. One instance owns the connection for the lifetime of one poll."""

    upstream: Upstream | None = None
    """The built-in upstream that creates equal producers, or None for a producer of a user."""

    log: StreamLog | None = None
    """The event log that records the stream, set before `open_stream`, or None if the stream is not recorded.

    A producer that stores its own progress stores `log.mark` with it, and calls `log.check` with that mark when it opens the stream.
    """

    @abstractmethod
    def open_stream(self) -> AsyncIterator[tuple[Any, Any]]:
        """Connect and yield `(raw_event, broker_payload)` without end; an async generator.

        `broker_payload` is any value that this producer needs to advance the broker past the raw event.
        """

    @abstractmethod
    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Acknowledge a batch to the broker: commit, delete or ack.

        `batch` has the answered raw events of one lane, in order and without a gap; it is never empty. Calls for one lane follow each
        other, calls for different lanes may overlap. If the call raises, it is repeated with the same batch, but not after `StreamEnded` or
        `UpstreamFenced`: then the stream ends, and the upstream is opened again.

        Do not acknowledge a raw event whose outcome has `failed` > 0. When the upstream is opened next, it is delivered again, before the
        later raw events of its lane. All other outcomes are final.
        """

    def get_advance_lane(self, broker_payload: Any) -> Hashable:
        """Return the lane of a raw event; by default there is one lane. Called once for each raw event, so it must not block."""
        del broker_payload
        return None

    def get_position(self, broker_payload: Any) -> int | None:
        """Return the raw event's position, which rises within its lane, or None if the upstream has none."""
        del broker_payload
        return None

    def get_lane_end(self, lane: Hashable) -> int | None:
        """Return the position of the lane's last raw event, from which the lag is computed, or None if it is unknown."""
        del lane
        return None

    def get_committed(self, lane: Hashable) -> int | None:
        """Return the position up to which the broker has acknowledged the lane, or None if it is unknown."""
        del lane
        return None

    def get_unread(self) -> int | None:
        """Return the number of messages that the upstream has and that `open_stream` has not yielded, or None if it is unknown.

        The number may be some seconds old. The call must not block.
        """
        return None

    def get_errors(self) -> Mapping[str, str]:
        """Return the parts of the upstream that cannot be read now, by name, with the reason. The other parts are read."""
        return {}

    async def decode_again(self, message: Message) -> Message:
        """Return a malformed message of a backlog, decoded again as the producer decodes now. By default it is unchanged.

        `message` is restored from its text, with the lane and position that it had. If it still cannot be decoded, return it with the
        reason in `malformed`. The default id of its event derives from the `id` of the result, so return the one of its first delivery.
        If the call raises, it is repeated after a pause. It may overlap any other call.
        """
        return message

    async def aclose(self) -> None:
        """Close the connection. Called once, after the poll has ended and the last `advance` has returned."""
        return


class Upstream(ABC):
    """The description of a source of messages. It is created, serialized and sent without a connection."""

    @abstractmethod
    def stream_key(self) -> str:
        """Return the text that identifies the upstream. All triggers with equal keys share one poll."""

    def split(self) -> Sequence[Upstream]:
        """Return the upstreams that read the shards of this one, each as a stream of its own. By default it has one shard: itself."""
        return (self,)

    def whole_stream_key(self) -> str:
        """Return the stream key of the upstream of which this is a shard. Default ids and sources of events derive from it."""
        return self.stream_key()

    @abstractmethod
    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the keyword arguments (plain JSON) that create an equal upstream in another process."""

    @abstractmethod
    def producer(self) -> SharedStreamProducer:
        """Return a new producer. It connects in `open_stream`."""

    @property
    @abstractmethod
    def event_type(self) -> str:
        """The default type of an event of this upstream."""

    @property
    def dead_letter_target(self) -> str | None:
        """The name of where copies of dead letters go at the broker, or None if they are not copied."""
        return None

    @property
    def reader_names(self) -> Sequence[str]:
        """Descriptions of what serves one upstream at the broker, such as a consumer group. Two upstreams must not have one in common."""
        return ()

    @property
    def source(self) -> str:
        """The default source of an event of this upstream."""
        return f"headrace:{self.whole_stream_key()}"

    @property
    def has_user_code(self) -> bool:
        """Whether its producer runs code of the user, in a process for such code. Code that is not Headrace's always does."""
        return False

    def check_user_code(self) -> None:
        """Import the functions of the user that the producer calls. Raises `UpstreamError` or `ProjectError`."""
        return

    def relative_to(self, base: Path) -> Self:
        """Return the upstream with its relative paths resolved against the folder `base`."""
        del base
        return self


class DescribedUpstream(Upstream):
    """A serialised upstream of a user. Its code is imported when its producer is created; a watch needs only the serialised values."""

    def __init__(self, classpath: str, kwargs: dict[str, Any], key: str, source: str, type: str) -> None:
        IMPORT_ALLOWLIST.check(classpath, "The upstream")
        self._classpath = classpath
        self._kwargs = kwargs
        self._key = key
        self._source = source
        self._type = type

    def stream_key(self) -> str:
        """Return the serialised key."""
        return self._key

    @property
    def has_user_code(self) -> bool:
        """True: the class is the user's."""
        return True

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments of the upstream."""
        return self._classpath, self._kwargs

    def producer(self) -> SharedStreamProducer:
        """Import and create the upstream, and return its producer."""
        return load_upstream(self._classpath, self._kwargs).producer()

    @property
    def event_type(self) -> str:
        """The serialised type."""
        return self._type

    @property
    def source(self) -> str:
        """The serialised source."""
        return self._source


def is_builtin(classpath: str) -> bool:
    """Return whether a class path is in Headrace."""
    return classpath.startswith(f"{OURS}.")


def name_connection(error: BaseException | None, producer: SharedStreamProducer | None) -> None:
    """Name the connection of a built-in upstream in the hint of an error, or of its cause, if the hint says to correct the connection."""
    upstream = None if producer is None else producer.upstream
    if upstream is None or not is_builtin(f"{type(upstream).__module__}.{type(upstream).__qualname__}"):
        return
    name = upstream.serialize()[1].get("connection")
    while error is not None and not (isinstance(error, HeadraceError) and error.hint):
        error = error.__cause__
    hint = None if error is None else error.hint
    if error is not None and name is not None and hint is not None and "connection" in hint and not _NAMED.search(hint):
        error.hint = f"{hint} The connection is {name!r}."


def describe_upstream(upstream: Upstream) -> dict[str, Any]:
    """Return the description of an upstream.

    The description of a user's upstream has its key, source and type, so that reading them runs no user code.
    """
    classpath, kwargs = upstream.serialize()
    described: dict[str, Any] = {"classpath": classpath, "kwargs": kwargs}
    if is_builtin(classpath):
        return described
    return described | {"key": upstream.stream_key(), "source": upstream.source, "type": upstream.event_type}


def described_upstream(described: Mapping[str, Any]) -> Upstream:
    """Return the upstream of a description. Raises `ProjectError` as `load_upstream` does."""
    if "key" in described:
        return DescribedUpstream(**described)
    return load_upstream(described["classpath"], dict(described["kwargs"]))


def load_upstream(classpath: str, kwargs: dict[str, Any]) -> Upstream:
    """Return the upstream that `Upstream.serialize` has serialised. Raises `ProjectError` if its class cannot be imported or created."""
    IMPORT_ALLOWLIST.check(classpath, "The upstream")
    module, _, name = classpath.rpartition(".")
    try:
        kind = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ProjectError(
            f"The upstream {classpath!r} cannot be imported: {error}", hint="Is the package that has it installed here?"
        ) from error
    if not (isinstance(kind, type) and issubclass(kind, Upstream)):
        raise ProjectError(f"{classpath!r} is not an upstream.")
    try:
        return kind(**kwargs)
    except TypeError as error:
        raise ProjectError(
            f"The upstream {classpath!r} cannot be created: {error}", hint="Was it serialised by another version?"
        ) from error
