"""Status, last failure and pattern of triggers, and why one fired on an event or did not."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Connection, Integer, Row, and_, bindparam, case, func, or_, select

from headrace.core.matching.firing_explanation import explain_firing
from headrace.core.values.moments import moment
from headrace.core.values.shards import SEPARATOR, whole_name
from headrace.errors import ApiRefused
from headrace.store.control.balancing import unassigned
from headrace.store.custody.firing_facts import (
    explained_answers,
    explained_event,
    explained_trigger,
    is_watch,
    stored_arguments,
    triggers_that_fired,
)
from headrace.store.db.meta import log_end
from headrace.store.dialects.statements import ResultRow
from headrace.store.keyring import Keyring
from headrace.store.log.lookup import events_with_id
from headrace.store.queries.pipeline_runs import runs_of_event
from headrace.store.secrets.masker import masked_json, secret_masker
from headrace.store.tables.control import jobs, triggers, watch_samples
from headrace.store.tables.log import events
from headrace.wire.control.jobs import Blocked
from headrace.wire.control.streams import LeafFailures
from headrace.wire.status.status import TriggerList, TriggerStatus
from headrace.wire.status.triggerers import FiringExplanation, TriggerDetail, WatchSamples

MAX_PATTERN_BYTES: Final = 64 * 1024
"""Maximum size of the pattern in the detail of a trigger, in bytes of JSON."""
_MAX_SEQ_DIGITS: Final = 18
RUNS_OF_FIRING: Final = 20
"""Maximum number of runs in the explanation of a firing."""

_AS_THEY_ARE = [name for name in TriggerStatus.model_fields if name in triggers.c]
_DETAILS = ("project", "classpath", "epoch", "failures", "max_restarts")

# With `run_id IS NULL` alone, SQLite would look up nearly every trigger by its index. That takes twice as long
# as a scan.
_declared = (func.coalesce(triggers.c.run_id, "") == "", triggers.c.state != "removed")
_first = triggers.c.id.in_(bindparam("first", expanding=True))
_troubled = or_(triggers.c.failure.is_not(None), triggers.c.backlog > 0, triggers.c.state != "running", _first)
_rank = case(
    (triggers.c.state == "parked", 0),
    (triggers.c.state == "failed", 1),
    (_first, 2),
    (triggers.c.state == "waiting", 3),
    (triggers.c.failure.is_not(None), 4),
    else_=5,
)
_limit = bindparam("limit", type_=Integer)
_worst = select(triggers.c.id).where(_troubled, *_declared).order_by(_rank, triggers.c.name, triggers.c.id).limit(_limit)
_others = select(triggers.c.id).where(~_troubled, *_declared).order_by(triggers.c.project, triggers.c.name).limit(_limit)
_blocked = select(jobs.c.id, jobs.c.blocked).where(jobs.c.blocked.is_not(None), jobs.c.state == "running")


def trigger_page(connection: Connection, now: int, why: Mapping[int, str], *, after: int | None, limit: int) -> TriggerList:
    """Return a page of the triggers that projects declare, by name, after the id `after`.

    Triggers of task runs are part of their runs. `why` maps a trigger that no triggerer can run to the reason.
    `now` is in microseconds.
    """
    declared = [triggers.c.run_id.is_(None), triggers.c.state != "removed"]
    if after is not None:
        name = select(triggers.c.name).where(triggers.c.id == after).scalar_subquery()
        declared.append(or_(triggers.c.name > name, and_(triggers.c.name == name, triggers.c.id > after)))
    chosen = select(triggers.c.id).where(*declared).order_by(triggers.c.name, triggers.c.id).limit(limit)
    statuses = _listed(connection, now, why, _blocking(connection), triggers.c.id.in_(chosen))
    return TriggerList(triggers=statuses, after=statuses[-1].id if len(statuses) == limit else None)


def trigger_statuses(connection: Connection, now: int, *which: ColumnElement[bool]) -> list[TriggerStatus]:
    """Return the registered triggers that meet the conditions, by name. `now` is in microseconds."""
    return _listed(connection, now, unassigned(connection), _blocking(connection), *which)


def top_triggers(connection: Connection, now: int, why: Mapping[int, str], limit: int) -> list[TriggerStatus]:
    """Return at most `limit` of the triggers that projects declare, by name. Failed ones have priority.

    `why` maps a trigger that no triggerer can run to the reason. `now` is in microseconds.
    """
    blocking = _blocking(connection)
    first = [*(one for one in blocking if one is not None), *list(why)[:limit]]
    chosen = list(connection.execute(_worst, {"first": first, "limit": limit}).scalars())
    if len(chosen) < limit:  # the others in index order: of 10,000, nearly all are healthy
        chosen += connection.execute(_others, {"first": first, "limit": limit - len(chosen)}).scalars()
    return _listed(connection, now, why, blocking, triggers.c.id.in_(chosen))


def _listed(
    connection: Connection, now: int, why: Mapping[int, str], blocking: Mapping[int | None, Blocked], *which: ColumnElement[bool]
) -> list[TriggerStatus]:
    columns = [*(triggers.c[name] for name in _AS_THEY_ARE), triggers.c.retry_at, triggers.c.started]
    listed = select(*columns).where(triggers.c.state != "removed", *which).order_by(triggers.c.name, triggers.c.id)
    return [_status(row, now, why.get(row.id), blocking.get(row.id)) for row in connection.execute(listed)]


def _blocking(connection: Connection) -> dict[int | None, Blocked]:
    """Return the blocks of the runners of jobs now, by trigger."""
    return {block.trigger_id: block for block in blocks(connection).values()}


def blocks(connection: Connection) -> dict[int, Blocked]:
    """Return the blocks of the runners of jobs now, by job."""
    return {row.id: Blocked.model_validate_json(row.blocked) for row in connection.execute(_blocked)}


def last_failure(stored: str | None) -> dict[str, Any]:
    """Return the fields of a trigger's last failure from the stored JSON, or no fields if it never failed."""
    return {} if stored is None else dict(msgspec.json.decode(stored))


