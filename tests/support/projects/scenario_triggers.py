"""Triggers and an upstream for the scenarios: a project file imports them from its own folder, where `scenario_kit` copies this file."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from time import sleep
from typing import Any, Self

from headrace.core.ledger.outcome import AdvanceItem
from headrace.sources.outgoing import LaneNames
from headrace.sources.queue.producer import QueueProducer
from headrace.sources.queue.upstream import Queue
from headrace.triggers.base import BaseEventTrigger
from headrace.triggers.event import SKIP, Handled, Reject, TriggerEvent
from headrace.triggers.upstream import SharedStreamProducer, Upstream, load_upstream


class Behaving(BaseEventTrigger):
    """Fires once on each message `{"n": …}`, and misbehaves as `how` says.

    `stuck_at`, `gate`: at this n it waits until the file is there. `hang_at`: at this n it waits for ever, once in its life.
    `cancel_at`: at this n it cancels itself, once. `fail_after`: it fires at this n and fails then, once.
    `late`: seconds its filter sleeps before it asks for the first message. `slow_start`: seconds its constructor blocks in a triggerer.
    `fail_turns`, `return_turns`: so many of its first turns raise, or return, before they ask for a message. `pause`: [m, seconds],
    it sleeps at each n that m divides. `reject`, `poison`: [m, r], it refuses, or always fails on, each n with n % m == r. `only`:
    [m, r], it skips all other n. `pids`: a folder in which it leaves a file named for each process that it runs in.
    `block_at`, `block`: at this n it holds up its process; `block` is how many seconds it sleeps, or `regex`, `burn` (for ever, in C),
    `segfault` or `exit`. `once`: a file that it leaves before; where that is, it does not. `until`: a file; it does each time until that
    is there.
    `strange_at`: at this n it fires what is no JSON.
    """

    def __init__(self, *, name: str, upstream: Mapping[str, Any], tag: str = "", how: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self._kwargs = {"name": name, "upstream": dict(upstream), "tag": tag, "how": dict(how or {})}
        self._name = name
        self._tag = tag
        self._how = dict(how or {})
        self._turns = 0
        self._hung = False
        if "slow_start" in self._how and os.environ.get("SCENARIO_TRIGGERER"):
            sleep(self._how["slow_start"])

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "scenario_triggers.Behaving", self._kwargs

    def shared_stream_key(self) -> str:
        return _upstream(self._kwargs).stream_key()

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        return _upstream(kwargs).producer()

    async def filter_shared_stream(self, stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        self._turns += 1
        if self._turns <= self._how.get("fail_turns", 0):
            raise RuntimeError(f"turn {self._turns} of {self._name} does not start")
        if self._turns <= self._how.get("return_turns", 0):
            return
        if "late" in self._how:
            await asyncio.sleep(self._how["late"])
        async for event in super().filter_shared_stream(stream):
            yield event
            if event.payload["n"] == self._how.get("fail_after") and not self._hung:
                self._hung = True
                raise RuntimeError(f"{self._name} has fired, and then it fails")

    async def handle(self, raw: Any) -> Handled:
        n = raw.value["n"]
        await self._wait_at(n)
        if self._is("poison", n):
            raise ValueError(f"{self._name} cannot bear {n}")
        if self._is("reject", n):
            return Reject(f"{self._name} refuses {n}")
        if "only" in self._how and not self._is("only", n):
            return SKIP
        if n == self._how.get("strange_at"):
            return TriggerEvent({"n": object()})
        return TriggerEvent({"n": n, "by": self._name, "tag": self._tag})

    async def _wait_at(self, n: int) -> None:
        how = self._how
        if n == how.get("hang_at") and not self._hung:
            self._hung = True
            await asyncio.Event().wait()
        if n == how.get("cancel_at") and not self._hung:
            self._hung = True
            raise asyncio.CancelledError
        if n == how.get("block_at") and not Path(how.get("once") or how["until"]).exists():
            if "once" in how:
                Path(how["once"]).touch()
            _block(how["block"])
        if n == how.get("stuck_at"):
            while not Path(how["gate"]).exists():
                await asyncio.sleep(0.05)
        if "pause" in how and n % how["pause"][0] == 0:
            await asyncio.sleep(how["pause"][1])

    def _is(self, what: str, n: int) -> bool:
        modulus, rest = self._how.get(what, (1, 1))
        return bool(n % modulus == rest)


class TroubledQueue(Queue):
    """A queue whose `advance` does what `how` says.

    `raise`: the first so many calls of this process raise. `hang`: the first so many never return. `lane`, `raise_until`: on this lane it
    raises until the file is there. `lane`, `hang_until`: on this lane it hangs until then.
    """

    def __init__(self, path: str | Path, lanes: LaneNames = None, how: Mapping[str, Any] | None = None) -> None:
        super().__init__(path, lanes)
        self._how = dict(how or {})

    def serialize(self) -> tuple[str, dict[str, Any]]:
        _, kwargs = super().serialize()
        return "scenario_triggers.TroubledQueue", kwargs | {"how": self._how}

    def relative_to(self, base: Path) -> Self:
        del base
        return self

    def producer(self) -> TroubledProducer:
        return TroubledProducer(self._path, self._lanes, self._how)


class TroubledProducer(QueueProducer):
    """The producer of a `TroubledQueue`. What it has done counts for the whole process: a stream that opens again goes on with it."""

    calls = 0

    def __init__(self, path: Path, lanes: LaneNames, how: Mapping[str, Any]) -> None:
        super().__init__(path, lanes)
        self._how = how

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        how = self._how
        TroubledProducer.calls += 1
        if TroubledProducer.calls <= how.get("raise", 0):
            raise OSError(f"advance number {TroubledProducer.calls} fails")
        if TroubledProducer.calls <= how.get("hang", 0):
            await asyncio.Event().wait()
        if batch[0].broker_payload.lane.split("@")[0] == how.get("lane"):
            if "raise_until" in how and not Path(how["raise_until"]).exists():
                raise OSError("this lane fails")
            while "hang_until" in how and not Path(how["hang_until"]).exists():
                await asyncio.sleep(0.05)
        await super().advance(batch)


class BlockingQueue(Queue):
    """A queue of a user's own. Its producer holds up its process, once: `where` is the method, `at` the n of the message, `block` how.

    `once`: the file that it leaves before; where that is, it does nothing of the kind, but `again`. `pids`: a folder for the ids of its
    processes.
    """

    def __init__(self, path: str | Path, lanes: LaneNames = None, how: Mapping[str, Any] | None = None) -> None:
        super().__init__(path, lanes)
        self._how = dict(how or {})

    def serialize(self) -> tuple[str, dict[str, Any]]:
        _, kwargs = super().serialize()
        return "scenario_triggers.BlockingQueue", kwargs | {"how": self._how}

    def relative_to(self, base: Path) -> Self:
        del base
        return self

    def producer(self) -> BlockingProducer:
        return BlockingProducer(self._path, self._lanes, self._how)


class BlockingProducer(QueueProducer):
    """The producer of a `BlockingQueue`."""

    def __init__(self, path: Path, lanes: LaneNames, how: Mapping[str, Any]) -> None:
        super().__init__(path, lanes)
        self._how = how
        if "pids" in how:
            (Path(how["pids"]) / str(os.getpid())).touch()
        self._misbehave("init")

    async def open_stream(self) -> AsyncIterator[tuple[Any, Any]]:
        async for raw, payload in super().open_stream():
            self._misbehave("poll", payload)
            yield raw, payload

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        for item in batch:
            self._misbehave("advance", item.broker_payload)
        await super().advance(batch)

    def get_advance_lane(self, broker_payload: Any) -> Any:
        self._misbehave("lane", broker_payload)
        return super().get_advance_lane(broker_payload)

    def get_lane_end(self, lane: Any) -> int | None:
        self._misbehave("end")
        return super().get_lane_end(lane)

    async def aclose(self) -> None:
        await super().aclose()
        self._misbehave("aclose")

    def _misbehave(self, where: str, payload: Any = None) -> None:
        how = self._how
        if how.get("where") != where or (payload is not None and payload.value["n"] != how.get("at")):
            return
        if Path(how["once"]).exists() and not how.get("again"):
            return
        Path(how["once"]).touch()
        if how["block"] == "SystemExit":
            sys.exit(5)
        if how["block"] == "raise":
            raise ValueError("the broker is gone")
        _block(how["block"])


def _block(how: float | str) -> None:
    """Hold up the whole process."""
    if how == "regex":
        re.match("(a+)+$", "a" * 100 + "b")
    elif how == "burn":
        sum(range(10**12))
    elif how == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif how == "exit":
        os._exit(3)
    else:
        sleep(float(how))


def _upstream(kwargs: Mapping[str, Any]) -> Upstream:
    return load_upstream(kwargs["upstream"]["classpath"], dict(kwargs["upstream"]["kwargs"]))
