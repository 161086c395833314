"""The client library, imported when a stream opens, and one connection to a server.

The connection does not reconnect by itself: it ends, and the stream opens again. So what a stream has delivered stays in order.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from typing import Any, Final, TypeVar

import structlog

from headrace.core.connection import Connection
from headrace.errors import HeadraceError, StreamError, UpstreamError
from headrace.sources.connections.client_library import import_library, missing_library
from headrace.sources.nats.service_errors import ApiError, described
from headrace.sources.nats.settings import ClientSettings, client_settings

CONNECT_SECONDS: Final = 5
ANSWER_SECONDS: Final = 10.0
CLOSE_SECONDS: Final = 5.0
PING_SECONDS: Final = 10
LAST_STEPS: Final = 5
VERSION_WITH_RESET: Final = (2, 14)
ACK: Final = b"+ACK"

T = TypeVar("T")

log = structlog.get_logger(__name__)


def load_library() -> Any:
    """Return the class of the client. Raises `UpstreamError` if it is not installed."""
    import_library("NATS cannot be read: its client library", "nats", "nats.aio.client")
    from nats.aio.client import Client

    class TolerantClient(Client):
        """A client that loses the headers of a message, and not the connection, if it cannot read them."""

        async def _process_headers(self, headers: Any) -> dict[str, str] | None:
            try:
                return await super()._process_headers(headers)
            except (ValueError, IndexError) as error:
                log.warning("headers of a message of nats not read", error=str(error))
                return None

        async def parse_headers(self, data: bytes) -> dict[str, str] | None:
            """Return the headers of a stored message."""
            return await self._process_headers(data)

    return TolerantClient


class NatsClient:
    """One connection. `failure` is set, and `on_failure` called, when it has ended by itself."""

    def __init__(self, on_failure: Callable[[HeadraceError], None] | None = None) -> None:
        self.failure: HeadraceError | None = None
        self._on_failure = on_failure
        self._client: Any = None
        self._last_error: BaseException | None = None
        self._opening: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._api_prefix = ""
        self._calls: set[asyncio.Task[Any]] = set()

    async def open(self, connection: Connection) -> None:
        """Connect to one of the servers.

        Raises:
            UpstreamError: The client library is missing, or the server refuses the credentials.
            StreamError: No server answers.
        """
        settings = client_settings(connection)
        library = await asyncio.to_thread(load_library)
        # The client's own `connect` may lose a cancellation, so it runs in a task that `aclose` ends.
        self._opening = asyncio.create_task(self._connect(library, settings), name="headrace nats connection")
        await asyncio.shield(self._opening)

    @property
    def version(self) -> tuple[int, int]:
        """The major and minor version of the server."""
        version = self._client.connected_server_version
        return int(version.major), int(version.minor)

    @property
    def max_payload(self) -> int:
        """The size of the largest message of the server in bytes."""
        return int(self._client.max_payload)

    @property
    def has_reset(self) -> bool:
        """Whether the server can reset a consumer."""
        return self.version >= VERSION_WITH_RESET

    async def api(
        self, what: str, subject: str, body: Mapping[str, Any] | None = None, *, none_for: Collection[int] = ()
    ) -> Mapping[str, Any] | None:
        """Send a request to JetStream's API and return its answer, or None for an error with a code of `none_for`.

        Raises:
            UpstreamError: The API rejects the request, or the user may not send it.
            StreamError: The server does not answer. `what` names what failed.
        """
        try:
            data = b"" if body is None else json.dumps(body).encode()
            message = await self._call(self._client.request(f"{self._api_prefix}.{subject}", data, timeout=ANSWER_SECONDS))
            answer: Mapping[str, Any] = json.loads(message.data)
            if "error" not in answer:
                return answer
            failure: BaseException = ApiError(answer["error"])
        except Exception as error:
            failure = self._cause(error)
        if isinstance(failure, ApiError) and failure.code in none_for:
            return None
        raise described(what, failure) from None

    async def headers(self, data: bytes) -> Mapping[str, str] | None:
        """Return the headers of a stored message, as those of a delivered one, or None if it has none."""
        headers: Mapping[str, str] | None = await self._client.parse_headers(data) if data else None
        return headers

    async def ask(self, subject: str, body: Mapping[str, Any], reply: str) -> None:
        """Send a request of JetStream's API whose answers arrive at a subscription. Raises `StreamError`."""
        what = "The messages cannot be requested"
        await self._call(self.publish(what, f"{self._api_prefix}.{subject}", json.dumps(body).encode(), reply))

    async def publish(self, what: str, subject: str, data: bytes, reply: str = "") -> None:
        """Send a message without an answer. Raises `StreamError`."""
        try:
            await self._client.publish(subject, data, reply=reply)
        except Exception as error:
            raise described(what, self._cause(error)) from None

    async def store(self, what: str, subject: str, data: bytes, headers: Mapping[str, str]) -> Mapping[str, Any] | None:
        """Send a message to a stream and return the answer of JetStream, or None if no stream listens to the subject.

        The answer has the name of the stream, or an `error`. Raises `HeadraceError`.
        """
        from nats.errors import NoRespondersError

        try:
            message = await self._call(self._client.request(subject, data, timeout=ANSWER_SECONDS, headers=dict(headers)))
        except NoRespondersError:
            return None
        except Exception as error:
            raise described(what, self._cause(error)) from None
        try:
            answer = json.loads(message.data)
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or not answer.keys() & {"stream", "error"}:
            raise UpstreamError(f"{what}: another program answers it.", hint="Name a subject to which only a stream listens.")
        return answer

    async def acknowledge(self, what: str, reply: str) -> bool:
        """Acknowledge a message and wait until the server has stored it. Return False if its consumer does not exist. Raises as `api`."""
        from nats.errors import NoRespondersError

        try:
            await self._client.request(reply, ACK, timeout=ANSWER_SECONDS)
        except NoRespondersError:
            return False
        except Exception as error:
            raise described(what, self._cause(error)) from None
        return True

    async def subscribe(self, callback: Callable[[Any], Awaitable[None]]) -> str:
        """Call `callback` with all messages below a new inbox, and return the inbox."""
        try:
            inbox = str(self._client.new_inbox())
            await self._call(self._client.subscribe(f"{inbox}.*", cb=callback, pending_msgs_limit=0, pending_bytes_limit=0))
        except Exception as error:
            raise described("The messages cannot be subscribed", self._cause(error)) from None
        return inbox

    async def aclose(self) -> None:
        """Close the connection, also one that is only being opened."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name="headrace nats close")
        await asyncio.shield(self._closing)

    async def _call(self, call: Coroutine[Any, Any, T]) -> T:
        """Return the result of a call of the client, in a task of its own: while it sends, the client loses a cancellation."""
        task = asyncio.create_task(call, name="headrace nats call")
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.cancel()
            raise

    async def _connect(self, library: Any, settings: ClientSettings) -> None:
        self._api_prefix = settings.api_prefix
        options = dict(settings.options)
        if settings.credentials is not None:
            from nats.aio.client import RawCredentials

            options["user_credentials"] = RawCredentials(settings.credentials)
        failure: HeadraceError = StreamError("NATS cannot be reached: no address is given.")
        for server in settings.servers:
            if self._closing is not None:
                break
            self._client = library()
            try:
                await self._client.connect(
                    servers=[server],
                    name="headrace",
                    allow_reconnect=False,
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,
                    connect_timeout=CONNECT_SECONDS,
                    ping_interval=PING_SECONDS,
                    error_cb=self._on_error,
                    closed_cb=self._on_closed,
                    **options,
                )
            except ImportError as error:
                raise missing_library("NATS cannot be reached", "nats", error) from None
            except Exception as error:
                failure = described(f"NATS cannot be reached at {server}", self._cause(error))
            else:
                self._last_error = None
                return
        raise failure

    async def _on_error(self, error: Exception) -> None:
        self._last_error = error
        log.debug("error of the client of nats", error=str(error))

    async def _on_closed(self) -> None:
        if self._closing is None:
            self._fail(described("The connection to NATS ended", self._last_error or ConnectionError("it was closed")))

    def _fail(self, failure: HeadraceError) -> None:
        if self.failure is None:
            self.failure = failure
            if self._on_failure is not None:
                self._on_failure(failure)

    def _cause(self, error: BaseException) -> BaseException:
        """Return the error that explains a failed call: a missing permission is reported beside it, and a lost connection before it."""
        from nats import errors

        if self.failure is not None:
            return self.failure
        if isinstance(error, errors.TimeoutError | errors.NoServersError) and self._last_error is not None:
            cause, self._last_error = self._last_error, None
            return cause
        return error

    async def _close(self) -> None:
        await asyncio.sleep(0)  # `_closing` is set now: the opening ends after its present step
        if self._opening is not None and not self._opening.done():
            self._opening.cancel()
            await asyncio.wait([self._opening], timeout=CLOSE_SECONDS + CONNECT_SECONDS)
        if self._opening is not None and self._opening.done() and not self._opening.cancelled():
            self._opening.exception()  # the opener has raised it, or was cancelled
        if self._client is None:
            return
        calls = list(self._calls)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        closing = asyncio.create_task(self._client.close(), name="headrace nats client close")
        await asyncio.wait([closing], timeout=CLOSE_SECONDS)
        if not closing.done():
            closing.cancel()
            log.warning("connection to nats left behind", seconds=CLOSE_SECONDS)
        elif (error := closing.exception()) is not None:
            log.warning("connection to nats not closed", error=str(error))
        for _ in range(LAST_STEPS):  # the client cancels its tasks and does not wait for them
            await asyncio.sleep(0)


def probe(connection: Connection) -> str:
    """Connect, and return the version of the server, and how many streams and consumers the account has. Raises as `NatsClient.open`."""
    return asyncio.run(_probe(connection))


async def _probe(connection: Connection) -> str:
    client = NatsClient()
    try:
        await client.open(connection)
        info = await client.api("JetStream cannot be used", "INFO")
        version = ".".join(map(str, client.version))
    finally:
        await client.aclose()
    return f"NATS {version}: JetStream with {(info or {}).get('streams', 0)} streams, {(info or {}).get('consumers', 0)} consumers"
