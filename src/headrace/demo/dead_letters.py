"""All dead letters that the api keeps."""

from __future__ import annotations

from headrace.client.admin.client import AdminClient
from headrace.wire.status.status import DeadLetterPage, DeadLetterSummary

PAGE = 500


def fetch_dead_letters(url: str) -> list[DeadLetterSummary]:
    """Return every dead letter that the api at `url` keeps, the newest first. Raises `ApiError`."""
    found: list[DeadLetterSummary] = []
    before: str | None = None
    with AdminClient(url) as client:
        while True:
            page = DeadLetterPage.model_validate(client.dead_letters(limit=PAGE, before=before))
            found += page.dead_letters
            if page.before is None:
                return found
            before = page.before
