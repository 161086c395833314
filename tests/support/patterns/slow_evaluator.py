"""A slow evaluator of event patterns, written from the rules of EventBridge and event-ruler, independent of `headrace`.

An event is a list of its plain values, each with its path and its place in the arrays around it. A pattern is a list of rules: `$or` is
expanded, and each rule has alternatives for each of its paths. A rule matches if each path has a passing value, all values together name
at most one element of each array, and the paths that must be absent have no value in these elements.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, NamedTuple

Path = tuple[str, ...]
Membership = dict[Path, int]


class Value(NamedTuple):
    """A plain value of an event: `membership` has the number of the element in each array, by the place of the array."""

    path: Path
    value: Any
    membership: Membership


def evaluate(pattern: Any, event: Any) -> bool:
    """Return whether an event matches a pattern."""
    values = list(flatten(event))
    return any(_matches(sorted(rule.items()), values, {}) for rule in rules(pattern))


def flatten(node: Any, path: Path = (), place: Path = (), membership: Membership | None = None) -> Iterator[Value]:
    """Yield the plain values of an event."""
    membership = membership or {}
    if isinstance(node, dict):
        for name, inner in node.items():
            yield from flatten(inner, (*path, name), (*place, name), membership)
    elif isinstance(node, list):
        for number, inner in enumerate(node):
            yield from flatten(inner, path, (*place, f"[{number}]"), membership | {place: number})
    else:
        yield Value(path, node, membership)


def rules(pattern: Any, path: Path = ()) -> list[dict[Path, list[Any]]]:
    """Return the rules of a pattern: the alternatives of each path, without `$or`."""
    expanded: list[dict[Path, list[Any]]] = [{}]
    for name, node in pattern.items():
        if name == "$or":
            parts = [rule for inner in node for rule in rules(inner, path)]
        elif isinstance(node, dict):
            parts = rules(node, (*path, name))
        else:
            absent = [test for test in node if test == {"exists": False}]
            present = [test for test in node if test not in absent]
            parts = [{(*path, name): tests} for tests in (present, absent[:1]) if tests]
        expanded = [{**left, **right} for left in expanded for right in parts]
    return expanded


def _matches(fields: list[tuple[Path, list[Any]]], values: list[Value], membership: Membership) -> bool:
    for number, (path, tests) in enumerate(fields):
        if tests == [{"exists": False}]:
            continue
        rest = fields[:number] + fields[number + 1 :]
        return any(
            _matches(rest, values, membership | value.membership)
            for value in values
            if value.path == path and _consistent(membership, value.membership) and any(passes(test, value.value) for test in tests)
        )
    absent = [path for path, _ in fields]
    return not any(value.path in absent and _consistent(membership, value.membership) for value in values)


def _consistent(left: Membership, right: Membership) -> bool:
    return all(right.get(array, number) == number for array, number in left.items())


def passes(test: Any, value: Any) -> bool:
    """Return whether a plain value passes one value or operator of a pattern."""
    if not isinstance(test, dict):
        return _same(test, value)
    ((operator, argument),) = test.items()
    if operator == "exists":
        return True
    if operator == "anything-but":
        excluded = argument if isinstance(argument, list) else [argument]
        if isinstance(argument, dict):
            ((inner, texts),) = argument.items()
            excluded = [{inner: text} for text in (texts if isinstance(texts, list) else [texts])]
        return not any(passes(one, value) for one in excluded)
    if operator == "numeric":
        return _is_number(value) and all(_compare(sign, value, bound) for sign, bound in zip(argument[::2], argument[1::2], strict=True))
    return isinstance(value, str) and _passes_text(operator, argument, value)


def _passes_text(operator: str, argument: Any, value: str) -> bool:
    if isinstance(argument, dict):
        argument, value = argument["equals-ignore-case"].casefold(), value.casefold()
    match operator:
        case "cidr":
            return _is_in_network(value, argument)
        case "wildcard":
            return re.fullmatch(_wildcard_expression(argument), value, re.DOTALL) is not None
        case "exactly":
            return bool(value == argument)
        case "equals-ignore-case":
            return bool(value.casefold() == argument.casefold())
        case "prefix":
            return bool(value[: len(argument)] == argument)
        case "suffix":
            return bool(value[max(0, len(value) - len(argument)) :] == argument)
    raise AssertionError(operator)


def _is_in_network(value: str, network: str) -> bool:
    try:
        return "%" not in value and ipaddress.ip_address(value) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


def _wildcard_expression(text: str) -> str:
    expression, escaped = "", False
    for char in text:
        if escaped:
            expression, escaped = expression + re.escape(char), False
        elif char == "\\":
            escaped = True
        else:
            expression += ".*" if char == "*" else re.escape(char)
    return expression


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same(left: Any, right: Any) -> bool:
    if _is_number(left) and _is_number(right):
        return Fraction(left) == Fraction(right)
    return type(left) is type(right) and bool(left == right)


def _compare(sign: str, value: Any, bound: Any) -> bool:
    left, right = Fraction(value), Fraction(bound)
    return {"=": left == right, "<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[sign]
