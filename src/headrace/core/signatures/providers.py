"""The signatures of GitHub, Stripe and Slack: HMAC-SHA256 of the unmodified body, in hexadecimal digits."""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from typing import Final

from headrace.core.signatures.timestamps import outside_tolerance

GITHUB_SIGNATURE: Final = "x-hub-signature-256"
STRIPE_SIGNATURE: Final = "stripe-signature"
SLACK_SIGNATURE: Final = "x-slack-signature"
SLACK_TIMESTAMP: Final = "x-slack-request-timestamp"
MAX_SIGNATURES: Final = 16


def github_rejection(secrets: Sequence[str], headers: Mapping[str, str], body: bytes, now: float) -> str | None:
    """Return why a request of GitHub is not genuine, or None. GitHub signs no time."""
    del now
    signature = headers.get(GITHUB_SIGNATURE, "")
    if not signature:
        return f"The header {GITHUB_SIGNATURE} is missing."
    return _mismatch(secrets, body, [signature.removeprefix("sha256=")], GITHUB_SIGNATURE)


def stripe_rejection(secrets: Sequence[str], headers: Mapping[str, str], body: bytes, now: float) -> str | None:
    """Return why a request of Stripe is not genuine, or None. The key is the text of the secret, with `whsec_`."""
    signature = headers.get(STRIPE_SIGNATURE, "")
    if not signature:
        return f"The header {STRIPE_SIGNATURE} is missing."
    parts = [part.strip().partition("=") for part in signature.split(",")]
    times = [value for name, _, value in parts if name == "t"]
    if len(times) != 1:
        return f"The header {STRIPE_SIGNATURE} has no single time t=."
    if (reason := outside_tolerance(STRIPE_SIGNATURE, times[0], now)) is not None:
        return reason
    signatures = [value for name, _, value in parts if name == "v1"][:MAX_SIGNATURES]
    return _mismatch(secrets, f"{times[0]}.".encode() + body, signatures, STRIPE_SIGNATURE)


def slack_rejection(secrets: Sequence[str], headers: Mapping[str, str], body: bytes, now: float) -> str | None:
    """Return why a request of Slack is not genuine, or None."""
    signature, seconds = headers.get(SLACK_SIGNATURE, ""), headers.get(SLACK_TIMESTAMP, "")
    for name, value in ((SLACK_SIGNATURE, signature), (SLACK_TIMESTAMP, seconds)):
        if not value:
            return f"The header {name} is missing."
    if (reason := outside_tolerance(SLACK_TIMESTAMP, seconds, now)) is not None:
        return reason
    signatures = [signature.removeprefix("v0=")] if signature.startswith("v0=") else []
    return _mismatch(secrets, f"v0:{seconds}:".encode() + body, signatures, SLACK_SIGNATURE)


def _mismatch(secrets: Sequence[str], signed: bytes, signatures: Sequence[str], header: str) -> str | None:
    """Return why no secret has one of the signatures, or None if one has. Each pair is compared in constant time."""
    own = [hmac.digest(secret.encode(), signed, "sha256").hex().encode() for secret in secrets]
    matches = [hmac.compare_digest(one.encode(errors="replace"), mine) for mine in own for one in signatures]
    return None if any(matches) else f"No signature in {header} matches the body."
