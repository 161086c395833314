"""Fetch all dead letters."""

from __future__ import annotations

from headrace.client.admin.client import AdminClient
from headrace.wire.calls import admin as calls
from headrace.wire.status.status import DeadLetterSummary

PAGE = 500


def fetch_dead_letters(url: str) -> list[DeadLetterSummary]:
    """Return all dead letters of the API server at `url`, the newest first. Raises `ApiError`."""
    dead_letters: list[DeadLetterSummary] = []
    before: str | None = None
    with AdminClient(url) as client:
        while True:
            page = client.read(calls.LIST_DEAD_LETTERS, {"limit": PAGE, "before": before})
            dead_letters += page.dead_letters
            if page.before is None:
                return dead_letters
            before = page.before
