"""Requests to one service of a storage account, with the credentials of a connection."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from email.utils import formatdate
from typing import Final
from urllib.parse import quote, urlencode
from xml.etree import ElementTree

import aiohttp
from yarl import URL

from headrace.core.connection import Connection
from headrace.core.connection_settings.azure import Service, Settings, read_settings
from headrace.errors import HeadraceError, StreamError, UpstreamError
from headrace.sources.azure.signing import authorization
from headrace.sources.azure.tokens import Tokens
from headrace.sources.connections import rest_client

API_VERSION: Final = "2023-11-03"

_CREDENTIALS: Final = "Correct the credentials of the connection, and check the clock of this machine."
_ACCESS: Final = "Does a rule of the network refuse this machine? Do the SAS token or the key of the connection still allow this request?"
REJECTED: Final[Mapping[str, str]] = {
    "AuthenticationFailed": _CREDENTIALS,
    "InvalidAuthenticationInfo": _CREDENTIALS,
    "NoAuthenticationInformation": _CREDENTIALS,
    "KeyBasedAuthenticationNotPermitted": "The account refuses keys: use an identity, azure://ACCOUNT@.",
    "AuthorizationFailure": _ACCESS,
    "AuthorizationSourceIPMismatch": _ACCESS,
    "AuthorizationProtocolMismatch": "Use scheme=https.",
    "AccountRequiresHttps": "Use scheme=https.",
    "AccountIsDisabled": "Enable the account.",
    "LeaseIdMissing": "End the lease of this blob.",
    "BlobImmutableDueToPolicy": "Give the upstream a state= in a container without a policy of immutability.",
}
"""Errors of all services that another attempt does not change, with what to do."""
_STATUS: Final[Mapping[int, str]] = {
    400: "Correct the connection or the name.",
    401: _CREDENTIALS,
    403: _ACCESS,
    404: "Correct the name of the account.",
}
AWAY: Final = "Is the service reachable? Are account, host and port of the connection right?"


class Answer(rest_client.Answer):
    """A response of a service, with its whole body."""

    __slots__ = ()

    @property
    def code(self) -> str:
        """The name of an error, or empty."""
        return self.headers.get("x-ms-error-code", "")


class AzureClient:
    """Requests to a service with the credentials of one connection. `rejected` has further errors that another attempt does not change."""

    def __init__(self, session: aiohttp.ClientSession, settings: Settings, service: Service, rejected: Mapping[str, str]) -> None:
        self.address = settings.addresses[service]
        self._session = session
        self._settings = settings
        self._rejected = rejected
        self._base = URL(self.address).raw_path.rstrip("/")
        self._tokens = Tokens(settings.identity) if settings.key is None and settings.signature is None else None

    @classmethod
    async def open(
        cls,
        connection: Connection,
        service: Service,
        stack: AsyncExitStack,
        rejected: Mapping[str, str],
        *,
        answer_seconds: float | None = None,
    ) -> AzureClient:
        """Return a client, closed with the stack. It sends nothing yet. Raises `UpstreamError`."""
        settings = read_settings(connection)
        if service not in settings.addresses:
            raise UpstreamError(f"Connection '{connection.id}' has no address of the {service} service.", hint="Add queue_endpoint_url.")
        session = await rest_client.open_session(connection, settings.ca_bundle, stack, answer_seconds=answer_seconds)
        return cls(session, settings, service, rejected)

    async def request(
        self,
        what: str,
        method: str,
        path: str,
        query: Mapping[str, object],
        *,
        expected: frozenset[str] = frozenset(),
        headers: Mapping[str, str] | None = None,
        data: bytes | None = None,
    ) -> Answer:
        """Send a request. Return a success or an answer with an expected code, and raise for others. `path` is percent-encoded."""
        sent = {"x-ms-version": API_VERSION, "x-ms-date": formatdate(usegmt=True)} | dict(headers or {})
        if data is not None:
            sent |= {"Content-Length": str(len(data)), "Content-Type": "application/octet-stream"}
        encoded = urlencode(query, quote_via=quote)
        if self._settings.key is not None:
            sent["Authorization"] = authorization(
                self._settings.account, self._settings.key, method, f"{self._base}{path}" or "/", query, sent
            )
        elif self._tokens is not None:
            sent["Authorization"] = await self._tokens.header()
        else:
            encoded = "&".join(part for part in (encoded, self._settings.signature) if part)
        url = f"{self.address}{path}?{encoded}"
        answer = Answer(*await rest_client.send(self._session, what, method, url, headers=sent, data=data, hint=AWAY))
        if answer.status < 300 or answer.code in expected:
            return answer
        if self._tokens is not None and (answer.status == 401 or answer.code == "AuthenticationFailed"):
            self._tokens.drop()
        raise rejection(what, answer, self._rejected)


def rejection(what: str, answer: Answer, rejected: Mapping[str, str]) -> HeadraceError:
    """Return the error of Headrace for an answer of the service."""
    message = _message(answer.body)
    code = answer.code or f"HTTP status {answer.status}"
    text = f"{what}: {message} ({code})." if message else f"{what}: {code}."
    hint = rejected.get(answer.code) or REJECTED.get(answer.code) or _STATUS.get(answer.status)
    return StreamError(text) if hint is None else UpstreamError(text, hint=hint)


def _message(body: bytes) -> str:
    """Return the first line of the message in an answer, or an empty text."""
    try:
        message = ElementTree.fromstring(body).findtext("Message") if body else None  # noqa: S314  # expat limits the growth of entities
    except ElementTree.ParseError:
        message = None
    return (message or "").partition("\n")[0].strip().rstrip(". ")
