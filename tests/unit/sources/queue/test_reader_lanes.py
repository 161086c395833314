"""A lane for each key: the cost of a message, and the pruning of empty lanes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.core.ledger.outcome import AdvanceItem, AdvanceOutcome
from headrace.sources.outgoing import draft
from headrace.sources.queue import reader as queue_reader
from headrace.sources.queue.reader import QueueMessage, QueueReader
from headrace.sources.queue.upstream import Queue
from headrace.sources.queue.writer import QueueWriter
from headrace.testing.contract.reading import reading

ACKED = AdvanceOutcome(1, 0)
REJECTED = AdvanceOutcome(0, 0, rejected=1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "orders.queue"


@contextmanager
def reader_of(path: Path) -> Iterator[QueueReader]:
    reader = QueueReader(path)
    try:
        yield reader
    finally:
        reader.close()


def done(reader: QueueReader, messages: list[QueueMessage], outcome: AdvanceOutcome = ACKED) -> None:
    reader.commit([[AdvanceItem(message, outcome)] for message in messages])


def fetched(reader: QueueReader) -> list[QueueMessage]:
    """Return all there is."""
    found: list[QueueMessage] = []
    while more := reader.fetch():
        found += more
    return found


def rows(path: Path, sql: str) -> list[tuple[object, ...]]:
    with sqlite3.connect(path) as connection:
        found = connection.execute(sql).fetchall()
    connection.close()
    return found


def steps_of_a_message(reader: QueueReader, writer: QueueWriter) -> int:
    """Return how many steps of SQLite's machine it takes to fetch and commit a message."""
    count = 0

    def step() -> None:
        nonlocal count
        count += 1

    connections = reader._file.connection, reader._notes
    for connection in connections:
        connection.set_progress_handler(step, 1)
    writer.send({"n": 1}, lane="one")
    done(reader, reader.fetch())
    assert reader.fetch() == []
    for connection in connections:
        connection.set_progress_handler(None, 0)
    return count


def test_the_cost_of_a_message_does_not_depend_on_the_number_of_lanes(path: Path) -> None:
    with QueueWriter(path) as writer, reader_of(path) as reader:
        steps = []
        for count in (10, 5_000):
            writer._append([[draft({"n": 1}, f"{count}-{number}", None)] for number in range(count)])
            done(reader, fetched(reader))
            steps.append(steps_of_a_message(reader, writer))
        assert steps[1] <= steps[0] * 1.5


def test_empty_lanes_are_dropped_and_positions_are_never_reused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_reader, "EMPTY_LANE_SECONDS", 0.0)
    seen: set[tuple[str, int | None]] = set()
    with QueueWriter(path) as writer, reader_of(path) as reader:
        for turn in range(5):
            for lane in ("a", "b", "c"):
                for number in range(turn + 1):
                    writer.send({"turn": turn, "n": number}, lane=lane)
            messages = fetched(reader)
            assert len(messages) == 3 * (turn + 1)
            places = {(message.lane, message.position) for message in messages}
            assert len(places) == len(messages)
            assert not places & seen
            seen |= places
            first = {lane: min(message.position or 0 for message in messages if message.lane == lane) for lane, _ in places}
            assert all(state.committed is None for lane, state in reader.lanes.items() if lane in first)
            done(reader, messages)
            reader.renew()
            reader.renew()
            assert rows(path, "SELECT name FROM lane") == []
            assert reader.lanes == {}
            assert not reader._reached


async def test_lanes_with_messages_or_dead_letters_and_declared_lanes_are_retained(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_reader, "EMPTY_LANE_SECONDS", 0.0)
    with QueueWriter(path, lanes=2) as writer, reader_of(path) as reader:
        for lane in ("0", "waits", "rejected", "gone"):
            writer.send({}, lane=lane)
        messages = {message.lane.partition("@")[0]: message for message in fetched(reader)}
        done(reader, [messages["0"], messages["gone"]])
        done(reader, [messages["rejected"]], REJECTED)
        reader.renew()
        reader.renew()
    assert {row[0] for row in rows(path, "SELECT name FROM lane")} == {"0", "waits", "rejected"}
    assert [letter.lane.partition("@")[0] for letter in Queue(path).dead_letters()] == ["rejected"]
    async with reading(Queue(path).producer()) as held:
        assert [raw.lane.partition("@")[0] for raw, _ in await held.take(1)] == ["waits"]


