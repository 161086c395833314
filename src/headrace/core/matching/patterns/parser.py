"""Parser of event patterns: an object whose leaves are lists of values and operators.

    {"carrier": ["UA", {"prefix": "D"}], "origin": {"country": ["US"]}, "$or": [{"delay": [{"numeric": [">", 60]}]}, {"cancelled": [true]}]}

`$or` and `{"exists": false}` beside other values are expanded: a pattern is a list of alternatives, each a leaf for each of its fields.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Never, TypeAlias

from headrace.core.matching.patterns.operators import (
    AnythingBut,
    Equals,
    Exists,
    Leaf,
    Network,
    NumericRange,
    Operator,
    Path,
    Prefix,
    Suffix,
    Wildcard,
    address_bits,
    parse_address,
    value_keys,
)
from headrace.core.values.limits import MAX_JSON_DEPTH
from headrace.core.values.text import describe_value
from headrace.errors import ProjectError

Fields: TypeAlias = dict[Path, Leaf]

MAX_ALTERNATIVES: Final = 1_000
"""Maximum of alternatives of one pattern, after the expansion of `$or`."""
MAX_FIELDS: Final = 10_000
"""Maximum of fields of one pattern, over all its alternatives."""
MAX_TEXT_CHARS: Final = 1_000
"""Maximum of the text of an operator, in characters."""

OR: Final = "$or"
_HINT: Final = 'Write it like {"carrier": ["UA", {"prefix": "D"}], "origin": {"country": ["US"]}}.'
_MAX_VALUE_CHARS: Final = 60
_LOWER: Final = {">": 1, ">=": 0}
_UPPER: Final = {"<": -1, "<=": 0}
_UNBOUNDED: Final = (-math.inf, 0), (math.inf, 0)


@dataclass(frozen=True, slots=True)
class EventPattern:
    """A parsed pattern. An event matches if it matches all fields of one of the alternatives."""

    alternatives: tuple[tuple[tuple[Path, Leaf], ...], ...]

    @property
    def paths(self) -> set[Path]:
        """The paths of the fields."""
        return {path for fields in self.alternatives for path, _ in fields}

    def has_field(self, name: str) -> bool:
        """Return whether an alternative has this field at its top level, or a field in it."""
        return any(path[0] == name for fields in self.alternatives for path, _ in fields)

    def with_field_renamed(self, name: str, new: str) -> EventPattern:
        """Return the pattern with another name of a field at its top level."""
        return EventPattern(
            tuple(tuple(((new, *path[1:]) if path[0] == name else path, leaf) for path, leaf in fields) for fields in self.alternatives)
        )


class _Rejected(Exception):
    """The pattern is invalid. The arguments are the reason and the hint."""


def parse_pattern(pattern: Any, argument: str = "match=") -> EventPattern:
    """Return the pattern that the value of an argument describes. Raises `ProjectError`, which names the path and the error."""
    try:
        alternatives = _alternatives(pattern, (), 0)
        if len(alternatives) > 1:
            for fields in alternatives:
                _check_nesting(fields)
    except _Rejected as rejected:
        reason, hint = rejected.args
        raise ProjectError(f"In {argument}, {reason}.", hint=hint) from None
    return EventPattern(tuple(tuple(fields.items()) for fields in alternatives))


def _alternatives(pattern: Any, path: Path, level: int) -> list[Fields]:
    where = _name(path)
    if level >= MAX_JSON_DEPTH:
        _reject(f"the pattern is nested deeper than {MAX_JSON_DEPTH} levels")
    if not isinstance(pattern, Mapping) or not pattern:
        _reject(f"{where} must be a list of values, or fields with lists of values, not {_summary(pattern)}", _meant_as_value(pattern))
    joined: list[Fields] = [{}]
    for name, node in pattern.items():
        if not isinstance(name, str):
            _reject(f"{where} has a field {name!r} that is not a text")
        inner = (*path, name)
        if name == OR:
            parts = _or_alternatives(node, path, level)
        elif isinstance(node, list | tuple):
            parts = [{inner: leaf} for leaf in _leaves(node, _name(inner))]
        else:
            parts = _alternatives(node, inner, level + 1)
        joined = _joined(joined, parts)
    return joined


def _or_alternatives(node: Any, path: Path, level: int) -> list[Fields]:
    where = _name((*path, OR))
    if not isinstance(node, list | tuple) or len(node) < 2:
        _reject(f"{where} must be a list of at least two patterns", 'Write it like {"$or": [{"delay": [1]}, {"cancelled": [true]}]}.')
    alternatives: list[Fields] = []
    for pattern in node:
        if isinstance(pattern, Mapping) and (operator := next((name for name in pattern if name in _OPERATORS), None)):
            _reject(
                f"{where} has the operator {operator!r} instead of a field",
                f'Name the field: {{"{OR}": [{{"field": [{{"{operator}": …}}]}}, …]}}.',
            )
        alternatives += _alternatives(pattern, path, level + 1)
        _check_size(len(alternatives), sum(map(len, alternatives)))
    return alternatives


def _joined(left: list[Fields], right: list[Fields]) -> list[Fields]:
    """Return each alternative of `left` with each of `right`."""
    _check_size(len(left) * len(right), sum(map(len, left)) * len(right) + sum(map(len, right)) * len(left))
    for fields in left:
        for others in right:
            for path in fields.keys() & others.keys():
                _reject(f"{_name(path)} is named beside {OR} and again within it", "Name each field once on the way to a leaf.")
    if len(left) == len(right) == 1:
        left[0].update(right[0])
        return left
    return [fields | others for fields in left for others in right]


def _check_size(alternatives: int, fields: int) -> None:
    if alternatives > MAX_ALTERNATIVES:
        _reject(
            f"the pattern has more than {MAX_ALTERNATIVES:,} alternatives", f"Each {OR} multiplies them. Declare several watches instead."
        )
    if fields > MAX_FIELDS:
        _reject(f"the pattern has more than {MAX_FIELDS:,} fields in its alternatives", "Declare several watches instead.")


def _check_nesting(fields: Fields) -> None:
    """Refuse a field that is a value beside `$or`, and an object within it."""
    for path in fields:
        for length in range(1, len(path)):
            if path[:length] in fields:
                _reject(f"{_name(path[:length])} has values beside {OR}, and fields within it", "A field is either a value or an object.")


def _leaves(values: list[Any] | tuple[Any, ...], where: str) -> Iterator[Leaf]:
    """Yield the leaf of the values and operators, and the leaf of the absence."""
    if not values:
        _reject(f"{where} has an empty list, so nothing could ever match")
    plain = [value for value in values if not isinstance(value, Mapping)]
    for value in plain:
        _check_value(value, where)
    operators: list[Operator] = []
    absent = False
    for value in values:
        if isinstance(value, Mapping):
            operator = _operator(value, where)
            if operator is None:
                absent = True
            elif isinstance(operator, Leaf):
                plain += operator.values
            else:
                operators.append(operator)
    if plain or operators:
        yield Leaf(value_keys(plain), tuple(dict.fromkeys(operators)))
    if absent:
        yield Leaf(absent=True)


def _operator(described: Mapping[Any, Any], where: str) -> Operator | Leaf | None:
    """Return the operator, the leaf of an exact value, or None for the absence of the field."""
    if len(described) != 1:
        _reject(f"{where} has an object of {len(described)} fields; an operator has one: {_summary(described)}")
    name, argument = next(iter(described.items()))
    parse = _OPERATORS.get(name) if isinstance(name, str) else None
    if parse is None:
        close = difflib.get_close_matches(str(name), _OPERATORS, 1)
        _reject(
            f"{where} has the operator {_summary(name)}, which does not exist",
            f"Do you mean {close[0]!r}?" if close else f"The operators are {', '.join(_OPERATORS)}.",
        )
    return parse(argument, f"{name} of {where}")


def _exactly(argument: Any, where: str) -> Leaf:
    return Leaf((_text(argument, where, allow_empty=True),))


def _prefix(argument: Any, where: str) -> Operator:
    text, ignore_case = _text_in_any_case(argument, where)
    return Prefix(text, ignore_case)


def _suffix(argument: Any, where: str) -> Operator:
    text, ignore_case = _text_in_any_case(argument, where)
    return Suffix(text, ignore_case)


def _text_in_any_case(argument: Any, where: str) -> tuple[str, bool]:
    if not isinstance(argument, Mapping):
        return _text(argument, where, allow_empty=True), False
    if list(argument) != ["equals-ignore-case"]:
        _reject(f'{where} must be a text, or {{"equals-ignore-case": text}}, not {_summary(argument)}')
    return _text(argument["equals-ignore-case"], where, allow_empty=True).casefold(), True


def _equals_ignore_case(argument: Any, where: str) -> Operator:
    return Equals(_text(argument, where, allow_empty=True).casefold())


def _wildcard(argument: Any, where: str) -> Operator | Leaf:
    parts = _wildcard_parts(_text(argument, where, allow_empty=True), where)
    return Leaf((parts[0],)) if len(parts) == 1 else Wildcard(parts)


def _wildcard_parts(text: str, where: str) -> tuple[str, ...]:
    """Return the texts between the asterisks. A backslash escapes an asterisk or a backslash."""
    parts = [""]
    at = 0
    while at < len(text):
        char = text[at]
        if char == "\\":
            at += 1
            char = text[at : at + 1]
            if char not in {"*", "\\"}:
                _reject(f"{where} has a backslash before neither * nor another backslash: {_summary(text)}", r"Write a backslash as \\.")
            parts[-1] += char
        elif char == "*":
            if len(parts) > 1 and not parts[-1]:
                _reject(f"{where} has two asterisks in a row: {_summary(text)}", "One asterisk stands for any text.")
            parts.append("")
        else:
            parts[-1] += char
        at += 1
    return tuple(parts)


def _numeric(argument: Any, where: str) -> Operator | Leaf:
    hint = 'Write it like {"numeric": [">", 0, "<=", 5]} or {"numeric": ["=", 3]}.'
    signs, numbers = _comparisons(argument, where, hint)
    if len(signs) == 1 and signs[0] == "=":
        return Leaf((numbers[0],))
    low, high = _UNBOUNDED
    if len(signs) == 2 and not (signs[0] in _LOWER and signs[1] in _UPPER):
        _reject(f"{where} has two comparisons that are not a lower and then an upper bound: {_summary(argument)}", hint)
    for sign, number in zip(signs, numbers, strict=True):
        if sign in _LOWER:
            low = (number, _LOWER[sign])
        else:
            high = (number, _UPPER[sign])
    if low > high:
        _reject(f"{where} has a range without numbers: {_summary(argument)}", hint)
    return NumericRange(low, high)


def _comparisons(argument: Any, where: str, hint: str) -> tuple[list[str], list[float]]:
    """Return the signs and the bounds of one or two comparisons."""
    if not isinstance(argument, list | tuple) or len(argument) not in {2, 4}:
        _reject(f"{where} must be a list of one or two comparisons, not {_summary(argument)}", hint)
    signs, numbers = list(argument[::2]), list(argument[1::2])
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int | float) or (isinstance(number, float) and not math.isfinite(number)):
            _reject(f"{where} has the bound {_summary(number)}, which is not a number", hint)
    for sign in signs:
        if not isinstance(sign, str) or sign not in {"=", *_LOWER, *_UPPER}:
            _reject(f"{where} has the comparison {_summary(sign)}; there are =, <, <=, > and >=", hint)
    return signs, numbers


def _cidr(argument: Any, where: str) -> Operator:
    hint = 'Write it like {"cidr": "10.0.0.0/8"} or {"cidr": "2001:db8::/32"}.'
    address, slash, bits = _text(argument, where).partition("/")
    parsed = parse_address(address)
    if not slash or parsed is None or not (bits.isascii() and bits.isdigit() and int(bits) <= address_bits(parsed[0])):
        _reject(f"{where} is not an address and the length of its network: {_summary(argument)}", hint)
    family, number = parsed
    return Network(family, int(bits), number >> (address_bits(family) - int(bits)))


def _exists(argument: Any, where: str) -> Operator | None:
    if not isinstance(argument, bool):
        _reject(f"{where} must be true or false, not {_summary(argument)}")
    return Exists() if argument else None


def _anything_but(argument: Any, where: str) -> Operator:
    if not isinstance(argument, Mapping):
        values = argument if isinstance(argument, list | tuple) else [argument]
        texts = sum(isinstance(value, str) for value in values)
        numbers = sum(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
        if not values or len(values) not in {texts, numbers}:
            _reject(f"{where} must have texts only, or numbers only, not {_summary(argument)}")
        for value in values:
            _check_value(value, where)
        return AnythingBut(value_keys(values))
    name = next(iter(argument), None)
    parse = _EXCLUDED.get(name) if isinstance(name, str) and len(argument) == 1 else None
    if parse is None:
        _reject(f"{where} can have one of {', '.join(_EXCLUDED)}, not {_summary(argument)}")
    texts_of = argument[name]
    parsed = [
        parse(_text(text, f"{name} in {where}"), f"{name} in {where}")
        for text in (texts_of if isinstance(texts_of, list | tuple) else [texts_of])
    ]
    if not parsed:
        _reject(f"{name} in {where} has an empty list")
    exact = [value for leaf in parsed if isinstance(leaf, Leaf) for value in leaf.values]
    return AnythingBut(value_keys(exact), tuple(operator for operator in parsed if not isinstance(operator, Leaf)))


_OPERATORS: Final[dict[str, Callable[[Any, str], Operator | Leaf | None]]] = {
    "prefix": _prefix,
    "suffix": _suffix,
    "equals-ignore-case": _equals_ignore_case,
    "wildcard": _wildcard,
    "anything-but": _anything_but,
    "numeric": _numeric,
    "cidr": _cidr,
    "exists": _exists,
    "exactly": _exactly,
}
_EXCLUDED: Final[dict[str, Callable[[Any, str], Operator | Leaf]]] = {
    "prefix": _prefix,
    "suffix": _suffix,
    "equals-ignore-case": _equals_ignore_case,
    "wildcard": _wildcard,
}


def _text(value: Any, where: str, *, allow_empty: bool = False) -> str:
    if not isinstance(value, str) or not (value or allow_empty):
        _reject(f"{where} must be a text{'' if allow_empty else ' that is not empty'}, not {_summary(value)}")
    if len(value) > MAX_TEXT_CHARS:
        _reject(f"{where} is longer than {MAX_TEXT_CHARS:,} characters")
    return value


def _check_value(value: Any, where: str) -> None:
    if not (value is None or isinstance(value, str | int | float)) or (isinstance(value, float) and not math.isfinite(value)):
        _reject(f"{where} has {_summary(value)}: a value is a text, a number, true, false, null or an operator")


def _meant_as_value(pattern: Any) -> str:
    if isinstance(pattern, str | int | float):
        return f"Write a single value as a list: [{_summary(pattern)}]."
    return _HINT


def _name(path: Path) -> str:
    return ".".join(path) or "the pattern"


def _summary(value: Any) -> str:
    text = describe_value(value)
    return text if len(text) <= _MAX_VALUE_CHARS else f"{text[:_MAX_VALUE_CHARS]} …"


def _reject(reason: str, hint: str = _HINT) -> Never:
    raise _Rejected(reason, hint)
