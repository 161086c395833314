from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sources.postgres import transactions as module
from headrace.sources.postgres.transactions import LaneState, PostgresMessage, Transaction, TransactionLog


def deliver(log: TransactionLog, *lanes: str, end_lsn: int) -> list[PostgresMessage]:
    """Add one committed transaction with a raw event in each of these lanes."""
    transaction = Transaction()
    log.begin(transaction)
    messages = [PostgresMessage(b"{}", lane, end_lsn * 100 + index) for index, lane in enumerate(lanes)]
    for index, message in enumerate(messages):
        log.deliver(transaction, message, end_lsn * 100 + index)
    log.commit(transaction, end_lsn)
    return messages


def answer(log: TransactionLog, *messages: PostgresMessage, failed: bool = False) -> None:
    for message in messages:
        log.answer(message, failed=failed)
    log.settle()


def test_the_floor_passes_a_transaction_when_all_its_lanes_are_answered() -> None:
    log = TransactionLog(5)
    first, second = deliver(log, "a", "b", end_lsn=10)
    third = deliver(log, "a", end_lsn=20)[0]
    answer(log, first, third)
    assert log.floor == 5
    answer(log, second)
    assert log.floor == 20


def test_an_open_transaction_holds_the_floor() -> None:
    log = TransactionLog(5)
    transaction = Transaction()
    log.begin(transaction)
    message = PostgresMessage(b"{}", "a", 1)
    log.deliver(transaction, message, 1)
    answer(log, message)
    log.idle(50)
    assert log.floor == 5
    log.commit(transaction, 60)
    assert log.floor == 60


def test_transactions_without_raw_events_and_keepalives_move_the_floor_only_if_nothing_is_outstanding() -> None:
    log = TransactionLog(5)
    deliver(log, end_lsn=10)
    assert log.floor == 10
    message = deliver(log, "a", end_lsn=20)[0]
    deliver(log, end_lsn=30)
    log.idle(40)
    assert log.floor == 10
    answer(log, message)
    assert log.floor == 30
    log.idle(40)
    log.idle(35)
    assert log.floor == 40


def test_a_repeated_answer_changes_nothing() -> None:
    log = TransactionLog(0)
    first, second = deliver(log, "a", "a", end_lsn=10)
    answer(log, first)
    answer(log, first)
    assert log.floor == 0
    answer(log, second)
    assert log.floor == 10


def test_a_failed_raw_event_stops_the_floor_before_its_transaction() -> None:
    log = TransactionLog(0)
    messages = [deliver(log, "a", end_lsn=end)[0] for end in (10, 20, 30)]
    answer(log, messages[0])
    answer(log, messages[1], failed=True)
    answer(log, messages[2])
    log.idle(99)
    assert log.floor == 10
    answer(log, *[deliver(log, "b", end_lsn=end)[0] for end in range(40, 5_000, 10)])
    assert log.floor == 10
    assert log.outstanding == 1
    assert log.answered_lanes() == {"a": 1_000, "b": 499_000}


def test_committed_positions_follow_the_confirmation() -> None:
    log = TransactionLog(0)
    message = deliver(log, "a", end_lsn=10)[0]
    answer(log, message)
    state = log.lanes["a"]
    assert (state.end, state.committed) == (1_000, None)
    log.confirmed()
    assert (state.end, state.committed) == (1_000, 1_000)


def test_stored_lanes_are_stored_once() -> None:
    log = TransactionLog(0)
    first, second = deliver(log, "a", end_lsn=10)[0], deliver(log, "b", end_lsn=20)[0]
    answer(log, second)
    assert log.answered_lanes() == {"b": 2_000}
    log.stored(log.answered_lanes())
    assert log.answered_lanes() == {}
    answer(log, first)
    assert log.answered_lanes() == {"a": 1_000}


def test_a_lane_that_is_behind_does_not_keep_an_entry_for_each_later_transaction() -> None:
    log = TransactionLog(0)
    behind = deliver(log, "slow", end_lsn=1)[0]
    for end in range(2, 20_000):
        answer(log, *deliver(log, "fast", end_lsn=end))
    assert log.outstanding < 3 * module.MERGE_TRANSACTIONS
    answer(log, behind)
    assert log.floor == 19_999
    log.confirmed()
    assert log.lanes["fast"].committed == 1_999_900


def test_idle_lanes_are_forgotten_but_not_those_that_the_slot_may_deliver_again() -> None:
    log = TransactionLog(0)
    log.lanes["ahead"] = LaneState(2**62)
    behind = deliver(log, "behind", end_lsn=1)[0]
    behind_state = log.lanes["behind"]
    for number in range(module.MAX_IDLE_LANES):
        log.lanes[f"lane {number}"] = LaneState(0)
    answer(log, behind)
    log.floor = 2**20
    deliver(log, "new", end_lsn=2**20)
    assert set(log.lanes) == {"ahead", "behind", "new"}
    assert log.lanes["behind"] is behind_state


def test_lanes_that_are_not_confirmed_are_not_examined_again_with_each_new_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    prunes: list[int] = []
    prune = TransactionLog._prune_idle_lanes

    def counted(log: TransactionLog) -> None:
        prunes.append(len(log.lanes))
        prune(log)

    monkeypatch.setattr(TransactionLog, "_prune_idle_lanes", counted)
    monkeypatch.setattr(module, "MAX_IDLE_LANES", 100)
    log = TransactionLog(0)
    messages = deliver(log, *(f"lane {number}" for number in range(401)), end_lsn=2**20)
    assert prunes == [100, 200, 400]
    answer(log, *messages)
    log.confirmed()
    for number in range(401, 900):
        answer(log, *deliver(log, f"lane {number}", end_lsn=2**40 + 32 * number))
        log.confirmed()
    assert prunes[3] == 800  # the lanes of the first transaction are removed, and the number of lanes stays low again
    assert len(log.lanes) < 200


@given(st.lists(st.lists(st.sampled_from("abc"), max_size=4), max_size=12), st.data())
def test_the_floor_is_the_end_of_the_last_transaction_before_which_all_is_answered(lanes: list[list[str]], data: st.DataObject) -> None:
    log = TransactionLog(0)
    delivered = [(10 * number, deliver(log, *each, end_lsn=10 * number)) for number, each in enumerate(lanes, 1)]
    messages = data.draw(st.permutations([message for _, each in delivered for message in each]))
    failed = set(data.draw(st.lists(st.sampled_from(messages), max_size=2, unique=True))) if messages else set()
    answered: set[PostgresMessage] = set()
    for message in messages:
        answer(log, message, failed=message in failed)
        answered |= {message} - failed
        expected = 0
        for end, each in delivered:
            if not answered.issuperset(each):
                break
            expected = end
        assert log.floor == expected