def test_a_sender_with_a_cached_dropped_lane_does_not_send_to_another_lane(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_reader, "EMPTY_LANE_SECONDS", 0.0)
    with QueueWriter(path) as old, QueueWriter(path) as new, reader_of(path) as reader:
        old.send({}, lane="a")
        done(reader, fetched(reader))
        reader.renew()
        new.send({}, lane="b")
        sent = old.send({}, lane="a")
        found = {(message.lane, message.position) for message in fetched(reader)}
        assert {lane.partition("@")[0] for lane, _ in found} == {"a", "b"}
        assert (sent.lane, sent.position) in found


def test_lanes_that_were_empty_before_the_reader_started_are_dropped(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with QueueWriter(path) as writer, reader_of(path) as reader:
        for number in range(50):
            writer.send({}, lane=f"{number}")
        done(reader, fetched(reader))
    monkeypatch.setattr(queue_reader, "EMPTY_LANE_SECONDS", 0.0)
    with reader_of(path) as reader:
        reader.renew()
    assert rows(path, "SELECT name FROM lane") == [("0",)]


def test_more_lanes_than_one_fetch_reads_are_all_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_reader, "FETCH_LANES", 7)
    with QueueWriter(path) as writer, reader_of(path) as reader:
        assert reader.fetch() == []
        writer._append([[draft({}, f"together-{number}", None)] for number in range(30)])
        for number in range(30):
            writer.send({}, lane=f"alone-{number}")
        assert len({message.lane for message in fetched(reader)}) == 60


async def test_messages_with_keys_sent_before_the_first_reader_are_in_its_lanes(path: Path) -> None:
    """`headrace send` makes the queue with one lane; the project says how many there are."""
    with QueueWriter(path) as writer:
        for number in range(200):
            writer.send({"n": number}, key=f"key-{number % 10}")
        writer.send({"n": 200})
        writer.send({"n": 201}, lane="named")
    async with reading(Queue(path, lanes=4).producer()) as held:
        with QueueWriter(path) as writer:
            for number in range(202, 302):
                writer.send({"n": number}, key=f"key-{number % 10}")
        items = await held.take(302)
    lanes = {raw.key: set[str]() for raw, _ in items}
    for raw, _ in items:
        lanes[raw.key].add(raw.lane)
    assert all(len(found) == 1 for key, found in lanes.items() if key is not None)
    assert len({raw.lane for raw, _ in items if raw.key is not None}) > 1
    for key in lanes:
        numbers = [raw.value["n"] for raw, _ in items if raw.key == key and key is not None]
        assert numbers == sorted(numbers)
    assert sorted(raw.value["n"] for raw, _ in items) == list(range(302))
    places = [(raw.lane, raw.position) for raw, _ in items]
    assert len(set(places)) == len(places)


def test_unread_messages_are_counted_from_the_oldest_one_and_when_the_lease_is_renewed(tmp_path: Path) -> None:
    path = tmp_path / "orders.queue"
    with QueueWriter(path) as queue:
        queue.send_many({"n": number} for number in range(10))
        reader = QueueReader(path)
        assert reader.unread == 10
        first = reader.fetch()
        assert (len(first), reader.unread) == (10, 0)
        reader.commit([[AdvanceItem(message, AdvanceOutcome(1, 0)) for message in first[:4]]])
        reader.close()
        again = QueueReader(path)
        assert again.unread == 6, "four messages are deleted"
        queue.send_many({"n": number} for number in range(3))
        again.renew()
        assert again.unread == 9
        assert len(again.fetch()) == 9
        assert again.unread == 0
        again.close()
