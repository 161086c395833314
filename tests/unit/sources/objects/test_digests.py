"""A packed set of digests behaves as a set."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.sources.objects.digests import DigestSet, split
from headrace.sources.objects.location import DIGEST_BYTES

# Few different bytes: digests share their beginnings, and occur across the borders of others.
DIGESTS = st.lists(st.sampled_from([0, 1]), min_size=DIGEST_BYTES, max_size=DIGEST_BYTES).map(bytes)


@given(st.lists(DIGESTS), st.lists(DIGESTS))
def test_it_has_what_was_added_and_nothing_else(added: list[bytes], others: list[bytes]) -> None:
    digests = DigestSet()
    for digest in added:
        digests.add(digest)
    assert len(digests) == len(set(added))
    assert all(digest in digests for digest in added)
    assert all((digest in digests) == (digest in added) for digest in others)
    assert set(split(DigestSet(digests.packed()).packed())) == set(added)


@given(st.lists(DIGESTS), st.lists(DIGESTS))
def test_it_retains_what_another_set_has(added: list[bytes], others: list[bytes]) -> None:
    digests, other = DigestSet(b"".join(added)), DigestSet(b"".join(others))
    missing = set(added) - set(others)
    assert sum(digests.count_missing(other)) == len(missing)
    assert sum(digests.retain(other)) == len(missing)
    assert set(split(digests.packed())) == set(added) & set(others)
    assert len(digests) == len(set(added) & set(others))
