"""Anything that may happen to a watched folder, at random but from a seed, against the real producer; and the verdict.

The oracle knows each line that was written. The law: every line is delivered that was whole, unless it was destroyed before it could be
read; a line comes twice only where a reader crashed between; what was advanced does not come again; a lane and position are one line.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from headrace.core.ledger.outcome import AdvanceItem, AdvanceOutcome
from headrace.errors import HeadraceError
from headrace.sources.directory.upstream import Directory
from headrace.testing.contract.reading import Reading
from support.sources.kit import PATIENCE

NAMES = ["a.jsonl", "b.jsonl", "c.jsonl", os.fsdecode(b"d\xff.jsonl"), "e.jsonl", "long-" + "x" * 240 + ".jsonl"]
ACKED = AdvanceOutcome(1, 0)


class Oracle:
    """The written, delivered and advanced events."""

    def __init__(self) -> None:
        self.owed: set[int] = set()
        self.delivered: dict[int, int] = {}
        self.advanced: set[int] = set()
        self.places: dict[tuple[str, int], int] = {}
        self.crashes = 0

    def deliver(self, raw: Any) -> None:
        n = int(raw.data)
        assert self.places.setdefault((raw.lane, raw.position), n) == n, f"{raw.lane} {raw.position} is {n} and was another line"
        assert n not in self.advanced, f"{n} comes again although it was advanced"
        assert self.delivered.get(n, -1) < self.crashes, f"{n} comes twice without a crash"
        self.delivered[n] = self.crashes

    @property
    def missing(self) -> set[int]:
        return self.owed - self.delivered.keys()


class World:
    """The folder, its writers and its reader. Call `step` again and again, then `finish`."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.folder = folder
        self.feed = folder / "feed"
        self.feed.mkdir()
        self.oracle = Oracle()
        self.history: list[str] = []
        self._next = 0
        self._links = 0
        self._lines: dict[tuple[int, int], set[int]] = defaultdict(set)
        self._open: dict[Path, tuple[BinaryIO, int]] = {}
        self._reading: Reading | None = None
        self._pump: asyncio.Task[None] | None = None
        self._taking: asyncio.Task[None] | None = None
        self._unadvanced: dict[str, list[tuple[int, Any]]] = defaultdict(list)
        self._verdict: AssertionError | None = None
        writers = [self.create, self.create, self.append, self.append, self.append_half, self.finish_half]
        destroyers = [self.rename_over, self.empty_and_write, self.copy_truncate, self.delete_and_create, self.delete, self.make_anew]
        others = [self.rotate, self.link, self.odd_entry, self.crash, self.restart, self.advance, self.advance, self.pause, self.touch]
        self._steps: list[Callable[[], Any]] = writers + destroyers + others

    async def step(self) -> None:
        do = self.chance.choice(self._steps)
        self.history.append(do.__name__)
        # The reader may move a file away while a writer is at it.
        with contextlib.suppress(FileNotFoundError):
            await do()
        await asyncio.sleep(self.chance.choice([0, 0, 0.001, 0.02, 0.1]))
        if self._verdict is not None:
            raise self._verdict

    async def finish(self) -> None:
        """Let all be read and advanced, and see that nothing is missing."""
        for path in list(self._open):
            self._close(path)
        async with asyncio.timeout(PATIENCE):
            while self.oracle.missing or any(self._unadvanced.values()):
                await self._start()
                await self.advance()
                if self._verdict is not None:
                    raise self._verdict
                await asyncio.sleep(0.01)
        await self.stop()

    async def stop(self) -> None:
        for file, _ in self._open.values():
            file.close()
        await self._leave()

    # The reader

    async def _start(self) -> None:
        if self._taking is not None and not self._taking.done():
            return
        await self._leave()
        reading = self._reading = Reading(Directory(self.feed, "*.jsonl").producer())
        self._pump = asyncio.create_task(reading.run())
        self._taking = asyncio.create_task(self._take(reading))

    async def _take(self, reading: Reading) -> None:
        with contextlib.suppress(HeadraceError, TimeoutError):
            while True:
                (raw, place), *_ = await reading.take(1)
                try:
                    self.oracle.deliver(raw)
                except AssertionError as verdict:
                    self._verdict = verdict
                    raise
                self._unadvanced[raw.lane].append((int(raw.data), place))

    async def _leave(self) -> None:
        tasks = [task for task in (self._pump, self._taking) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._reading is not None:
            await self._reading.producer.aclose()
            self.oracle.crashes += 1
        self._reading = self._pump = self._taking = None
        self._unadvanced.clear()

    async def crash(self) -> None:
        """Nothing that was read is advanced any more."""
        await self._leave()

    async def restart(self) -> None:
        await self._start()

    async def advance(self) -> None:
        await self._start()
        for lane in list(self._unadvanced):
            items = self._unadvanced[lane]
            count = self.chance.randrange(len(items) + 1) if self.chance.random() < 0.3 else len(items)
            if not count or self._reading is None:
                continue
            try:
                await self._reading.producer.advance([AdvanceItem(place, ACKED) for _, place in items[:count]])
            except HeadraceError:
                continue
            if self._is_there(lane):
                self.oracle.advanced.update(n for n, _ in items[:count])
            del items[:count]

    def _is_there(self, lane: str) -> bool:
        """Whether the producer still knows the lane: if its file is gone, there is nothing to record."""
        return self._reading is not None and self._reading.producer.get_committed(lane) is not None

    async def pause(self) -> None:
        await asyncio.sleep(0.15)

    # The writers

    def _text(self) -> tuple[bytes, set[int]]:
        count = self.chance.choice([0, 1, 2, 5, 40, 3_000])
        numbers = set(range(self._next, self._next + count))
        self._next += count
        return b"".join(b"%d\n" % n for n in sorted(numbers)), numbers

    def _wrote(self, path: Path, numbers: set[int]) -> None:
        found = path.stat()
        self._lines[found.st_dev, found.st_ino] |= numbers
        self.oracle.owed |= numbers

    def _excuse(self, path: Path) -> None:
        """The file's contents are about to be destroyed: what was not delivered may be lost."""
        found = path.stat()
        self.oracle.owed -= self._lines.pop((found.st_dev, found.st_ino), set()) - self.oracle.delivered.keys()

    async def _destroy(self, path: Path) -> None:
        """Half of the time, let the reader read it first."""
        self._close(path)
        if self.chance.random() < 0.5:
            await self._start()
            found = path.stat()
            lines = self._lines[found.st_dev, found.st_ino]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.3):
                    while lines & self.oracle.missing:
                        await asyncio.sleep(0.005)
        if path.exists():
            self._excuse(path)

    def _some(self) -> Path | None:
        found = sorted(path for path in self.feed.glob("*.jsonl") if path.is_file() and not path.is_symlink())
        return self.chance.choice(found) if found else None

    def _renamed_in(self, path: Path) -> None:
        data, numbers = self._text()
        part = self.feed / "new.part"
        part.write_bytes(data)
        self._wrote(part, numbers)
        part.rename(path)

    async def create(self) -> None:
        path = self.feed / self.chance.choice(NAMES)
        if not os.path.lexists(path):
            self._renamed_in(path)

    async def append(self) -> None:
        if (path := self._some()) is not None and path not in self._open:
            data, numbers = self._text()
            with path.open("ab") as file:
                file.write(data)
                file.flush()
                found = os.fstat(file.fileno())
                self._lines[found.st_dev, found.st_ino] |= numbers
                self.oracle.owed |= numbers

    async def append_half(self) -> None:
        """Half of a line; the file stays open for writing."""
        if (path := self._some()) is not None and path not in self._open:
            file = path.open("ab", buffering=0)
            n = self._next = self._next + 1_000_000
            self._next += 1
            file.write(b"%d" % (n // 1_000))
            self._open[path] = file, n

    def _close(self, path: Path) -> None:
        if path in self._open:
            file, n = self._open.pop(path)
            with file:
                file.write(b"%03d\n" % (n % 1_000))
                found = os.fstat(file.fileno())
                self._lines[found.st_dev, found.st_ino].add(n)
                if found.st_nlink:
                    self.oracle.owed.add(n)

    async def finish_half(self) -> None:
        if self._open:
            self._close(self.chance.choice(list(self._open)))

    async def rename_over(self) -> None:
        if (path := self._some()) is not None:
            await self._destroy(path)
            self._renamed_in(path)

    async def empty_and_write(self) -> None:
        if (path := self._some()) is not None:
            await self._destroy(path)
            if path.exists():
                data, numbers = self._text()
                with path.open("r+b") as file:
                    file.truncate(0)
                    file.write(data)
                self._wrote(path, numbers)

    async def copy_truncate(self) -> None:
        if (path := self._some()) is not None:
            await self._destroy(path)
            if path.exists():
                shutil.copy(path, self.folder / "copy")
                os.truncate(path, 0)

    async def delete(self) -> None:
        if (path := self._some()) is not None:
            await self._destroy(path)
            path.unlink(missing_ok=True)

    async def delete_and_create(self) -> None:
        if (path := self._some()) is not None:
            await self._destroy(path)
            path.unlink(missing_ok=True)
            data, numbers = self._text()
            path.write_bytes(data)
            self._wrote(path, numbers)

    async def make_anew(self) -> None:
        if self.chance.random() < 0.3:
            for path in self.feed.glob("*.jsonl"):
                if path.is_file() and not path.is_symlink():
                    self._close(path)
            for numbers in self._lines.values():
                self.oracle.owed -= numbers - self.oracle.delivered.keys()
            self._lines.clear()
            await asyncio.to_thread(shutil.rmtree, self.feed, ignore_errors=True)
            shutil.rmtree(self.feed, ignore_errors=True)
            self.feed.mkdir(exist_ok=True)

    async def rotate(self) -> None:
        if (path := self._some()) is not None:
            for number in (2, 1):
                older = path.with_name(f"{path.name[:200]}.{number}.jsonl")
                newer = path if number == 1 else path.with_name(f"{path.name[:200]}.{number - 1}.jsonl")
                if newer.exists() and not older.exists():
                    self._close(newer)
                    if newer.exists():
                        newer.rename(older)

    async def link(self) -> None:
        self._links += 1
        outside = self.folder / f"outside-{self._links}"
        data, numbers = self._text()
        outside.write_bytes(data)
        self._wrote(outside, numbers)
        (self.feed / f"link-{self._links}.jsonl").symlink_to(outside)

    async def odd_entry(self) -> None:
        path = self.feed / f"odd-{self.chance.randrange(3)}.jsonl"
        if not os.path.lexists(path):
            match self.chance.randrange(3):
                case 0:
                    path.symlink_to(path.name)
                case 1:
                    os.mkfifo(path)
                case _:
                    path.mkdir()

    async def touch(self) -> None:
        if (path := self._some()) is not None:
            os.utime(path)


async def survive(world: World, steps: int) -> None:
    """Run one world; what it raises has its seed and history."""
    try:
        for _ in range(steps):
            await world.step()
        await world.finish()
    except (AssertionError, TimeoutError) as error:
        await world.stop()
        missing = sorted(world.oracle.missing)[:10]
        raise AssertionError(f"seed {world.seed}, {steps} steps: {error!r}; missing {missing}; {' '.join(world.history)}") from error
