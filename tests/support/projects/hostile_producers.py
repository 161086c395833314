"""Odd upstreams: each kind is one thing that a producer does wrong. The soak copies this file beside its project file."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final

from headrace.core.ledger.outcome import AdvanceItem
from headrace.triggers.raw_event import RawEvent
from headrace.triggers.upstream import SharedStreamProducer, Upstream
from hostile_triggers import ERRORS, NamelessError, SilentError


class Unhashable:
    """A lane that cannot be a key."""

    __hash__ = None  # type: ignore[assignment]


class BadHash:
    """A lane whose hash raises."""

    def __hash__(self) -> int:
        raise ValueError("no hash")


class BadEquality:
    """A lane that cannot be compared."""

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        raise ValueError("no comparison")


class BadText:
    """A lane that cannot be shown."""

    def __repr__(self) -> str:
        raise SilentError


YIELDS: Final[dict[str, Callable[[int], Any]]] = {
    "no tuple": lambda n: n,
    "None": lambda n: None,
    "three": lambda n: (n, n, n),
    "a raw event of None": lambda n: (None, n),
    "a raw event of an object": lambda n: (object(), n),
    "a raw event of bytes": lambda n: (b"\xff", n),
    "a raw event of a set": lambda n: ({1, 2}, n),
    "a dict with an object": lambda n: ({"n": object()}, n),
    "a dict with NaN": lambda n: ({"n": float("nan")}, n),
    "a dict with a surrogate": lambda n: ({"n": "\ud800"}, n),
    "a dict that is deep": lambda n: (_deep(3_000), n),
    "the same dict": lambda n: (_SAME, n),
    "text that is no JSON": lambda n: (RawEvent(b"{", "a", n), n),
}

LANES: Final[dict[str, Callable[[int], Any]]] = {
    "a list": lambda n: [n],
    "unhashable": lambda n: Unhashable(),
    "bad hash": lambda n: BadHash(),
    "bad equality": lambda n: BadEquality(),
    "bad text": lambda n: BadText(),
    "a surrogate": lambda n: "\ud800",
    "NUL": lambda n: "\0",
    "NaN": lambda n: float("nan"),
    "bytes": lambda n: b"\xff",
    "long": lambda n: "x" * 100_000,
    "a lane each": lambda n: f"lane-{n}",
}

POSITIONS: Final[dict[str, Callable[[int], Any]]] = {
    "a fraction": lambda n: n + 0.5,
    "a text": lambda n: f"{n}-0",
    "a bool": lambda n: True,
    "negative": lambda n: -n,
    "huge": lambda n: 2**70 + n,
    "NaN": lambda n: float("nan"),
    "the same": lambda n: 7,
    "backwards": lambda n: 1_000_000 - n,
    "None": lambda n: None,
}

METHODS: Final = ("get_advance_lane", "get_position", "get_committed", "get_lane_end", "advance", "aclose", "open_stream", "next")
RAISED: Final = (
    "ValueError",
    "error with a surrogate",
    "error that cannot be told",
    "SystemExit",
    "KeyboardInterrupt",
    "CancelledError",
    "StopIteration",
)
HANGS: Final = ("advance", "aclose", "open_stream")
BLOCKS: Final[dict[str, tuple[str, ...]]] = {
    "sleeps": ("get_advance_lane", "get_position", "get_lane_end", "advance", "aclose", "open_stream", "next"),
    "holds the interpreter": ("advance", "next"),
    "ends its process": ("advance", "next", "get_position"),
}
"""What holds up or ends the whole process, and the methods that do it."""

KINDS: Final = (
    *(f"yields {name}" for name in YIELDS),
    *(f"lane: {name}" for name in LANES),
    *(f"position: {name}" for name in POSITIONS),
    *(f"committed: {name}" for name in POSITIONS),
    *(f"end: {name}" for name in POSITIONS),
    *(f"{method} raises {name}" for method in METHODS for name in RAISED),
    *(f"{method} hangs" for method in HANGS),
    *(f"{method} {how}" for how, methods in BLOCKS.items() for method in methods),
    "returns at once",
    "is no generator",
    "swallows cancellations",
    "constructor raises",
)
"""What an odd producer can be."""

_SAME: Final[dict[str, Any]] = {"tick": True}


def _deep(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


class OddUpstream(Upstream):
    """An upstream of this kind, that is good until the file `running` is there."""

    def __init__(self, kind: str, running: str) -> None:
        self._kind = kind
        self._running = running

    def stream_key(self) -> str:
        return f"odd:{self._kind}"

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "hostile_producers.OddUpstream", {"kind": self._kind, "running": self._running}

    def producer(self) -> SharedStreamProducer:
        if self._kind == "constructor raises" and Path(self._running).exists():
            raise NamelessError("no producer")
        return OddProducer(self._kind, Path(self._running))

    @property
    def event_type(self) -> str:
        return "odd"


class OddProducer(SharedStreamProducer):
    """Yields a message every 2 s, and is odd in one way."""

    def __init__(self, kind: str, running: Path) -> None:
        self._kind = kind
        self._running = running

    def open_stream(self) -> AsyncIterator[tuple[Any, Any]]:
        if self._kind == "is no generator" and self._running.exists():
            return [1, 2, 3]  # type: ignore[return-value]
        return self._stream()

    async def _stream(self) -> AsyncIterator[tuple[Any, Any]]:
        while not self._running.exists():
            await asyncio.sleep(0.5)
        self._misbehave("open_stream")
        if self._kind == "open_stream hangs":
            await asyncio.Event().wait()
        if self._kind == "returns at once":
            return
        for n in count():
            yield self._yielded(n)
            await self._pause()
            if n:
                self._misbehave("next")

    async def _pause(self) -> None:
        try:
            await asyncio.sleep(2)
        except asyncio.CancelledError:
            if self._kind != "swallows cancellations":
                raise
            await asyncio.sleep(30)

    def _yielded(self, n: int) -> Any:
        make = YIELDS.get(self._kind.removeprefix("yields "))
        return (RawEvent(b'{"n":%d}' % n, "a", n), n) if make is None else make(n)

    def _misbehave(self, method: str) -> None:
        if self._kind == f"{method} sleeps":
            time.sleep(600)
        if self._kind == f"{method} holds the interpreter":
            re.match("(a+)+$", "a" * 100 + "b")
        if self._kind == f"{method} ends its process":
            os._exit(3)
        if self._kind.startswith(f"{method} raises "):
            name = self._kind.removeprefix(f"{method} raises ")
            if name == "SystemExit":
                sys.exit(5)
            error = ERRORS[name]()
            raise error

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        self._misbehave("advance")
        if self._kind == "advance hangs":
            await asyncio.Event().wait()

    def get_advance_lane(self, broker_payload: Any) -> Any:
        self._misbehave("get_advance_lane")
        return self._odd("lane", LANES, broker_payload, "a")

    def get_position(self, broker_payload: Any) -> Any:
        self._misbehave("get_position")
        return self._odd("position", POSITIONS, broker_payload, broker_payload)

    def get_lane_end(self, lane: Any) -> Any:
        self._misbehave("get_lane_end")
        return self._odd("end", POSITIONS, 1, None)

    def get_committed(self, lane: Any) -> Any:
        self._misbehave("get_committed")
        return self._odd("committed", POSITIONS, 1, None)

    def _odd(self, what: str, table: dict[str, Callable[[int], Any]], n: Any, plain: Any) -> Any:
        make = table.get(self._kind.removeprefix(f"{what}: ")) if self._kind.startswith(f"{what}: ") else None
        return plain if make is None else make(n)

    async def aclose(self) -> None:
        self._misbehave("aclose")
        if self._kind == "aclose hangs":
            await asyncio.Event().wait()
