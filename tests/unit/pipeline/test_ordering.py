"""The ordering stage without a JVM."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.tws_tester import TwsTester

from headrace.core.identity import event_key
from headrace.pipeline.blocks import pack, unpack
from headrace.pipeline.ordering import OrderingProcessor
from headrace.pipeline.schemas import INDEX_SCHEMA, ORDERED_BLOCKS, ORDERED_SCHEMA
from headrace.wire.log import LOG_SCHEMA

SECOND = 1_000_000
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Scope:
    """A shard of the log, as the source hands it to the processor batch by batch."""

    def __init__(self) -> None:
        self.tester = TwsTester(OrderingProcessor(10 * SECOND))
        self.seqs: dict[str, int] = {}

    def row(self, id: str, follows: str | None) -> dict[str, object]:
        seq = len(self.seqs) + 1
        row = {
            "seq": seq,
            "key": event_key("tests", id),
            "leader_key": None if follows is None else event_key("tests", follows),
            "leader_seq": self.seqs.get(follows or "", -1),
            "source": "tests",
            "id": id,
            "type": "leg",
            "subject": None,
            "occurred": NOW,
            "received": NOW,
            "follows": follows,
            "trace": None,
            "payload": f'{{"id": "{id}"}}',
            "triggers": ["b", "a"],
        }
        self.seqs[id] = seq
        return row

    def batch(self, clock: float, *blocks: list[tuple[str, str | None]]) -> pd.DataFrame:
        rows = [[self.row(*event) for event in block] for block in blocks]
        packed: list[tuple[object, bytes | None]] = [
            (block[0]["seq"], pack(pa.Table.from_pylist(block, schema=LOG_SCHEMA))) for block in rows
        ]
        packed = [*reversed(packed), (len(self.seqs) + 1, None)]
        frame = pd.DataFrame({"shard": 0, "first": [first for first, _ in packed], "clock": int(clock * SECOND)})
        frame["block"] = [block for _, block in packed]
        return frame

    def run(self, clock: float, *blocks: list[tuple[str, str | None]]) -> dict[str, object]:
        answer: Any = self.tester.testInPandas(0, self.batch(clock, *blocks))
        (row,) = answer.to_dict("records")
        assert set(ORDERED_BLOCKS.names) <= set(row)
        return dict(row)

    def held(self) -> object:
        return self.tester.peekValueState("ordering", 0)


def events(row: dict[str, object]) -> list[dict[str, object]]:
    block = row["block"]
    assert isinstance(block, bytes)
    table = unpack(block)
    assert table.schema == ORDERED_SCHEMA
    rows: list[dict[str, object]] = table.to_pylist()
    return rows


def test_released_events_come_in_order_with_all_they_carry() -> None:
    scope = Scope()
    first = scope.run(0, [("c", "b"), ("x", None)], [("b", "a")])
    assert [(event["position"], event["id"], event["mark"], event["waited"]) for event in events(first)] == [(1, "x", None, 0.0)]
    assert (first["released"], first["waiting"]) == (1, 2)
    second = scope.run(2.5, [("a", None)])
    assert [(event["position"], event["id"], event["waited"]) for event in events(second)] == [(2, "a", 0.0), (3, "b", 2.5), (4, "c", 2.5)]
    assert [event["payload"] for event in events(second)] == ['{"id": "a"}', '{"id": "b"}', '{"id": "c"}']
    assert (second["position"], second["waiting"], second["longest"]) == (4, 0, 0.0)
    index = second["index"]
    assert isinstance(index, bytes)
    assert unpack(index).schema == INDEX_SCHEMA
    assert unpack(index).to_pylist() == [{"seq": seq, "triggers": "b\x1fa"} for seq in (4, 3, 1)]


def test_a_tick_lets_time_pass_and_changes_no_state_while_nothing_is_due() -> None:
    scope = Scope()
    scope.run(0, [("b", "a")])
    held = scope.held()
    idle = scope.run(4)
    assert (idle["block"], idle["index"], idle["released"], idle["waiting"], idle["longest"]) == (None, None, 0, 1, 4.0)
    assert scope.held() is held
    lost = scope.run(10)
    assert [(event["id"], event["mark"], event["waited"]) for event in events(lost)] == [("b", "lost", 10.0)]
    late = scope.run(11, [("a", None)])
    assert [(event["id"], event["mark"]) for event in events(late)] == [("a", "late")]
    assert (late["lost"], late["late"], late["cycles"], late["position"]) == (1, 1, 0, 2)


def test_a_cycle_is_released_with_its_mark() -> None:
    row = Scope().run(0, [("a", "b"), ("b", "a")])
    assert [(event["id"], event["mark"]) for event in events(row)] == [("a", "cycle"), ("b", "cycle")]
    assert row["cycles"] == 1


def test_an_empty_log_has_nothing_to_say() -> None:
    scope = Scope()
    row = scope.run(0)
    assert (row["released"], row["position"], row["waiting"]) == (0, 0, 0)
    assert scope.held() is None
