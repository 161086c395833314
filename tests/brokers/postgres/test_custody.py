"""PostgreSQL through real processes: triggerers that are killed, the audit, and a slot that was dropped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.processes.deployment import Deployment, until
from support.sources.postgres import OutboxTable
from support.sources.reading import numbers

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("postgres"), pytest.mark.timeout(300)]

PROJECT = """
from headrace import Postgres, Project

project = Project("shop")
outbox = Postgres({table!r}, slot={table!r}, connection={connection!r}, format="outbox", payload="body", lane="lane"{progress})
project.watch("orders", outbox, id="$.n")
"""


@pytest.fixture
def deployment(tmp_path: Path, table: OutboxTable) -> Iterator[Deployment]:
    with Deployment.with_short_leases(tmp_path) as deployment:
        deployment.share_connection(table.connection)
        yield deployment


def project(deployment: Deployment, table: OutboxTable, *, progress: bool) -> Path:
    argument = f", progress_table='progress_{table.name}'" if progress else ""
    return deployment.project(PROJECT.format(table=table.name, connection=table.connection, progress=argument))


@pytest.mark.parametrize("progress", [False, True])
def test_killed_triggerers_store_each_row_once_and_the_audit_balances(
    deployment: Deployment, table: OutboxTable, *, progress: bool
) -> None:
    path = project(deployment, table, progress=progress)
    for first in range(0, 3_000, 1_000):
        table.send(numbers(first, first + 500), "eu")
        table.send_together(numbers(first + 500, first + 1_000), "us")
        end = table.lsn()  # later, the progress table is written
        triggerer = deployment.triggerer(path)
        deployment.wait_for_more_events(first)
        triggerer.kill()
    deployment.triggerer(path)
    until(lambda: deployment.count_events() == 3_000, "all rows are stored")
    until(lambda: table.confirmed() >= end, "all transactions are confirmed")
    deployment.balanced_stream()
    assert deployment.count_events() == 3_000


def test_a_slot_that_was_dropped_between_two_readers_is_reported(deployment: Deployment, table: OutboxTable) -> None:
    path = project(deployment, table, progress=False)
    table.send(numbers(0, 10))
    end = table.lsn()
    triggerer = deployment.triggerer(path)
    until(lambda: deployment.count_events() == 10 and table.confirmed() >= end, "the rows are stored and confirmed")
    triggerer.kill()
    until(
        lambda: not table.execute("SELECT 1 FROM pg_replication_slots WHERE active AND slot_name = %s", values=[table.slot]), "it is free"
    )
    table.drop_slot()
    deployment.triggerer(path)
    deployment.wait_for_status("Changes are lost")
    assert not table.execute("SELECT 1 FROM pg_replication_slots WHERE slot_name = %s", values=[table.slot])