def _since(row: Row[Any], now: int) -> datetime | None:
    return None if row.started is None else moment(min(row.started, now))


def _status(row: Row[Any], now: int, why: str | None, block: Blocked | None) -> TriggerStatus:
    failure = last_failure(row.failure)
    # The job that holds it restarts it when its time has come, and does not report that.
    again = row.state == "failed" and row.job_id is not None and row.retry_at is not None and row.retry_at <= now
    state = "running" if again else row.state
    fields = dict(zip(_AS_THEY_ARE, row, strict=False)) | {
        "state": state,
        "failure": f"{failure['type']}: {failure['message']}" if failure else None,
        "failed": failure.get("at"),
        "since": _since(row, now) if state == "running" else None,
        "blocking": None if block is None else block.seconds,
        "unserved": why,
    }
    return TriggerStatus.model_validate(fields)


def trigger_detail(connection: Connection, keyring: Keyring, trigger_id: int, now: int) -> TriggerDetail | None:
    """Return one registered trigger, or None if it does not exist. `now` is in microseconds."""
    statuses = trigger_statuses(connection, now, triggers.c.id == trigger_id)
    if not statuses:
        return None
    row = connection.execute(select(triggers).where(triggers.c.id == trigger_id)).one()
    return TriggerDetail(
        **statuses[0].model_dump(),
        **{name: getattr(row, name) for name in _DETAILS},
        **_pattern(connection, keyring, row),
        sampled=_samples(connection, keyring, row),
        retry_at=None if row.retry_at is None else moment(row.retry_at),
        traceback=last_failure(row.failure).get("traceback", []),
        stack=[line for block in blocks(connection).values() if block.trigger_id == trigger_id for line in block.stack],
    )


def _pattern(connection: Connection, keyring: Keyring, row: ResultRow) -> dict[str, Any]:
    """Return the pattern of a watch with stored secrets masked, or the reason why it is not returned."""
    if not is_watch(row):
        return {}
    arguments, unreadable = stored_arguments(keyring, row)
    match = None if arguments is None else arguments.get("match")
    if unreadable is not None or match is None:
        return {"is_watch": True, "pattern_hidden": unreadable}
    text = msgspec.json.encode(masked_json(secret_masker(connection, keyring), match))
    if len(text) > MAX_PATTERN_BYTES:
        return {"is_watch": True, "pattern_hidden": f"It has {len(text):,} bytes, more than {MAX_PATTERN_BYTES:,}."}
    return {"is_watch": True, "pattern": text.decode()}


def _samples(connection: Connection, keyring: Keyring, row: ResultRow) -> WatchSamples | None:
    """Return the newest samples of a watch, or None if there are none since its declaration."""
    mine = (watch_samples.c.trigger_id == row.id, watch_samples.c.updated >= row.declared)
    stored = connection.execute(select(watch_samples).where(*mine)).one_or_none()
    if stored is None:
        return None
    masker = secret_masker(connection, keyring)
    leaves = msgspec.json.decode(stored.leaves, type=list[tuple[str, int]])
    return WatchSamples(
        samples=stored.samples,
        matched=stored.matched,
        leaves=[LeafFailures(path=masker(path), failed=failed) for path, failed in leaves],
        updated=moment(stored.updated),
    )


