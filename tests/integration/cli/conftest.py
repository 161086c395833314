"""Fixtures of the tests of the command line."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.processes.execution_api import Api, serving


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Return an API server that the tests of a module share."""
    with serving(tmp_path_factory.mktemp("api")) as running:
        yield running
