"""Requests to services with a REST API. Stored bytes are read as they are, and paths are not normalised."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Final, NamedTuple

import aiohttp
from yarl import URL

from headrace.core.connection import Connection
from headrace.errors import StreamError
from headrace.sources.connections.tls import authority_context

CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 20.0
REQUEST_SECONDS: Final = 120.0
MAX_REQUESTS: Final = 32


class Answer(NamedTuple):
    """A response of a service, with its whole body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


async def open_session(
    connection: Connection, ca_bundle: str | None, stack: AsyncExitStack, *, answer_seconds: float | None = None
) -> aiohttp.ClientSession:
    """Return a session, closed with the stack. An answer takes up to ANSWER_SECONDS by default.

    Raises:
        UpstreamError: The file of the certificate authority cannot be read.
    """
    verify = True if ca_bundle is None else authority_context(connection, ca_bundle)
    return await new_session(verify, stack, answer_seconds=answer_seconds)


async def new_session(
    verify: ssl.SSLContext | bool, stack: AsyncExitStack, *, answer_seconds: float | None = None
) -> aiohttp.ClientSession:
    """Return a session that verifies certificates with a context, or as the machine does. It is closed with the stack."""
    session = aiohttp.ClientSession(
        auto_decompress=False,  # so that offsets and sizes fit
        timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS, sock_connect=CONNECT_SECONDS, sock_read=answer_seconds or ANSWER_SECONDS),
        connector=aiohttp.TCPConnector(limit=MAX_REQUESTS, ssl=verify),
        headers={"User-Agent": "headrace", "Accept-Encoding": "identity"},
        skip_auto_headers=("Content-Type",),  # a signature covers it: the library would add one to a PUT or POST without a body
    )
    return await stack.enter_async_context(session)


async def send(
    session: aiohttp.ClientSession, what: str, method: str, url: str, *, headers: Mapping[str, str], data: bytes | None, hint: str
) -> Answer:
    """Send a request, and return the response. `url` is percent-encoded. Raises `StreamError` if the service does not answer."""
    encoded = URL(url, encoded=True)  # the library must not normalise the path: a key is a text, not a path
    try:
        async with session.request(method, encoded, headers=headers, data=data, allow_redirects=False) as response:
            return Answer(response.status, response.headers, await response.read())
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        text = str(error).rstrip(". ") or type(error).__name__
        raise StreamError(f"{what}: the service does not answer: {text}.", hint=hint) from error
