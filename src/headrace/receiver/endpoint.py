"""One endpoint: verify a request, decode it, and append its messages to the queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from time import time
from typing import Final

from headrace.core.connection import Connection
from headrace.core.signatures.schemes import SCHEMES, secrets_of
from headrace.errors import HeadraceError, ResourceError, StorageBusy
from headrace.receiver.body import Hold
from headrace.receiver.inbox import Inbox, InboxFull
from headrace.receiver.responses import Response, accepted, plain_text, problem, retry_after
from headrace.sources.http.decoding import DecodedRequest, challenge_of, decode_request
from headrace.sources.http.rejection import RequestRejected
from headrace.sources.http.upstream import Http

BUSY_SECONDS: Final = 2
FULL_SECONDS: Final = 15
LARGE_BODY_BYTES: Final = 4 * 1024
"""Size from which a body is decoded beside the event loop."""
_DECODER: Final = ThreadPoolExecutor(1, thread_name_prefix="headrace decode")
"""One thread for all endpoints: decoded values need many times the memory of a body, so that only one body at a time is decoded."""


class Endpoint:
    """The endpoint of an `Http` upstream. `secrets` are None until they are known; then requests are refused with status 503."""

    def __init__(self, upstream: Http, clock: Callable[[], float] = time) -> None:
        self.name = upstream.name
        self.connection = upstream.connection
        self.inbox = Inbox(upstream.queue, lanes=upstream.lanes, max_bytes=upstream.max_bytes)
        self.secrets: tuple[str, ...] | None = () if upstream.connection is None else None
        self._verify = upstream.verify
        self._scheme = SCHEMES[upstream.verify]
        self._decoding = upstream.decoding
        self._clock = clock

    def use(self, connection: Connection) -> None:
        """Use the secrets of the connection from now on. Raises `ValueError` if they are invalid, and then has no secrets."""
        self.secrets = None
        self.secrets = secrets_of(connection, self._verify)

    def reject_early(self, headers: Mapping[str, str]) -> Response | None:
        """Return the response to a request that is rejected whatever its body is, or None."""
        if self.secrets is None:
            return problem(
                503,
                "unavailable",
                "The receiver does not have the secret of this endpoint.",
                hint="Its operator finds the reason in the log of the receiver.",
                headers=retry_after(FULL_SECONDS),
            )
        return None if self._scheme.challenge is None else self._rejection(self.secrets, headers, b"", self._clock())

    async def accept(self, headers: Mapping[str, str], body: bytes, hold: Hold = nullcontext) -> Response:
        """Return the response to a request. It is 202 only if all messages of the request are durable.

        `hold` counts the memory of the messages. Raises `RequestRejected` if there is no room for them.
        """
        if (early := self.reject_early(headers)) is not None:
            return early
        now = self._clock()
        if (rejection := self._rejection(self.secrets or (), headers, body, now)) is not None:
            return rejection
        try:
            messages, value, size = await self._decode(headers, body, round(now * 1000))
        except RequestRejected as error:
            return rejected(error)
        if self._verify == "slack" and (challenge_text := challenge_of(value)) is not None:
            return plain_text(challenge_text)
        with hold(size):
            try:
                await self.inbox.append(messages)
            except HeadraceError as error:
                return not_stored(error)
        return accepted(len(messages))

    async def _decode(self, headers: Mapping[str, str], body: bytes, now_ms: int) -> DecodedRequest:
        if len(body) < LARGE_BODY_BYTES:
            return decode_request(self._decoding, headers, body, now_ms)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(_DECODER, decode_request, self._decoding, headers, body, now_ms)

    def _rejection(self, secrets: Sequence[str], headers: Mapping[str, str], body: bytes, now: float) -> Response | None:
        """Return the response to a request that is not genuine, or None."""
        reason = self._scheme.rejection(secrets, headers, body, now)
        if reason is None:
            return None
        challenge = () if self._scheme.challenge is None else (("WWW-Authenticate", self._scheme.challenge),)
        hint = "Check the secret, the clock, and that the body is sent unchanged."
        return problem(401, "unauthorized", reason, hint=hint, headers=challenge)


def rejected(error: RequestRejected) -> Response:
    """Return the response to a request that cannot become messages."""
    headers = retry_after(BUSY_SECONDS) if error.status == 503 else ()
    return problem(error.status, error.slug, str(error), hint=error.hint, headers=headers)


def not_stored(error: HeadraceError) -> Response:
    """Return the response if messages cannot be stored. The reason is for the log: it may have paths of this machine."""
    if isinstance(error, InboxFull):
        response = problem(429, "too-often", str(error), hint="Send the request again later.", headers=retry_after(FULL_SECONDS))
    else:
        busy = isinstance(error, StorageBusy) or not isinstance(error, ResourceError)
        response = problem(
            503,
            "unavailable",
            "The receiver cannot store messages now.",
            hint="Send the request again later.",
            headers=retry_after(BUSY_SECONDS if busy else FULL_SECONDS),
        )
    return response._replace(reason=str(error))
