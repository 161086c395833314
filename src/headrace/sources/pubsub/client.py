"""The client library, imported when a stream opens, and the requests about one subscription."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

import structlog

from headrace.core.connection import Connection
from headrace.errors import HeadraceError, UpstreamError
from headrace.sources.connections.client_library import import_library
from headrace.sources.declared_decoder import Decoding, decoder_of
from headrace.sources.leases.leases import Lease
from headrace.sources.leases.service import Answer, Failures, Received
from headrace.sources.pubsub.message import raw_event
from headrace.sources.pubsub.service_errors import code_of, described, failures
from headrace.sources.pubsub.settings import ClientSettings, client_settings

MAX_MESSAGES: Final = 100
"""Messages of one pull."""
MAX_METADATA_BYTES: Final = 4 * 1024 * 1024
MAX_RECEIPTS: Final = 1_000
"""Messages of another request, which has up to 512 KiB. A receipt has some hundred bytes."""
ANSWER_SECONDS: Final = 10.0
CONNECT_SECONDS: Final = 10.0
"""Time limit of an attempt to connect, and of the pause after one that failed. gRPC ends no attempt before, also not of a closed client."""
KEEPALIVE_SECONDS: Final = 30.0
KEEPALIVE_ANSWER_SECONDS: Final = 10.0
"""A connection that is idle for KEEPALIVE_SECONDS is sent a ping. Otherwise a silent connection looks like an empty subscription."""
OPEN_SECONDS: Final = 30.0
PROBED_SUBSCRIPTION: Final = "headrace-connection-test"
RETRY_SECONDS: Final = 0.5
MIN_DELIVERY_ATTEMPTS: Final = 10
MIN_DEADLINE_SECONDS: Final = 10
"""The shortest acknowledgement deadline that the service allows."""

log = structlog.get_logger(__name__)


class Subscription(NamedTuple):
    """What the service says of a subscription: its acknowledgement deadline in seconds, and whether it is ordered."""

    deadline: float
    is_ordered: bool


UNKNOWN: Final = Subscription(MIN_DEADLINE_SECONDS, is_ordered=True)
"""The subscription of a reader that may only consume. Then a lane is an ordering key, whether the subscription is ordered or not."""


class PubSubClient:
    """The requests about one subscription."""

    def __init__(self, client: Any, path: str, wait: int, decode: Decoding) -> None:
        self._client = client
        self._path = path
        self._name = path.rpartition("/")[2]
        self._wait = wait
        self._decode = decoder_of(decode)
        self._is_ordered = True

    @property
    def max_messages(self) -> int:
        """The most messages of one request, except pulls."""
        return MAX_RECEIPTS

    @classmethod
    async def create(cls, connection: Connection, subscription: str, wait: int, decode: Decoding) -> PubSubClient:
        """Return the client. It connects with its first request. Raises `UpstreamError`."""
        settings = client_settings(connection)
        module = "google.pubsub_v1.services.subscriber"
        what = "Pub/Sub cannot be read: its client library"
        library = await asyncio.to_thread(import_library, what, "pubsub", module, f"{module}.transports", "grpc.aio")
        path = f"projects/{settings.project}/subscriptions/{subscription}"
        try:
            kind = library.transports.SubscriberGrpcAsyncIOTransport
            transport = kind(**transport_arguments(settings, kind))
            return cls(library.SubscriberAsyncClient(transport=transport), path, wait, decode)
        except Exception as error:
            raise described(f"Connection '{connection.id}' cannot be used", error) from None

    async def look_up(self) -> Subscription:
        """Return the subscription. Repeats while the service does not answer, for OPEN_SECONDS."""
        what = f"Subscription {self._name!r} cannot be opened"
        failure: HeadraceError = described(what, TimeoutError(f"no answer within {OPEN_SECONDS:g} s"))
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                while True:
                    try:
                        answer = await answer_to(self._client.get_subscription(subscription=self._path, retry=None, timeout=ANSWER_SECONDS))
                        break
                    except Exception as error:
                        if code_of(error) == "PERMISSION_DENIED":
                            log.info("subscription not checked", subscription=self._name, reason=str(error))
                            return UNKNOWN
                        failure = described(what, error)
                        if isinstance(failure, UpstreamError):
                            raise failure from None
                    await asyncio.sleep(RETRY_SECONDS)
        except TimeoutError:
            raise failure from None
        return self._checked(type(answer).pb(answer))

    async def reach(self) -> None:
        """Send one request. Raises unless the service answers it, be it that the subscription is missing or may not be seen."""
        try:
            await answer_to(self._client.get_subscription(subscription=self._path, retry=None, timeout=ANSWER_SECONDS))
        except Exception as error:
            if code_of(error) not in ("NOT_FOUND", "PERMISSION_DENIED"):
                raise described("The connection to Pub/Sub failed", error) from None

    async def topic(self) -> str | None:
        """Return the path of the subscription's topic, or None if this user may not see it."""
        try:
            answer = await answer_to(self._client.get_subscription(subscription=self._path, retry=None, timeout=ANSWER_SECONDS))
        except Exception as error:
            if code_of(error) == "PERMISSION_DENIED":
                return None
            raise described(f"The topic of subscription {self._name!r} cannot be looked up", error) from None
        return str(answer.topic)

    def poll(self) -> Callable[[], Awaitable[Answer]]:
        """Return the request of one pull."""
        return self._pull

    async def acknowledge(self, leases: Sequence[Lease]) -> Failures:
        """Acknowledge messages."""
        return await self._request("The messages cannot be acknowledged", self._client.acknowledge, leases)

    async def set_lease(self, leases: Sequence[Lease], seconds: int) -> Failures:
        """Set the acknowledgement deadline of messages."""
        what = "The acknowledgement deadlines cannot be set"
        return await self._request(what, self._client.modify_ack_deadline, leases, ack_deadline_seconds=seconds)

    async def aclose(self) -> None:
        """Close the channel."""
        await self._client.transport.close()

    def _checked(self, answer: Any) -> Subscription:
        if answer.push_config.push_endpoint or answer.detached:
            what = "it is detached from its topic" if answer.detached else "it pushes its messages"
            raise UpstreamError(f"Subscription {self._name!r} cannot be read: {what}.", hint="Give the name of a pull subscription.")
        attempts = answer.dead_letter_policy.max_delivery_attempts
        if answer.HasField("dead_letter_policy") and attempts < MIN_DELIVERY_ATTEMPTS:
            log.warning(
                "dead-letter policy with few deliveries", subscription=self._name, attempts=attempts, recommended=MIN_DELIVERY_ATTEMPTS
            )
        self._is_ordered = answer.enable_message_ordering
        return Subscription(max(answer.ack_deadline_seconds, MIN_DEADLINE_SECONDS), self._is_ordered)

    async def _pull(self) -> Answer:
        try:
            answer = await answer_to(self._client.pull(subscription=self._path, max_messages=MAX_MESSAGES, retry=None, timeout=self._wait))
        except Exception as error:
            if code_of(error) == "DEADLINE_EXCEEDED":  # no message within the wait
                return Answer((), is_full=False)
            raise described(f"Subscription {self._name!r} cannot be read", error) from error
        messages = type(answer).pb(answer).received_messages
        # The service returns less than the most although it has more.
        return Answer([self._received(message) for message in messages], is_full=2 * len(messages) >= MAX_MESSAGES)

    def _received(self, received: Any) -> Received:
        key = (received.message.ordering_key or None) if self._is_ordered else None
        lane = key or self._name
        return Received(received.message.message_id, received.ack_id, key, lane, [raw_event(received, lane, self._decode)])

    async def _request(self, what: str, call: Any, leases: Sequence[Lease], **arguments: Any) -> Failures:
        receipts = [lease.receipt for lease in leases]
        try:
            request = {"subscription": self._path, "ack_ids": receipts, **arguments}
            await answer_to(call(request=request, retry=None, timeout=ANSWER_SECONDS))
        except Exception as error:
            return failures(what, leases, error)
        return {}


