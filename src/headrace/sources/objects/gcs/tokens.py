"""Access tokens of Google. Their library is imported when a stream opens, and blocks: each call is in a thread."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from headrace.core.connection_settings.gcs import HINT, Settings
from headrace.errors import HeadraceError, StreamError, UpstreamError
from headrace.sources.connections.client_library import import_library

SCOPE: Final = "https://www.googleapis.com/auth/devstorage.read_write"
LIBRARY: Final = "Objects of Google Cloud Storage cannot be read: the library for credentials"
TOKEN_SECONDS: Final = 20.0
_SKEW: Final = "Check the clock of this machine, and whether the key is deleted or the service account disabled."


class Tokens:
    """The access tokens of one connection, renewed when they expire."""

    def __init__(self, settings: Settings) -> None:
        self.project = settings.project
        self._settings = settings
        self._credentials: Any = None
        self._lock = asyncio.Lock()

    async def headers(self) -> dict[str, str]:
        """Return the headers that authenticate a request.

        Raises:
            UpstreamError: The library or the credentials are missing, or the service refuses them.
            StreamError: The service that issues tokens does not answer.
        """
        if self._settings.is_anonymous:
            return {}
        if self._credentials is None or not self._credentials.valid:
            async with self._lock:
                if self._credentials is None or not self._credentials.valid:
                    await self._renew()
        return {"Authorization": f"Bearer {self._credentials.token}"}

    def drop(self) -> None:
        """Request a new token before the next request: the service has refused this one."""
        if self._credentials is not None:
            self._credentials.token = None

    async def _renew(self) -> None:
        try:
            async with asyncio.timeout(TOKEN_SECONDS):
                await asyncio.to_thread(self._renew_blocking)
        except TimeoutError as error:
            raise StreamError(f"No access token of Google: no answer within {TOKEN_SECONDS:g} s.") from error

    def _renew_blocking(self) -> None:
        library = import_library(LIBRARY, "gcs", "google.auth", "google.auth.transport.requests", "google.oauth2.service_account")
        import google.auth.transport.requests

        request = google.auth.transport.requests.Request()
        try:
            if self._credentials is None:
                self._credentials = self._load(library, request)
            self._credentials.refresh(request)
        except Exception as error:
            raise described(error) from error

    def _load(self, library: Any, request: Any) -> Any:
        from google.oauth2 import service_account

        key_credentials: Any = service_account.Credentials  # without types
        settings = self._settings
        if settings.key is not None:
            return key_credentials.from_service_account_info(dict(settings.key), scopes=[SCOPE])
        if settings.key_file is not None:
            credentials = key_credentials.from_service_account_file(settings.key_file, scopes=[SCOPE])
            self.project = self.project or credentials.project_id
            return credentials
        credentials, project = library.default(scopes=[SCOPE], request=request)
        self.project = self.project or project
        return credentials


def described(error: BaseException) -> HeadraceError:
    """Return the error of Headrace for an exception of the library."""
    if isinstance(error, HeadraceError):
        return error
    name, text = type(error).__name__, str(error.args[0] if error.args else error).rstrip(". ") or type(error).__name__
    if name == "DefaultCredentialsError":
        return UpstreamError(f"No credentials of Google Cloud: {text}.", hint=HINT)
    if name == "RefreshError" and not getattr(error, "retryable", False):
        return UpstreamError(f"No access token of Google: {text}.", hint=_SKEW)
    if name == "FileNotFoundError":
        return UpstreamError(f"No credentials of Google Cloud: {error}.", hint="Correct the key_file of the connection.")
    if isinstance(error, ValueError | KeyError):
        # The text of these errors may show a part of the key.
        return UpstreamError(f"The key of the service account is not valid ({name}).", hint=HINT)
    return StreamError(f"No access token of Google: {text}.")
