"""A naive evaluator of patterns: each watch is tested by itself, as a Python filter would."""

from __future__ import annotations

import fnmatch
import ipaddress
from collections.abc import Callable
from typing import Any

Test = Callable[[Any], bool]


def compiled(pattern: dict[str, Any]) -> Test:
    """Return the function that tests one event without arrays."""
    tests = [_field(name, node) for name, node in pattern.items()]
    return lambda event: all(test(event) for test in tests)


def _field(name: str, node: Any) -> Test:
    if name == "$or":
        parts = [compiled(part) for part in node]
        return lambda event: any(part(event) for part in parts)
    if isinstance(node, dict):
        inner = compiled(node)
        return lambda event: isinstance(event.get(name), dict) and inner(event[name])
    if {"exists": False} in node:
        return lambda event: name not in event
    leaves = [_leaf(test) for test in node]
    return lambda event: name in event and any(leaf(event[name]) for leaf in leaves)


def _leaf(test: Any) -> Test:
    if not isinstance(test, dict):
        return lambda value: bool(value == test)
    ((operator, argument),) = test.items()
    if operator == "anything-but":
        excluded = (
            [_leaf({inner: text}) for inner, texts in argument.items() for text in texts]
            if isinstance(argument, dict)
            else map(_leaf, argument)
        )
        tests = list(excluded)
        return lambda value: not any(one(value) for one in tests)
    if operator == "numeric":
        low, high = argument[1], argument[3]
        return lambda value: isinstance(value, int | float) and low <= value < high
    if operator == "cidr":
        network = ipaddress.ip_network(argument, strict=False)
        return lambda value: isinstance(value, str) and ipaddress.ip_address(value) in network
    if operator == "exists":
        return lambda _: True
    return _text_leaf(operator, argument)


def _text_leaf(operator: str, argument: str) -> Test:
    if operator == "prefix":
        return lambda value: isinstance(value, str) and value.startswith(argument)
    if operator == "suffix":
        return lambda value: isinstance(value, str) and value.endswith(argument)
    if operator == "wildcard":
        return lambda value: isinstance(value, str) and fnmatch.fnmatchcase(value, argument)
    folded = argument.casefold()
    return lambda value: isinstance(value, str) and value.casefold() == folded