async def answer_to(request: Awaitable[Any]) -> Any:
    """Return the answer to a request of the client library. Its error keeps no connection open.

    The frames of an error refer to the request, and a request to its channel. A channel to which something refers is not ended by its
    close: it connects again and again.
    """
    try:
        return await request
    except BaseException as error:
        _clear_frames(error)
        raise


def transport_arguments(settings: ClientSettings, kind: Any) -> dict[str, Any]:
    """Return the arguments of a transport of a kind: a channel without TLS for an emulator, else the credentials."""
    options = [
        ("grpc.max_send_message_length", -1),
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_metadata_size", MAX_METADATA_BYTES),
        ("grpc.min_reconnect_backoff_ms", int(CONNECT_SECONDS * 1000)),
        ("grpc.max_reconnect_backoff_ms", int(CONNECT_SECONDS * 1000)),
        ("grpc.keepalive_time_ms", int(KEEPALIVE_SECONDS * 1000)),
        ("grpc.keepalive_timeout_ms", int(KEEPALIVE_ANSWER_SECONDS * 1000)),
        ("grpc.http2.ping_timeout_ms", int(KEEPALIVE_ANSWER_SECONDS * 1000)),
    ]
    if settings.is_emulator:
        import grpc.aio

        return {"channel": grpc.aio.insecure_channel(settings.address, options=options)}

    def channel(host: str, **arguments: Any) -> Any:
        return kind.create_channel(host, **(arguments | {"options": options}))

    if settings.account is None:
        return {"host": settings.address, "channel": channel}
    from google.oauth2 import service_account

    credentials: Any = service_account.Credentials  # has no types
    scopes = ["https://www.googleapis.com/auth/pubsub"]
    return {
        "host": settings.address,
        "channel": channel,
        "credentials": credentials.from_service_account_info(dict(settings.account), scopes=scopes),
    }


def probe(connection: Connection) -> str:
    """Request a subscription that need not exist, and return the project and the address.

    Raises:
        UpstreamError: The client library is missing, or the service refuses the credentials.
        StreamError: The service does not answer.
    """
    return asyncio.run(_probe(connection))


async def _probe(connection: Connection) -> str:
    settings = client_settings(connection)
    client = await PubSubClient.create(connection, PROBED_SUBSCRIPTION, 1, "json")
    try:
        await client.reach()
    finally:
        await client.aclose()
    return f"Pub/Sub at {settings.address}: project {settings.project}" + (", emulator" if settings.is_emulator else "")


def _clear_frames(error: BaseException) -> None:
    """Clear the variables of the ended functions in which an error and its causes were raised. Their lines stay."""
    cause: BaseException | None = error
    while cause is not None:
        traceback.clear_frames(cause.__traceback__)
        cause = cause.__cause__
