from __future__ import annotations

from sys import getsizeof

from headrace.core.memory_budget import MemoryBudget, weigh


def test_a_stream_gets_two_thirds_and_a_second_stream_gets_less() -> None:
    budget = MemoryBudget(300)
    held = 0
    while budget.admits(held):
        held += 1
        budget.change(1)
    assert held == 200
    other = 0
    while budget.admits(other):
        other += 1
        budget.change(1)
    assert 50 < other < 100
    assert budget.used < 300


def test_a_stream_that_holds_no_memory_is_always_admitted() -> None:
    budget = MemoryBudget(10)
    assert budget.admits(0)
    budget.change(1000)
    assert budget.admits(0)
    assert not budget.admits(1)


def test_waiters_are_notified_when_memory_is_released() -> None:
    told: list[int] = []
    budget = MemoryBudget(10)
    budget.waiting[lambda: told.append(budget.used)] = None
    budget.change(8)
    budget.change(-3)
    assert told == [5]


class Odd:
    def __sizeof__(self) -> int:
        raise SystemExit


def test_weigh_estimates_the_size_of_a_value() -> None:
    assert weigh("x" * 1000) == getsizeof("x" * 1000)
    assert weigh({"a": ["x" * 1000, b"y" * 1000], "b": ({"c": "z" * 1000},)}) > 3000
    assert 0.5 < weigh([number * "x" for number in [100] * 100_000]) / (100_000 * (149 + 8)) < 1.5
    assert weigh([Odd()]) >= 1024
    cyclic: list[object] = []
    cyclic.append(cyclic)
    assert weigh(cyclic) > 0
