"""The load of a run of chaos: many streams, each with its own triggers, and a thread that sends and knows what it sent."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final, Self

from headrace.errors import UpstreamError
from headrace.sources.directory.upstream import Directory
from headrace.sources.queue.writer import QueueWriter
from headrace.triggers.upstream import Upstream
from support.chaos.plan import Shape
from support.processes.deployment import Feed, Trigger

PARTS: Final = 5  # messages are of so many kinds, and most triggers want one of them
TICK: Final = 0.1


class PartsFeed(Feed):
    """A queue whose messages also say of which kind they are. Each send is one message in one commit: all of it is there, or it is not."""

    def __enter__(self) -> Self:
        self._sender = self._exits.enter_context(QueueWriter(self.path))
        return self

    def send(self, count: int) -> range:
        first = self.sent
        for n in range(first, first + count):
            self._sender.send(self.message(n), lane=f"lane-{n % self.lanes}")
            self.sent += 1
        return range(first, self.sent)

    def message(self, n: int) -> dict[str, Any]:
        return {"n": n, "part": f"p{n % PARTS}"}


@dataclass
class FolderFeed:
    """Puts files into a folder: each file is a lane, each line a numbered message."""

    path: Path
    sent: int = 0
    _files: int = 0

    def send(self, count: int) -> None:
        lines = [json.dumps({"n": n, "part": f"p{n % PARTS}"}) for n in range(self.sent, self.sent + count)]
        fresh = self.path / f"{self._files:06}.part"
        fresh.write_text("".join(f"{line}\n" for line in lines))
        fresh.rename(self.path / f"{self._files:06}.jsonl")
        self._files += 1
        self.sent += count

    def left(self) -> int:
        """Return how many files are not done."""
        return len(list(self.path.glob("*.jsonl")))


@dataclass
class Stream:
    """One upstream, its feed and its triggers."""

    upstream: Upstream
    feed: PartsFeed | FolderFeed
    triggers: list[Trigger]

    def expected(self) -> dict[str, list[int]]:
        """Return on which messages each trigger is to fire, in the order of sending."""
        return {one.name: [n for n in range(self.feed.sent) if wants(one, n)] for one in self.triggers}


def wants(trigger: Trigger, n: int) -> bool:
    """Whether the trigger fires on message `n`."""
    if trigger.match is not None:
        return f"p{n % PARTS}" in trigger.match["part"]
    modulus, rest = (trigger.how or {}).get("only", (1, 0))
    return bool(n % modulus == rest)


@dataclass
class Load:
    """All streams of a run."""

    folder: Path
    shape: Shape
    seed: int
    streams: list[Stream] = field(default_factory=list)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Make the upstreams."""
        with ExitStack() as exits:
            for number in range(self.shape.queues):
                feed = exits.enter_context(PartsFeed(self.folder / f"queue-{number:02}"))
                self.streams.append(Stream(feed.queue, feed, triggers_of(f"q{number:02}", self.shape.triggers)))
            for number in range(self.shape.folders):
                path = self.folder / f"folder-{number:02}"
                path.mkdir()
                self.streams.append(Stream(Directory(path), FolderFeed(path), triggers_of(f"f{number:02}", self.shape.triggers)))
            yield

    @contextmanager
    def flowing(self) -> Iterator[None]:
        """Send all the while, in a thread: an upstream may be held up by a process that was stopped in the middle of a write."""
        over = Event()
        thread = Thread(target=self._send, args=(over,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(120)
        assert not thread.is_alive()

    def sent(self) -> int:
        return sum(stream.feed.sent for stream in self.streams)

    def left(self) -> dict[str, int]:
        """Return the streams of which something is left, and how much."""
        left = {stream.upstream.stream_key(): stream.feed.left() for stream in self.streams}
        return {name: count for name, count in left.items() if count}

    def expected(self) -> Mapping[str, list[int]]:
        """Return on which messages each trigger is to fire."""
        return {name: numbers for stream in self.streams for name, numbers in stream.expected().items()}

    def project_text(self) -> str:
        head = [
            "from headrace.project import Project",
            "from headrace.triggers.upstream import load_upstream",
            "from scenario_triggers import Behaving",
            'project = Project("chaos")',
        ]
        lines = [trigger.text(stream.upstream) for stream in self.streams for trigger in stream.triggers]
        return "\n".join([*head, *lines]) + "\n"

    def _send(self, over: Event) -> None:
        chance = random.Random(self.seed + 1)
        began = time.monotonic()
        while not over.is_set():
            due = int((time.monotonic() - began) * self.shape.messages) - self.sent()
            while due > 0:
                feed = chance.choice(self.streams).feed
                size = min(due, chance.randrange(1, 12))
                try:
                    feed.send(size)
                except UpstreamError:  # somebody stopped in the middle of a write; the rest is sent later
                    break
                due -= size
            over.wait(TICK)


def triggers_of(stream: str, count: int) -> list[Trigger]:
    """Return the triggers of one stream: of every five, one written in Python; of those declared, one wants everything."""
    made = []
    for number in range(count):
        name = f"{stream}-{number:02}"
        if number % 5 == 4:
            made.append(Trigger(name, how={"only": [PARTS, number // 5 % PARTS]}))
        elif number == 0:
            made.append(Trigger(name, declared=True))
        else:
            made.append(Trigger(name, declared=True, match={"part": [f"p{number % PARTS}"]}))
    return made
