"""The keys of Headrace beside a stream key."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sources.redis.client import LEASE_SUFFIX, StreamKey

NAMES = st.text(alphabet="a:%3A25", min_size=1, max_size=6)
STREAMS = st.builds(str.__add__, NAMES, st.sampled_from(["", LEASE_SUFFIX, f"{LEASE_SUFFIX}s"])).filter(
    lambda name: not name.endswith(LEASE_SUFFIX)
)


@pytest.mark.parametrize(
    ("group", "state"),
    [("shop", "headrace:shop:b:c"), ("a:b", "headrace:a%3Ab:b:c"), ("a%3Ab", "headrace:a%253Ab:b:c"), ("é b", "headrace:é b:b:c")],
)
def test_the_group_contributes_no_colon(group: str, state: str) -> None:
    key = StreamKey("b:c", group)
    assert (key.state, key.lease) == (state, f"{state}:lease")


@given(NAMES, STREAMS, NAMES, STREAMS)
def test_no_two_streams_share_a_key(group: str, stream: str, other_group: str, other_stream: str) -> None:
    one, other = StreamKey(stream, group), StreamKey(other_stream, other_group)
    assert len({one.state, one.lease, other.state, other.lease}) == (2 if one == other else 4)
