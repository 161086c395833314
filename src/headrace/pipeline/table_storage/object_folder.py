"""A folder of a bucket that has tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from typing import Any, Final

from headrace.core.values.locations import TableLocation
from headrace.errors import PipelineError, TablesRefused, TablesUnavailable

PERMISSIONS: Final = (
    "s3:ListBucket on the bucket, and s3:GetObject, s3:PutObject, s3:DeleteObject and s3:AbortMultipartUpload on the folder"
)
_CREDENTIALS: Final = "Correct the login and the password of the connection."
_ALLOW: Final = f"Allow this user: {PERMISSIONS}."
_REGION: Final = "Correct the region of the connection: the bucket is in another one."
_CONDITIONS: Final = "The server must support conditional writes: the header If-None-Match of PutObject."
_PERMANENT: Final[Mapping[str, str]] = {
    "SignatureDoesNotMatch": _CREDENTIALS,
    "InvalidAccessKeyId": _CREDENTIALS,
    "InvalidToken": _CREDENTIALS,
    "ExpiredToken": "The session token has expired. Store the connection again.",
    "NoSuchBucket": "Correct the name of the bucket, or create it. Headrace creates no buckets.",
    "PermanentRedirect": _REGION,
    "AuthorizationHeaderMalformed": _REGION,
    "NotImplemented": _CONDITIONS,
    "AccessDenied": _ALLOW,
    "301": _REGION,
    "403": _ALLOW,
    "501": _CONDITIONS,
}
"""Errors that another attempt does not change, by the code of the service or else the status of the answer, with what to do."""
_AWAY: Final = "Is the service reachable? Are host and port of the connection right? Runs stay open meanwhile."
_FROM_STORE: Final = re.compile(r"Error performing |Generic S3 error|error sending request")
_CODE: Final = re.compile(r"<Code>([^<]*)</Code>")
_MESSAGE: Final = re.compile(r"<Message>([^<]*)</Message>")
_STATUS: Final = re.compile(r"status code:? (\d{3})")
_DECORATION: Final = re.compile(r"\x1b\[[0-9;]*m|↳|\s+")
_MAX_TEXT: Final = 300
_ALLOW_HTTP: Final = "aws_allow_http"
_CONDITION: Final = ".headrace/conditional-writes"
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
        """Check that the bucket can be written, and that its server does not replace an object under the condition that it does not exist.

        Two drivers could otherwise write one version of a table.

        Raises:
            TablesRefused: It cannot, or it does.
            TablesUnavailable: The service does not answer.
        """
        if self.create(_CONDITION, b"") and self.create(_CONDITION, b""):
            raise TablesRefused(
                f"The tables in {self} cannot be written: the server ignores the condition If-None-Match of a write.",
                hint="Use a server with conditional writes: two drivers could otherwise store one run twice.",
            )

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

    @contextmanager
    def described(self) -> Iterator[None]:
        """Raise `TablesRefused` or `TablesUnavailable` for errors of the service in the block, from obstore or deltalake."""
        from obstore.exceptions import AlreadyExistsError, BaseError

        try:
            yield
        except (PipelineError, AlreadyExistsError):
            raise
        except FileNotFoundError as error:
            if "NoSuchBucket" not in str(error):
                raise
            raise self._error(error) from error
        except (OSError, BaseError) as error:
            raise self._error(error) from error
        except Exception as error:
            if not _FROM_STORE.search(str(error)):
                raise
            raise self._error(error) from error

    def _error(self, error: BaseException) -> PipelineError:
        what = f"The tables in {self} cannot be reached"
        text = " ".join(_DECORATION.sub(" ", str(error).partition("Debug source")[0]).split())
        code, message, status = (match[1] if (match := each.search(text)) else None for each in (_CODE, _MESSAGE, _STATUS))
        reason = f"{message or status} ({code})" if code else text[:_MAX_TEXT]
        hint = _PERMANENT.get(code or status or "")
        return TablesUnavailable(f"{what}: {reason}", hint=_AWAY) if hint is None else TablesRefused(f"{what}: {reason}", hint=hint)

    @cached_property
    def _client(self) -> Any:
        from obstore.store import from_url

        config = {name: value for name, value in self._credentials.items() if name != _ALLOW_HTTP}
        transport: dict[str, Any] = {**_TRANSPORT, "allow_http": _ALLOW_HTTP in self._credentials}
        retries: Any = {"max_retries": _MAX_RETRIES, "retry_timeout": timedelta(seconds=_RETRY_SECONDS)}
        settings: Any = {"config": config, "client_options": transport}
        return from_url(self.url, retry_config=retries, **settings)
