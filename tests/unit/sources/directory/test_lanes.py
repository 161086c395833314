from __future__ import annotations

import stat

from headrace.sources.directory.journal import Entry, Sum
from headrace.sources.directory.lane import QUIET, Lane
from headrace.sources.directory.lanes import Lanes, Sight
from headrace.sources.directory.lines import Chunk
from headrace.sources.directory.waiting import Candidate
from headrace.sources.files.names import new_lane
from headrace.sources.files.status import Status


def status(size: int = 10, *, inode: int = 1, birth: int = 1, modified: int = 100) -> Status:
    return Status(inode, birth, size, modified, stat.S_IFREG)


def opened(lanes: Lanes, file: str = "a", found: Status | None = None, *, read: int | None = None, now: float = 0.0) -> Lane:
    """Open a lane, hand its lines out, and come to the end of its file."""
    found = found or status()
    lane = Lane(new_lane(file), file, found, now)
    lanes.open(lane)
    read_through(lanes, lane, found, now, read=read)
    return lane


def read_through(lanes: Lanes, lane: Lane, found: Status, now: float, *, read: int | None = None) -> None:
    lane.took(Chunk([], found.size if read is None else read, True, found, [Sum(found.size, 7)]))
    lane.owed = lane.read
    lanes.at_end(lane, now)


def test_files_are_read_in_the_order_of_their_last_change_then_by_name() -> None:
    lanes = Lanes()
    lanes.see([Sight("c", status(inode=3)), Sight("b", status(inode=2)), Sight("a", status(modified=200))], 0.0)
    assert [lanes.take(), lanes.take(), lanes.take(), lanes.take()] == [Candidate(100, "b"), Candidate(100, "c"), Candidate(200, "a"), None]


def test_a_lane_ends_when_it_is_quiet_and_advanced() -> None:
    lanes = Lanes()
    lane = opened(lanes, now=1.0)
    assert lanes.see([Sight("a", status())], 1.5) == []
    assert lanes.see([Sight("a", status())], 1.0 + QUIET) == []
    lane.advanced = 10
    assert lanes.see([Sight("a", status())], 1.0 + QUIET) == [lane]
    lanes.close(lane)
    assert (lanes.get(lane.name), lanes.at("a"), lanes.of(lane.key)) == (None, None, None)


def test_the_lane_of_an_empty_file_ends() -> None:
    lanes = Lanes()
    lane = opened(lanes, found=status(0))
    assert lanes.see([Sight("a", status(0))], QUIET) == [lane]


def test_a_changed_file_is_read_further_and_its_quiet_time_restarts() -> None:
    lanes = Lanes()
    lane = opened(lanes)
    lane.advanced = 10
    grown = status(20, modified=101)
    assert lanes.see([Sight("a", grown)], 1.5) == []
    assert lanes.take() is lane
    assert not lane.final
    read_through(lanes, lane, grown, 1.6)
    lane.advanced = 20
    assert lanes.see([Sight("a", grown)], 1.6 + QUIET / 2) == []
    assert lanes.see([Sight("a", grown)], 1.6 + QUIET) == [lane]


def test_a_changed_file_of_the_same_size_is_read() -> None:
    lanes = Lanes()
    lane = opened(lanes)
    lane.advanced = 10
    assert lanes.see([Sight("a", status(modified=101))], 5.0) == []
    assert lanes.take() is lane


def test_an_unterminated_last_line_is_read_once_the_file_is_quiet() -> None:
    lanes = Lanes()
    lane = opened(lanes, read=7)
    lanes.see([Sight("a", status())], QUIET / 2)
    assert lanes.take() is None
    lanes.see([Sight("a", status())], QUIET)
    assert lanes.take() is lane
    assert lane.final


def test_a_lane_is_checked_only_when_it_is_due() -> None:
    lanes = Lanes()
    opened(lanes, now=1.0)
    assert (lanes.next_due(), lanes.due(1.5, 10)) == (1.0 + QUIET, [])
    assert lanes.due(1.0 + QUIET, 10) == ["a"]
    assert (lanes.next_due(), lanes.due(9.0, 10)) == (None, [])


