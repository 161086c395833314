"""When the database counts as one that takes nothing, and when no more."""

from __future__ import annotations

from headrace.errors import ApiRefused, StorageBusy, StorageFull
from headrace.store.db.outages import RECOVERY_SECONDS, Outages


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_only_errors_of_the_storage_count() -> None:
    outages = Outages(Clock())
    outages.record_failure(ApiRefused("no", status=409, problem="invalid"))
    assert outages.current() is None


def test_a_full_disk_is_told_until_no_write_has_failed_for_a_while() -> None:
    clock = Clock()
    outages = Outages(clock)
    outages.record_failure(StorageFull("full", hint="make room"))
    first = outages.current()
    assert first is not None
    assert (first.reason, first.hint) == ("full", "make room")
    clock.now += 20
    outages.record_success()  # a heartbeat fits, a batch of events does not
    outages.record_failure(StorageFull("full still"))
    second = outages.current()
    assert second is not None
    assert (second.reason, second.since) == ("full still", first.since)
    outages.record_success()
    clock.now += RECOVERY_SECONDS - 1
    assert outages.current() is not None
    clock.now += 1
    assert outages.current() is None


def test_it_lasts_while_nothing_is_written_at_all() -> None:
    clock = Clock()
    outages = Outages(clock)
    outages.record_failure(StorageFull("full"))
    clock.now += 10 * RECOVERY_SECONDS
    assert outages.current() is not None


def test_a_database_that_answers_again_is_back_at_once() -> None:
    outages = Outages(Clock())
    outages.record_failure(StorageBusy("away"))
    assert outages.current() is not None
    outages.record_success()
    assert outages.current() is None
