"""The event pattern in a request: a JSON object that selects events by their payload."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator

from headrace.core.matching.payloads import pattern_text
from headrace.errors import ProjectError


def _check(pattern: dict[str, Any]) -> dict[str, Any]:
    try:
        pattern_text(pattern)
    except ProjectError as error:
        raise ValueError(str(error).removesuffix(".")) from error  # the API sends the hint of its cause
    return pattern


MatchPattern = Annotated[dict[str, Any], AfterValidator(_check)]
"""A valid event pattern."""
