"""The raw events of the frames of a slot. Pure: no connection and no clock.

The last raw event of a transaction is returned after the transaction's end was read. So a transaction whose raw events are all answered
can be confirmed at once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from headrace.errors import StreamError
from headrace.sources.postgres.decoding.formats import Formatter, RawChange, TransactionInfo
from headrace.sources.postgres.decoding.pgoutput import Begin, Change, Commit, Keepalive, Operation, Parser, Relation, Truncate, parse_frame
from headrace.sources.postgres.positions import INDEX_BITS, lane_suffix, lane_text, position_of
from headrace.sources.postgres.transactions import LaneState, PostgresMessage, Transaction, TransactionLog

_PART_MASK: Final = (1 << INDEX_BITS) - 1
_NOTHING: Final[Sequence[PostgresMessage]] = ()


class SlotReader:
    """Makes raw events of frames, for the tables of one upstream.

    Args:
        tables: The names of the tables, with their schemas.
        formatter: Makes the JSON text of a change.
        lane: The lane of changes without a lane column.
        birthmark: What the names of lanes end with.
        transactions: The transactions that are not confirmed.
    """

    def __init__(self, tables: Collection[str], formatter: Formatter, lane: str, birthmark: str, transactions: TransactionLog) -> None:
        self.received_lsn = transactions.floor
        self.asks_reply = False
        """Whether the server has requested a status. The caller resets it."""
        self._tables = frozenset(tables)
        self._formatter = formatter
        self._lane = lane
        self._birthmark = birthmark
        self._log = transactions
        self._parser = Parser()
        self._transaction: Transaction | None = None
        self._info = TransactionInfo(0, 0, 0)
        self._index = 0
        self._suffix = ""
        self._held: PostgresMessage | None = None
        self._names: dict[int, tuple[Relation, bytes | None]] = {}

    def receive(self, frame: bytes) -> Sequence[PostgresMessage]:
        """Return the raw events that may be delivered after this frame. Raises `StreamError` if it is not valid."""
        parsed = parse_frame(frame)
        if isinstance(parsed, Keepalive):
            self.received_lsn = max(self.received_lsn, parsed.lsn)
            self.asks_reply |= parsed.asks_reply
            if self._transaction is None:
                self._log.idle(parsed.lsn)
            return _NOTHING
        message = self._parser.parse(parsed.message)
        if isinstance(message, Change):
            return self._change(message)
        if isinstance(message, Begin):
            if self._transaction is not None:
                raise StreamError("PostgreSQL has begun a transaction within another one.")
            self._transaction = Transaction()
            self._log.begin(self._transaction)
            self._info = TransactionInfo(*message)
            self._index, self._suffix = 0, lane_suffix(self._birthmark, message.commit_lsn, 0)
        elif isinstance(message, Commit):
            return self._commit(message)
        elif isinstance(message, Truncate):
            return self._truncate(message)
        return _NOTHING

    def _commit(self, message: Commit) -> Sequence[PostgresMessage]:
        if self._transaction is None:
            raise StreamError("PostgreSQL has ended a transaction that it had not begun.")
        self._log.commit(self._transaction, message.end_lsn)
        self._transaction = None
        self.received_lsn = max(self.received_lsn, message.end_lsn)
        return self._release(None)

    def _change(self, change: Change) -> Sequence[PostgresMessage]:
        index = self._next_index()
        name = self._table(change.relation)
        raw = None if name is None else self._formatter.change(change, self._info)
        if raw is None or name is None:
            return _NOTHING
        return self._release(self._message(raw, index, name, change.operation))

    def _truncate(self, truncate: Truncate) -> Sequence[PostgresMessage]:
        released: list[PostgresMessage] = []
        for relation in truncate.relations:
            index = self._next_index()
            name = self._table(relation)
            raw = None if name is None else self._formatter.truncate(relation, truncate, self._info)
            if raw is not None and name is not None:
                released += self._release(self._message(raw, index, name, "truncate"))
        return released

    def _next_index(self) -> int:
        if self._transaction is None:
            raise StreamError("PostgreSQL has sent a change outside of a transaction.")
        index = self._index
        self._index += 1
        if index and not index & _PART_MASK:
            self._suffix = lane_suffix(self._birthmark, self._info.commit_lsn, index)
        return index

    def _table(self, relation: Relation) -> bytes | None:
        """Return the name of a table, or None if the upstream does not read it."""
        known = self._names.get(relation.oid)
        if known is None or known[0] is not relation:
            name = relation.qualified_name
            known = self._names[relation.oid] = relation, name.encode() if name in self._tables else None
        return known[1]

    def _message(self, raw: RawChange, index: int, table: bytes, operation: Operation) -> PostgresMessage | None:
        """Return the raw event of a change, or None if its lane is committed past it."""
        transaction, info = self._transaction, self._info
        lane = (self._lane if raw.lane is None else lane_text(raw.lane)) + self._suffix
        position = position_of(info.commit_lsn, index)
        state: LaneState | None = self._log.lanes.get(lane)
        if transaction is None or (state is not None and state.committed is not None and position <= state.committed):
            return None
        headers = (
            ("table", table),
            ("op", operation.encode()),
            ("lsn", info.commit_lsn_text),
            ("xid", b"%d" % info.xid),
        )
        message = PostgresMessage(raw.data, lane, position, raw.key, None, headers, info.committed_us // 1_000)
        self._log.deliver(transaction, message, position)
        return message

    def _release(self, message: PostgresMessage | None) -> Sequence[PostgresMessage]:
        """Hold a raw event, and return the one that was held before."""
        held = self._held
        if message is None and self._transaction is not None:
            return _NOTHING
        self._held = message
        return _NOTHING if held is None else (held,)
