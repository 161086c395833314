"""One keep-alive session with the API for code that must not block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import aiohttp

from headrace.client.http.responses import CONNECT_SECONDS, Response, body_of, timed_out, trusts_environment, unreachable
from headrace.wire.base import API_VERSION, VERSION_HEADER

KEEPALIVE_SECONDS = 4.0
"""Seconds for which an unused connection stays open: less than the 5 s after which uvicorn closes it, so that no
request meets the closing.
"""


class Requests(Protocol):
    """A carrier of requests to the API and of its responses."""

    async def aclose(self) -> None:
        """Close what is open."""
        ...

    async def request(
        self, method: str, path: str, *, content: bytes | None, params: Mapping[str, int | float | str] | None, headers: Mapping[str, str]
    ) -> bytes:
        """Return the body of a successful response. Raises as `body_of` does, and `ApiUnavailable` if no response arrived."""
        ...


class Session:
    """Send requests; open connections on demand."""

    def __init__(self, url: str, *, timeout: float) -> None:
        self._url = url
        self._timeout = aiohttp.ClientTimeout(total=timeout, sock_connect=min(CONNECT_SECONDS, timeout))
        self._opened: aiohttp.ClientSession | None = None

    async def aclose(self) -> None:
        """Close the connections; the next request opens new ones."""
        if self._opened is not None:
            await self._opened.close()
            self._opened = None

    async def request(
        self, method: str, path: str, *, content: bytes | None, params: Mapping[str, int | float | str] | None, headers: Mapping[str, str]
    ) -> bytes:
        """Return the body of a successful response. Raises as `body_of` does.

        Raises:
            ApiUnavailable: No response arrived. The API may still have processed the request.
        """
        if self._opened is None:
            self._opened = self._open()
        try:
            async with self._opened.request(method, self._url + path, data=content, params=params, headers=headers) as response:
                body = await response.read()
                return body_of(Response(str(response.url), response.status, response.reason or "", response.headers, body))
        except TimeoutError as error:
            raise timed_out(self._url) from error
        except aiohttp.ClientConnectorError as error:
            raise unreachable(self._url, error.os_error) from error
        except aiohttp.ClientError as error:
            raise unreachable(self._url, error) from error

    def _open(self) -> aiohttp.ClientSession:
        # Created here and not earlier, because the session belongs to the running loop.
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(keepalive_timeout=KEEPALIVE_SECONDS),
            headers={VERSION_HEADER: API_VERSION},
            timeout=self._timeout,
            trust_env=trusts_environment(self._url),
        )
