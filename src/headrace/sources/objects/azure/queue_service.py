"""Read a queue of Azure Queue Storage: its visibility timeouts are leases, and deletions are acknowledgements.

A message is deleted and extended with its *pop receipt*, which each extension replaces. A message that is deleted with an old one comes
again when its visibility timeout ends, and is deleted then.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Final, NamedTuple
from urllib.parse import quote
from xml.etree import ElementTree

import msgspec

from headrace.core.connection import Connection
from headrace.errors import HeadraceError, StreamError
from headrace.sources.azure.client import AWAY, AzureClient
from headrace.sources.leases.leases import Lease
from headrace.sources.leases.producer import LeaseProducer
from headrace.sources.leases.service import Answer, Failures, LeaseService, LeaseSettings, Received
from headrace.triggers.raw_event import Message
from headrace.triggers.secrets import aget_connection

MAX_RECEIVED: Final = 32
"""Messages of one answer."""
ALLOW: Final = "Allow this identity: the role Storage Queue Data Message Processor, or a SAS token for queues with the permissions rup."
REJECTED: Final[Mapping[str, str]] = {
    "AuthorizationPermissionMismatch": ALLOW,
    "AuthorizationServiceMismatch": ALLOW,
    "AuthorizationResourceTypeMismatch": ALLOW,
    "InsufficientAccountPermissions": ALLOW,
    "QueueNotFound": "Correct the name of the queue, or create it. Headrace creates no queues.",
    "QueueDisabled": "Enable the queue.",
}
"""Errors that another attempt does not change, with what to do."""
_MISSING: Final = frozenset({"MessageNotFound", "PopReceiptMismatch"})


class PollSettings(NamedTuple):
    """How a queue is read. `wait` has the seconds between two requests to an empty queue."""

    queue: str
    visibility: int
    wait: float


class StorageQueueService:
    """One queue; see `LeaseService`."""

    max_messages: Final = 1

    def __init__(self, client: AzureClient, stack: AsyncExitStack, settings: PollSettings) -> None:
        self._client = client
        self._stack = stack
        self._settings = settings
        self._path = f"/{settings.queue}/messages"
        self._is_empty = False

    @classmethod
    async def open(cls, connection: Connection, settings: PollSettings) -> StorageQueueService:
        """Connect and look up the queue."""
        async with AsyncExitStack() as stack:
            client = await AzureClient.open(connection, "queue", stack, REJECTED)
            service = cls(client, stack, settings)
            what = f"Queue {settings.queue!r} cannot be opened"
            await client.request(what, "GET", service._path, {"numofmessages": 1, "peekonly": "true"})
            service._stack = stack.pop_all()
            return service
        raise AssertionError

    def poll(self) -> Callable[[], Awaitable[Answer]]:
        """Return the request of one poll."""
        return self._poll

    async def acknowledge(self, leases: Sequence[Lease]) -> Failures:
        """Delete messages."""
        return await self._each(leases, self._delete)

    async def set_lease(self, leases: Sequence[Lease], seconds: int) -> Failures:
        """Set the visibility timeout of messages."""

        async def extend(lease: Lease) -> str | None:
            return await self._extend(lease, seconds)

        return await self._each(leases, extend)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._stack.aclose()

    async def _poll(self) -> Answer:
        # The service answers at once, also if the queue is empty.
        if self._is_empty:
            await asyncio.sleep(self._settings.wait)
        what = f"Queue {self._settings.queue!r} cannot be read"
        query = {"numofmessages": MAX_RECEIVED, "visibilitytimeout": self._settings.visibility}
        answer = await self._client.request(what, "GET", self._path, query)
        try:
            messages = list(ElementTree.fromstring(answer.body).iterfind("QueueMessage"))  # noqa: S314  # expat limits the growth of entities
        except ElementTree.ParseError as error:
            raise StreamError(f"{what}: the answer is not of Azure Queue Storage: {error}.", hint=AWAY) from error
        self._is_empty = not messages
        return Answer([self._received(message) for message in messages], len(messages) == MAX_RECEIVED)

    def _received(self, message: ElementTree.Element) -> Received:
        queue, id = self._settings.queue, message.findtext("MessageId", "")
        values = values_of(message.findtext("MessageText") or "")
        return Received(id, message.findtext("PopReceipt", ""), None, queue, [Message(value, queue, None, id=id) for value in values])

    async def _each(self, leases: Sequence[Lease], send: Callable[[Lease], Awaitable[str | None]]) -> Failures:
        failures: dict[Lease, HeadraceError | str] = {}
        for lease in leases:
            if (failure := await send(lease)) is not None:
                failures[lease] = failure
        return failures

    async def _delete(self, lease: Lease) -> str | None:
        while True:
            what, receipt = "The message cannot be deleted", lease.receipt
            answer = await self._client.request(what, "DELETE", self._message(lease), {"popreceipt": receipt}, expected=_MISSING)
            if not answer.code or lease.receipt == receipt:
                return answer.code or None

    async def _extend(self, lease: Lease, seconds: int) -> str | None:
        what = "The visibility timeout cannot be set"
        query = {"popreceipt": lease.receipt, "visibilitytimeout": seconds}
        answer = await self._client.request(what, "PUT", self._message(lease), query, expected=_MISSING)
        if answer.code:
            return answer.code
        lease.receipt = answer.headers["x-ms-popreceipt"]
        return None

    def _message(self, lease: Lease) -> str:
        return f"{self._path}/{quote(lease.id, safe='')}"


class QueueProducer(LeaseProducer):
    """The reader of a queue. Its only lane has the name of the queue."""

    def __init__(self, connection: str, settings: PollSettings) -> None:
        super().__init__()
        self._connection = connection
        self._settings = settings

    async def connect(self) -> tuple[LeaseService, LeaseSettings]:
        """Look up the queue. Raises as `open_stream` does."""
        queue, visibility, wait = self._settings
        service = await StorageQueueService.open(await aget_connection(self._connection), self._settings)
        return service, LeaseSettings(queue, visibility, visibility, wait, is_ordered=False)


def values_of(text: str) -> list[bytes]:
    """Return the events of a message: JSON, or JSON in Base64. A list becomes its elements. Another text is returned unchanged."""
    data = text.encode(errors="surrogatepass")
    if not text.lstrip().startswith(("{", "[")):
        try:
            data = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            return [data]
    try:
        return [bytes(one) for one in msgspec.json.decode(data, type=list[msgspec.Raw])]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return [data]
