"""A store on each database, with a clock that moves only on request. `make test` runs these suites on SQLite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.store import Store
from support.processes.store import DATABASES, TurnedClock, opened

FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the suites on PostgreSQL as slow: the integration tests use it in `make test`, and `make test-all` runs all of them."""
    for item in items:
        parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        if FOLDER in item.path.parents and "postgresql" in parameters.values():
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def clock() -> TurnedClock:
    return TurnedClock()


@pytest.fixture(params=DATABASES)
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: TurnedClock) -> Iterator[Store]:
    with opened(request.param, tmp_path, clock) as made:
        yield made
