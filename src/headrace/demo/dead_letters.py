"""All dead letters that the api keeps."""

from __future__ import annotations

import httpx
from pydantic import ValidationError

from headrace.errors import ApiError, ApiUnavailable
from headrace.wire.status import DeadLetterPage, DeadLetterSummary

PAGE = 500


def fetch_dead_letters(url: str) -> list[DeadLetterSummary]:
    """Return every dead letter that the api at `url` keeps, the newest first. Raises `ApiError`."""
    found: list[DeadLetterSummary] = []
    before: str | None = None
    with httpx.Client(base_url=url, timeout=30.0) as client:
        while True:
            page = _page(client, before)
            found += page.dead_letters
            if page.before is None:
                return found
            before = page.before


def _page(client: httpx.Client, before: str | None) -> DeadLetterPage:
    parameters: dict[str, str | int] = {"limit": PAGE} | ({} if before is None else {"before": before})
    try:
        answer = client.get("/api/v1/dead-letters", params=parameters)
        answer.raise_for_status()
        return DeadLetterPage.model_validate_json(answer.content)
    except httpx.HTTPStatusError as error:
        raise ApiError(f"The api refused to list the dead letters: {error}", status=error.response.status_code) from error
    except httpx.TransportError as error:
        raise ApiUnavailable(f"The api at {client.base_url} cannot be reached: {error}") from error
    except ValidationError as error:
        raise ApiError("The api answered with dead letters of another kind than expected.") from error
