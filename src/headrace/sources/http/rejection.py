"""A request that cannot become messages."""

from __future__ import annotations

from typing import NoReturn


class RequestRejected(Exception):
    """The request is rejected: status and problem type of the response, the reason in words, and what the sender can do."""

    def __init__(self, status: int, slug: str, detail: str, hint: str | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.slug = slug
        self.hint = hint


def reject_invalid(detail: str, hint: str | None = None) -> NoReturn:
    """Raise the rejection of an invalid request."""
    raise RequestRejected(400, "invalid", detail, hint)


def reject_too_large(detail: str, hint: str) -> NoReturn:
    """Raise the rejection of a request that is too large."""
    raise RequestRejected(413, "too-large", detail, hint)
