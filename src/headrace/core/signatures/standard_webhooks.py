"""Standard Webhooks: sign and verify requests. Outgoing webhooks and the `Http` upstream share this implementation.

A secret is `whsec_` and the base64 of its key. The signature covers the id, the time and the unmodified body.
"""

from __future__ import annotations

import binascii
import hmac
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Final

from headrace.core.signatures.timestamps import outside_tolerance

ID: Final = "webhook-id"
TIMESTAMP: Final = "webhook-timestamp"
SIGNATURE: Final = "webhook-signature"
SECRET_PREFIX: Final = "whsec_"  # noqa: S105  not a secret
MIN_KEY_BYTES: Final = 24
MAX_KEY_BYTES: Final = 64
MAX_SIGNATURES: Final = 16
"""Maximum number of signatures of a request that are compared. A sender has two while it changes its secret."""
SECRET_RULE: Final = f"It is {SECRET_PREFIX} and the base64 of {MIN_KEY_BYTES} to {MAX_KEY_BYTES} bytes."


def secret_of(key: bytes) -> str:
    """Return the secret of a key."""
    return SECRET_PREFIX + b64encode(key).decode()


def key_of(secret: str) -> bytes:
    """Return the key of a secret, whose prefix may be missing. Raises `ValueError`, which never shows the secret."""
    try:
        key = b64decode(secret.strip().removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not MIN_KEY_BYTES <= len(key) <= MAX_KEY_BYTES:
        raise ValueError(f"The secret is not one of Standard Webhooks. {SECRET_RULE}")
    return key


def signed_headers(secret: str, id: str, seconds: int, body: bytes) -> dict[str, str]:
    """Return the headers of a signed request: its id, its time and its signature. Raises `ValueError` for an invalid secret."""
    return {ID: id, TIMESTAMP: f"{seconds}", SIGNATURE: _signature(key_of(secret), id, f"{seconds}", body)}


def rejection(secrets: Sequence[str], headers: Mapping[str, str], body: bytes, now: float) -> str | None:
    """Return why a request is not genuine, or None if one of the secrets signed it."""
    id, seconds, signatures = (headers.get(name, "") for name in (ID, TIMESTAMP, SIGNATURE))
    for name, value in ((ID, id), (TIMESTAMP, seconds), (SIGNATURE, signatures)):
        if not value:
            return f"The header {name} is missing."
    if (reason := outside_tolerance(TIMESTAMP, seconds, now)) is not None:
        return reason
    encoded_signatures = [one.encode(errors="replace") for one in signatures.split(maxsplit=MAX_SIGNATURES)[:MAX_SIGNATURES]]
    own = [_signature(key_of(secret), id, seconds, body).encode() for secret in secrets]
    matches = [hmac.compare_digest(one, mine) for mine in own for one in encoded_signatures]
    return None if any(matches) else f"No signature in {SIGNATURE} matches the body."


def _signature(key: bytes, id: str, seconds: str, body: bytes) -> str:
    """Return `v1,` and the HMAC-SHA256, in base64, of the id, the time and the body, joined by dots."""
    signed = f"{id}.{seconds}.".encode(errors="surrogateescape") + body
    return "v1," + b64encode(hmac.digest(key, signed, "sha256")).decode()
