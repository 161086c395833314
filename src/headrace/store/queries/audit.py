"""Audit: compare the totals of every stream, and its recorded positions with the upstream's.

A few grouped queries read one snapshot. For the raw events of each trigger:

    read = fired + filtered + rejected + dead-lettered + failed + dropped + pending

`pending` is counted in the backlog itself. It must equal the raw events that the receipts count as spilled (or
redriven) and that are not settled.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from sqlalchemy import Connection, func, select

from headrace.core.values.moments import moment
from headrace.store.custody.lanes import find_shard_streams, recorded_by_other_shards
from headrace.store.custody.seeks import moved_ranges
from headrace.store.custody.stream_logs import adopted_without
from headrace.store.custody.subscriber_sets import ANSWERS, SETTLED, Owed, subscriber_sets_of
from headrace.store.dialects.statements import driver_rows
from headrace.store.queries.streams import stream_list
from headrace.store.tables.control import stream_reports, triggers
from headrace.store.tables.custody import backlog, lanes, receipt_problems, recorded_streams, trigger_answers
from headrace.wire.base import rfc3339
from headrace.wire.control.streams import LaneReport, StreamReport
from headrace.wire.custody.receipts import Audit, LaneAudit, StreamAudit, TriggerAudit

MAX_PROBLEMS = 1_000
OWED_SECONDS = 60.0
"""Maximum seconds for which a raw event may be unanswered. A longer time is a problem."""
STORE = "the store"
COLUMNS = ("read", *ANSWERS, *SETTLED, "redriven")
MAX_TRIGGERS = 1_000
BATCH_ROWS = 10_000
TASK_RUNS = "task runs"


def audit(connection: Connection, now: int, stream: str | None = None) -> Audit:
    """Return the totals of every stream, or of one. `now` is in microseconds."""
    sums = _lanes(connection, stream)
    by_trigger = _triggers(connection, stream)
    problems = _problems(connection, stream)
    for name, problem in adopted_without(connection, stream):
        problems.setdefault(name, []).append(problem)
    for name, problem in _owed_long(connection, now, stream):
        problems.setdefault(name, []).append(problem)
    seeks = moved_ranges(connection, stream)
    for name in (*problems, *seeks):
        sums.setdefault(name, (0, 0))
    streams = [
        StreamAudit(
            stream=name,
            read=read,
            lanes=count,
            triggers=by_trigger.get(name, []),
            problems=problems.get(name, []),
            seeks=seeks.get(name, []),
        )
        for name, (read, count) in sorted(sums.items())
    ]
    clean = not any(one.problems or not all(trigger.balanced for trigger in one.triggers) for one in streams)
    return Audit(at=moment(now), clean=clean, streams=streams)


def _owed_long(connection: Connection, now: int, stream: str | None) -> Iterator[tuple[str, LaneAudit]]:
    """Yield, for each running stream, the position of its oldest raw event, if that has been unanswered for too long."""
    for one in stream_list(connection):
        seconds = one.oldest_unresolved or 0.0
        if seconds <= OWED_SECONDS or (stream is not None and one.stream != stream):
            continue
        since = rfc3339(moment(now - int(seconds * 1_000_000)))
        what = f"a raw event that was read at {since} is owed an answer for {seconds:,.0f} s: held by {one.held_by or STORE}"
        yield one.stream, LaneAudit(lane=one.oldest_lane or "", recorded=None, committed=None, problem=what)


def _lanes(connection: Connection, stream: str | None) -> dict[str, tuple[int, int]]:
    """Return, for each stream, the number of raw events that it read, and of its lanes."""
    query = select(lanes.c.stream, func.sum(lanes.c.read), func.count()).where(lanes.c.last.is_not(None)).group_by(lanes.c.stream)
    if stream is not None:
        query = query.where(lanes.c.stream == stream)
    pruned = select(recorded_streams.c.stream, recorded_streams.c.read, recorded_streams.c.lanes).where(recorded_streams.c.lanes > 0)
    if stream is not None:
        pruned = pruned.where(recorded_streams.c.stream == stream)
    sums: dict[str, tuple[int, int]] = {row[0]: (int(row[1]), int(row[2])) for row in connection.execute(query)}
    for name, read, count in connection.execute(pruned):
        before = sums.get(name, (0, 0))
        sums[name] = (before[0] + read, before[1] + count)
    return sums


def _triggers(connection: Connection, stream: str | None) -> dict[str, list[TriggerAudit]]:
    owed = _expected(connection, stream)
    counts = _counts(connection, stream)
    pending = _pending(connection, stream)
    names = _names(connection)
    audits: dict[str, list[TriggerAudit]] = defaultdict(list)
    runs: dict[str, tuple[Counter[str], Counter[str]]] = defaultdict(lambda: (Counter(), Counter()))
    for key in owed.keys() | counts.keys() | pending.keys():
        name, trigger = key
        if trigger in names:
            audits[name].append(_balance(names[trigger], owed[key], counts.get(key, Counter()), pending[key]))
        else:
            runs[name][0].update(read=owed[key], pending=pending[key])
            runs[name][1].update(counts.get(key, {}))
    for name, (sums, totals) in runs.items():
        audits[name].append(_balance(TASK_RUNS, sums["read"], totals, sums["pending"]))
    return {name: _limited(sorted(totals, key=lambda one: one.trigger)) for name, totals in audits.items()}


def _names(connection: Connection) -> dict[int, str]:
    """Return the names of declared triggers. Triggers of task runs are temporary and share one line."""
    declared = select(triggers.c.id, triggers.c.name).where(triggers.c.run_id.is_(None))
    return {one: name for part in driver_rows(connection, declared, BATCH_ROWS) for one, name in part}


def _limited(totals: list[TriggerAudit]) -> list[TriggerAudit]:
    """Return the totals to show for a stream's triggers.

    If there are too many, unbalanced triggers come first, and the last line sums up the rest.
    """
    if len(totals) <= MAX_TRIGGERS:
        return totals
    totals = sorted(totals, key=lambda one: (one.balanced, one.trigger))
    visible, rest = totals[: MAX_TRIGGERS - 1], totals[MAX_TRIGGERS - 1 :]
    names = TriggerAudit.model_fields.keys() - {"trigger", "balanced"}
    sums = {name: sum(getattr(one, name) for one in rest) for name in names}
    return [*visible, TriggerAudit(trigger=f"{len(rest)} other triggers", balanced=all(one.balanced for one in rest), **sums)]


def _balance(trigger: str, read: int, totals: Counter[str], pending: int) -> TriggerAudit:
    read += totals["read"]
    first = sum(totals[name] for name in ANSWERS)
    settled = sum(totals[name] for name in SETTLED)
    spilled = totals["spilled"] + totals["redriven"]
    dead_lettered = totals["dead_lettered"] + totals["settled_dead_lettered"]
    rejected = totals["rejected"] + totals["settled_rejected"]
    # a redriven dead letter is answered again, so it leaves the count of its first answer
    from_dead_letters = min(totals["redriven"], dead_lettered)
    return TriggerAudit(
        trigger=trigger,
        read=read,
        fired=totals["fired"] + totals["settled_fired"],
        filtered=max(0, read - first) + totals["settled_filtered"],
        rejected=rejected - (totals["redriven"] - from_dead_letters),
        dead_lettered=dead_lettered - from_dead_letters,
        failed=totals["failed"],
        spilled=spilled,
        settled=settled,
        pending=pending,
        dropped=totals["settled_dropped"],
        balanced=first <= read and spilled - settled == pending,
    )


def _expected(connection: Connection, stream: str | None) -> Counter[tuple[str, int]]:
    owed: Counter[tuple[str, int]] = Counter()
    for name, stream_id in _stream_ids(connection, stream):
        sums = Owed()
        for row in subscriber_sets_of(connection, stream_id):
            sums.add(row)
        owed.update({(name, trigger): n for trigger, n in sums.totals()})
    return owed


def _stream_ids(connection: Connection, stream: str | None) -> list[tuple[str, int]]:
    query = select(recorded_streams.c.stream, recorded_streams.c.id)
    if stream is not None:
        query = query.where(recorded_streams.c.stream == stream)
    return [(row.stream, row.id) for row in connection.execute(query)]


def _counts(connection: Connection, stream: str | None) -> dict[tuple[str, int], Counter[str]]:
    query = select(recorded_streams.c.stream, trigger_answers).join(trigger_answers, trigger_answers.c.stream_id == recorded_streams.c.id)
    if stream is not None:
        query = query.where(recorded_streams.c.stream == stream)
    return {(row.stream, row.trigger_id): Counter({name: getattr(row, name) for name in COLUMNS}) for row in connection.execute(query)}


def _pending(connection: Connection, stream: str | None) -> Counter[tuple[str, int]]:
    """Return the number of stored raw events that the receipts count as spilled."""
    query = (
        select(lanes.c.stream, backlog.c.trigger_id, func.count())
        .join(lanes, lanes.c.id == backlog.c.lane_id)
        .where(backlog.c.accounted.is_(True), backlog.c.answer.is_(None))
        .group_by(lanes.c.stream, backlog.c.trigger_id)
    )
    if stream is not None:
        query = query.where(lanes.c.stream == stream)
    return Counter({(row[0], row[1]): int(row[2]) for row in connection.execute(query)})


def _problems(connection: Connection, stream: str | None) -> dict[str, list[LaneAudit]]:
    """Return the problems with the lanes of each stream.

    Problems that the receipts report come first, in order of time. Lanes whose upstream is ahead follow.
    """
    query = (
        select(lanes.c.stream, lanes.c.lane, receipt_problems.c.recorded, receipt_problems.c.problem)
        .join(lanes, lanes.c.id == receipt_problems.c.lane_id)
        .order_by(receipt_problems.c.id)
        .limit(MAX_PROBLEMS)
    )
    last = select(stream_reports.c.stream, stream_reports.c.report).order_by(stream_reports.c.updated)
    if stream is not None:
        query = query.where(lanes.c.stream == stream)
        last = last.where(stream_reports.c.stream == stream)
    lane_audits: dict[str, list[LaneAudit]] = defaultdict(list)
    for row in connection.execute(query):
        lane_audits[row.stream].append(LaneAudit(lane=row.lane, recorded=row.recorded, committed=None, problem=row.problem))
    newest = {row.stream: row.report for row in connection.execute(last)}
    shards = find_shard_streams(connection)
    for name, report in newest.items():
        lane_audits[name] += _ahead(connection, name, StreamReport.model_validate_json(report).lanes, shards)
    return {name: problems for name, problems in lane_audits.items() if problems}


def _ahead(connection: Connection, stream: str, reported: list[LaneReport], shards: Mapping[str, set[str]]) -> list[LaneAudit]:
    """Return the lanes that were advanced past their recorded position.

    Custody is recorded first, so an old report is never ahead of it.
    """
    named = select(lanes.c.lane, lanes.c.last).where(lanes.c.stream == stream, lanes.c.lane.in_([lane.lane for lane in reported]))
    recorded: dict[str, int | None] = {row.lane: row.last for row in connection.execute(named)}
    for name, position in recorded_by_other_shards(connection, stream, [lane.lane for lane in reported], shards).items():
        recorded[name] = max(position, recorded.get(name) or position)
    problems: list[LaneAudit] = []
    for lane in reported:
        last = recorded.get(lane.lane)
        if lane.advanced is not None and (last is None or lane.advanced > last):
            what = f"advanced up to {lane.advanced}, past what is recorded"
        elif lane.committed is not None and last is not None and lane.committed > last:
            what = f"the upstream has committed up to {lane.committed}, past what is recorded"
        else:
            continue
        problems.append(LaneAudit(lane=lane.lane, recorded=last, committed=lane.committed, problem=what))
    return problems
