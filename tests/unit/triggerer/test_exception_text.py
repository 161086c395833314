"""Exceptions of users' code as text."""

from __future__ import annotations

from headrace.errors import UpstreamError
from headrace.triggerer.exception_text import failure


def test_the_message_of_a_failure_has_the_hint() -> None:
    assert failure(UpstreamError("Login refused.", hint="Correct the password.")).message == "Login refused. Correct the password."
    assert failure(ValueError("no such row")).message == "no such row"  # no secret of another test
