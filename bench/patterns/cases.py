"""Watches of each operator and of a mix, and events of which each matches about one of them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

Pattern = dict[str, Any]

_TAGS: Final = 100
"""Different values of the second field of each pattern."""
_PADDING: Final = "abcdefghijklmnopqrstuvwxyz 0123456789"


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator: the leaf of watch n, and a value that passes it."""

    name: str
    leaf: Callable[[int], list[Any]]
    value: Callable[[int], Any]


def _address(number: int) -> str:
    return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


OPERATORS: Final = (
    Operator("exact", lambda n: [f"order-{n}"], lambda n: f"order-{n}"),
    Operator("prefix", lambda n: [{"prefix": f"order-{n}-"}], lambda n: f"order-{n}-paid"),
    Operator("suffix", lambda n: [{"suffix": f"-{n}"}], lambda n: f"order-{n}"),
    Operator("equals-ignore-case", lambda n: [{"equals-ignore-case": f"ORDER-{n}"}], lambda n: f"Order-{n}"),
    Operator("wildcard", lambda n: [{"wildcard": f"*/order-{n}/*.json"}], lambda n: f"inbox/order-{n}/lines.json"),
    Operator("numeric", lambda n: [{"numeric": [">=", n, "<", n + 1]}], lambda n: n + 0.5),
    Operator("cidr", lambda n: [{"cidr": f"{_address(n)}/32"}], _address),
    Operator("anything-but", lambda n: [{"anything-but": {"prefix": [f"order-{n}-", "x"]}}], lambda n: f"order-{n}-paid"),
    Operator("exists", lambda _: [{"exists": True}], lambda n: f"order-{n}"),
)
"""Watches of `anything-but` and `exists` have a second field with one of `_TAGS` values; an event matches one hundredth of them."""


def watches(operator: Operator, number: int) -> Iterator[Pattern]:
    """Yield the patterns of `number` watches."""
    for n in range(number):
        yield {"detail": {"field": operator.leaf(n)}, "tag": [f"t{n % _TAGS}"]}


def mixed(number: int) -> Iterator[Pattern]:
    """Yield the patterns of a realistic mix: customers, paths, amounts, networks, and a few fields that many watches share."""
    for n in range(number):
        kind = n % 8
        detail: Pattern
        if kind < 3:
            detail = {"field": [f"order-{n}", f"order-{n + number}"]}
        elif kind == 3:
            detail = {"path": [{"prefix": f"inbox/{n}/"}], "state": [{"anything-but": ["draft"]}]}
        elif kind == 4:
            detail = {"path": [{"wildcard": f"*/{n}/*.json"}]}
        elif kind == 5:
            detail = {"amount": [{"numeric": [">=", n, "<", n + 8]}], "state": ["paid", "sent"]}
        elif kind == 6:
            detail = {"ip": [{"cidr": f"{_address(n)}/29"}], "note": [{"exists": False}]}
        else:
            detail = {"$or": [{"field": [{"suffix": f"-{n}"}]}, {"customer": [{"equals-ignore-case": f"C{n}"}]}]}
        yield {"source": ["shop", {"prefix": "aws."}], "detail": detail}


def events(operator: Operator, number: int, count: int, size: int) -> list[bytes]:
    """Return JSON texts of about `size` bytes, each of which matches a random watch."""
    rng = random.Random(20261127)
    return [_event(size, n % _TAGS, {"field": operator.value(n)}) for n in (rng.randrange(number) for _ in range(count))]


def mixed_events(number: int, count: int, size: int) -> list[bytes]:
    """Return JSON texts of about `size` bytes for the mix."""
    rng = random.Random(20261127)
    texts = []
    for _ in range(count):
        n = rng.randrange(number)
        detail = {
            "field": f"order-{n}",
            "path": f"inbox/{rng.randrange(number)}/lines.json",
            "amount": rng.randrange(number) + 0.5,
            "ip": _address(rng.randrange(number)),
            "state": rng.choice(["draft", "paid", "sent"]),
            "customer": f"c{rng.randrange(number)}",
        }
        texts.append(_event(size, n % _TAGS, detail))
    return texts


def _event(size: int, tag: int, detail: dict[str, Any]) -> bytes:
    event: dict[str, Any] = {"id": "5f0c1f6e-0c2a", "source": "shop", "time": "2026-11-27T04:00:00Z", "tag": f"t{tag}", "detail": detail}
    extra: list[dict[str, Any]] = []
    event["extra"] = extra
    while (room := size - len(json.dumps(event))) > 0:
        extra.append({"text": _PADDING[:room], "n": len(extra), "list": [len(extra), "x"]})
    return json.dumps(event).encode()