def firing_explanation(
    connection: Connection, keyring: Keyring, *, trigger: str, event: str, by_id: bool, project: str | None
) -> FiringExplanation:
    """Return why the trigger of this name fired on an event or did not. `event` is a `seq`, or an id if `by_id` or if no event has the seq.

    Raises:
        ApiRefused: The log has no such event, no trigger has the name, or several match.
    """
    rows = _triggers_named(connection, trigger, project)
    seq = _seq(connection, event, by_id=by_id)
    explained = explained_event(connection, seq)
    if explained is None:
        raise _no_event(connection, event)
    row = _likeliest(connection, rows, seq, explained.stream)
    masker, match = secret_masker(connection, keyring), _match(keyring, row)
    has_secret = match is not None and masked_json(masker, match) != match
    answer = explain_firing(
        explained, explained_trigger(keyring, row, has_secret=has_secret), explained_answers(connection, explained, row.id)
    )
    stored = connection.execute(select(events.c.id, events.c.source).where(events.c.seq == seq)).one()
    runs = runs_of_event(connection, seq, limit=RUNS_OF_FIRING) if answer.reason == "fired" else []
    return FiringExplanation(
        trigger_id=row.id,
        trigger=row.name,
        project=row.project,
        seq=seq,
        id=stored.id,
        source=stored.source,
        received=moment(explained.received),
        fired=answer.reason in {"fired", "fired_as_another_event"},
        reason=answer.reason,
        text=masker(answer.text) if has_secret else answer.text,
        notes=list(answer.notes),
        runs=[run.run_id for run in runs],
    )


def _match(keyring: Keyring, row: ResultRow) -> Any:
    """Return the pattern of a watch as it is declared, or None if it has none or cannot be decrypted."""
    arguments, _ = stored_arguments(keyring, row) if is_watch(row) else (None, None)
    return None if arguments is None else arguments.get("match")


def _triggers_named(connection: Connection, name: str, project: str | None) -> list[ResultRow]:
    """Return the triggers of one project with this name, or the shards of a watch, removed ones included."""
    named = or_(triggers.c.name == name, triggers.c.name.startswith(name + SEPARATOR, autoescape=True))
    of_project = [] if project is None else [triggers.c.project == project]
    query = select(triggers).where(named, func.coalesce(triggers.c.run_id, "") == "", *of_project).order_by(triggers.c.id)
    rows = [row for row in connection.execute(query) if name in (row.name, whole_name(row.name))]
    if not rows:
        raise ApiRefused(
            f"No trigger has the name '{name}'.", hint="To see the triggers: headrace triggers", status=404, problem="not-found"
        )
    rows = [row for row in rows if row.name == name] or rows
    projects = sorted({row.project for row in rows if row.state != "removed"} or {row.project for row in rows})
    if len(projects) > 1:
        hint = f"Name the project with --project: {', '.join(projects)}."
        raise ApiRefused(f"{len(projects)} projects have a trigger '{name}'.", hint=hint, status=409, problem="ambiguous")
    return [row for row in rows if row.project == projects[0]]


def _likeliest(connection: Connection, rows: list[ResultRow], seq: int, stream: str | None) -> ResultRow:
    """Return the shard that fired on the event, or else the one that reads the stream of the event; a declared one first."""
    fired = triggers_that_fired(connection, seq, [row.id for row in rows])
    return min(rows, key=lambda row: (row.id not in fired, row.stream != stream, row.state == "removed"))


def _seq(connection: Connection, event: str, *, by_id: bool) -> int:
    """Return the seq of the event that a text names. Raises `ApiRefused` if none or several match."""
    if not by_id and event.isascii() and event.isdigit() and len(event) <= _MAX_SEQ_DIGITS:
        seq = int(event)
        if connection.execute(select(events.c.seq).where(events.c.seq == seq)).first() is not None:
            return seq
    rows = events_with_id(connection, event)
    if not rows:
        raise _no_event(connection, event)
    if len(rows) > 1:
        hint = f"Name the seq of one: {', '.join(f'{row.seq} ({row.source})' for row in rows)}."
        raise ApiRefused(f"{len(rows):,} events have the id '{event}'.", hint=hint, status=409, problem="ambiguous")
    return int(rows[0].seq)


def _no_event(connection: Connection, event: str) -> ApiRefused:
    end = log_end(connection)
    if event.isascii() and event.isdigit() and len(event) <= _MAX_SEQ_DIGITS and 0 < int(event) <= end:
        text = f"The log does not have event {event} any more: it is pruned."
    else:
        text = f"No event has the seq or id '{event}'."
    hint = f"The log has had {end:,} events. To see the newest: headrace events"
    return ApiRefused(text, hint=hint, status=404, problem="not-found")
