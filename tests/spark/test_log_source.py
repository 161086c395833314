"""The bounds of batches against the real api; it needs no session."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.client.pipeline import PipelineClient
from headrace.errors import PipelineError
from headrace.pipeline import log_source
from headrace.pipeline.log_source import MAX_STEP, LogBounds, Offset
from headrace.wire.events import Cursor, ScopeReport
from headrace.wire.jobs import RegisterJob
from pipeline_kit import KEY, Api, leg

TICK = 1_000_000


@pytest.fixture
def client(api: Api) -> Iterator[PipelineClient]:
    with PipelineClient(api.url, key=KEY) as made:
        made.register(RegisterJob(registration_id="the-pipeline", kind="pipeline", hostname="here", pid=1, project="flights"))
        yield made


@pytest.fixture
def options(api: Api, client: PipelineClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setattr(log_source, "_POLL", 0.01)
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


def at(seq: int, wall: int = 0, clock: int = 0, again: int = 0) -> Offset:
    return {"seq": seq, "again": again, "wall": wall, "clock": clock}


def test_batches_are_as_large_as_the_limit_says(api: Api, options: dict[str, str], turn: Callable[[int], None]) -> None:
    feed(api, 15)
    bounds: LogBounds = pickle.loads(pickle.dumps(LogBounds(options)))
    start = bounds.initialOffset()
    assert start == at(0)
    turn(3)
    rows, second = bounds.read(start)
    assert (list(rows), second) == ([], at(10, wall=3, clock=3))
    assert bounds.read(second)[1] == at(15, wall=3, clock=3)
    bounds.stop()
    bounds.stop()


def test_a_scope_may_begin_later(options: dict[str, str], turn: Callable[[int], None]) -> None:
    assert LogBounds({**options, "begin": "7"}).initialOffset() == at(7)


def test_the_clock_goes_on_with_the_wall_but_not_through_downtime(api: Api, options: dict[str, str], turn: Callable[[int], None]) -> None:
    feed(api, 1)
    bounds, start = LogBounds(options), at(0, wall=1_000, clock=70)
    turn(1_500)
    assert bounds.read(start)[1]["clock"] == 570
    turn(3_600_000_000)
    assert bounds.read(start)[1] == at(1, wall=3_600_000_000, clock=70 + MAX_STEP)
    turn(0)  # the machine's clock was set back
    assert bounds.read(start)[1] == at(1, wall=0, clock=70)
    bounds.stop()


def test_an_idle_clock_ticks_only_while_something_may_wait_or_is_held(
    api: Api, client: PipelineClient, options: dict[str, str], turn: Callable[[int], None]
) -> None:
    feed(api, 1)
    bounds, start = LogBounds(options), at(1)
    turn(TICK - 1)
    rows, same = bounds.read(start)
    assert (list(rows), same) == ([], start)
    turn(TICK)
    ticked = at(1, wall=TICK, clock=TICK)
    assert bounds.read(start)[1] == ticked  # nothing is known of what waits after seq 1
    client.commit("flights", Cursor(cursor=1, batch=0, waiting=1))
    assert bounds.read(start)[1] == ticked
    client.commit("flights", Cursor(cursor=1, batch=0, report=ScopeReport(held=1)))
    assert bounds.read(start)[1] == ticked
    client.commit("flights", Cursor(cursor=1, batch=0))
    assert bounds.read(start)[1] == start
    bounds.stop()


def test_a_wall_clock_that_is_set_back_while_nothing_comes_stops_the_scopes_clock_for_one_tick_only(
    api: Api, options: dict[str, str], turn: Callable[[int], None]
) -> None:
    feed(api, 1)
    bounds, start = LogBounds(options), at(1, wall=3_600_000_000, clock=70)
    turn(1_000)
    back = bounds.read(start)[1]
    assert back == at(1, wall=1_000, clock=70)
    turn(1_000 + TICK)
    assert bounds.read(back)[1] == at(1, wall=1_000 + TICK, clock=70 + TICK)
    bounds.stop()


def test_news_end_the_waiting(api: Api, options: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_source, "_POLL", 20.0)
    feed(api, 1)
    bounds = LogBounds({**options, "tick": "1000000000"})
    feeder = threading.Timer(0.1, feed, (api, 1))
    feeder.start()
    began = time.monotonic()
    assert bounds.read(at(1, wall=time.time_ns() // 1000))[1]["seq"] == 2
    assert time.monotonic() - began < 15
    feeder.join()
    bounds.stop()


def test_a_firing_that_comes_later_is_news(api: Api, options: dict[str, str], turn: Callable[[int], None]) -> None:
    ids = api.triggers("legs.a", "legs.b")
    api.feed([leg("1", ids["legs.a"])])
    api.feed([leg("1", ids["legs.b"])])
    bounds = LogBounds(options)
    rows, end = bounds.read(at(1))
    assert (list(rows), end) == ([], at(1, again=1))
    bounds.stop()


def test_available_now_ends_at_the_head_it_found(api: Api, options: dict[str, str], turn: Callable[[int], None]) -> None:
    feed(api, 3)
    bounds = LogBounds(options)
    bounds.prepareForTriggerAvailableNow()
    feed(api, 5)
    end = bounds.read(bounds.initialOffset())[1]
    turn(100 * TICK)
    assert end["seq"] == 3
    assert bounds.read(end)[1] == end
    bounds.stop()


def test_a_log_that_ends_before_what_was_read_is_another_log(options: dict[str, str]) -> None:
    bounds = LogBounds(options)
    with pytest.raises(PipelineError, match="The event log ends at 0, but this scope has read it up to 7: the database was replaced"):
        bounds.read(at(7))
    bounds.stop()


def test_an_api_that_is_away_is_nothing_new(api: Api, options: dict[str, str]) -> None:
    away = LogBounds({**options, "api_url": "http://127.0.0.1:1"})
    rows, end = away.read(at(0))
    assert (list(rows), end) == ([], at(0))
    away.stop()
