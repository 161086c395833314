"""Fixtures of the tests of the execution API."""

from __future__ import annotations

import pytest

from headrace.client.http import session


@pytest.fixture(autouse=True)
def _patient_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let clients wait for a connection: the server is a thread of this process, which may get little processor time."""
    monkeypatch.setattr(session, "CONNECT_SECONDS", 60.0)
