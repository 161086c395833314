"""A folder of a bucket that has tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import cached_property
from typing import Any, Final

from headrace.core.values.locations import TableLocation
from headrace.errors import TablesRefused
from headrace.pipeline.table_storage.connection_options import ALLOW_HTTP
from headrace.pipeline.table_storage.service_errors import service_errors

_CHECKS: Final = ".headrace"
_CONDITION: Final = f"{_CHECKS}/conditional-writes"
_BEFORE_CONDITION: Final = f"{_CHECKS}/a"
_AFTER_CONDITION: Final = f"{_CHECKS}/d"
_TRANSPORT: Final[Mapping[str, str]] = {"connect_timeout": "5s", "timeout": "30s"}
_MAX_RETRIES: Final = 5
_RETRY_SECONDS: Final = 60


class ObjectFolder:
    """A folder of a bucket; see `AtomicFiles` for its files. `credentials` are settings of the client, without those of its transport.

    Like a path, `folder / "name"` is a folder in it.
    """

    def __init__(self, location: TableLocation, credentials: Mapping[str, str], within: str = "") -> None:
        self._location = location
        self._credentials = credentials
        self._within = within

    def __truediv__(self, name: str) -> ObjectFolder:
        """Return a folder in this one."""
        return ObjectFolder(self._location, self._credentials, f"{self._within}{name}/")

    def __str__(self) -> str:
        """Return the URL with the connection, without credentials."""
        return f"{self._location}/{self._within}".rstrip("/")

    @property
    def connection(self) -> str:
        """The id of the connection."""
        return self._location.connection

    @property
    def name(self) -> str:
        """The last part of the URL."""
        return self.url.rpartition("/")[2]

    @property
    def url(self) -> str:
        """The URL for readers, without a slash at its end."""
        return f"{self._location.location.url}/{self._within}".rstrip("/")

    @property
    def options(self) -> dict[str, str]:
        """The options of deltalake for tables in this folder."""
        return {**self._credentials, **_TRANSPORT, "max_retries": f"{_MAX_RETRIES}", "retry_timeout": f"{_RETRY_SECONDS}s"}

    def check(self) -> None:
        """Check that the bucket can be written, and that its server applies what tables depend on.

        It must not replace an object under the condition that it does not exist: two drivers could otherwise write one version of a
        table. It must begin a listing where the request says: some servers with the protocol of Azure do not.

        Raises:
            TablesRefused: The bucket cannot be written, or the server does not apply it.
            TablesUnavailable: The service does not answer.
        """
        if self.create(_CONDITION, b"") and self.create(_CONDITION, b""):
            raise TablesRefused(
                f"The tables in {self} cannot be written: the server ignores the condition If-None-Match of a write.",
                hint="Use a server with conditional writes: two drivers could otherwise store one run twice.",
            )
        if not self._lists_after(_BEFORE_CONDITION) or self._lists_after(_AFTER_CONDITION):
            raise TablesRefused(
                f"The tables in {self} cannot be read: the server does not begin a listing where the request says.",
                hint="Use a newer version of the server, or another one: the versions of a table would be read wrong.",
            )

    def _lists_after(self, name: str) -> bool:
        """Return whether a listing that begins after this name has objects."""
        with self.described():
            return any(page for page in self._client.list(_CHECKS, offset=name))

    def read(self, name: str) -> bytes | None:
        """Return the content of an object, or None if it does not exist."""
        try:
            with self.described():
                return bytes(self._client.get(name).bytes())
        except FileNotFoundError:
            return None

    def create(self, name: str, data: bytes) -> bool:
        """Write an object if none has the name. Return whether it was written.

        If an answer is lost, the object may be written although the call fails, or returns False after another attempt of the client.
        """
        from obstore.exceptions import AlreadyExistsError

        try:
            with self.described():
                self._client.put(name, data, mode="create")
        except AlreadyExistsError:
            return False
        return True

    def replace(self, name: str, data: bytes) -> None:
        """Write an object, in place of the one with the name."""
        with self.described():
            self._client.put(name, data)

    def delete(self, name: str) -> None:
        """Delete an object; do nothing if it does not exist."""
        try:
            with self.described():
                self._client.delete(name)
        except FileNotFoundError:
            pass

    def names(self, folder: str) -> Sequence[str]:
        """Return the names of the objects directly in a folder, in order, without hidden ones."""
        with self.described():
            listed = self._client.list_with_delimiter(f"{folder}/")["objects"]
        names = (one["path"].rpartition("/")[2] for one in listed)
        return sorted(name for name in names if not name.startswith("."))

    def folders(self) -> Sequence[str]:
        """Return the names of the folders, in order."""
        with self.described():
            return sorted(prefix.rstrip("/").rpartition("/")[2] for prefix in self._client.list_with_delimiter()["common_prefixes"])

    def sizes(self) -> Mapping[str, int]:
        """Return the sizes of all objects, by their name."""
        with self.described():
            return {one["path"]: int(one["size"]) for page in self._client.list() for one in page}

    def where(self, name: str) -> str:
        """Return the URL of an object."""
        return f"{self.url}/{name}"

    def described(self) -> AbstractContextManager[None]:
        """Raise `TablesRefused` or `TablesUnavailable` for errors of the service in the block, from obstore or deltalake."""
        return service_errors(self._location.location.scheme, f"The tables in {self} cannot be reached")

    @cached_property
    def _client(self) -> Any:
        from obstore.store import from_url

        config = {name: value for name, value in self._credentials.items() if name != ALLOW_HTTP}
        transport: dict[str, Any] = {**_TRANSPORT, "allow_http": ALLOW_HTTP in self._credentials}
        retries: Any = {"max_retries": _MAX_RETRIES, "retry_timeout": timedelta(seconds=_RETRY_SECONDS)}
        settings: Any = {"config": config, "client_options": transport}
        return from_url(self.url, retry_config=retries, **settings)
