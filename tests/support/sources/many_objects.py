"""Many objects of a bucket, read by triggerers that are killed, and the proof that each was stored exactly once."""

from __future__ import annotations

import hashlib
import json
import os
import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple

import psutil

from support.processes import versitygw
from support.processes.broker_server import connection_variable
from support.processes.deployment import Deployment
from support.processes.versitygw import VersityGateway

CONNECTION = "soak_objects"
BUCKET = "many"
FOLDER_OBJECTS = 1_000
ETAG = "user.etag"
"""The extended attribute in which the server stores the ETag of an object."""
INTERVAL_SECONDS = 10.0
STALL_SECONDS = 300.0
"""Without another event for so long, the run has failed."""
CLI_SECONDS = 900.0
REMOVE_SECONDS = 1_800.0
PROJECT = """
from headrace import ObjectStore, Project

project = Project("soak")
project.watch("objects", ObjectStore("s3://{bucket}/in", connection={connection!r}, interval={interval}))
"""


class Shape(NamedTuple):
    """How many objects there are, and how often the triggerer is killed while they are read."""

    objects: int
    kills: int


def key_of(number: int) -> str:
    """Return the key of an object."""
    return f"in/{number // FOLDER_OBJECTS:06}/{number % FOLDER_OBJECTS:04}.json"


def body_of(number: int) -> bytes:
    """Return the content of an object."""
    return b'{"n":%d}\n' % number


def etag_of(number: int) -> str:
    """Return the ETag of an object."""
    return hashlib.md5(body_of(number)).hexdigest()


