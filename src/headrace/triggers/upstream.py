"""An upstream as users declare it, and the producer that reads one: the broker side of a shared stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Hashable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from headrace.core.ledger.outcome import AdvanceItem
from headrace.errors import ProjectError
from headrace.triggers.import_allowlist import IMPORT_ALLOWLIST, OURS

if TYPE_CHECKING:
    from headrace.triggers.stream_log import StreamLog

FOLDER_STREAM: Final = "directory:"
"""What the keys of streams of files in a folder begin with: then comes the folder, then a pattern for names."""


class SharedStreamProducer(ABC):
    """Yields raw events and later advances the broker; one instance owns the connection for the lifetime of one poll."""

    upstream: Upstream | None = None
    """The upstream of Headrace's own that makes equal producers, or None if the producer is a user's."""

    log: StreamLog | None = None
    """The event log that the stream is recorded in, set before `open_stream`, or None if the stream is not recorded.

    A producer that keeps progress of its own keeps `log.mark` with it, and calls `log.check` with that mark as it opens the stream.
    """

    @abstractmethod
    def open_stream(self) -> AsyncIterator[tuple[Any, Any]]:
        """Open the connection and yield `(raw_event, broker_payload)` without end, or raise; an async generator.

        `broker_payload` is whatever this producer needs to advance the broker past the raw event.
        """

    @abstractmethod
    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Tell the broker that a lane is done up to here: commit, delete, ack.

        `batch` is never empty: the answered raw events of one lane, in order and without gap. The lane's next batch comes only after
        this call has returned; other lanes' calls may overlap with it. When it raises it is called again with the same batch.
        """

    def get_advance_lane(self, broker_payload: Any) -> Hashable:
        """Return the lane of a raw event; by default there is one lane. Called once for each raw event: be quick, do not block."""
        del broker_payload
        return None

    def get_position(self, broker_payload: Any) -> int | None:
        """Return the raw event's position, which rises within its lane, or None if the upstream has none."""
        del broker_payload
        return None

    def get_lane_end(self, lane: Hashable) -> int | None:
        """Return the position of the lane's last raw event now, to tell how far behind the reading is, or None if unknown, or done."""
        del lane
        return None

    def get_committed(self, lane: Hashable) -> int | None:
        """Return the position up to which the upstream itself has the lane as done, or None if it is unknown or nothing is done."""
        del lane
        return None

    def get_errors(self) -> Mapping[str, str]:
        """Return why parts of the upstream cannot be read now, by their names; the rest is read all the same."""
        return {}

    async def aclose(self) -> None:
        """Close the connection; called once, when the poll has ended and the last advance has returned."""
        return


class Upstream(ABC):
    """Where messages come from, as a user declares it: made, written down and sent without connecting."""

    @abstractmethod
    def stream_key(self) -> str:
        """Return the text that names the upstream: all watches with equal keys share one poll."""

    @abstractmethod
    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path, and the keyword arguments (plain JSON) that make an equal upstream elsewhere."""

    @abstractmethod
    def producer(self) -> SharedStreamProducer:
        """Return a new producer, which connects in `open_stream`."""

    @property
    @abstractmethod
    def event_type(self) -> str:
        """The `type` of an event whose watch does not say otherwise."""

    @property
    def source(self) -> str:
        """The `source` of an event whose watch does not say otherwise."""
        return f"headrace:{self.stream_key()}"

    def relative_to(self, base: Path) -> Self:
        """Return the upstream as seen from the folder `base`, which relative paths in it start from."""
        del base
        return self


class DescribedUpstream(Upstream):
    """An upstream of a user's, of which nothing runs before a producer is made of it: all that a watch needs to know was written down."""

    def __init__(self, classpath: str, kwargs: dict[str, Any], key: str, source: str, type: str) -> None:
        IMPORT_ALLOWLIST.check(classpath, "The upstream")
        self._classpath = classpath
        self._kwargs = kwargs
        self._key = key
        self._source = source
        self._type = type

    def stream_key(self) -> str:
        """Return what was written down."""
        return self._key

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments of the user's upstream."""
        return self._classpath, self._kwargs

    def producer(self) -> SharedStreamProducer:
        """Import the user's upstream, make it, and return its producer."""
        return load_upstream(self._classpath, self._kwargs).producer()

    @property
    def event_type(self) -> str:
        """What was written down."""
        return self._type

    @property
    def source(self) -> str:
        """What was written down."""
        return self._source


def is_own(classpath: str) -> bool:
    """Return whether a class is Headrace's own."""
    return classpath.startswith(f"{OURS}.")


def describe_upstream(upstream: Upstream) -> dict[str, Any]:
    """Return the description of an upstream: of a user's with all that its class says, so that it need not be made to know it."""
    classpath, kwargs = upstream.serialize()
    described: dict[str, Any] = {"classpath": classpath, "kwargs": kwargs}
    if is_own(classpath):
        return described
    return described | {"key": upstream.stream_key(), "source": upstream.source, "type": upstream.event_type}


def described_upstream(described: Mapping[str, Any]) -> Upstream:
    """Return the upstream of a description. Raises `ProjectError`."""
    if "key" in described:
        return DescribedUpstream(**described)
    return load_upstream(described["classpath"], dict(described["kwargs"]))


def load_upstream(classpath: str, kwargs: dict[str, Any]) -> Upstream:
    """Return the upstream that `Upstream.serialize` wrote down. Raises `ProjectError` where there is no such class."""
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
        raise ProjectError(f"The upstream {classpath!r} cannot be made: {error}", hint="Is it the version that wrote this down?") from error
