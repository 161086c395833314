"""Secrets of endpoints: they stay during an outage of the API, and end with their connection."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.errors import ApiRefused, ApiUnavailable
from headrace.receiver.endpoint import Endpoint
from headrace.receiver.secrets import SecretRefresher
from headrace.sources.http.upstream import Http
from headrace.triggers.secrets import SECRETS, Kind, SecretBackend
from headrace.wire.secrets import ConnectionValue, VariableValue


class Backend:
    """An API whose response a test sets."""

    def __init__(self) -> None:
        self.response: ConnectionValue | Exception = ApiUnavailable("away")

    async def ask(self, kind: Kind, name: str) -> ConnectionValue | VariableValue:
        assert (kind, name) == ("connection", "hook")
        if isinstance(self.response, Exception):
            raise self.response
        return self.response

    def use(self, response: ConnectionValue | Exception) -> None:
        """Respond so from now on. No earlier response stays cached."""
        self.response = response
        SECRETS.set_backend(SecretBackend(lambda *_: pytest.fail("a blocking call"), self.ask))


@pytest.fixture
def backend() -> Iterator[Backend]:
    backend = Backend()
    backend.use(backend.response)
    yield backend
    SECRETS.set_backend(None)


async def test_secrets_stay_until_the_connection_is_changed_or_removed(backend: Backend, tmp_path: Path) -> None:
    endpoint = Endpoint(Http("orders", verify="bearer", connection="hook", folder=tmp_path))
    refresher = SecretRefresher([endpoint])
    steps: list[tuple[ConnectionValue | Exception, tuple[str, ...] | None]] = [
        (ApiUnavailable("away"), None),
        (ConnectionValue(id="hook", kind="http", password="a"), ("a",)),
        (ApiUnavailable("away"), ("a",)),
        (ApiRefused("The job has ended.", status=409), ("a",)),
        (ConnectionValue(id="hook", kind="http", password="b", extra={"passwords": ["a"]}), ("b", "a")),
        (ConnectionValue(id="hook", kind="http"), None),
        (ConnectionValue(id="hook", kind="http", password="b"), ("b",)),
        (ApiRefused("There is no such connection.", status=404), None),
    ]
    for response, expected in steps:
        backend.use(response)
        await refresher.refresh()
        assert endpoint.secrets == expected, response


async def test_an_endpoint_without_verification_needs_no_connection(tmp_path: Path) -> None:
    endpoint = Endpoint(Http("orders", verify="none", folder=tmp_path))
    assert endpoint.secrets == ()
    await SecretRefresher([endpoint]).run()