def test_a_different_file_under_the_name_of_a_lane_becomes_a_new_candidate() -> None:
    for other in (status(inode=2), status(birth=2), status(20, birth=2)):
        lanes = Lanes()
        lane = opened(lanes)
        lanes.see([Sight("a", other)], 5.0)
        assert lanes.at("a") is None
        assert lanes.take() == Candidate(100, "a")
        lanes.scans += 1
        assert lanes.give_up(1) == [lane]


def test_a_renamed_file_retains_its_lane() -> None:
    lanes = Lanes()
    first, second = opened(lanes, "a", status(inode=1)), opened(lanes, "a.1", status(inode=2))
    lanes.see(
        [Sight("a", status(inode=3)), Sight("a.1", status(inode=1), renamed=first), Sight("a.2", status(inode=2), renamed=second)], 1.0
    )
    assert (lanes.at("a.1"), lanes.at("a.2"), lanes.at("a")) == (first, second, None)
    assert (first.file, second.file, first.lost, second.lost) == ("a.1", "a.2", None, None)
    assert lanes.take() == Candidate(100, "a")
    assert lanes.give_up(9) == []


def test_a_missing_file_is_given_up_after_a_later_scan() -> None:
    lanes = Lanes()
    lanes.scans = 4
    lane = opened(lanes)
    lanes.see([Sight("a")], 1.0)
    assert lanes.give_up(4) == []
    assert lanes.has_lost(4)
    assert lanes.give_up(5) == [lane]
    assert lanes.get(lane.name) is None


def test_an_unfinished_file_is_recognised_by_inode_and_birth_time() -> None:
    entry = Entry("a@1", "a", 6, inode=5, birth=50)
    lanes = Lanes([entry])
    assert lanes.unfinished((5, 50)) == entry
    assert lanes.unfinished((5, 0)) == entry
    assert lanes.unfinished((5, 51)) is None
    assert lanes.unfinished((6, 50)) is None


def test_opening_a_file_under_the_name_of_an_unfinished_file_ends_that_lane() -> None:
    lanes = Lanes([Entry("a@1", "a", 6, inode=1, birth=50)])
    lane = Lane("a@2", "a", status(), 0.0)
    assert [(entry.lane, entry.over) for entry in lanes.open(lane)] == [("a@2", False), ("a@1", True)]


def test_entries_of_files_that_vanished_before_the_start_are_dropped() -> None:
    lanes = Lanes([Entry("a@1", "a", 6, inode=5, birth=1), Entry("b@1", "b", 6, inode=7, birth=1), Entry("c@1", "c", 1, inode=6, birth=1)])
    assert {entry.lane for entry in lanes.remove_missing({6}) if entry.over} == {"a@1", "b@1"}
    assert lanes.unfinished((5, 1)) is None
    assert lanes.unfinished((6, 1)) is not None


def test_an_unreadable_file_is_named_and_retried_after_growing_pauses() -> None:
    lanes = Lanes()
    now, pauses = 0.0, []
    for _ in range(7):
        lanes.fail("a\udcff", "no", now)
        due = lanes.next_due()
        assert due is not None
        pauses.append(due - now)
        now = due
        assert lanes.due(now, 10) == ["a\udcff"]
        lanes.see([Sight("a\udcff", status())], now)
        assert lanes.take() == Candidate(100, "a\udcff")
    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    assert lanes.errors() == {"a\\xff": "no"}
    opened(lanes, "a\udcff")
    assert lanes.errors() == {}


def test_a_checksum_covers_only_advanced_bytes() -> None:
    lane = Lane("a@1", "a", status(100), 0.0)
    lane.took(Chunk([], 90, False, status(100), [Sum(30, 1), Sum(60, 2), Sum(90, 3)]))
    assert [lane.entry(at, None).check for at in (10, 30, 59, 60, 95)] == [None, Sum(30, 1), Sum(30, 1), Sum(60, 2), Sum(90, 3)]
    assert lane.mark.check == Sum(90, 3)
