"""The schemes by which an `Http` upstream verifies its senders, by name, and the id of a delivery in each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from headrace.core.connection import Connection
from headrace.core.signatures import standard_webhooks
from headrace.core.signatures.credentials import basic_rejection, bearer_rejection
from headrace.core.signatures.providers import github_rejection, slack_rejection, stripe_rejection

Rejection: TypeAlias = Callable[[Sequence[str], Mapping[str, str], bytes, float], str | None]
"""Returns why a request with these secrets, headers (names in lower case) and body is refused at this time, or None."""

FURTHER_SECRETS: Final = "passwords"
"""The field of a connection's `extra` with further valid secrets, a text or a list of texts."""


class Scheme(NamedTuple):
    """How requests are verified, and where the sender's id of a delivery is: in a header, or in a field of the body.

    `challenge` is the value of WWW-Authenticate in the response to invalid credentials. It is None for signatures, which cover the body.
    """

    rejection: Rejection
    id_headers: tuple[str, ...] = ()
    id_field: str | None = None
    challenge: str | None = None

    def delivery_id(self, headers: Mapping[str, str], value: Any) -> str | None:
        """Return the sender's id, which is the same for each attempt, or None."""
        for name in self.id_headers:
            if headers.get(name):
                return headers[name]
        field = value.get(self.id_field) if self.id_field is not None and isinstance(value, dict) else None
        return field if isinstance(field, str) and field else None


def _accepted(secrets: Sequence[str], headers: Mapping[str, str], body: bytes, now: float) -> str | None:
    del secrets, headers, body, now
    return None


_IDS: Final = (standard_webhooks.ID, "idempotency-key")
SCHEMES: Final[Mapping[str, Scheme]] = {
    "standard-webhooks": Scheme(standard_webhooks.rejection, (standard_webhooks.ID,)),
    "github": Scheme(github_rejection, ("x-github-delivery",)),
    "stripe": Scheme(stripe_rejection, (), "id"),
    "slack": Scheme(slack_rejection, (), "event_id"),
    "bearer": Scheme(bearer_rejection, _IDS, None, "Bearer"),
    "basic": Scheme(basic_rejection, _IDS, None, 'Basic realm="headrace", charset="UTF-8"'),
    "none": Scheme(_accepted, _IDS),
}


def secrets_of(connection: Connection, scheme: str) -> tuple[str, ...]:
    """Return the valid secrets of a connection: its password, and those in `extra`. Raises `ValueError`, which never shows one."""
    further = connection.extra.get(FURTHER_SECRETS, [])
    texts = [connection.password, *([further] if isinstance(further, str) else further if isinstance(further, list) else [None])]
    secrets = [text for text in texts if isinstance(text, str) and text]
    if not secrets:
        raise ValueError(f"Connection '{connection.id}' has no password, which is the secret of the sender.")
    if len(secrets) < len(texts) and connection.password:
        raise ValueError(f"{FURTHER_SECRETS} of connection '{connection.id}' is neither a text nor a list of texts.")
    if scheme == "basic":
        if not connection.login:
            raise ValueError(f"Connection '{connection.id}' has no login, which basic authentication needs.")
        return tuple(f"{connection.login}:{secret}" for secret in secrets)
    if scheme == "standard-webhooks":
        for secret in secrets:
            standard_webhooks.key_of(secret)
    return tuple(secrets)
