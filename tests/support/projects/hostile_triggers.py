"""Odd triggers: one class whose behaviour at each raw event is that event's `do`. The soak copies this file beside its project file."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import threading
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Final

from headrace.sources.queue.upstream import Queue
from headrace.triggers.base import BaseEventTrigger
from headrace.triggers.event import SKIP, Reject, TriggerEvent
from headrace.triggers.upstream import SharedStreamProducer


class SilentError(Exception):
    """An error that cannot be rendered as text."""

    def __str__(self) -> str:
        raise RuntimeError("no text for you")


class NamelessError(Exception):
    """An error that cannot be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr for you")


class WrongTextError(Exception):
    """An error whose text is none."""

    def __str__(self) -> str:
        return 5  # type: ignore[return-value]  # noqa: PLE0307 - that is what it is for


def _loop_of_causes() -> Exception:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    return one


ERRORS: Final[dict[str, Callable[[], BaseException]]] = {
    "ValueError": lambda: ValueError("plain"),
    "error with a surrogate": lambda: ValueError("a\ud800b"),
    "error with NUL": lambda: ValueError("a\0b"),
    "error with escapes": lambda: ValueError("\x1b[2J\r\n"),
    "error of bytes": lambda: ValueError(b"\xff"),
    "error of 9 MB": lambda: ValueError("x" * 9_000_000),
    "error of 10,000 lines": lambda: ValueError("x\n" * 10_000),
    "error that cannot be told": SilentError,
    "error that cannot be shown": NamelessError,
    "error whose text is a number": WrongTextError,
    "errors that cause each other": _loop_of_causes,
    "group": lambda: ExceptionGroup("many", [ValueError(str(n)) for n in range(100)]),
    "base group": lambda: BaseExceptionGroup("many", [SystemExit(1), ValueError("a")]),
    "SystemExit": SystemExit,
    "SystemExit 0": lambda: SystemExit(0),
    "SystemExit with a text": lambda: SystemExit("bye"),
    "KeyboardInterrupt": KeyboardInterrupt,
    "GeneratorExit": GeneratorExit,
    "StopIteration": StopIteration,
    "StopAsyncIteration": StopAsyncIteration,
    "CancelledError": asyncio.CancelledError,
    "TimeoutError": TimeoutError,
    "MemoryError": MemoryError,
    "RecursionError": RecursionError,
    "UnicodeDecodeError": lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
    "BrokenPipeError": lambda: BrokenPipeError(32, "pipe"),
    "ConnectionResetError": lambda: ConnectionResetError(104, "reset"),
    "disk full": lambda: OSError(28, "No space left on device"),
    "bare Exception": Exception,
    "bare BaseException": BaseException,
}

ODD: Final[Any] = object()
NEVER: Final = datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone(timedelta(hours=-5)))
EVER: Final = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5)))


