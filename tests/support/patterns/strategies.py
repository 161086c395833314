"""Strategies of event patterns and of events that often match them: few names, few characters, few numbers."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

NAMES = st.sampled_from("abc")
TEXTS = st.text("xX*ß\\", max_size=4)
SOME_TEXTS = st.text("xX*ß", min_size=1, max_size=2)
ADDRESSES = st.sampled_from(
    ["10.0.0.1", "10.0.0.255", "10.0.1.0", "11.0.0.0", "::1", "2001:db8::1", "2001:DB8:0::2", "::ffff:10.0.0.1", "10.0.0.01"]
)
NUMBERS = st.integers(-2, 3) | st.sampled_from([0.5, 1.0, 1e0, 2**53, 2**53 + 1, float(2**53), 10**30, 1e30])
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS | ADDRESSES

_IN_ANY_CASE = st.fixed_dictionaries({"equals-ignore-case": TEXTS})
_WILDCARDS = (
    st.lists(st.sampled_from(["x", "X", "ß", "\\*", "\\\\", "*"]), min_size=1, max_size=5)
    .filter(lambda parts: not any(pair == ("*", "*") for pair in pairwise(parts)))
    .map("".join)
)
_RANGES = st.tuples(st.sampled_from([">", ">="]), NUMBERS, st.sampled_from(["<", "<="]), NUMBERS).filter(
    lambda bounds: bounds[1] < bounds[3]
)


def _one_or_more(texts: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    return texts | st.lists(texts, min_size=1, max_size=2)


OPERATORS: st.SearchStrategy[Any] = st.one_of(
    st.fixed_dictionaries({"prefix": TEXTS | _IN_ANY_CASE}),
    st.fixed_dictionaries({"suffix": TEXTS | _IN_ANY_CASE}),
    _IN_ANY_CASE,
    st.fixed_dictionaries({"exactly": TEXTS}),
    st.fixed_dictionaries({"wildcard": _WILDCARDS}),
    st.fixed_dictionaries({"numeric": st.tuples(st.sampled_from(["=", "<", "<=", ">", ">="]), NUMBERS).map(list) | _RANGES.map(list)}),
    st.fixed_dictionaries(
        {"cidr": st.sampled_from(["10.0.0.0/24", "10.0.0.1/8", "0.0.0.0/0", "10.0.0.1/32", "2001:db8::/32", "::/0", "::1/128"])}
    ),
    st.fixed_dictionaries({"exists": st.booleans()}),
    st.fixed_dictionaries({"anything-but": _one_or_more(SOME_TEXTS) | NUMBERS | st.lists(NUMBERS, min_size=1, max_size=2)}),
    st.fixed_dictionaries(
        {
            "anything-but": st.one_of(
                st.fixed_dictionaries({"prefix": _one_or_more(SOME_TEXTS)}),
                st.fixed_dictionaries({"suffix": _one_or_more(SOME_TEXTS)}),
                st.fixed_dictionaries({"equals-ignore-case": _one_or_more(SOME_TEXTS)}),
                st.fixed_dictionaries({"wildcard": _one_or_more(_WILDCARDS)}),
            )
        }
    ),
)
LEAVES = st.lists(SCALARS | OPERATORS, min_size=1, max_size=3)


def _objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    fields = st.dictionaries(NAMES, inner, min_size=1, max_size=3)
    return fields | st.tuples(
        st.dictionaries(st.sampled_from("ab"), inner, max_size=1),
        st.lists(st.dictionaries(st.sampled_from("cd"), inner, min_size=1, max_size=2), min_size=2, max_size=3),
    ).map(lambda parts: {**parts[0], "$or": parts[1]})


PATTERNS = st.recursive(LEAVES, _objects, max_leaves=6).filter(lambda pattern: isinstance(pattern, dict))
EVENTS = st.dictionaries(
    st.sampled_from("abcd"),
    st.recursive(
        SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3), max_leaves=12
    ),
    max_size=4,
)
