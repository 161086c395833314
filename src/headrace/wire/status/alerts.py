"""What needs a person's attention, as the page, `headrace status` and scripts are told of it."""

from __future__ import annotations

from typing import Literal

from headrace.wire.base import Timestamp, WireModel

Severity = Literal["error", "warning"]


class Alert(WireModel):
    """One thing that a person should know of; an `error` stays until a person acts or the failure ends.

    `about` names the thing for programs, and stays the same while the summary changes: `storage`, `process:pipeline`, `trigger:NAME`.
    `section` is the part of the page that shows more.
    """

    severity: Severity
    about: str
    summary: str
    section: str
    since: Timestamp | None = None
