"""`headrace upstreams seek` on streams of NATS: messages are skipped or read again, also while triggerers are killed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headrace.errors import UpstreamError
from headrace.sources.seeks.seek import preview_seek
from headrace.sources.seeks.target import parse_target
from headrace.testing.contract.reading import reading
from support.processes.deployment import Deployment, until
from support.processes.seeks import SeekScene
from support.sources.nats import MakeStream, NatsStream
from support.sources.reading import numbers

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("nats-seeks"), pytest.mark.timeout(300)]

PROJECT = """
from headrace import Nats, Project

project = Project("shop")
project.watch("orders", Nats({subjects!r}, stream={stream!r}, durable="shop", connection={connection!r}))
"""

BETWEEN = "between deletion and creation"
KILLS = [("go", "before begin"), ("go", "before finish"), ("go", BETWEEN), ("package", BETWEEN)]
"""The version of the server, and when a triggerer is killed. Both versions run the kill after a deletion, which NATS 2.9 answered with
an error although the consumer was deleted.
"""


class Scene(SeekScene):
    """A deployment whose project reads one stream."""

    def __init__(self, deployment: Deployment, stream: NatsStream, *subjects: str) -> None:
        project = PROJECT.format(subjects=list(subjects) or ">", stream=stream.name, connection=stream.connection)
        super().__init__(deployment, project, stream.connection)
        self.stream = stream

    def acknowledged(self, sequence: int, subject: str = ">") -> None:
        until(lambda: self.stream.floor(subject) == sequence, f"message {sequence} of {subject} is acknowledged")


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with Deployment.with_short_leases(tmp_path / "deployment") as deployment:
        yield deployment


def test_a_running_triggerer_skips_and_reads_again(deployment: Deployment, stream: NatsStream) -> None:
    scene = Scene(deployment, stream)
    stream.send(numbers(0, 100))
    triggerer = deployment.triggerer(scene.project)
    scene.acknowledged(100)
    (again,) = scene.seek("41")["seeks"]
    assert (again["state"], again["skipped"], again["read_again"]) == ("done", 0, 60)
    scene.acknowledged(100)
    stream.send(numbers(100, 110))
    scene.acknowledged(110)
    assert deployment.count_events() == 110, "a message that is read again is no other event"
    assert scene.ranges() == [(">", "read again", 41, 100)]
    triggerer.stop()
    stream.send(numbers(110, 200))
    preview = scene.seek("latest", "--dry-run")
    assert [(one["first"], one["end"], one["now"], one["position"]) for one in preview["lanes"]] == [(1, 201, 111, 201)]
    assert (preview["skipped"], preview["read_again"]) == (90, 0)
    assert stream.floor() == 110, "a preview moves nothing"
    (planned,) = scene.seek("latest", "--yes")["seeks"]
    assert planned["state"] == "planned", "nobody reads the stream"
    stream.send(numbers(200, 220))
    deployment.triggerer(scene.project)
    scene.acknowledged(220)
    assert deployment.count_events() == 130
    assert scene.ranges() == [(">", "read again", 41, 100), (">", "skipped", 111, 200)]
    scene.seek("151")
    until(lambda: deployment.count_events() == 180, "a part of the skipped messages")
    scene.acknowledged(220)
    assert scene.ranges()[1:] == [(">", "read again", 151, 220), (">", "skipped", 111, 200)]
    assert stream.consumers() == [stream.consumer()]


@pytest.mark.parametrize(("version", "killed"), KILLS, indirect=["version"])
def test_a_triggerer_that_is_killed_in_a_seek_is_followed_by_one_that_completes_it(
    deployment: Deployment, stream: NatsStream, killed: str
) -> None:
    scene = Scene(deployment, stream)
    stream.send(numbers(0, 100))
    first = deployment.triggerer(scene.project)
    scene.acknowledged(100)
    first.stop()
    scene.seek("41")
    scene.kill_in("begin" if killed == "before begin" else "finish")
    begins_at = stream.begins_at()
    if killed == "before begin":
        assert (stream.floor(), begins_at, scene.seeks()[0]["state"]) == (100, None, "planned")
    else:
        assert (begins_at, scene.seeks()[0]["state"]) == (41, "moving")
    if killed == BETWEEN:
        stream.leave_floor_consumer()
    stream.send(numbers(100, 103))
    deployment.triggerer(scene.project)
    scene.is_done()
    scene.acknowledged(103)
    assert deployment.count_events() == 103
    assert scene.ranges() == [(">", "read again", 41, 100)]
    assert stream.consumers() == [stream.consumer()]


@pytest.mark.parametrize("version", ["go"], indirect=True)
def test_a_named_lane_skips_to_a_time(deployment: Deployment, stream: NatsStream) -> None:
    one, other = f"{stream.name}.a", f"{stream.name}.b"
    scene = Scene(deployment, stream, one, other)
    stream.send(numbers(0, 10), "a")
    stream.send(numbers(10, 20), "b")
    first = deployment.triggerer(scene.project)
    scene.acknowledged(10, one)
    scene.acknowledged(20, other)
    first.stop()
    stream.send(numbers(20, 30), "a")
    stream.send(numbers(30, 40), "b")
    time = stream.time_of(36)
    scene.seek(f"{one}=earliest,{other}={time}", "--yes")
    deployment.triggerer(scene.project)
    scene.is_done()
    scene.acknowledged(30, one)
    scene.acknowledged(40, other)
    assert deployment.count_events() == 35
    assert scene.ranges() == [(one, "read again", 1, 10), (other, "skipped", 21, 35)]
    deployment.balanced_stream()


async def test_a_preview_shows_sequences_and_rejects_what_does_not_fit(make_stream: MakeStream) -> None:
    stream = make_stream()
    stream.send(numbers(0, 10), "a")
    stream.server.api(f"STREAM.PURGE.{stream.name}", {"seq": 4})
    upstream = stream.upstream("a", "b", start="latest")

    async def positions(to: str) -> list[tuple[str, int, int, int]]:
        found = await preview_seek(upstream, parse_target(to))
        return [(one.lane.rpartition("@")[0].rpartition(".")[2], one.first, one.now, one.position) for one in found]

    assert await positions("earliest") == [("a", 4, 11, 4), ("b", 4, 11, 4)]
    assert await positions(f"{stream.name}.a=7") == [("a", 4, 11, 7)]
    assert await positions("2100-01-01T00:00:00Z") == [("a", 4, 11, 11), ("b", 4, 11, 11)]
    assert stream.consumers() == [], "a preview creates no consumer"
    for to, text in (
        (f"{stream.name}.c=5", "There is no lane"),
        (f"{stream.name}.a=3", "from 4 to before 11"),
        (f"{stream.name}.a=12", "from 4 to before 11"),
        ("5", "One position does not fit 2 lanes"),
    ):
        with pytest.raises(UpstreamError, match=text):
            await preview_seek(upstream, parse_target(to))
    upstream = stream.upstream("a")
    async with reading(upstream.producer()) as read:
        await read.advance((await read.take(7))[:2])
    assert await positions("latest") == [("a", 4, 6, 11)]
    with pytest.raises(UpstreamError, match="a work queue deletes the messages that are answered"):
        await preview_seek(make_stream(retention="workqueue").upstream(), parse_target("earliest"))
    assert datetime.now(UTC) > datetime.fromisoformat(stream.time_of(10))
