"""Credentials in the header `Authorization`: a bearer token, or a user with a password."""

from __future__ import annotations

import binascii
import hmac
from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Final

AUTHORIZATION: Final = "authorization"


def bearer_rejection(secrets: Sequence[str], headers: Mapping[str, str], body: bytes, now: float) -> str | None:
    """Return why a bearer token is refused, or None."""
    del body, now
    token = _credentials(headers, "bearer")
    if not token:
        return "The header Authorization has no bearer token."
    return None if _is_one_of(token.encode(errors="replace"), secrets) else "The bearer token is not valid."


def basic_rejection(secrets: Sequence[str], headers: Mapping[str, str], body: bytes, now: float) -> str | None:
    """Return why user and password are refused, or None. A secret is `user:password`."""
    del body, now
    encoded = _credentials(headers, "basic")
    if not encoded:
        return "The header Authorization has no user and password."
    try:
        decoded = b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return "The header Authorization is not valid base64."
    return None if _is_one_of(decoded, secrets) else "User and password are not valid."


def _credentials(headers: Mapping[str, str], scheme: str) -> str:
    kind, _, credentials = headers.get(AUTHORIZATION, "").partition(" ")
    return credentials.strip() if kind.lower() == scheme else ""


def _is_one_of(credentials: bytes, secrets: Sequence[str]) -> bool:
    """Compare with each secret in constant time."""
    matches = [hmac.compare_digest(credentials, secret.encode()) for secret in secrets]
    return any(matches)
