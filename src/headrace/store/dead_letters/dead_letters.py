"""Dead letters of triggers: insertion, and the outcome of a redrive.

    open ──redrive──► redriven ──its triggers answer──► deleted
      ▲ └──discard──► discarded    └──it fails again──► open, with more attempts
                          └──another trigger reports it──► open

A dead letter names the triggers that have not answered it. It is deleted with the last of them. A trigger that does not read the stream at
the redrive stays named: the dead letter opens again after the answers of all others.
Each insertion and each reopening takes the next number, so that copies follow them by one number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
from sqlalchemy import Connection, Row, bindparam, select, update

from headrace.core.dead_letter_ids import prefix_from_backlog
from headrace.core.values.text import clean_text, is_id
from headrace.store.db.meta import LAST_DEAD_LETTER
from headrace.store.dead_letters.texts import Texts, delete_dead_letters
from headrace.store.dialects.statements import BulkInsert, in_list
from headrace.store.dialects.validity import is_valid_dead_letter
from headrace.store.tables.base import meta
from headrace.store.tables.control import triggers
from headrace.store.tables.custody import backlog, dead_letters
from headrace.wire.custody.backlog import GIVEN_UP, Answer
from headrace.wire.custody.events import DeadLetterItem, ItemStatus

MAX_STATEMENT_IDS = 10_000

_insert = BulkInsert(dead_letters)
_answered = select(*(dead_letters.c[name] for name in ("id", "stream", "lane", "position", "triggers", "attempts", "state")))
_known = select(dead_letters.c.id, dead_letters.c.state, dead_letters.c.triggers).where(in_list(dead_letters.c.id, "ids"))
_count_rejected = update(triggers).where(triggers.c.id == bindparam("trigger")).values(rejected=triggers.c.rejected + bindparam("times"))
_reopen = (
    update(dead_letters)
    .where(dead_letters.c.id == bindparam("dead_letter_id"))
    .values(
        state="open",
        kind=bindparam("new_kind"),
        reason=bindparam("new_reason"),
        attempts=dead_letters.c.attempts + bindparam("more"),
        traceback=bindparam("new_traceback"),
        acted=bindparam("now"),
        number=bindparam("new_number"),
        not_copied=None,
    )
)
_name_triggers = update(dead_letters).where(dead_letters.c.id == bindparam("dead_letter_id")).values(triggers=bindparam("named"))
_awaited = select(backlog.c.number).where(backlog.c.lane_id == bindparam("lane"), backlog.c.key == bindparam("key_of")).limit(1)
_last_number = select(meta.c.value).where(meta.c.name == LAST_DEAD_LETTER)
_set_last_number = update(meta).where(meta.c.name == LAST_DEAD_LETTER).values(value=bindparam("last"))


class _Known(NamedTuple):
    """The state of a stored dead letter, and the triggers that it names."""

    state: str
    triggers: list[int]


class DeadLetterInserts:
    """The dead letters of one transaction, each stored once. `items` are the dead letters of all batches."""

    def __init__(self, connection: Connection, items: Sequence[DeadLetterItem], now: int) -> None:
        ids = list({item.id for item in items if is_id(item.id)})
        self._now = now
        self._known: dict[str, _Known] = {}
        for start in range(0, len(ids), MAX_STATEMENT_IDS):
            rows = connection.execute(_known, {"ids": ids[start : start + MAX_STATEMENT_IDS]})
            self._known.update((row.id, _Known(row.state, _decode_ids(row.triggers))) for row in rows)
        self._rows: list[tuple[object, ...]] = []
        self._texts = Texts(now)
        self._reopened: list[dict[str, object]] = []
        self._named: dict[str, list[int]] = {}
        self._times: Counter[int] = Counter()

    def add(self, items: Sequence[DeadLetterItem], mine: set[int]) -> list[ItemStatus]:
        """Return the status of each item of a batch whose sender holds the triggers `mine`."""
        return [self._add(item, mine) for item in items]

    def write(self, connection: Connection) -> None:
        """Store the added dead letters."""
        numbers = iter(take_numbers(connection, len(self._rows) + len(self._reopened)))
        _insert(connection, [(*row, next(numbers), None) for row in self._rows])
        self._texts.write(connection)
        if self._reopened:
            connection.execute(_reopen, [{**row, "new_number": next(numbers)} for row in self._reopened])
        if self._named:
            named = [{"dead_letter_id": id, "named": _encode_ids(trigger_ids)} for id, trigger_ids in self._named.items()]
            connection.execute(_name_triggers, named)
        if self._times:
            connection.execute(_count_rejected, [{"trigger": trigger, "times": n} for trigger, n in self._times.items()])

    def _add(self, item: DeadLetterItem, mine: set[int]) -> ItemStatus:
        if not mine.issuperset(item.triggers):
            return "fenced"
        if not is_valid_dead_letter(item):
            return "invalid"
        known = self._known.get(item.id)
        if known is not None:
            is_reported_by_others = self._add_triggers(item, known.triggers)
            if known.state == "redriven" or (known.state == "discarded" and is_reported_by_others):
                self._known[item.id] = known._replace(state="open")
                self._reopened.append(_reopened_values(item, self._now))
            return "duplicate"
        self._known[item.id] = _Known("open", list(item.triggers))
        self._times.update(item.triggers)
        self._rows.append(_row(item, self._texts.add(item.id, clean_text(item.raw)), self._now))
        return "stored"

    def _add_triggers(self, item: DeadLetterItem, known: list[int]) -> bool:
        """Name the triggers of a repeated dead letter that the known one does not name: it is theirs too. Return whether there are any."""
        missing = [trigger for trigger in dict.fromkeys(item.triggers) if trigger not in known]
        if missing:
            known += missing
            self._named[item.id] = known
            self._times.update(missing)
        return bool(missing)


def last_number(connection: Connection) -> int:
    """Return the last number that a dead letter took."""
    return int(connection.execute(_last_number).scalar_one())


def take_numbers(connection: Connection, count: int) -> range:
    """Return the next `count` numbers of dead letters. No dead letter had one of them before."""
    if not count:
        return range(0)
    last = last_number(connection)
    connection.execute(_set_last_number, {"last": last + count})
    return range(last + 1, last + count + 1)


def _row(item: DeadLetterItem, raw: str, now: int) -> tuple[object, ...]:
    named, traceback = _encode_ids(item.triggers), msgspec.json.encode(item.traceback).decode()
    origin = (item.stream, item.lane, item.position)
    return (item.id, item.kind, clean_text(item.reason), *origin, raw, named, item.attempts, traceback, now, "open", None)


def _reopened_values(item: DeadLetterItem, now: int) -> dict[str, object]:
    return {
        "dead_letter_id": item.id,
        "new_kind": item.kind,
        "new_reason": clean_text(item.reason),
        "more": item.attempts,
        "new_traceback": msgspec.json.encode(item.traceback).decode(),
        "now": now,
    }


Settlement = Answer | Literal["dropped"]


class Redriven(NamedTuple):
    """A trigger's answer to a redriven dead letter. `number`, `lane_id` and `key` are those of the raw event in the backlog.

    `reason` is that of a new failure.
    """

    dead_letter_id: str
    trigger_id: int
    number: int
    lane_id: int
    key: bytes
    answer: Settlement
    reason: str | None = None


def settle_redriven(connection: Connection, answered: Iterable[Redriven], now: int) -> None:
    """Update each redriven dead letter: remove the trigger that answered, or open it again if the trigger failed or rejected it again.

    The rows of the answers are deleted already.
    """
    for one in answered:
        row = connection.execute(_answered.where(dead_letters.c.id == one.dead_letter_id)).one_or_none()
        if row is None:
            continue
        # An open one may have been opened by this failure, under its own id.
        if one.answer in GIVEN_UP and (row.state == "open" or not _is_open_elsewhere(connection, row, one)):
            if row.state == "redriven":
                news = {} if one.reason is None else {"reason": clean_text(one.reason)}
                _open_again(connection, row.id, now, attempts=row.attempts + 1, **news)
            continue
        left = sorted(set(_decode_ids(row.triggers)) - {one.trigger_id})
        if not left:
            delete_dead_letters(connection, [row.id])
            continue
        connection.execute(_name_triggers, {"dead_letter_id": row.id, "named": _encode_ids(left)})
        if row.state == "redriven" and connection.execute(_awaited, {"lane": one.lane_id, "key_of": one.key}).first() is None:
            _open_again(connection, row.id, now)  # the triggers that are left have not received it


def _open_again(connection: Connection, dead_letter_id: str, now: int, **changes: object) -> None:
    (number,) = take_numbers(connection, 1)
    opened = update(dead_letters).where(dead_letters.c.id == dead_letter_id)
    connection.execute(opened.values(state="open", acted=now, number=number, not_copied=None, **changes))


def _is_open_elsewhere(connection: Connection, dead_letter: Row[Any], one: Redriven) -> bool:
    """Return whether another open dead letter has the same raw event and trigger. A repeated failure may have an id of its own."""
    same = [dead_letters.c.stream == dead_letter.stream, dead_letters.c.lane == dead_letter.lane]
    if dead_letter.position is not None:
        same.append(dead_letters.c.position == dead_letter.position)
    else:
        prefix = prefix_from_backlog(dead_letter.stream, one.number)
        same += [dead_letters.c.position.is_(None), dead_letters.c.id.startswith(prefix, autoescape=True)]
    open_ones = select(dead_letters.c.triggers).where(*same, dead_letters.c.id != dead_letter.id, dead_letters.c.state == "open")
    return any(one.trigger_id in _decode_ids(row.triggers) for row in connection.execute(open_ones))


def _encode_ids(trigger_ids: Iterable[int]) -> str:
    return msgspec.json.encode(list(trigger_ids)).decode()


def _decode_ids(text: str) -> list[int]:
    return msgspec.json.decode(text, type=list[int])
