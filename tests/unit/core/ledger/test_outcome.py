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
def test_clean_is_when_nobody_failed_or_rejected_and_one_acked(outcome: AdvanceOutcome, clean: bool) -> None:
    assert outcome.is_clean is clean


def test_an_item_is_a_pair() -> None:
    payload, outcome = AdvanceItem("offset", AdvanceOutcome(1, 0))
    assert (payload, outcome) == ("offset", AdvanceOutcome(acked=1, failed=0, rejected=0, spilled=0))
