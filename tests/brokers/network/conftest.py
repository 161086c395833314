"""The upstream of each broker behind a proxy."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from support.sources.proxied import PROXIED, SHORT, Proxied

SHARED_CLIENT = "kafka_shards"
"""A kind whose client is that of another one."""
EACH_BROKER = [
    pytest.param(name, marks=[pytest.mark.xdist_group(f"network-{name}"), *([pytest.mark.exhaustive] if name == SHARED_CLIENT else [])])
    for name in PROXIED
]


@pytest.fixture(params=EACH_BROKER)
def proxied(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxied]:
    """Return an upstream with short timeouts."""
    for name, value in SHORT.get(request.param, {}).items():
        monkeypatch.setattr(f"headrace.sources.{name}", value)
    # pytest keeps log records with their exceptions, whose frames have connections.
    for library in ("psycopg", "aiormq"):
        monkeypatch.setattr(logging.getLogger(library), "disabled", True)
    yield from _calmed(PROXIED[request.param](short=True))


@pytest.fixture(params=EACH_BROKER)
def proxied_by_default(request: pytest.FixtureRequest) -> Iterator[Proxied]:
    """Return an upstream with the timeouts that it has by default."""
    yield from _calmed(PROXIED[request.param](short=False))


def _calmed(proxied: Proxied) -> Iterator[Proxied]:
    proxied.proxy.calm()
    try:
        yield proxied
    finally:
        proxied.proxy.calm()
        proxied.close()
