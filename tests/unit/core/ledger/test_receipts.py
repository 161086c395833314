from __future__ import annotations

from headrace.core.ledger.obligations import Lane, PendingEvent
from headrace.core.ledger.outcome import Kind
from headrace.core.ledger.receipts import MAX_MARKS, Receipt, ReceiptBuilder, TriggerAnswers


def entry(position: int | None, owed: tuple[int, ...], *answers: tuple[Kind, tuple[int, ...]]) -> PendingEvent:
    made = PendingEvent(None, None, Lane("x"), position, 0.0, 0)
    made.owed, made.answers = owed, list(answers)
    return made


def custody_of(**marks: int) -> ReceiptBuilder:
    made = ReceiptBuilder("s")
    assert not made.knows("x")
    made.learn(["x"], marks)
    assert made.knows("x")
    return made


def test_each_range_that_the_same_triggers_owe_has_its_receipt() -> None:
    custody = custody_of(x=10)
    entries = [
        entry(10, (1,), ("fired", (1,))),
        entry(11, (1,), ("fired", (1,))),
        entry(13, (1,)),
        entry(14, (1, 2), ("spilled", (1, 2)), ("failed", (9,))),
        entry(12, (1, 2)),
    ]
    first, second = custody.receipts("x", entries)
    assert first == Receipt("s", "x", 10, 13, 2, (1,), (TriggerAnswers(1, fired=1),))
    assert second == Receipt(
        "s", "x", 13, 14, 1, (1, 2), (TriggerAnswers(1, spilled=1), TriggerAnswers(2, spilled=1), TriggerAnswers(9, failed=1))
    )
    custody.recorded(first)
    assert custody.receipts("x", entries) == [second]


def test_entries_without_positions_have_no_receipts() -> None:
    assert custody_of().receipts("x", [entry(None, (1,))]) == []


def test_the_first_receipt_of_a_lane_begins_at_any_position() -> None:
    [receipt] = custody_of().receipts("x", [entry(0, ())])
    assert receipt == Receipt("s", "x", None, 0, 1, (), ())


def test_marks_of_the_most_recently_recorded_lanes_are_retained() -> None:
    custody = custody_of(x=10)
    lanes = [f"lane {number}" for number in range(MAX_MARKS)]
    custody.learn(lanes[:-1], {})
    custody.recorded(Receipt("s", "x", 10, 12, 1, (), ()))
    custody.learn([lanes[-1], "x"], {"x": 3})
    assert [custody.knows(lane) for lane in ("x", lanes[0], lanes[1])] == [True, False, True]
    assert [receipt.after for receipt in custody.receipts("x", [entry(13, ())])] == [12]
