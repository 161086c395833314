"""The upstream `Postgres` fulfils the contract of sources, with a progress table and without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.testing import Broker, SourceContract
from support.sources.postgres import PostgresBroker, PostgresSlotBroker, shared

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("postgres")]


class TestPostgres(SourceContract):
    def make_broker(self, folder: Path) -> Broker:
        return PostgresBroker(shared())


class TestPostgresWithoutProgressTable(SourceContract):
    def make_broker(self, folder: Path) -> Broker:
        return PostgresSlotBroker(shared())
