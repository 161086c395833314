"""The start and the end of an outage, in which the database stores no data."""

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


def test_a_full_disk_is_reported_until_writes_have_succeeded_for_some_time() -> None:
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


def test_an_outage_lasts_while_no_write_is_attempted() -> None:
    clock = Clock()
    outages = Outages(clock)
    outages.record_failure(StorageFull("full"))
    clock.now += 10 * RECOVERY_SECONDS
    assert outages.current() is not None


def test_an_outage_of_a_busy_database_ends_with_the_first_successful_write() -> None:
    outages = Outages(Clock())
    outages.record_failure(StorageBusy("away"))
    assert outages.current() is not None
    outages.record_success()
    assert outages.current() is None
