"""Check the tokens that a client puts on a connection, and which entities they are for."""

from __future__ import annotations

import hmac
from base64 import b64encode
from hashlib import sha256
from typing import Final
from urllib.parse import unquote_plus, urlsplit

POLICY: Final = "RootManageSharedAccessKey"
KEY: Final = "headrace"
PREFIX: Final = "SharedAccessSignature "


class RejectedTokenError(Exception):
    """A token is not accepted; the text is the reason."""


def path_of(address: str) -> str:
    """Return the path of an address in small letters, without the host: `sb://host/Orders` and `Orders` are both `orders`."""
    path = urlsplit(address).path if "://" in address else address
    return path.strip("/").lower()


def scope(token: str, audience: str, now: float) -> str:
    """Return the path below which a token allows everything. Raise `RejectedTokenError` if it is not accepted.

    The client library gives the type `jwt` to signatures too, so the text decides. JSON web tokens are accepted unread.
    """
    if not token:
        raise RejectedTokenError("MalformedToken: The token is empty.")
    if not token.startswith(PREFIX):
        return path_of(audience)
    fields = dict(part.partition("=")[::2] for part in token.removeprefix(PREFIX).split("&"))
    resource, expiry = fields.get("sr", ""), fields.get("se", "")
    if unquote_plus(fields.get("skn", "")) != POLICY:
        raise RejectedTokenError("InvalidSignature: The token has an unknown policy.")
    signature = b64encode(hmac.new(KEY.encode(), f"{resource}\n{expiry}".encode(), sha256).digest()).decode()
    if not hmac.compare_digest(signature, unquote_plus(fields.get("sig", ""))):
        raise RejectedTokenError("InvalidSignature: The token has an invalid signature.")
    if not expiry.isdecimal() or int(expiry) <= now:
        raise RejectedTokenError(f"ExpiredToken: The token is expired. Expiration time: {expiry}.")
    return path_of(unquote_plus(resource))


def allows(scopes: set[str], path: str) -> bool:
    """Return whether one of the paths allows an entity."""
    return any(not allowed or path == allowed or path.startswith(f"{allowed}/") for allowed in scopes)
