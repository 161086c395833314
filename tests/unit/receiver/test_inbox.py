"""The queue of an endpoint: durable appends, limits, and a file that is deleted while it is open."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path

import pytest

from headrace.core.ledger.outcome import AdvanceItem, AdvanceOutcome
from headrace.errors import StorageBusy, StorageFull, UpstreamError
from headrace.receiver import inbox as module
from headrace.receiver.inbox import Inbox, InboxFull
from headrace.sources.outgoing import OutgoingMessage
from headrace.sources.queue.upstream import Queue
from headrace.testing.contract.reading import reading
from support.sources.kit import PATIENCE


@asynccontextmanager
async def opened(path: Path, *, max_bytes: int = 10**9, min_free_bytes: int = 0) -> AsyncIterator[Inbox]:
    inbox = Inbox(path, lanes=None, max_bytes=max_bytes, min_free_bytes=min_free_bytes)
    try:
        yield inbox
    finally:
        await inbox.close()


def message(data: bytes = b"1") -> OutgoingMessage:
    return OutgoingMessage(data, None, None)


async def stored(path: Path, count: int) -> list[bytes]:
    async with reading(Queue(path).producer()) as stream:
        return [raw.data for raw, _ in await stream.take(count)]


async def test_the_folder_is_made_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "in" / "orders.queue"
    async with opened(path) as inbox:
        await inbox.append([message(b"1"), message(b"2")])
        await inbox.append([])
    assert await stored(path, 2) == [b"1", b"2"]
    assert path.parent.stat().st_mode & 0o777 == 0o700


async def test_concurrent_appends_are_all_stored(tmp_path: Path) -> None:
    path = tmp_path / "orders.queue"
    async with opened(path) as inbox:
        await asyncio.gather(*(inbox.append([message(b"%d" % number)]) for number in range(200)))
    assert sorted(map(int, await stored(path, 200))) == list(range(200))


async def test_a_queue_that_was_deleted_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "orders.queue"
    async with opened(path) as inbox:
        await inbox.append([message(b"1")])
        for file in tmp_path.iterdir():
            file.unlink()
        await asyncio.gather(*(inbox.append([message(b"2")]) for _ in range(5)))
    assert await stored(path, 5) == [b"2"] * 5


async def test_a_file_that_is_not_a_queue_is_an_error_until_it_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "orders.queue"
    path.write_text("no queue " * 1_000)
    async with opened(path) as inbox:
        with pytest.raises(UpstreamError):
            await inbox.append([message()])
        path.unlink()
        await inbox.append([message()])
    assert await stored(path, 1) == [b"1"]


async def test_unread_messages_have_a_limit_and_dead_letters_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHECK_SECONDS", 0.0)
    path = tmp_path / "orders.queue"
    big = b'"' + b"x" * 900_000 + b'"'
    async with opened(path, max_bytes=1_000_000) as inbox:
        await inbox.append([message(big), message(big)])
        with pytest.raises(InboxFull):
            await inbox.append([message()])
        async with reading(Queue(path).producer()) as stream:
            items = await stream.take(2)
            await stream.producer.advance([AdvanceItem(payload, AdvanceOutcome(0, 0, rejected=1)) for _, payload in items])
        await inbox.append([message()])
    assert len(Queue(path).dead_letters()) == 2


async def test_the_last_space_of_the_disk_is_left_to_the_reader(tmp_path: Path) -> None:
    async with opened(tmp_path / "orders.queue", min_free_bytes=2**62) as inbox:
        with pytest.raises(StorageFull):
            await inbox.append([message()])


async def test_a_closed_inbox_opens_again(tmp_path: Path) -> None:
    path = tmp_path / "orders.queue"
    async with opened(path) as inbox:
        await inbox.append([message()])
        await inbox.close()
        await inbox.append([message()])
    assert len(await stored(path, 2)) == 2


@pytest.mark.parametrize(("data_bytes", "metadata_bytes", "count"), [(7, 400, 3_000), (2_100, 0, 600)], ids=["metadata", "pages"])
async def test_dead_letters_of_any_shape_do_not_count(
    data_bytes: int, metadata_bytes: int, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHECK_SECONDS", 0.0)
    path = tmp_path / "orders.queue"
    metadata = b'{"headers":[["user-agent","' + b"a" * metadata_bytes + b'"]]}' if metadata_bytes else None
    async with opened(path, max_bytes=1_000_000) as inbox:
        await inbox.append([OutgoingMessage(b'"' + b"x" * (data_bytes - 2) + b'"', None, "Ada", metadata)] * count)
        with pytest.raises(InboxFull):
            await inbox.append([message()])
        async with reading(Queue(path).producer()) as stream:
            items = await stream.take(count)
            await stream.producer.advance([AdvanceItem(payload, AdvanceOutcome(0, 0, rejected=1)) for _, payload in items])
        await inbox.append([message()])


async def test_each_refused_request_has_an_exception_of_its_own(tmp_path: Path) -> None:
    errors: list[StorageFull] = []
    async with opened(tmp_path / "orders.queue", min_free_bytes=2**62) as inbox:
        for _ in range(3):
            with pytest.raises(StorageFull) as caught:
                await inbox.append([message()])
            errors.append(caught.value)
    assert len(set(map(id, errors))) == 3


@contextmanager
def holding_the_turn(path: Path) -> Iterator[None]:
    """Hold the lock that writers wait for, as a frozen process does."""
    descriptor = os.open(path.with_name(path.name + "-turn"), os.O_RDWR)
    try:
        flock(descriptor, LOCK_EX)
        yield
    finally:
        os.close(descriptor)


async def test_a_queue_that_another_process_holds_is_busy_and_recovers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUSY_SECONDS", 0.05, raising=False)
    path = tmp_path / "orders.queue"
    async with opened(path) as inbox:
        await inbox.append([message(b"1")])
        with holding_the_turn(path):
            async with asyncio.timeout(PATIENCE):
                results = await asyncio.gather(*(inbox.append([message(b"2")]) for _ in range(20)), return_exceptions=True)
                assert [type(result) for result in results] == [StorageBusy] * 20
                with pytest.raises(StorageBusy):
                    await inbox.check()
        await inbox.append([message(b"3")])
        await inbox.check()
    assert await stored(path, 2) == [b"1", b"3"]


async def test_requests_wait_for_an_opening_within_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUSY_SECONDS", 0.05, raising=False)
    path = tmp_path / "orders.queue"
    async with opened(path) as inbox:
        await inbox.append([message(b"1")])
    changed = Inbox(path, lanes=2, max_bytes=10**9, min_free_bytes=0)
    with holding_the_turn(path):
        async with asyncio.timeout(PATIENCE):
            results = await asyncio.gather(*(changed.append([message(b"2")]) for _ in range(20)), return_exceptions=True)
    assert [type(result) for result in results] == [StorageBusy] * 20
    await changed.append([message(b"3")])
    await changed.close()
    assert sorted(await stored(path, 2)) == [b"1", b"3"]


async def test_a_busy_queue_does_not_delay_other_endpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUSY_SECONDS", 10 * PATIENCE, raising=False)
    monkeypatch.setattr(module, "CHECK_SECONDS", 0.0)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    async with opened(tmp_path / "busy.queue") as busy, opened(tmp_path / "other.queue") as other:
        await asyncio.gather(busy.append([message()]), other.append([message()]))
        with holding_the_turn(tmp_path / "busy.queue"):
            waiting = [asyncio.create_task(busy.append([message(b"2")])) for _ in range(5)]
            try:
                async with asyncio.timeout(PATIENCE):
                    for _ in range(5):
                        await busy.check()  # what /health calls
                        await other.append([message(b"3")])
                assert not any(task.done() for task in waiting)
            finally:
                for task in waiting:
                    task.cancel()
