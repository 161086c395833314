"""A batch that a triggerer encodes is the batch that the API parses."""

from __future__ import annotations

from datetime import UTC, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.wire.custody.backlog import SpillItem
from headrace.wire.custody.events import DeadLetterItem, EventBatch, EventItem
from headrace.wire.custody.receipts import Receipt

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
ids = st.lists(st.integers(1, 2**63 - 1), min_size=1, max_size=3)
times = st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))]))


def models(model: type[Any], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy of lists of a model: all its fields by their types, except the given ones."""
    return st.lists(st.builds(model, **fields), max_size=3)


batches = st.builds(
    EventBatch,
    epochs=st.dictionaries(st.integers(), st.integers(), max_size=3),
    events=models(
        EventItem,
        id=names,
        source=names,
        type=names,
        payload=texts,
        firings=ids,
        occurred=st.none() | times,
        **{name: st.none() | texts for name in ("subject", "follows", "trace", "stream", "lane")},
        position=st.none() | st.integers(),
    ),
    dead_letters=models(
        DeadLetterItem, id=names, reason=texts, stream=texts, raw=texts, triggers=ids, traceback=st.lists(texts, max_size=2)
    ),
    spills=models(SpillItem, stream=texts, lane=texts, raw=texts, triggers=ids),
    receipts=models(
        Receipt, stream=texts, lane=texts, subscriber_set=st.none() | st.from_regex("[0-9a-f]{32}", fullmatch=True), read=st.integers(1)
    ),
)


@given(batches)
def test_an_encoded_batch_is_parsed_as_the_same_batch(batch: EventBatch) -> None:
    assert EventBatch.model_validate_json(batch.encode()) == batch


def test_half_of_a_surrogate_pair_cannot_be_encoded() -> None:
    event = EventItem(id="a", source="s", type="t", subject="\ud800", payload="{}", firings=[1])
    with pytest.raises(UnicodeEncodeError):
        EventBatch(epochs={1: 1}, events=[event]).encode()
