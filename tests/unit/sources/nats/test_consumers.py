"""What the server says of a stream."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headrace.sources.nats.consumers import StreamInfo, StreamSource

ORIGIN = StreamSource("ORIGIN", (">",), is_transformed=False)


@pytest.mark.parametrize(
    ("filter", "subjects", "sources", "is_covered"),
    [
        (">", (), (), True),
        (">", ("orders.>",), (ORIGIN,), True),
        ("orders.>", ("orders.eu", "orders.us"), (), True),
        ("orders.eu", ("orders.>",), (), False),
        ("orders.eu", (), (), False),
        ("orders.eu", (), (ORIGIN,), False),
        ("orders.>", ("orders.>",), (ORIGIN,), False),
    ],
)
def test_a_filter_covers_no_stream_with_subjects_of_other_streams(
    filter: str, subjects: Sequence[str], sources: Sequence[StreamSource], *, is_covered: bool
) -> None:
    """A mirror has no subjects of its own, and a stream with sources has more than its own."""
    assert StreamInfo("2026", 1, 9, "limits", subjects, sources).is_covered_by(filter) is is_covered


def test_no_filter_covers_a_mirror_of_some_subjects() -> None:
    """It has the sequences of its origin: those of other subjects are not missing."""
    assert not StreamInfo("2026", 1, 9, "limits", (), (ORIGIN,), is_partial_mirror=True).is_covered_by(">")
