"""Which objects are new, and which version of them is read."""

from __future__ import annotations

import pytest

from headrace.sources.leases.leases import Lease, Part
from headrace.sources.objects.digests import DigestSet
from headrace.sources.objects.location import StoredObject
from headrace.sources.objects.tracker import Tracker

PART = Part(Lease("m1", "receipt", None, "queue", 1, 1), 0)


@pytest.mark.parametrize(("listed", "version"), [(None, "v1"), ("v0", "v0")])
def test_an_object_takes_the_version_of_its_notification_if_it_has_none(listed: str | None, version: str) -> None:
    tracker = Tracker(DigestSet())
    tracked = tracker.list(StoredObject("a", "e", 8, 0, listed))
    assert tracked is not None
    assert tracker.notify(StoredObject("a", "e", 8, 1, "v1"), PART) == (None, True)
    assert tracked.stored == StoredObject("a", "e", 8, 0, version)
    assert tracked.entry().version == version
    assert (tracked.parts, tracker.is_open(tracked)) == ([PART], True)


def test_a_notification_without_a_version_changes_none() -> None:
    tracker = Tracker(DigestSet())
    tracked, waits = tracker.notify(StoredObject("a", "e", 8, 0, "v1"), PART)
    assert tracked is not None
    assert waits
    tracker.notify(StoredObject("a", "e", 8, 0), PART)
    assert tracked.stored.version == "v1"
