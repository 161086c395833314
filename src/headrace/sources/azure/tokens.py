"""Access tokens of Microsoft Entra. Their library is imported when a stream opens, and blocks: each call is in a thread."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import structlog

from headrace.core.connection_settings.azure import HINT, Identity
from headrace.errors import HeadraceError, StreamError, UpstreamError
from headrace.sources.connections.client_library import import_library

SCOPE: Final = "https://storage.azure.com/.default"
"""The scope of tokens for the services of a storage account."""
LIBRARY: Final = "No credentials of Azure can be read: their library"
TOKEN_SECONDS: Final = 40.0
EARLY_SECONDS: Final = 300.0
"""A token is renewed so long before it expires. Until then it is used, also if the renewal fails."""
RETRY_SECONDS: Final = 10.0
MACHINE: Final = "ManagedIdentityCredential:"
"""What begins the reason of the identity of the machine, among those of all credentials that were tried."""

log = structlog.get_logger(__name__)


class Tokens:
    """The access tokens of one identity, renewed before they expire."""

    def __init__(self, identity: Identity, scope: str = SCOPE) -> None:
        self._identity = identity
        self._scope = scope
        self._credential: Any = None
        self._token = ""
        self._expires = 0.0
        self._renew_at = 0.0
        self._lock = asyncio.Lock()

    async def header(self) -> str:
        """Return the header `Authorization`. Raises as `token` does."""
        token, _ = await self.token()
        return f"Bearer {token}"

    async def token(self) -> tuple[str, float]:
        """Return the token, and the time when it expires in seconds since the epoch.

        Raises:
            UpstreamError: The library or the credentials are missing, or the service refuses them.
            StreamError: The service that issues tokens does not answer.
        """
        if time.time() >= self._renew_at:
            async with self._lock:
                if time.time() >= self._renew_at:
                    await self._renew()
        return self._token, self._expires

    def drop(self) -> None:
        """Request a new token before the next request: the service has refused this one."""
        self._expires = self._renew_at = 0.0

    async def _renew(self) -> None:
        try:
            async with asyncio.timeout(TOKEN_SECONDS):
                self._token, self._expires = await asyncio.to_thread(self._request)
        except (TimeoutError, HeadraceError) as error:
            if time.time() < self._expires:
                log.warning("access token not renewed", error=str(error), expires_in_seconds=round(self._expires - time.time()))
                self._renew_at = min(self._expires, time.time() + RETRY_SECONDS)
                return
            if isinstance(error, HeadraceError):
                raise
            raise StreamError(f"No access token of Azure: no answer within {TOKEN_SECONDS:g} s.") from error
        self._renew_at = max(time.time() + RETRY_SECONDS, self._expires - EARLY_SECONDS)

    def _request(self) -> tuple[str, float]:
        library = import_library(LIBRARY, "azure", "azure.identity")
        try:
            if self._credential is None:
                self._credential = self._create(library)
            token = self._credential.get_token(self._scope)
        except Exception as error:
            raise described(error) from error
        return str(token.token), float(token.expires_on)

    def _create(self, library: Any) -> Any:
        tenant, client, secret = self._identity
        if secret is not None:
            return library.ClientSecretCredential(tenant, client, secret)
        return library.DefaultAzureCredential(managed_identity_client_id=client, workload_identity_client_id=client)


def described(error: BaseException) -> HeadraceError:
    """Return the error of Headrace for an exception of the library."""
    if isinstance(error, HeadraceError):
        return error
    names = {one.__name__ for one in type(error).__mro__}
    lines = (str(error) or type(error).__name__).splitlines()
    text = next((line.strip() for line in lines if MACHINE in line), lines[0]).rstrip(". ")
    if "ClientAuthenticationError" in names:
        return UpstreamError(f"No access token of Azure: {text}.", hint=HINT)
    if isinstance(error, ValueError):
        return UpstreamError(f"The credentials of Azure are not valid: {text}.", hint=HINT)
    return StreamError(f"No access token of Azure: {text}.")
