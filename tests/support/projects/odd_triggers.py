"""Triggers that misbehave in what is not their filter: a project file or a test imports them."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any, Final

from headrace.triggers.base import BaseEventTrigger
from headrace.triggers.event import Handled, Reject, TriggerEvent
from scenario_triggers import Behaving


class OddText(str):
    """A text that no encoder knows."""

    __slots__ = ()

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        raise ValueError("not to be written")


REASONS: Final[dict[str, Any]] = {"reason object": object(), "reason surrogate": "\udcff", "reason bytes": b"\xff"}


class Odd(Behaving):
    """Does what `odd` says.

    `exit`, `interrupt`, `argparse`, `task exit`: in `handle`. `init`, `init base`: it exits there, or raises what is no `Exception`.
    `filter exit`, `filter base`: so does its filter, before it is a generator.
    `reason object`, `reason surrogate`, `reason bytes`: it rejects every raw event with that.
    `odd text`: the id of its events is no plain str.
    `filter hangs`: in its `finally`. `cleanup hangs`, `cleanup raises`, `cleanup exits`.
    `wrap`: it raises an exception of its own where its stream ends.
    """

    def __init__(self, *, odd: str, name: str, upstream: Mapping[str, Any], tag: str = "", how: Mapping[str, Any] | None = None) -> None:
        super().__init__(name=name, upstream=upstream, tag=tag, how=how)
        self._odd = odd
        if odd == "init":
            sys.exit(4)
        if odd == "init base":
            raise BaseException("no Exception")

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "odd_triggers.Odd", {**self._kwargs, "odd": self._odd}

    def filter_shared_stream(self, stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        if self._odd == "filter exit":
            sys.exit(8)
        if self._odd == "filter base":
            raise BaseException("no Exception")
        return self._filtered(stream)

    async def _filtered(self, stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        try:
            async for event in super().filter_shared_stream(stream):
                yield event
        except Exception as error:
            if self._odd != "wrap":
                raise
            raise ValueError("the filter's own") from error
        finally:
            if self._odd == "filter hangs":
                with suppress(asyncio.CancelledError):  # it is cancelled once when it is stopped, and once when its loop ends
                    await asyncio.Event().wait()
                await asyncio.Event().wait()

    async def handle(self, raw: Any) -> Handled:
        if self._odd == "exit":
            sys.exit(3)
        if self._odd == "interrupt":
            raise KeyboardInterrupt
        if self._odd == "argparse":
            argparse.ArgumentParser().parse_args(["--nonsense"])
        if self._odd == "task exit":
            await asyncio.create_task(_exit())
        if self._odd in REASONS:
            return Reject(REASONS[self._odd])
        if self._odd == "odd text":
            return TriggerEvent({"n": raw.value["n"]}, id=OddText(f"id-{raw.value['n']}"))
        return await super().handle(raw)

    async def cleanup(self) -> None:
        if self._odd == "cleanup hangs":
            with suppress(asyncio.CancelledError):  # only the end of the loop ends it
                await asyncio.Event().wait()
            await asyncio.Event().wait()
        if self._odd == "cleanup raises":
            raise ValueError("no cleanup")
        if self._odd == "cleanup exits":
            sys.exit(6)


class Alone(BaseEventTrigger):
    """Poll alone, and wait forever."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "odd_triggers.Alone", {}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        await asyncio.Event().wait()
        yield TriggerEvent(None)


class FastPath(BaseEventTrigger):
    """Opens a stream without acks, of whatever key."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self._key = key

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "odd_triggers.FastPath", {"key": self._key}

    def shared_stream_key(self) -> str:
        return self._key

    @classmethod
    async def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncIterator[Any]:
        del kwargs
        await asyncio.Event().wait()
        yield None

    async def handle(self, raw: Any) -> Handled:
        return TriggerEvent(raw)


async def _exit() -> None:
    await asyncio.sleep(0)
    sys.exit(7)