def soak(folder: Path, shape: Shape, seed: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Run the test, and return its figures. Raises `AssertionError` if an object is missing or was stored twice."""
    chance, figures = random.Random(seed), dict[str, Any]()
    versitygw.require()
    with ExitStack() as stack:
        server = VersityGateway(folder / "server", metadata="attributes")
        server.close_seconds = REMOVE_SECONDS
        stack.callback(server.close)
        figures["create_seconds"] = _timed(lambda: _create(server, folder / "server", shape.objects))
        say(f"{shape.objects:,} objects created")
        os.environ[connection_variable(CONNECTION)] = server.connection
        deployment = Deployment(folder / "deployment")
        deployment.share_connection(CONNECTION)
        stack.enter_context(deployment)
        run = Run(deployment, say)
        stack.callback(run.close)
        begun = time.monotonic()
        for stop in sorted(chance.sample(range(1, shape.objects), shape.kills)):
            run.start()
            run.wait_for(stop)
            run.kill()
        run.start()
        run.wait_for(shape.objects)
        figures["read_seconds"] = round(time.monotonic() - begun, 1)
        added = _add(server, shape.objects)
        figures["added_seconds"] = _timed(lambda: run.wait_for(shape.objects + len(added)))
        run.kill()
        run.start()
        server.put(BUCKET, "in/~last", b"last")
        figures["last_listing_seconds"] = _timed(lambda: run.wait_for(shape.objects + len(added) + 1))
        say("the last object of a complete listing is stored")
        figures["read_again"] = _judge(deployment, shape.objects, sorted([*added, "in/~last"]))
        figures |= run.figures()
    return figures


class Run:
    """The processes of one run and their memory."""

    def __init__(self, deployment: Deployment, say: Callable[[str], None]) -> None:
        self._deployment = deployment
        self._say = say
        self._project = deployment.project(PROJECT.format(bucket=BUCKET, connection=CONNECTION, interval=INTERVAL_SECONDS))
        self._peaks: dict[str, int] = {}
        self._pids = {"api": deployment.api.pid}
        self._over = Event()
        self._watch = Thread(target=self._sample, daemon=True)
        self._watch.start()
        self._kills: list[int] = []

    def start(self) -> None:
        """Start a triggerer."""
        self._triggerer = self._deployment.triggerer(self._project)
        self._pids["triggerer"] = self._triggerer.pid

    def kill(self) -> None:
        """Kill the triggerer with SIGKILL."""
        self._triggerer.kill()
        self._kills.append(self._deployment.count_events())
        self._say(f"triggerer killed, {self._kills[-1]:,} events")

    def wait_for(self, events: int) -> None:
        """Wait until there are so many events. Fail if there are more, or if their number does not grow for STALL_SECONDS."""
        last, limit = -1, time.monotonic() + STALL_SECONDS
        while (count := self._deployment.count_events()) < events:
            if count != last:
                last, limit = count, time.monotonic() + STALL_SECONDS
            assert time.monotonic() < limit, f"{count:,} of {events:,} events, and no more for {STALL_SECONDS:g} s"
            time.sleep(0.5)

    def figures(self) -> dict[str, Any]:
        """Return the peak memory of the processes in MB, and the number of events at each kill."""
        return {"peak_memory_mb": {name: size >> 20 for name, size in sorted(self._peaks.items())}, "events_at_kills": self._kills}

    def close(self) -> None:
        """End the measurement."""
        self._over.set()
        self._watch.join()

    def _sample(self) -> None:
        while not self._over.wait(0.25):
            for name, pid in list(self._pids.items()):
                self._peaks[name] = max(self._peaks.get(name, 0), _memory(pid))


def _timed(action: Callable[[], None]) -> float:
    """Run an action, and return its seconds."""
    begun = time.monotonic()
    action()
    return round(time.monotonic() - begun, 1)


def _memory(pid: int) -> int:
    """Return the resident memory of a process and its children in bytes."""
    size = 0
    try:
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            size += one.memory_info().rss
    except psutil.NoSuchProcess:
        pass
    return size


def _create(server: VersityGateway, data: Path, objects: int) -> None:
    """Write the objects into the folder of the server, as it does itself, and compare some of them with what the server says."""
    server.client.create_bucket(Bucket=BUCKET)
    server.put(BUCKET, key_of(0), body_of(0))
    root = data / "versitygw-0" / "buckets" / BUCKET
    first = root / key_of(0)
    assert os.getxattr(first, ETAG) == b'"%s"' % etag_of(0).encode()
    for number in range(1, objects):
        target = root / key_of(number)
        if number % FOLDER_OBJECTS == 0:
            target.parent.mkdir(parents=True)
        target.write_bytes(body_of(number))
        os.setxattr(target, ETAG, b'"%s"' % etag_of(number).encode())
    for number in {0, objects // 2, objects - 1}:
        head = server.client.head_object(Bucket=BUCKET, Key=key_of(number))
        assert (head["ETag"].strip('"'), head["ContentLength"]) == (etag_of(number), len(body_of(number))), head


def _add(server: VersityGateway, objects: int) -> list[str]:
    """Write objects whose keys sort first, last and between others, and replace one. Return the keys."""
    keys = ["in/!first", f"{key_of(objects // 2)}-later", "in/z-late", key_of(objects // 3)]
    for key in keys:
        server.put(BUCKET, key, b"added")
    return keys


def _judge(deployment: Deployment, objects: int, added: list[str]) -> int:
    """Compare the events with the objects. Return how many raw events were read again after kills."""
    counts, others = bytearray(objects), list[str]()
    numbers = {key_of(number): number for number in range(objects)}
    for (payload,) in deployment.rows("SELECT payload FROM events ORDER BY seq"):
        value = json.loads(payload)
        number = numbers.get(value["key"])
        if number is not None and value["etag"] == etag_of(number):
            assert counts[number] == 0, f"{value['key']} was stored twice"
            counts[number] = 1
        else:
            others.append(value["key"])
    missing = [key_of(number) for number in range(objects) if not counts[number]]
    assert not missing, f"{len(missing):,} objects are missing: {missing[:20]}"
    assert sorted(others) == sorted(added), others
    audit = json.loads(deployment.cli("audit", "--json", seconds=CLI_SECONDS).stdout)
    (stream,) = audit["streams"]
    assert stream["problems"] == [], stream
    (trigger,) = stream["triggers"]
    assert trigger["balanced"], trigger
    return int(trigger["read"]) - objects - len(added)
