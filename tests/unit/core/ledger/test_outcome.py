from __future__ import annotations

import pytest

from headrace.core.ledger.outcome import AdvanceItem, AdvanceOutcome


@pytest.mark.parametrize(
    ("outcome", "clean"),
    [
        (AdvanceOutcome(1, 0), True),
        (AdvanceOutcome(0, 0), False),
        (AdvanceOutcome(5, 1), False),
        (AdvanceOutcome(5, 0, 1), False),
        (AdvanceOutcome(1, 0, 0, 3), True),
    ],
)
def test_an_outcome_is_clean_with_an_ack_and_without_failures_or_rejections(outcome: AdvanceOutcome, clean: bool) -> None:
    assert outcome.is_clean is clean


def test_an_advance_item_unpacks_as_a_pair() -> None:
    payload, outcome = AdvanceItem("offset", AdvanceOutcome(1, 0))
    assert (payload, outcome) == ("offset", AdvanceOutcome(acked=1, failed=0, rejected=0, spilled=0))
