"""The client library, imported when a stream opens, and the requests about stream keys. Blocking reads have a connection of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from headrace.core.connection import Connection
from headrace.errors import HeadraceError, UpstreamError, UpstreamFenced
from headrace.sources.connections.client_library import import_library
from headrace.sources.redis.errors import described
from headrace.sources.redis.scripts import COUNT, PEEK
from headrace.sources.redis.settings import client_settings

CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 10.0
BLOCK_SECONDS: Final = 2.0
CANCEL_SECONDS: Final = 0.02
OLDEST_VERSION: Final = 7
COUNT_PAGE: Final = 500
MAX_COUNT_PAGES: Final = 2_000

DELETED: Final = "deleted"
"""The answer of a script whose stream key, group or state does not exist any more."""
HELD: Final = "held"
LEASE_SUFFIX: Final = ":lease"


class StreamKey(NamedTuple):
    """A stream key with a group. `state` is a hash, `lease` a text that expires.

    Invariant: no two stream keys with their groups share a key. A group contributes no colon, and `RedisStreams` refuses a stream key that
    ends in LEASE_SUFFIX.
    """

    stream: str
    group: str

    @property
    def state(self) -> str:
        """The key of the state."""
        group = self.group.replace("%", "%25").replace(":", "%3A")
        return f"headrace:{group}:{self.stream}"

    @property
    def lease(self) -> str:
        """The key of the lease."""
        return f"{self.state}{LEASE_SUFFIX}"


class Call(NamedTuple):
    """A call of a script for one stream key. `consumer` and `mark` are empty while the lane is unknown."""

    script: str
    key: StreamKey
    mark: str
    consumer: str
    arguments: Sequence[Any] = ()


class StreamFacts(NamedTuple):
    """What the server has about a stream key. `stream` and `group` are None if they do not exist."""

    stream: Mapping[str, Any] | None
    group: Mapping[str, Any] | None
    consumers: Mapping[str, int]
    """The number of pending entries by consumer."""
    state: Mapping[str, str]


class PeekedEntries(NamedTuple):
    """Entries with their fields as names and values in turn, their numbers of deliveries, and how many pending entries were removed."""

    entries: Sequence[tuple[bytes, Sequence[bytes]]]
    deliveries: Sequence[int]
    missing: int


class RedisClient:
    """The requests of one reader. All raise `StreamError` if the server does not answer, or `UpstreamError`."""

    def __init__(self, library: Any, connection: Connection, token: str, lease_ms: int) -> None:
        settings = client_settings(connection)
        self._token = token
        self._lease_ms = lease_ms
        self._redis = create_client(library, settings, ANSWER_SECONDS)
        self._blocking = create_client(library, settings, BLOCK_SECONDS + ANSWER_SECONDS)

    @classmethod
    async def open(cls, connection: Connection, token: str, lease_ms: int) -> RedisClient:
        """Load the library and return the client. It connects with the first request."""
        library = await asyncio.to_thread(import_library, "Redis cannot be read: its client library", "redis", "redis.asyncio")
        return cls(library, connection, token, lease_ms)

    async def check_version(self) -> None:
        """Check that the server is new enough. Raises `UpstreamError`."""
        info = await self._request("The server cannot be examined", self._redis.info("server"))
        version = str(info.get("redis_version", "0"))
        if int(version.partition(".")[0]) < OLDEST_VERSION:
            raise UpstreamError(f"Redis {version} is too old: it does not count the entries of a stream.", hint="Use Redis 7.0 or newer.")

    async def call(self, calls: Sequence[Call]) -> list[list[Any] | HeadraceError]:
        """Run scripts in one pipeline. The answer of each begins with its outcome; an error of one is in its place.

        Raises:
            UpstreamFenced: Another reader has taken the lease.
        """
        pipeline = self._redis.pipeline(transaction=False)
        for one in calls:
            keys = (one.key.stream, one.key.state, one.key.lease)
            pipeline.eval(one.script, 3, *keys, self._token, self._lease_ms, one.mark, one.key.group, one.consumer, *one.arguments)
        answers = await self._request("Redis cannot be reached", pipeline.execute(raise_on_error=False))
        return [_answer(one.key, answer) for one, answer in zip(calls, answers, strict=True)]

    async def facts(self, key: StreamKey) -> StreamFacts:
        """Return what the server has about a stream key."""
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.execute_command("XINFO STREAM", key.stream)
        pipeline.execute_command("XINFO GROUPS", key.stream)
        pipeline.execute_command("XINFO CONSUMERS", key.stream, key.group)
        pipeline.hgetall(key.state)
        what = f"Stream {key.stream!r} cannot be examined"
        stream, groups, consumers, state = await self._request(what, pipeline.execute(raise_on_error=False))
        for answer in (stream, groups, state):
            if isinstance(answer, Exception) and "no such key" not in str(answer):
                raise described(what, answer) from answer
        named = {} if isinstance(groups, Exception) else {_text(one["name"]): one for one in groups}
        return StreamFacts(
            None if isinstance(stream, Exception) else stream,
            named.get(key.group),
            {} if isinstance(consumers, Exception) else {_text(one["name"]): int(one["pending"]) for one in consumers},
            {_text(name): _text(value) for name, value in state.items()},
        )

    async def peek(self, key: StreamKey, consumer: str, after: str, count: int) -> PeekedEntries:
        """Return up to `count` entries without any change: pending ones of the consumer if it is given, then those after an id."""
        request = self._redis.eval_ro(PEEK, 1, key.stream, key.group, consumer, after, count)
        entries, deliveries, missing = await self._request(f"Stream {key.stream!r} cannot be read", request)
        return PeekedEntries(entries, deliveries, int(missing))

    async def count(self, stream: str, first: str, last: str) -> int | None:
        """Return the number of entries from one id up to another, or None if they are too many to count. It changes nothing."""
        counted = 0
        for _ in range(MAX_COUNT_PAGES):
            request = self._redis.eval_ro(COUNT, 1, stream, first, last, COUNT_PAGE)
            size, end = await self._request(f"Stream {stream!r} cannot be read", request)
            counted += int(size)
            if int(size) < COUNT_PAGE:
                return counted
            first = f"({_text(end)}"
        return None

    async def first_from(self, stream: str, id: str) -> str | None:
        """Return the id of the first entry at or after an id, or None if there is none. It changes nothing."""
        size, first = await self._request(f"Stream {stream!r} cannot be read", self._redis.eval_ro(COUNT, 1, stream, id, "+", 1))
        return _text(first) if int(size) else None

    async def wait(self, reads: Mapping[str, str]) -> set[str]:
        """Wait for entries after these ids, and return the stream keys that have some. It is empty after BLOCK_SECONDS."""
        what = "The streams cannot be read"
        arrived = await self._request(what, self._blocking.xread(dict(reads), count=1, block=int(BLOCK_SECONDS * 1000)))
        names = arrived if isinstance(arrived, Mapping) else (name for name, _ in arrived or ())
        return {_text(name) for name in names}

    async def close(self) -> None:
        """Close both connections."""
        await asyncio.gather(self._redis.aclose(), self._blocking.aclose(), return_exceptions=True)

    async def _request(self, what: str, request: Any) -> Any:
        from redis import exceptions

        try:
            return await cancellable(request)
        except (exceptions.RedisError, OSError, TimeoutError) as error:
            raise described(what, error) from error


async def cancellable(request: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of a request. If this call is cancelled, cancel the request until it has ended.

    While it connects, the client goes on in spite of a cancellation (redis-py 8.1).
    """
    task = asyncio.ensure_future(request)
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        while not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=CANCEL_SECONDS)
        if not task.cancelled():
            task.exception()  # marks it as retrieved
        raise
    return task.result()


def create_client(library: Any, settings: Mapping[str, Any], answer_seconds: float) -> Any:
    """Return a client of redis-py that repeats no request. It connects with the first one."""
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    return library.Redis(
        **settings,
        socket_timeout=answer_seconds,
        socket_connect_timeout=CONNECT_SECONDS,
        retry=Retry(NoBackoff(), 0),
        client_name="headrace",
        protocol=2,
    )


def _answer(key: StreamKey, answer: Any) -> list[Any] | HeadraceError:
    if isinstance(answer, Exception):
        return described(f"Stream {key.stream!r} cannot be read", answer)
    outcome = _text(answer[0])
    if outcome == "fenced":
        raise UpstreamFenced(
            f"Another reader has taken over stream {key.stream!r} with group {key.group!r}.",
            hint="Give each upstream a group of its own.",
        )
    return [outcome, *answer[1:]]


def _text(value: bytes | str) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def raise_first(answers: Iterable[list[Any] | HeadraceError]) -> list[list[Any]]:
    """Return the answers of scripts. Raises the first error among them."""
    result: list[list[Any]] = []
    for answer in answers:
        if isinstance(answer, HeadraceError):
            raise answer
        result.append(answer)
    return result
