from __future__ import annotations

from headrace.core.ledger.obligations import Lane, PendingConfirmation, PendingEvent, Subscriber


def entry(number: int, lane: Lane) -> PendingEvent:
    made = PendingEvent(number, number, lane, number, float(number), number)
    lane.entries.append(made)
    return made


def test_entries_in_flight_count_as_outstanding() -> None:
    lane = Lane("x")
    entry(1, lane)
    lane.in_flight = 3
    assert lane.outstanding == 4


def test_the_oldest_owed_entry_is_unconfirmed_then_open_then_queued() -> None:
    lane, reader = Lane("x"), Subscriber(1)
    derived, at, waits = (entry(number, lane) for number in range(3))
    assert reader.oldest() is None
    reader.queue.append(waits)
    assert reader.oldest() is waits
    reader.open = at
    assert reader.oldest() is at
    reader.settled = True
    assert reader.oldest() is waits
    reader.unconfirmed[PendingConfirmation(reader, derived, 1)] = None
    assert reader.oldest() is derived


def test_a_subscriber_has_not_ended_its_open_and_queued_entries() -> None:
    lane, reader = Lane("x"), Subscriber(1)
    derived, at, waits = (entry(number, lane) for number in range(3))
    reader.queue.append(waits)
    reader.open = at
    reader.unconfirmed[PendingConfirmation(reader, derived, 1)] = None
    assert [reader.has_not_ended(one) for one in (derived, at, waits)] == [False, True, True]
    reader.settled = True
    assert not reader.has_not_ended(at)


def test_the_ack_timeout_of_a_registered_subscriber_starts_when_it_begins_an_entry() -> None:
    lane, reader = Lane("x"), Subscriber(1, registered=True)
    assert reader.due(10) is None
    reader.open, reader.begun = entry(0, lane), 5.0
    assert reader.due(10) == 15
    assert not reader.is_stuck(10, 14)
    assert reader.is_stuck(10, 15)
    reader.queue.append(entry(1, lane))
    assert reader.due(10) == 11
