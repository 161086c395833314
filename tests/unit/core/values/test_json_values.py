"""Values that survive JSON unchanged: the quick check accepts only values that the full check accepts."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal
from enum import IntEnum
from typing import Any, Final

import pytest

from headrace.core.values.json_values import _is_surely_plain, _why_not_plain, why_not_plain
from headrace.core.values.limits import MAX_JSON_DEPTH

SEED: Final = 9


class Level(IntEnum):
    LOW = 1


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


LEAVES: Final[list[Callable[[], Any]]] = [
    lambda: None,
    lambda: True,
    lambda: 2**63 - 1,
    lambda: -(2**63),
    lambda: 2**63,
    lambda: 2**64 - 1,
    lambda: -(2**63) - 1,
    lambda: 10**30,
    lambda: -0.0,
    lambda: 1e300,
    lambda: float("nan"),
    lambda: float("inf"),
    lambda: "text",
    lambda: "ä€😀",
    lambda: "a\0b",
    lambda: "\\u0000",
    lambda: "\ud800",
    lambda: "1234567890123456789012",
    lambda: (1, 2),
    lambda: {1, 2},
    lambda: b"bytes",
    lambda: Decimal("1.5"),
    lambda: Level.LOW,
    object,
    lambda: {1: "a"},
    lambda: {"a\0": 1},
    lambda: {"\udfff": 1},
    lambda: nested(MAX_JSON_DEPTH),
    lambda: nested(MAX_JSON_DEPTH + 1),
    lambda: nested(100_000),
]


def odd_value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.random()
    if depth > 3 or kind < 0.4:
        return rng.choice(LEAVES)() if rng.random() < 0.3 else rng.choice([1, "x", None, 2.5, "{[", "a" * 70_000])
    if kind < 0.7:
        return [odd_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {f"key{number}": odd_value(rng, depth + 1) for number in range(rng.randrange(4))}


@pytest.mark.parametrize("number", range(len(LEAVES)))
def test_the_quick_check_accepts_no_value_that_the_full_check_rejects(number: int) -> None:
    for value in (LEAVES[number](), {"key": LEAVES[number]()}, [LEAVES[number]()]):
        assert not (_is_surely_plain(value) and _why_not_plain(value))


def test_the_quick_check_accepts_no_random_value_that_the_full_check_rejects() -> None:
    rng = random.Random(SEED)
    taken = 0
    for number in range(300):
        value = odd_value(rng)
        quick, why = _is_surely_plain(value), _why_not_plain(value)
        assert not (quick and why), f"seed {SEED}, value {number}: {why}"
        taken += quick
    assert taken > 75, "most of what is plain is seen at once"


def test_a_value_that_contains_itself_is_rejected() -> None:
    value: list[Any] = []
    value.append(value)
    assert "contains itself" in str(why_not_plain(value))
