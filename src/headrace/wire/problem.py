"""Errors on the wire: problem+json (RFC 9457) with a stable `type`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

PROBLEM_JSON = "application/problem+json"
PROBLEM_PREFIX = "https://headrace.dev/problems/"


class Problem(BaseModel):
    """One error. `type` is `PROBLEM_PREFIX` and a stable slug, such as `fenced`, `unauthorized`, `forbidden`, `not-found`, `invalid`,
    `unsupported-version`, `too-large`, `unavailable`, `storage-full`. `hint` says what to do.
    """

    model_config = ConfigDict(extra="ignore")

    type: str
    title: str
    status: int
    detail: str | None = None
    hint: str | None = None
