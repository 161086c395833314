"""Errors of redis-py and the server as errors of Headrace: what failed, why, and what to do."""

from __future__ import annotations

from typing import Final

from headrace.errors import HeadraceError, StreamError, UpstreamError

CREDENTIALS: Final = "Correct the login and the password of the connection."
REJECTED: Final = {
    "WRONGPASS": CREDENTIALS,
    "NOAUTH": CREDENTIALS,
    "NOPERM": "Give the user the commands and keys that the guide on Redis Streams lists.",
    "WRONGTYPE": "Name the key of a stream.",
    "unknown command": "Use Redis 7.0, Valkey 7.2 or newer.",
    "DB index is out of range": "Correct the database of the connection.",
    "cluster mode": "Use a server without cluster mode.",
    "CROSSSLOT": "Use a server without cluster mode.",
    "MOVED": "Use a server without cluster mode.",
    "CERTIFICATE_VERIFY_FAILED": "Give the connection ca_certs, or a host that its certificate names.",
}
"""Parts of errors that another attempt does not change, with what to do."""
AWAY_HINT: Final = "Is the server running? Are host and port of the connection right, and TLS?"


class ServerAway(StreamError):
    """The server does not answer.

    Is the server running? The request is repeated.
    """


def is_away(error: BaseException) -> bool:
    """Return whether the server does not answer, and the same request may succeed later."""
    from redis import exceptions

    away = (exceptions.ConnectionError, exceptions.TimeoutError, OSError, TimeoutError)
    return isinstance(error, away) and hint_of(error) is None


def hint_of(error: BaseException) -> str | None:
    """Return what to do about an error that another attempt does not change, or None."""
    text = str(error)
    from redis import exceptions

    if isinstance(error, exceptions.AuthenticationError | exceptions.AuthorizationError):
        return CREDENTIALS
    if isinstance(error, exceptions.NoPermissionError):
        return REJECTED["NOPERM"]
    return next((hint for part, hint in REJECTED.items() if part in text), None)


def described(what: str, error: BaseException) -> HeadraceError:
    """Return the error of Headrace for an exception of the client. `what` names what failed."""
    if isinstance(error, HeadraceError):
        return error
    text = " ".join(str(error).split()).rstrip(". ") or type(error).__name__
    hint = hint_of(error)
    if hint is not None:
        return UpstreamError(f"{what}: {text}.", hint=hint)
    if is_away(error):
        return ServerAway(f"{what}: the server does not answer: {text}.", hint=AWAY_HINT)
    return StreamError(f"{what}: {text}.")
