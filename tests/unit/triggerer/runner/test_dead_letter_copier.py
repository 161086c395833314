"""The copier of dead letters on a real store: interleavings with crashes and lost answers, and its states."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from headrace.errors import ApiUnavailable, CopyRejected, HeadraceError, StreamError
from headrace.ports.dead_letter_sender import DeadLetterCopy
from headrace.sources.kafka.upstream import Kafka
from headrace.store.custody.dead_letter_copies import CopyCounts, copy_counts
from headrace.store.tables.custody import dead_letters
from headrace.triggerer.runner import dead_letter_copier
from headrace.triggerer.runner.dead_letter_copier import DeadLetterCopiers, progress
from headrace.wire.calls.execution import FIND_UNCOPIED
from headrace.wire.custody.copies import RecordCopies, RejectedCopy, UncopiedPage
from support.processes.store import Holder, holder, letter, opened
from support.sources.custody import bury, settle, some
from support.sources.dead_letters import copy_of

STREAM = "folder"
REJECTED = CopyRejected("too large")
AWAY = StreamError("away")


def page(*numbers: int, through: int = 9) -> UncopiedPage:
    return UncopiedPage(stream=STREAM, after=0, through=through, dead_letters=[copy_of(number).dead_letter for number in numbers])


def recorded(through: int, copied: int, *rejected: int) -> RecordCopies:
    marks = [RejectedCopy(number=number, reason="too large") for number in rejected]
    return RecordCopies(reader=STREAM, stream=STREAM, after=0, through=through, copied=copied, rejected=marks)


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ([None, None, None], (recorded(9, 3), None)),
        ([None, REJECTED, None], (recorded(9, 2, 4), None)),
        ([REJECTED, AWAY, None], (recorded(2, 0, 2), AWAY)),
        ([None, None, AWAY], (recorded(4, 2), AWAY)),
        ([AWAY, None, REJECTED], (None, AWAY)),
    ],
)
def test_progress_ends_before_the_first_copy_that_is_not_settled(results: list[HeadraceError | None], expected: Any) -> None:
    assert progress(STREAM, page(2, 4, 6), results) == expected


def test_a_page_without_open_dead_letters_is_recorded() -> None:
    assert progress(STREAM, page(), []) == (recorded(9, 0), None)


class World:
    """A store, a broker, and triggerers that copy, crash and lose answers, as `chance` decides."""

    def __init__(self, owner: Holder, chance: random.Random) -> None:
        self.owner = owner
        self.store = owner.store
        self.chance = chance
        self.broker: list[tuple[str, int]] = []
        self.cursors = [0]
        self.written = 0
        self.trouble = True

    def copy(self) -> bool:
        """Make one attempt of a copier that may end anywhere. Return whether there was nothing to copy."""
        found = self.store.dead_letter_copies.find(self.owner.job_id, STREAM)
        if found.through == found.after:
            return True
        self.change()
        made = progress(STREAM, found, [self.send(one.id, one.number) for one in found.dead_letters])
        self.change()
        for _ in range(1 + self.happens(0.2)):  # the answer is lost, and the call is repeated
            if made.record is not None and not self.happens(0.2):  # else the triggerer is killed between report and cursor
                self.store.dead_letter_copies.record(self.owner.job_id, made.record)
                self.cursors.append(self.through())
        return False

    def send(self, id: str, number: int) -> HeadraceError | None:
        if rejected(id):
            return REJECTED
        if self.happens(0.1):
            return AWAY
        self.broker.append((id, number))
        return AWAY if self.happens(0.1) else None  # the report is lost

    def change(self) -> None:
        """Let a trigger or an operator do something."""
        match self.chance.randrange(6) if self.trouble else 5:
            case 0 | 1:
                for _ in range(self.chance.randrange(4)):
                    self.written += 1
                    bury(self.owner, letter(f"letter-{self.written}"))
            case 2:
                self.store.dead_letters.redrive(some(*self.chance.sample(self.ids("open"), min(2, len(self.ids("open")))), "none"))
            case 3:
                if redriven := self.ids("redriven"):
                    bury(self.owner, letter(self.chance.choice(redriven), reason="again"))
                settle(self.owner, self.chance.choice(("fired", "dead_lettered")))
            case 4:
                self.store.dead_letters.discard(some(*self.chance.sample(self.ids("open"), min(1, len(self.ids("open")))), "none"))

    def happens(self, probability: float) -> bool:
        return self.trouble and self.chance.random() < probability

    def ids(self, state: str) -> list[str]:
        return [row.id for row in self.rows() if row.state == state]

    def rows(self) -> Sequence[Any]:
        with self.store.reading() as connection:
            query = select(dead_letters.c.id, dead_letters.c.number, dead_letters.c.state, dead_letters.c.not_copied)
            return connection.execute(query.order_by(dead_letters.c.number)).all()

    def through(self) -> int:
        return self.store.dead_letter_copies.find(self.owner.job_id, STREAM).after

    def counts(self) -> CopyCounts:
        with self.store.reading() as connection:
            return copy_counts(connection, [STREAM])[STREAM]


def rejected(id: str) -> bool:
    return id.endswith("7")


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 12))])
def test_each_open_dead_letter_is_copied_or_refused_after_crashes_and_lost_answers(seed: int, tmp_path: Path) -> None:
    with opened("sqlite", tmp_path) as store:
        world = World(holder(store, "first"), random.Random(seed))
        for _ in range(60):
            world.change()
            world.copy()
        world.trouble = False
        while not world.copy():
            pass
        sent = set(world.broker)
        for row in world.rows():
            if row.state == "open":
                assert (row.not_copied == "too large") if rejected(row.id) else (row.id, row.number) in sent, row
        assert world.cursors == sorted(world.cursors)
        assert not [id for id, _ in sent if rejected(id)]
        copied, _, waiting = world.counts()
        assert (waiting, world.written > 20) == (0, True)
        assert copied <= len(sent), "no copy is counted twice"


class Api:
    """The calls of a triggerer to a real store. `lost` answers are lost after the call was made."""

    def __init__(self, owner: Holder) -> None:
        self.copies = owner.store.dead_letter_copies
        self.job_id = owner.job_id
        self.lost = 0
        self.finds = 0

    async def request(self, call: Any, body: Any) -> Any:
        if call is FIND_UNCOPIED:
            self.finds += 1
            return self.copies.find(self.job_id, body.reader)
        self.copies.record(self.job_id, body)
        if self.lost:
            self.lost -= 1
            raise ApiUnavailable("The answer was lost.")
        return None


class Broker:
    """What senders have sent. `error` is raised by each; `closed` counts them."""

    def __init__(self) -> None:
        self.sent: list[DeadLetterCopy] = []
        self.error: Exception | None = None
        self.closed = 0
        self.changed = asyncio.Event()

    async def send(self, copies: Sequence[DeadLetterCopy]) -> Sequence[HeadraceError | None]:
        self.changed.set()
        if self.error is not None:
            raise self.error
        self.sent += copies
        return [None] * len(copies)

    async def aclose(self) -> None:
        self.closed += 1

    @property
    def ids(self) -> list[str]:
        return [copy.dead_letter.id for copy in self.sent]


class Scene:
    """A copier, its store and its broker."""

    def __init__(self, owner: Holder) -> None:
        self.owner = owner
        self.api = Api(owner)
        self.broker = Broker()
        self.copiers = DeadLetterCopiers(self.api, lambda upstream: self.broker)  # type: ignore[arg-type]

    def start(self, **arguments: Any) -> None:
        self.copiers.start(STREAM, Kafka("orders", group="shop", **({"dead_letter_topic": "dead"} | arguments)))

    def error(self) -> str | None:
        report = self.copiers.report(STREAM)
        assert report is not None
        return report.error


@asynccontextmanager
async def scene_of(folder: Path) -> AsyncIterator[Scene]:
    with opened("sqlite", folder) as store:
        scene = Scene(holder(store, "first"))
        try:
            yield scene
        finally:
            await scene.copiers.stop()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


async def test_dead_letters_are_copied_at_the_start_and_when_one_is_stored(tmp_path: Path) -> None:
    async with scene_of(tmp_path) as scene:
        bury(scene.owner, letter("a"))
        scene.start()
        await until(lambda: scene.broker.ids == ["a"])
        await until(lambda: scene.api.finds == 2)
        bury(scene.owner, letter("b"))
        scene.copiers.wake("else")
        scene.copiers.wake(STREAM)
        await until(lambda: scene.broker.ids == ["a", "b"])
        await until(lambda: scene.api.finds == 4)
        scene.start()
        assert scene.api.finds == 4, "a stream that opens again has its copier already"


async def test_a_lost_answer_copies_nothing_twice(tmp_path: Path) -> None:
    async with scene_of(tmp_path) as scene:
        scene.api.lost = 1
        bury(scene.owner, letter("a"))
        scene.start()
        await until(lambda: scene.api.finds == 2)
        assert scene.broker.ids == ["a"]


@pytest.mark.parametrize("error", [StreamError("The cluster does not answer."), ValueError("a fault of the client")])
async def test_an_error_is_reported_until_an_attempt_succeeds(error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letter_copier, "FIRST_WAIT_SECONDS", 0.01)
    async with scene_of(tmp_path) as scene:
        scene.broker.error = error
        bury(scene.owner, letter("a"))
        scene.start()
        await until(lambda: scene.error() is not None and str(error) in str(scene.error()))
        await until(lambda: scene.broker.closed > 1)
        scene.broker.error = None
        await until(lambda: scene.broker.ids == ["a"] and scene.error() is None)


async def test_a_dead_letter_without_its_whole_text_is_refused_and_not_sent(tmp_path: Path) -> None:
    async with scene_of(tmp_path) as scene:
        bury(scene.owner, letter("a", raw="the beginning […]"), letter("b"))
        scene.start()
        await until(lambda: scene.api.finds == 2)
        assert scene.broker.ids == ["b"]
        with scene.owner.store.reading() as connection:
            marks = connection.execute(select(dead_letters.c.id).where(dead_letters.c.not_copied.is_not(None))).scalars().all()
        assert marks == ["a"]


async def test_a_copier_stops_while_it_waits_for_its_broker(tmp_path: Path) -> None:
    async with scene_of(tmp_path) as scene:
        scene.broker.error = StreamError("away")
        bury(scene.owner, letter("a"))
        scene.start()
        await scene.broker.changed.wait()
        await scene.copiers.stop(["else"])
        assert scene.copiers.report(STREAM) is not None
        async with asyncio.timeout(5):
            await scene.copiers.stop([STREAM])
        assert (scene.copiers.report(STREAM), scene.broker.closed) == (None, 1)


async def test_a_stream_without_a_target_has_no_copier(tmp_path: Path) -> None:
    async with scene_of(tmp_path) as scene:
        scene.start(dead_letter_topic=None)
        assert scene.copiers.report(STREAM) is None
