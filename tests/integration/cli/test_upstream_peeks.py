"""`headrace upstreams peek` finds the upstream in the project, reads its connection as a job, and prints messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from headrace import BaseEventTrigger, Kafka, Project, Queue
from headrace.errors import UsageError
from headrace.sources.queue.writer import QueueWriter
from headrace.store.tables.control import jobs
from headrace.triggers.upstream import SharedStreamProducer
from headrace.wiring.upstreams import find_upstream
from support.processes.broker_server import connection_variable
from support.processes.command_line import CommandResult, headrace
from support.processes.execution_api import Api

DECLARED = """
from headrace import Directory, Kafka, Nats, Project, Queue, RedisStreams

project = Project("shop")
project.watch("orders", Queue("orders.queue"))
project.watch("lines", Directory("in"))
project.watch("kafka", Kafka("orders", group="shop"))
project.watch("redis", RedisStreams("orders", group="shop"))
project.watch("nats", Nats("orders.>", stream="ORDERS", durable="shop"))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "project.py").write_text(DECLARED)
    (tmp_path / "in").mkdir()
    return tmp_path


def run(folder: Path, *arguments: str, **environment: str) -> CommandResult:
    """Run the command without an API server."""
    words = ("upstreams", "peek", *arguments, "-p", str(folder / "project.py"))
    return headrace(*words, cwd=folder, HEADRACE_HOME="/nonexistent", **environment)


def test_messages_are_printed_as_triggers_get_them(folder: Path) -> None:
    with QueueWriter(folder / "orders.queue") as queue:
        queue.send({"n": 1}, key="Ada")
        queue.send({"text": "x" * 2_000})
    result = run(folder, "orders", "--json")
    seen = json.loads(result.stdout)
    assert (seen["stream"], seen["notes"]) == (f"queue:{folder / 'orders.queue'}", [])
    assert [(one["position"], one["key"], one["raw"][:9], one["malformed"]) for one in seen["messages"]] == [
        (1, "Ada", '{"n":1}', None),
        (2, None, '{"text":"', None),
    ]


@pytest.mark.slow
def test_a_table_has_one_line_for_each_message_and_an_empty_upstream_a_sentence(folder: Path) -> None:
    assert "There are no messages that are not advanced." in run(folder, "lines").stdout
    (folder / "in" / "a.jsonl").write_text("no json\n" + '{"text": "' + "x" * 2_000 + '"}\n')
    lines = run(folder, "lines").stdout.splitlines()
    assert lines[0].split() == ["lane", "position", "time", "key", "headers", "value", "malformed"]
    assert "Not valid JSON" in lines[1]
    assert len(lines) == 3
    assert len(lines[2]) < 1_200


@pytest.mark.slow
def test_an_unknown_name_lists_the_upstreams(folder: Path) -> None:
    result = run(folder, "nothing")
    assert (result.returncode, "Traceback" in result.stderr) == (2, False)
    said = " ".join(result.stderr.split())
    assert "The project shop has no upstream 'nothing'." in said
    assert "kafka:kafka/shop/orders" in said


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("orders",), ("lines", "--lane", "b.jsonl"), ("lines", "--count", "0")])
def test_wrong_input_exits_with_2(folder: Path, arguments: tuple[str, ...]) -> None:
    result = run(folder, *arguments)
    assert (result.returncode, bool(result.stderr), "Traceback" in result.stderr) == (2, True, False)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kafka", "redis", "nats"])
def test_a_connection_is_read_as_a_job_and_a_missing_one_is_named(api: Api, folder: Path, name: str) -> None:
    result = api.run("upstreams", "peek", name, "-p", str(folder / "project.py"))
    assert (result.returncode, f"'{name}'" in result.stderr, "Traceback" in result.stderr) == (2, True, False), result.stderr
    with api.store.reading() as connection:
        assert set(connection.execute(select(jobs.c.state)).scalars()) == {"succeeded"}


@pytest.mark.slow
def test_a_stored_connection_needs_the_deployment_key(api: Api, folder: Path) -> None:
    keyless = api.run("upstreams", "peek", "redis", "-p", str(folder / "project.py"), key="")
    assert (keyless.returncode, "HEADRACE_KEY" in keyless.stderr) == (2, True)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["kafka", "redis", "nats"])
def test_a_broker_that_does_not_answer_is_named(folder: Path, kind: str) -> None:
    result = run(folder, kind, **{connection_variable(kind): f"{kind}://127.0.0.1:1"})
    assert (result.returncode, "Traceback" in result.stderr) == (1, False), result.stderr
    assert "hint:" in result.stderr


class Filter(BaseEventTrigger):
    """A trigger in Python on a built-in upstream, or on one of its own."""

    def __init__(self, own: bool = False) -> None:
        super().__init__()
        self._own = own

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.Filter", {"own": self._own}

    def shared_stream_key(self) -> str:
        return "own" if self._own else "filtered"

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        producer = Queue("/var/orders.queue").producer()
        if kwargs["own"]:
            producer.upstream = None
        return producer


class Alone(BaseEventTrigger):
    """Polls alone."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.Alone", {}

    def shared_stream_key(self) -> None:
        return None


def test_an_upstream_is_named_by_its_stream_or_by_a_trigger() -> None:
    project = Project("shop")
    project.watch("orders", Queue("/var/orders.queue"))
    project.trigger("filter", Filter())
    project.trigger("own", Filter(own=True))
    project.trigger("alone", Alone())
    for name in ("orders", "queue:/var/orders.queue"):
        stream, upstream = find_upstream(project, name)
        assert (stream, type(upstream)) == ("queue:/var/orders.queue", Queue)
    stream, upstream = find_upstream(project, "filter")
    assert (stream, type(upstream)) == ("filtered", Queue)
    assert find_upstream(project, "own") == ("own", None)
    with pytest.raises(UsageError, match="polls alone"):
        find_upstream(project, "alone")
    with pytest.raises(UsageError, match="no upstream 'nothing'"):
        find_upstream(project, "nothing")


def test_the_name_of_a_shard_stands_for_the_whole_upstream() -> None:
    project = Project("shop")
    project.watch("orders", Kafka("orders", group="shop", shards=2))
    streams = {one.stream for one in project.declaration().triggers}
    assert len(streams) == 2
    for name in (*streams, "orders", "kafka:kafka/shop/orders"):
        assert find_upstream(project, str(name))[0] == "kafka:kafka/shop/orders"
