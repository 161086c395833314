"""Objects through real processes: triggerers and the server that are killed, and the audit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.processes.deployment import Deployment, until
from support.sources.objects import ObjectServer, TestBucket

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("objects-custody"), pytest.mark.timeout(300)]

PROJECT = """
from headrace import ObjectStore, Project

project = Project("shop")
project.watch("orders", ObjectStore({url!r}, connection={connection!r}, read={read!r}, interval=0.2))
"""
OBJECTS = 40
LINES = 25
READS = [
    ("s3", "metadata", 1),
    ("s3", "lines", LINES),
    pytest.param("gs", "lines", LINES, marks=pytest.mark.exhaustive),
    ("az", "lines", LINES),
]
"""The server, what is read, and the number of messages in each object. Reading metadata instead of lines depends on no server."""


@pytest.fixture
def own_bucket(own_server: ObjectServer) -> Iterator[TestBucket]:
    bucket = TestBucket(own_server)
    yield bucket
    bucket.close()


def state_of(bucket: TestBucket) -> Any:
    """Return the head, or an empty one before the first opening."""
    heads = [key for key in bucket.state_keys() if key.endswith("head.json")]
    if not heads:
        return {"open": [], "recent": ""}
    (head,) = heads
    return json.loads(bucket.server.get(bucket.name, head))


@pytest.mark.parametrize(("bucket", "read", "each"), READS, indirect=["bucket"])
def test_killed_triggerers_store_each_message_once_and_the_audit_balances(tmp_path: Path, bucket: TestBucket, read: str, each: int) -> None:
    with Deployment.with_short_leases(tmp_path) as deployment:
        deployment.share_connection(bucket.connection)
        path = deployment.project(PROJECT.format(url=bucket.url, connection=bucket.connection, read=read))
        for part in range(3):
            for number in range(OBJECTS):
                # The keys of later parts sort before those of earlier ones.
                bucket.put(
                    f"{9 - part}/{number:03}.jsonl", [b'{"part":%d,"object":%d,"line":%d}' % (part, number, n) for n in range(LINES)]
                )
            before = deployment.count_events()
            triggerer = deployment.triggerer(path)
            deployment.wait_for_more_events(before)
            triggerer.kill()
        deployment.triggerer(path)
        until(lambda: deployment.count_events() == 3 * OBJECTS * each, "all raw events are stored")
        until(lambda: not state_of(bucket)["open"], "all objects are finished")
        deployment.balanced_stream()
        assert deployment.count_events() == 3 * OBJECTS * each


def test_a_server_that_is_killed_and_started_again_loses_and_repeats_nothing(tmp_path: Path, own_bucket: TestBucket) -> None:
    bucket, server = own_bucket, own_bucket.server
    with Deployment.with_short_leases(tmp_path) as deployment:
        deployment.share_connection(bucket.connection)
        path = deployment.project(PROJECT.format(url=bucket.url, connection=bucket.connection, read="lines"))
        deployment.triggerer(path)
        for part in range(3):
            before = deployment.count_events()
            for number in range(OBJECTS):
                bucket.put(
                    f"{9 - part}/{number:03}.jsonl", [b'{"part":%d,"object":%d,"line":%d}' % (part, number, n) for n in range(LINES)]
                )
            deployment.wait_for_more_events(before)
            server.kill()
            server.start()
        until(lambda: deployment.count_events() == 3 * OBJECTS * LINES, "all raw events are stored")
        until(lambda: not state_of(bucket)["open"], "all objects are finished")
        deployment.balanced_stream()


@pytest.mark.parametrize("bucket", ["s3"], indirect=True)
def test_another_database_is_refused(tmp_path: Path, bucket: TestBucket) -> None:
    bucket.put("a.jsonl", [b"1"])
    for name in ("one", "two"):
        with Deployment.with_short_leases(tmp_path / name) as deployment:
            deployment.share_connection(bucket.connection)
            deployment.triggerer(deployment.project(PROJECT.format(url=bucket.url, connection=bucket.connection, read="lines")))
            if name == "one":
                until(lambda: len(state_of(bucket)["recent"]) > 0, "the object is finished")
            else:
                deployment.wait_for_status("it has another database")
