"""The contract of the ordering over the kernel in Spark's state, which the benchmark compares with the product's; without a JVM."""

from __future__ import annotations

from random import Random

import pandas as pd
import pytest
from bench.ordering.state_home import KernelInSpark, pack, unpack
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.tws_tester import TwsTester

from kernel_kit import batch
from ordering_cases import a_leader_after_many_others, a_reversed_chain, followers_of_one_leader
from ordering_homes import Stamped
from ordering_kit import LOOKBACK, WIDE, Event, Handled, history, run


class StateHome:
    """One shard, as Spark runs it: what waits is in its state alone."""

    def __init__(self, lookback: int) -> None:
        self._log = Stamped()
        self._tester = TwsTester(KernelInSpark(lookback))
        self._waiting: set[str] = set()

    def step(self, events: list[Event], now: int) -> list[Handled]:
        taken = [offered for _, offered in self._log.take(events)]
        given = pd.DataFrame({"shard": [0], "clock": [now], "block": [pack(batch(taken))]})
        answer = pd.DataFrame(self._tester.testInPandas(0, given))
        rows = unpack(answer["block"][0]).select(["id", "mark", "position"]).to_pylist()
        self._waiting |= {event[5] for event in taken}
        self._waiting -= {row["id"] for row in rows}
        return [Handled(row["id"], row["mark"], row["position"]) for row in rows]

    def waiting(self) -> set[str]:
        return self._waiting


@settings(deadline=None, max_examples=15)
@given(st.randoms(use_true_random=False))
def test_any_history_is_handled_once_each_and_leaders_first(chance: Random) -> None:
    run(StateHome(LOOKBACK), history(chance))


@pytest.mark.parametrize("case", [a_reversed_chain, followers_of_one_leader, a_leader_after_many_others])
def test_many_at_once(case: object) -> None:
    assert callable(case)
    case(StateHome(WIDE), 5_000)
