"""A store on each database, with a clock that moves only on request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.store import Store
from support.processes.store import DATABASES, TurnedClock, opened


@pytest.fixture
def clock() -> TurnedClock:
    return TurnedClock()


@pytest.fixture(params=DATABASES)
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: TurnedClock) -> Iterator[Store]:
    with opened(request.param, tmp_path, clock) as made:
        yield made
