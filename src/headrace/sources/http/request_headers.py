"""The headers of a request that its message keeps, and the media type of the body."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from headrace.errors import UpstreamError

_STORED: Final = frozenset(
    {
        "content-type",
        "idempotency-key",
        "traceparent",
        "tracestate",
        "user-agent",
        "webhook-id",
        "webhook-timestamp",
        "x-github-delivery",
        "x-github-event",
        "x-github-hook-id",
        "x-slack-retry-num",
        "x-slack-retry-reason",
    }
)
_NEVER_STORED: Final = frozenset(
    {
        "authorization",
        "cookie",
        "proxy-authorization",
        "stripe-signature",
        "webhook-signature",
        "x-hub-signature",
        "x-hub-signature-256",
        "x-slack-signature",
    }
)


class MediaType(NamedTuple):
    """The type of a body in lower case, such as `application/json`, and its charset. Both are empty if they are not given."""

    name: str
    charset: str

    @property
    def is_json(self) -> bool:
        """Whether the body is JSON."""
        return self.name in ("", "application/json", "text/json") or self.name.endswith("+json")

    @property
    def is_utf8(self) -> bool:
        """Whether the charset is UTF-8, or not given."""
        return self.charset in ("", "utf-8", "utf8", "us-ascii")


def media_type(header: str) -> MediaType:
    """Return the media type of a header `Content-Type`."""
    name, *parameters = header.split(";")
    charset = ""
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        if key.strip().lower() == "charset":
            charset = value.strip().strip('"').lower()
    return MediaType(name.strip().lower(), charset)


def is_compressed(header: str) -> bool:
    """Return whether a header `Content-Encoding` names a coding other than `identity`."""
    return any(coding.strip().lower() not in ("", "identity") for coding in header.split(","))


def check_header_names(names: Iterable[object]) -> tuple[str, ...]:
    """Return the names of further headers that messages keep, in lower case. Raises `UpstreamError`."""
    checked = tuple(sorted({name.lower() if isinstance(name, str) else "" for name in names}))
    for name in checked:
        if name in _NEVER_STORED:
            raise UpstreamError(f"The header {name!r} cannot be stored: it proves who the sender is.", hint="Omit it from headers=.")
        if not name.isascii() or not name.replace("-", "").replace("_", "").isalnum():
            raise UpstreamError(f"Invalid name of a header: {name!r}.", hint='Write them like this: headers=["X-Tenant"]')
    return checked


def stored_headers(headers: Mapping[str, str], further: Iterable[str]) -> dict[str, str]:
    """Return the headers that a message keeps. Credentials, cookies and signatures are never among them."""
    names = _STORED.union(further)
    return {name: value for name, value in headers.items() if name in names and name not in _NEVER_STORED}
