"""Held leases of each job, and the differences from its last answer.

Invariant: an answer takes a job from one revision of its leases to the next. Revisions are in the memory of
this API server only. A job that names an unknown revision receives all its leases, starting from none. An
answer has at most `MAX_CHANGES` triggers, so that its cost is bounded however many triggers a job has.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from itertools import islice
from threading import Lock
from typing import Final, NamedTuple, TypeVar

from headrace.store.control import leases
from headrace.store.db.database import Database
from headrace.wire.control.jobs import Lease
from headrace.wire.control.triggers import TriggersLoaded

T = TypeVar("T")

MAX_CHANGES: Final = 5_000
"""Maximum number of triggers in one answer."""

MAX_JOBS: Final = 100
"""Maximum number of jobs in the cache. Most of them have ended."""

States = dict[int, int]
"""The result of `leases.held`."""


class _Known(NamedTuple):
    """The leases of a job, as read after the last change of any lease."""

    version: tuple[object, ...]
    states: States


class _Sent(NamedTuple):
    """The leases that the last answer sent to a job."""

    revision: str
    states: States


class _Whole(NamedTuple):
    """An answer with all leases of the job."""

    states: States
    answer: TriggersLoaded


class HeldLeases:
    """Return the leases of jobs, and read them again only after a change. Thread-safe."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = Lock()
        self._known: dict[int, _Known] = {}
        self._sent: dict[int, _Sent] = {}
        self._whole: dict[int, _Whole] = {}

    def all(self, job_id: int) -> TriggersLoaded:
        """Return all triggers that the job holds, and all that it must release.

        The answer is cached until something changes, and its leases are reused in the next answer. To build
        them takes longer than the rest of a call.
        """
        states = self._read(job_id)
        last = self._whole.get(job_id)
        if last is not None and last.states is states:
            return last.answer
        previous_leases = {} if last is None else {(lease.trigger_id, lease.epoch): lease for lease in last.answer.leases}
        listed = sorted(states.items())
        held = [previous_leases.get((one, state >> 1)) or _lease(one, state) for one, state in listed if state > 0]
        answer = TriggersLoaded.model_construct(leases=held, revoked=_revoked(listed))
        with self._lock:
            _remember(self._whole, job_id, _Whole(states, answer))
        return answer

    def changes(self, job_id: int, since: str) -> TriggersLoaded:
        """Return the changes for the job since a revision, as many as one answer holds."""
        now = self._read(job_id)
        with self._lock:
            last_response = self._sent.get(job_id)
            whole = last_response is None or last_response.revision != since
            before: States = {} if last_response is None or whole else last_response.states
            if now is before:
                return _answer({}, (), revision=since, whole=False, more=False)
            changed = dict(islice(((one, state) for one, state in now.items() if before.get(one) != state), MAX_CHANGES + 1))
            missing = list(islice((one for one in before if one not in now), MAX_CHANGES + 1 - len(changed)))
            more = len(changed) + len(missing) > MAX_CHANGES
            after = now
            if more:
                (missing.pop if missing else changed.popitem)()
                after = before | changed
                for one in missing:
                    del after[one]
            revision = secrets.token_hex(8)
            _remember(self._sent, job_id, _Sent(revision, after))
        return _answer(changed, missing, revision=revision, whole=whole, more=more)

    def _read(self, job_id: int) -> States:
        with self._database.reading() as connection:
            version = leases.version(connection)
            known = self._known.get(job_id)
            if known is not None and known.version == version:
                return known.states
            states = leases.held(connection, job_id)
        if known is not None and known.states == states:
            states = known.states
        with self._lock:
            _remember(self._known, job_id, _Known(version, states))
        return states


def _remember(of_jobs: dict[int, T], job_id: int, what: T) -> None:
    of_jobs.pop(job_id, None)
    of_jobs[job_id] = what
    while len(of_jobs) > MAX_JOBS:
        del of_jobs[next(iter(of_jobs))]


def _answer(changed: Mapping[int, int], removed: Iterable[int], *, revision: str, whole: bool, more: bool) -> TriggersLoaded:
    held = [_lease(one, state) for one, state in changed.items() if state > 0]
    return TriggersLoaded.model_construct(
        leases=held, revoked=_revoked(changed.items()), removed=list(removed), revision=revision, whole=whole, more=more
    )


def _lease(trigger_id: int, state: int) -> Lease:
    return Lease(trigger_id=trigger_id, epoch=state >> 1)  # half the time of `model_construct`


def _revoked(states: Iterable[tuple[int, int]]) -> dict[int, int]:
    return {one: -state if state < 0 else state >> 1 for one, state in states if state < 0 or state & 1}