def _deep(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def _circle() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


ANSWERS: Final[dict[str, Callable[[], Any]]] = {
    "None": lambda: None,
    "a number": lambda: 5,
    "a text": lambda: "event",
    "a dict": lambda: {"payload": 1},
    "a tuple": lambda: (TriggerEvent({"a": 1}),),
    "the class": lambda: TriggerEvent,
    "the Reject class": lambda: Reject,
    "a generator": lambda: (n for n in range(3)),
    "no events": list,
    "a list of numbers": lambda: [1, 2, 3],
    "a list of lists": lambda: [[TriggerEvent({"a": 1})]],
    "a list with None": lambda: [TriggerEvent({"a": 1}), None],
    "1,000 events": lambda: [TriggerEvent({"n": n}) for n in range(1_000)],
    "the same event twice": lambda: [TriggerEvent({"a": 1}, id="twice")] * 2,
    "SKIP in a list": lambda: [SKIP],
    "payload None": lambda: TriggerEvent(None),
    "payload object": lambda: TriggerEvent({"a": ODD}),
    "payload set": lambda: TriggerEvent({"a": {1, 2}}),
    "payload bytes": lambda: TriggerEvent({"a": b"\xff"}),
    "payload NaN": lambda: TriggerEvent({"a": float("nan")}),
    "payload infinity": lambda: TriggerEvent({"a": float("inf")}),
    "payload with a huge number": lambda: TriggerEvent({"a": 10**400}),
    "payload with a surrogate": lambda: TriggerEvent({"a": "\ud800"}),
    "payload with a surrogate for a key": lambda: TriggerEvent({"\ud800": 1}),
    "payload with NUL": lambda: TriggerEvent({"a": "\0"}),
    "payload with numbers for keys": lambda: TriggerEvent({1: 1, None: 2}),
    "payload 300 deep": lambda: TriggerEvent(_deep(300)),
    "payload 970 deep": lambda: TriggerEvent(_deep(970)),
    "payload 50,000 deep": lambda: TriggerEvent(_deep(50_000)),
    "payload that holds itself": lambda: TriggerEvent(_circle()),
    "payload of 20 MB": lambda: TriggerEvent({"a": "x" * 20_000_000}),
    "payload of 4 MB of quotes": lambda: TriggerEvent({"a": '"' * 4_000_000}),
    "empty id": lambda: TriggerEvent({"a": 1}, id=""),
    "id with a surrogate": lambda: TriggerEvent({"a": 1}, id="\ud800"),
    "id with NUL": lambda: TriggerEvent({"a": 1}, id="a\0b"),
    "id of 100 kB": lambda: TriggerEvent({"a": 1}, id="x" * 100_000),
    "id that is a number": lambda: TriggerEvent({"a": 1}, id=5),  # type: ignore[arg-type]
    "id of bytes": lambda: TriggerEvent({"a": 1}, id=b"a"),  # type: ignore[arg-type]
    "subject with a surrogate": lambda: TriggerEvent({"a": 1}, subject="\udcff"),
    "subject with NUL": lambda: TriggerEvent({"a": 1}, subject="\0"),
    "subject of 100 kB": lambda: TriggerEvent({"a": 1}, subject="x" * 100_000),
    "subject that is a list": lambda: TriggerEvent({"a": 1}, subject=["a"]),  # type: ignore[arg-type]
    "follows with a surrogate": lambda: TriggerEvent({"a": 1}, follows="\ud800"),
    "follows itself": lambda: TriggerEvent({"a": 1}, id="itself", follows="itself"),
    "type with a newline": lambda: TriggerEvent({"a": 1}, type="a\nb"),
    "empty type": lambda: TriggerEvent({"a": 1}, type=""),
    "type of 100 kB": lambda: TriggerEvent({"a": 1}, type="x" * 100_000),
    "source with a surrogate": lambda: TriggerEvent({"a": 1}, source="\ud800"),
    "occurred in year 9999": lambda: TriggerEvent({"a": 1}, occurred=NEVER),
    "occurred in year 1": lambda: TriggerEvent({"a": 1}, occurred=EVER),
    "occurred without a zone": lambda: TriggerEvent({"a": 1}, occurred=datetime(2026, 1, 1)),
    "occurred as a text": lambda: TriggerEvent({"a": 1}, occurred="yesterday"),  # type: ignore[arg-type]
    "occurred as a number": lambda: TriggerEvent({"a": 1}, occurred=5),  # type: ignore[arg-type]
    "occurred far ahead": lambda: TriggerEvent({"a": 1}, occurred=datetime(2999, 1, 1, tzinfo=UTC)),
    "Reject": lambda: Reject("no"),
    "Reject without a reason": Reject,
    "Reject with a surrogate": lambda: Reject("\udcff"),
    "Reject with NUL": lambda: Reject("\0"),
    "Reject with 9 MB": lambda: Reject("x" * 9_000_000),
    "Reject with bytes": lambda: Reject(b"\xff"),  # type: ignore[arg-type]
    "Reject with an object": lambda: Reject(ODD),
}


async def _hang() -> None:
    await asyncio.Event().wait()


async def _swallow() -> None:
    for _ in range(3):
        try:
            await asyncio.sleep(20)
        except asyncio.CancelledError:
            continue
        return


async def _block() -> None:
    time.sleep(2)  # noqa: ASYNC251 - that is what hostile code does


async def _burn() -> None:
    sum(range(60_000_000))


async def _recurse() -> None:
    await _recurse()


async def _forget_a_task() -> None:
    asyncio.create_task(_fail())  # noqa: RUF006 - that is what hostile code does
    await asyncio.sleep(0)


async def _fail() -> None:
    raise ValueError("in a task that nothing awaits")


async def _fail_in_a_thread() -> None:
    threading.Thread(target=lambda: 1 / 0).start()


async def _cancel_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


async def _parse_arguments() -> None:
    argparse.ArgumentParser().parse_args(["--no-such-option"])


async def _shout() -> None:
    sys.stdout.buffer.write(b"\xff\x00" * 1000 + b"\n")
    sys.stdout.write("\x1b[2J" + "x" * 100_000 + "\n")
    sys.stderr.write("error: not really\n")
    logging.getLogger().error("a %s b", *["too", "many"])


async def _configure_logging() -> None:
    logging.basicConfig(level=logging.DEBUG, force=True)
    warnings.simplefilter("error")


async def _allocate() -> None:
    bytearray(100_000_000)


async def _change_folder() -> None:
    __import__("os").chdir("/")


DEEDS: Final[dict[str, Callable[[], Awaitable[None]]]] = {
    "hang": _hang,
    "swallow cancellations": _swallow,
    "block for 2 s": _block,
    "burn the processor": _burn,
    "recurse": _recurse,
    "forget a task": _forget_a_task,
    "fail in a thread": _fail_in_a_thread,
    "cancel itself": _cancel_itself,
    "parse arguments": _parse_arguments,
    "shout": _shout,
    "configure logging": _configure_logging,
    "allocate 100 MB": _allocate,
    "change the folder": _change_folder,
}

BEHAVIOURS: Final = (*ERRORS, *ANSWERS, *DEEDS, "spoil the raw event")
"""What an odd trigger can be told to do at a raw event."""

CONSTRUCTION: Final = (
    "filter: raise",
    "filter: return",
    "filter: exit",
    "cleanup: hang",
    "cleanup: raise",
)
"""What an odd trigger can be told to do in its life, whatever it reads."""


class Odd(BaseEventTrigger):
    """Reads a queue of `{"do": …, "to": …}`, and does that where it is meant; `life` is one of CONSTRUCTION, or empty.

    It misbehaves where `running` is a file that is there: the project can be declared without it.
    """

    def __init__(self, *, path: str, name: str, life: str = "", running: str = "") -> None:
        super().__init__()
        self._kwargs = {"path": path, "name": name, "life": life, "running": running}
        self._name = name
        self._life = life if running and Path(running).exists() else ""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "hostile_triggers.Odd", self._kwargs

    def shared_stream_key(self) -> str:
        return Queue(self._kwargs["path"]).stream_key()

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        return Queue(kwargs["path"]).producer()

    async def filter_shared_stream(self, stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        if self._life == "filter: raise":
            raise SilentError
        if self._life == "filter: return":
            return
        if self._life == "filter: exit":
            sys.exit("bye")
        async for event in super().filter_shared_stream(stream):
            yield event

    async def cleanup(self) -> None:
        if self._life == "cleanup: hang":
            await _hang()
        if self._life == "cleanup: raise":
            raise SystemExit(4)

    async def handle(self, raw: Any) -> Any:
        value = raw.value
        if not isinstance(value, dict) or value.get("to") != self._name:
            return SKIP
        kind = value["do"]
        if kind in ERRORS:
            error = ERRORS[kind]()
            raise error
        if kind in ANSWERS:
            return ANSWERS[kind]()
        if kind in DEEDS:
            await DEEDS[kind]()
        elif kind == "spoil the raw event":
            value.clear()
        return TriggerEvent({"did": kind})
