"""The source's reader against the real api; it needs no session."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from headrace.client.pipeline import PipelineClient
from headrace.errors import PipelineError
from headrace.pipeline import log_source
from headrace.pipeline.blocks import unpack
from headrace.pipeline.log_source import MAX_STEP, LogPartition, LogReader, LogSource
from headrace.pipeline.schemas import LOG_BLOCKS
from headrace.wire.events import Cursor
from headrace.wire.jobs import RegisterJob
from pipeline_kit import KEY, Api, leg

TICK = 1_000_000
LIMIT = ReadMaxRows(10)


@pytest.fixture
def client(api: Api) -> Iterator[PipelineClient]:
    with PipelineClient(api.url, key=KEY) as made:
        made.register(RegisterJob(registration_id="the-pipeline", kind="pipeline", hostname="here", pid=1, project="flights"))
        yield made


@pytest.fixture
def options(api: Api, client: PipelineClient, tmp_path: Path) -> dict[str, str]:
    (tmp_path / "token").write_text(client.token)
    return {"api_url": api.url, "token_file": str(tmp_path / "token"), "scope": "flights", "max_rows": "10", "tick": str(TICK)}


@pytest.fixture
def turn(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Set the wall clock (µs)."""

    def turn_to(now: int) -> None:
        monkeypatch.setattr(log_source, "_now", lambda: now)

    turn_to(0)
    return turn_to


def feed(api: Api, count: int) -> None:
    trigger = api.triggers("legs.a")["legs.a"]
    head = api.store.log.head().head
    api.feed([leg(str(head + i), trigger) for i in range(count)])


def read(reader: LogReader, partition: InputPartition) -> list[dict[str, Any]]:
    return [row for batch in reader.read(partition) for row in batch.to_pylist()]


def test_batches_are_as_large_as_the_limit_says(api: Api, options: dict[str, str], turn: Callable[[int], None]) -> None:
    feed(api, 25)
    reader = LogReader(options)
    start = reader.initialOffset()
    assert start == {"seq": 0, "wall": 0, "clock": 0}
    turn(3)
    limit = reader.getDefaultReadLimit()
    assert limit == LIMIT
    second = reader.latestOffset(start, limit)
    assert second == {"seq": 10, "wall": 3, "clock": 3}
    assert reader.latestOffset(second, ReadAllAvailable())["seq"] == 25
    reader.stop()
    reader.stop()


def test_the_clock_goes_on_with_the_wall_but_not_through_downtime(api: Api, options: dict[str, str], turn: Callable[[int], None]) -> None:
    feed(api, 1)
    reader, start = LogReader(options), {"seq": 0, "wall": 1_000, "clock": 70}
    turn(1_500)
    assert reader.latestOffset(start, LIMIT)["clock"] == 570
    turn(3_600_000_000)
    assert reader.latestOffset(start, LIMIT) == {"seq": 1, "wall": 3_600_000_000, "clock": 70 + MAX_STEP}
    turn(0)  # the machine's clock was set back
    assert reader.latestOffset(start, LIMIT) == {"seq": 1, "wall": 0, "clock": 70}
    reader.stop()


def test_an_idle_clock_ticks_only_while_something_may_wait(
    api: Api, client: PipelineClient, options: dict[str, str], turn: Callable[[int], None]
) -> None:
    feed(api, 1)
    reader, start = LogReader(options), {"seq": 1, "wall": 0, "clock": 0}
    turn(TICK - 1)
    assert reader.latestOffset(start, LIMIT) == start
    turn(TICK)
    ticked = {"seq": 1, "wall": TICK, "clock": TICK}
    assert reader.latestOffset(start, LIMIT) == ticked  # nothing is known of what waits after seq 1
    client.commit("flights", Cursor(cursor=1, batch=0, waiting=1))
    assert reader.latestOffset(start, LIMIT) == ticked
    client.commit("flights", Cursor(cursor=1, batch=0, waiting=0))
    assert reader.latestOffset(start, LIMIT) == start
    reader.stop()


def test_a_batch_is_read_in_pages_with_a_tick_at_its_end(api: Api, options: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_source, "PAGE_ROWS", 4)
    feed(api, 12)
    reader: LogReader = pickle.loads(pickle.dumps(LogReader(options)))
    assert reader.partitions({"seq": 2}, {"seq": 2}) == []
    (partition,) = reader.partitions({"seq": 2, "clock": 5}, {"seq": 11, "clock": 9})
    rows = read(reader, pickle.loads(pickle.dumps(partition)))
    assert [(row["shard"], row["first"], row["clock"]) for row in rows] == [(0, 3, 9), (0, 7, 9), (0, 11, 9), (0, 12, 9)]
    assert [unpack(row["block"]).column("seq").to_pylist() for row in rows[:-1]] == [[3, 4, 5, 6], [7, 8, 9, 10], [11]]
    assert rows[-1]["block"] is None
    reader.stop()


def test_a_tick_has_no_events_to_read(options: dict[str, str]) -> None:
    reader = LogReader(options)
    (partition,) = reader.partitions({"seq": 5, "clock": 1}, {"seq": 5, "clock": 2})
    assert read(reader, partition) == [{"shard": 0, "first": 6, "clock": 2, "block": None}]


def test_events_that_were_removed_from_the_log_end_the_reading(api: Api, options: dict[str, str]) -> None:
    feed(api, 1)
    reader = LogReader(options)
    assert [row["first"] for row in read(reader, LogPartition(1, 9, 0))] == [10]
    reader.stop()
    with pytest.raises(TypeError, match="not a partition of this source"):
        read(reader, InputPartition(1))


def test_available_now_ends_at_the_head_it_found(api: Api, options: dict[str, str], turn: Callable[[int], None]) -> None:
    feed(api, 3)
    reader = LogReader(options)
    reader.prepareForTriggerAvailableNow()
    feed(api, 5)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    turn(100 * TICK)
    assert end["seq"] == 3
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    reader.stop()


def test_a_log_that_ends_before_what_was_read_is_another_log(api: Api, options: dict[str, str]) -> None:
    reader = LogReader(options)
    with pytest.raises(PipelineError, match="The event log ends at 0, but this scope has read it up to 7: the database was replaced"):
        reader.latestOffset({"seq": 7, "wall": 0, "clock": 0}, LIMIT)
    reader.stop()


def test_an_api_that_is_away_is_nothing_new_for_a_plan_and_waited_for_in_a_read(
    api: Api, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    feed(api, 1)
    away = LogReader({**options, "api_url": "http://127.0.0.1:1"})
    start = {"seq": 0, "wall": 0, "clock": 0}
    assert away.latestOffset(start, LIMIT) == start
    pauses: list[float] = []

    def comes_back(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 8:
            away._options = options
            away.stop()

    monkeypatch.setattr("time.sleep", comes_back)
    assert len(read(away, LogPartition(0, 1, 0))) == 2
    assert pauses == [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 5.0, 5.0]
    away.stop()
    away._options = {**options, "api_url": "http://127.0.0.1:1"}
    pauses.clear()
    away.prepareForTriggerAvailableNow()
    assert len(pauses) == 8
    away.stop()


def test_the_source_names_itself(options: dict[str, str]) -> None:
    source = LogSource({**options})
    assert (source.name(), source.schema()) == ("headrace", LOG_BLOCKS)
    assert isinstance(source.streamReader(LOG_BLOCKS), LogReader)
