"""Which transactions are answered, and the LSN up to which the slot may be confirmed: the *floor*. Pure.

Invariants:
- The floor passes a transaction only after all its raw events, in all lanes, are answered, and none of them failed.
- A transaction without raw events is answered when its commit is read.
- The floor moves with keepalives only while no transaction is open or unanswered.
- After a failed raw event the floor stays before its transaction until the stream opens again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from headrace.sources.postgres.positions import position_of
from headrace.triggers.raw_event import Message

MAX_IDLE_LANES: Final = 10_000
MERGE_TRANSACTIONS: Final = 1_000


class Transaction:
    """One transaction of the slot. `unanswered` counts its raw events without a final answer."""

    __slots__ = ("end_lsn", "failed", "lanes", "unanswered")

    def __init__(self) -> None:
        self.end_lsn: int | None = None
        self.unanswered = 0
        self.failed = False
        self.lanes: dict[str, int] = {}
        """The last position of each lane in this transaction."""

    @property
    def is_answered(self) -> bool:
        """Whether the floor may pass it."""
        return self.end_lsn is not None and not self.unanswered and not self.failed


class PostgresMessage(Message):
    """A raw event of a slot. It is its own broker payload. Other processes get it without its `transaction`."""

    __slots__ = ("is_answered", "transaction")

    transaction: Transaction | None
    is_answered: bool

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for another process: all but the transaction, which belongs to the reader."""
        return super().__getstate__() | {"transaction": None}


class LaneState:
    """The last positions of a lane.

    - `end`: the last delivered one, or None.
    - `answered`: the last one before the first failure whose raw event, like all before it, is answered, or None.
    - `committed`: the last one that is not delivered again, or None if it is unknown.
    """

    __slots__ = ("answered", "committed", "end", "failed")

    def __init__(self, committed: int | None = None) -> None:
        self.end: int | None = committed
        self.answered: int | None = committed
        self.committed: int | None = committed
        self.failed = False


class TransactionLog:
    """The transactions of one stream that are not confirmed, in order of their commits."""

    def __init__(self, confirmed_lsn: int) -> None:
        self.floor = confirmed_lsn
        self.lanes: dict[str, LaneState] = {}
        self._transactions: deque[Transaction] = deque()
        self._passed: dict[str, int] = {}
        self._answered: set[str] = set()
        self._merge_at = MERGE_TRANSACTIONS
        self._prune_at = MAX_IDLE_LANES

    @property
    def outstanding(self) -> int:
        """The number of transactions that hold the floor, after merges."""
        return len(self._transactions)

    def begin(self, transaction: Transaction) -> None:
        """Add the next transaction."""
        transactions = self._transactions
        if transactions and transactions[-1].failed:
            return  # the floor does not come so far before the stream opens again
        if len(transactions) >= self._merge_at:
            self._merge()
        transactions.append(transaction)

    def deliver(self, transaction: Transaction, message: PostgresMessage, position: int) -> None:
        """Add a raw event of the open transaction."""
        lane = message.lane
        state = self.lanes.get(lane)
        if state is None:
            if len(self.lanes) >= self._prune_at:
                self._prune_idle_lanes()
            state = self.lanes[lane] = LaneState()
        state.end = position
        message.transaction, message.is_answered = transaction, False
        transaction.unanswered += 1
        transaction.lanes[lane] = position

    def commit(self, transaction: Transaction, end_lsn: int) -> None:
        """Close the open transaction."""
        transaction.end_lsn = end_lsn
        self.settle()

    def answer(self, message: PostgresMessage, *, failed: bool) -> None:
        """Record the final answer to a raw event, or that it failed. A repetition changes nothing."""
        transaction = message.transaction
        if message.is_answered or transaction is None:
            return
        lane = self.lanes[message.lane]
        if failed:
            lane.failed = True
            self._fail(transaction)
            return
        if not lane.failed:
            lane.answered = message.position
            self._answered.add(message.lane)
        message.is_answered = True
        transaction.unanswered -= 1

    def settle(self) -> None:
        """Raise the floor past the transactions that are answered."""
        transactions = self._transactions
        while transactions and transactions[0].is_answered:
            done = transactions.popleft()
            self.floor = max(self.floor, done.end_lsn or 0)
            for lane, position in done.lanes.items():
                self._passed[lane] = position

    def confirmed(self) -> None:
        """Record that the slot has confirmed the floor, and with it the lanes of all transactions before it."""
        self.stored(self._passed)
        self._passed = {}

    def answered_lanes(self) -> dict[str, int]:
        """Return the last answered position of each lane with answers that are not stored."""
        positions = {lane: self.lanes[lane].answered for lane in self._answered}
        return {lane: position for lane, position in positions.items() if position is not None}

    def stored(self, lanes: Mapping[str, int]) -> None:
        """Record that the raw events of these lanes up to these positions are not delivered again."""
        for lane, position in lanes.items():
            state = self.lanes.get(lane)
            if state is not None:
                state.committed = position if state.committed is None else max(state.committed, position)
                if state.committed == state.answered:
                    self._answered.discard(lane)

    def idle(self, lsn: int) -> None:
        """Raise the floor to the LSN of a keepalive if nothing is outstanding."""
        if not self._transactions:
            self.floor = max(self.floor, lsn)

    def _fail(self, transaction: Transaction) -> None:
        if transaction.failed:
            return
        transaction.failed = True
        transactions = self._transactions
        if transaction in transactions:
            while transactions[-1] is not transaction:
                transactions.pop()

    def _merge(self) -> None:
        """Join neighbours that are answered, so that a lane that is behind does not keep one entry for each later transaction."""
        merged: deque[Transaction] = deque()
        for transaction in self._transactions:
            if merged and merged[-1].is_answered and transaction.is_answered:
                transaction.lanes = merged[-1].lanes | transaction.lanes
                merged[-1] = transaction
            else:
                merged.append(transaction)
        self._transactions = merged
        self._merge_at = max(MERGE_TRANSACTIONS, 2 * len(merged))

    def _prune_idle_lanes(self) -> None:
        """Remove lanes without open raw events that are before the floor: the slot delivers nothing of them again."""
        floor = position_of(self.floor, 0)
        idle = [lane for lane, state in self.lanes.items() if state.committed == state.end and (state.end or 0) < floor]
        for lane in idle:
            del self.lanes[lane]
            self._answered.discard(lane)
        # Lanes that stay are examined again after twice as many, not with each new lane.
        self._prune_at = max(MAX_IDLE_LANES, 2 * len(self.lanes))
