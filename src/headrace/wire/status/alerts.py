"""Alerts: problems for an operator, on the page, in `headrace status` and for scripts."""

from __future__ import annotations

from typing import Literal

from headrace.wire.base import Timestamp, WireModel

Severity = Literal["error", "warning"]


class Alert(WireModel):
    """One problem. An `error` stays until an operator acts or the failure ends.

    `about` identifies the problem for programs, and does not change with the summary: `storage`, `process:pipeline`, `trigger:NAME`.
    `section` is the part of the page with the details.
    """

    severity: Severity
    about: str
    summary: str
    section: str
    since: Timestamp | None = None
