"""Operators on a Column of texts. Null stays null."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as sf

from headrace.core.matching.patterns.operators import Equals, Network, Operator, Prefix, Suffix, Wildcard
from headrace.replay.pattern_columns.bounds import NEVER, Bounds, exact

_ESCAPED: Final = str.maketrans({"\\": r"\\", "%": r"\%", "_": r"\_"})
_OCTET: Final = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_OCTETS: Final = 4
_OCTET_BITS: Final = 8
_MAX_ADDRESS_CHARS: Final = 45


def passes_text_operator(text: Column, operator: Operator) -> Bounds:
    """Return the condition that a text passes an operator on texts; other operators pass no text."""
    match operator:
        case Equals(folded):
            return _in_any_case(text, folded, lambda lower: lower == folded)
        case Prefix(prefix, ignore_case):
            if ignore_case:
                return _in_any_case(text, prefix, lambda lower: lower.startswith(prefix))
            return exact(text.startswith(prefix))
        case Suffix(suffix, ignore_case):
            if ignore_case:
                return _in_any_case(text, suffix, lambda lower: lower.endswith(suffix))
            return exact(text.endswith(suffix))
        case Wildcard(parts):
            return exact(text.like("%".join(part.translate(_ESCAPED) for part in parts)))
        case Network():
            return _in_network(text, operator)
    return NEVER


def _in_any_case(text: Column, folded: str, test: Callable[[Column], Column]) -> Bounds:
    """Return a test of the folded text. Spark folds as Python does for ASCII only: in Python, the Kelvin sign folds to `k`."""
    is_ascii = sf.octet_length(text) == sf.char_length(text)
    if not folded.isascii():
        return Bounds(~is_ascii, False)
    lower = test(sf.lower(text))
    return Bounds(lower | ~is_ascii, lower & is_ascii)


def _in_network(text: Column, network: Network) -> Bounds:
    if network.family == socket.AF_INET6:
        return Bounds(text.contains(":") & (sf.octet_length(text) <= _MAX_ADDRESS_CHARS), False)
    return exact(text.rlike(_ipv4_expression(network)))


def _ipv4_expression(network: Network) -> str:
    """Return the regular expression of the addresses of a network."""
    free = _OCTETS * _OCTET_BITS - network.bits
    first = network.prefix << free
    octets = []
    for shift in range((_OCTETS - 1) * _OCTET_BITS, -1, -_OCTET_BITS):
        low = first >> shift & 255
        count = 1 << min(max(free - shift, 0), _OCTET_BITS)
        octets.append(_OCTET if count > 255 else f"(?:{'|'.join(map(str, range(low, low + count)))})")
    return r"\A" + r"\.".join(octets) + r"\z"
