"""Signatures of requests with the key of a storage account: the scheme SharedKey of the service. Pure."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping
from hashlib import sha256
from typing import Final

_SIGNED: Final = (
    "Content-Encoding",
    "Content-Language",
    "Content-Length",
    "Content-MD5",
    "Content-Type",
    "Date",
    "If-Modified-Since",
    "If-Match",
    "If-None-Match",
    "If-Unmodified-Since",
    "Range",
)
"""The headers whose values are signed without their names, in this order."""


def authorization(account: str, key: bytes, method: str, path: str, query: Mapping[str, object], headers: Mapping[str, str]) -> str:
    """Return the header `Authorization` of a request.

    Args:
        account: The name of the account.
        key: Its key.
        method: The method, in upper case.
        path: The path of the URL as it is sent, percent-encoded.
        query: The parameters of the URL, not encoded, with names in lower case.
        headers: All headers that are sent, as they are written here; `Content-Length` only if there is a body.
    """
    own = sorted((name.lower(), value) for name, value in headers.items() if name.lower().startswith("x-ms-"))
    lines = [
        method,
        *(headers.get(name, "") for name in _SIGNED),
        *(f"{name}:{value}" for name, value in own),
        f"/{account}{path}",
        *(f"{name}:{query[name]}" for name in sorted(query)),
    ]
    digest = hmac.new(key, "\n".join(lines).encode(), sha256).digest()
    return f"SharedKey {account}:{base64.b64encode(digest).decode()}"
