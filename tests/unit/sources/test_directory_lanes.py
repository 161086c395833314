from __future__ import annotations

from headrace.sources.directory_journal import Entry, Identity
from headrace.sources.directory_lanes import QUIET, Found, Lane, Lanes


def found(file: str, size: int = 10, *, inode: int = 1, modified: int = 100) -> Found:
    return Found(file, Identity(inode, size, modified))


def read_through(lanes: Lanes, now: float, *, up_to: int | None = None) -> Lane:
    """Take the next lane, hand its lines out, and come to the end of its file."""
    lane = lanes.take()
    assert lane is not None
    end = lane.size if up_to is None else up_to
    lane.owed = end
    lanes.at_end(lane, end, now)
    return lane


def test_files_are_read_in_the_order_of_their_last_change_then_by_name() -> None:
    lanes = Lanes()
    lanes.look([found("c", inode=3), found("b", inode=2), found("a", modified=200)], 0.0)
    taken = [lanes.take(), lanes.take(), lanes.take()]
    assert [lane.name for lane in taken if lane] == ["b", "c", "a"]
    assert lanes.take() is None


def test_a_lane_ends_when_it_is_quiet_and_advanced() -> None:
    lanes = Lanes()
    lanes.look([found("a")], 0.0)
    lane = read_through(lanes, 1.0)
    look = lanes.look([found("a")], 1.5)
    assert (look.ended, look.again) == ([], 1.0 + QUIET)
    assert lanes.look([found("a")], 1.0 + QUIET).ended == []
    lane.advanced = 10
    assert lanes.look([found("a")], 1.0 + QUIET).ended == [lane]
    assert lanes.get("a") is None


def test_an_empty_file_ends_too() -> None:
    lanes = Lanes()
    lanes.look([found("a", 0)], 0.0)
    lane = read_through(lanes, 0.0)
    assert lanes.look([found("a", 0)], QUIET).ended == [lane]


def test_a_file_that_grows_is_read_on_and_its_quiet_time_starts_again() -> None:
    lanes = Lanes()
    lanes.look([found("a")], 0.0)
    lane = read_through(lanes, 0.0)
    lane.advanced = 10
    assert lanes.look([found("a", 20, modified=101)], 1.5).ended == []
    assert lanes.take() is lane
    assert not lane.final
    lanes.at_end(lane, 20, 1.6)
    lane.owed = lane.advanced = 20
    assert lanes.look([found("a", 20, modified=101)], 1.6 + QUIET / 2).ended == []
    assert lanes.look([found("a", 20, modified=101)], 1.6 + QUIET).ended == [lane]


def test_what_comes_after_the_last_line_end_counts_once_the_file_is_quiet() -> None:
    lanes = Lanes()
    lanes.look([found("a")], 0.0)
    lane = read_through(lanes, 0.0, up_to=7)
    lanes.look([found("a")], QUIET / 2)
    assert lanes.take() is None
    lanes.look([found("a")], QUIET)
    assert lanes.take() is lane
    assert lane.final
    assert lane.read == 7


def test_a_name_that_comes_again_gets_a_lane_of_its_own() -> None:
    lanes = Lanes([Entry("a", "a", 10, Identity(9, 10, 9), moved=True), Entry("a~2", "a", 4, Identity(8, 4, 8), moved=True)])
    lanes.look([found("a")], 0.0)
    lane = lanes.take()
    assert lane is not None
    assert (lane.name, lane.read) == ("a~3", 0)


def test_a_name_that_is_taken_by_another_file_is_not_given_twice() -> None:
    lanes = Lanes([Entry("a", "a", 10, Identity(9, 10, 9), moved=True)])
    lanes.look([found("a~2", inode=1), found("a", inode=2)], 0.0)
    names = {lane.name for lane in (lanes.take(), lanes.take()) if lane}
    assert len(names) == 2


def test_names_in_done_are_used_even_when_the_journal_was_lost() -> None:
    lanes = Lanes(used=["a"])
    lanes.look([found("a")], 0.0)
    assert lanes.get("a~2") is not None


def test_reading_goes_on_where_it_was_recorded() -> None:
    lanes = Lanes([Entry("a~2", "a", 6)])
    lanes.look([found("a")], 0.0)
    lane = lanes.take()
    assert lane is not None
    assert (lane.name, lane.read, lane.advanced) == ("a~2", 6, 6)


def test_a_file_shorter_than_what_was_recorded_is_another_file() -> None:
    lanes = Lanes([Entry("a", "a", 60)])
    lanes.look([found("a")], 0.0)
    lane = lanes.take()
    assert lane is not None
    assert (lane.name, lane.read) == ("a~2", 0)


def test_a_crash_between_the_record_and_the_move_is_repaired() -> None:
    lanes = Lanes([Entry("a", "a", 10, found("a").identity)])
    assert [lane.name for lane in lanes.look([found("a")], 0.0).ended] == ["a"]
    assert lanes.take() is None


def test_another_file_that_came_after_such_a_crash_is_read() -> None:
    lanes = Lanes([Entry("a", "a", 10, Identity(7, 10, 7))])
    assert lanes.look([found("a")], 0.0).ended == []
    assert lanes.get("a~2") is not None


def test_a_file_that_is_gone_closes_its_lane_and_the_next_of_its_name_is_another() -> None:
    lanes = Lanes()
    lanes.look([found("a")], 0.0)
    lane = lanes.take()
    assert lanes.look([], 1.0).gone == [lane]
    lanes.look([found("a", inode=2)], 2.0)
    assert lanes.get("a") is None
    assert lanes.get("a~2") is not None


def test_a_file_that_was_replaced_or_cut_short_is_another() -> None:
    for other in (found("a", inode=2), found("a", 3, modified=101)):
        lanes = Lanes()
        lanes.look([found("a")], 0.0)
        lane = read_through(lanes, 0.0)
        assert lanes.look([other], 1.0).gone == [lane]
        assert lanes.get("a~2") is not None


def test_what_went_while_nobody_looked_is_forgotten() -> None:
    lanes = Lanes([Entry("a", "a", 6), Entry("b", "b", 6, Identity(5, 6, 7))])
    lanes.look([], 0.0)
    assert lanes.forget_missing() == [Entry("a", "a", 6)]
    lanes.look([found("a")], 1.0)
    assert lanes.get("a~2") is not None


def test_a_file_that_cannot_be_read_is_left_alone_until_it_changes() -> None:
    lanes = Lanes()
    lanes.look([found("a")], 0.0)
    lane = lanes.take()
    assert lane is not None
    lanes.fail(lane)
    lanes.look([found("a")], 10.0)
    assert lanes.take() is None
    lanes.look([found("a", 12, modified=101)], 11.0)
    assert lanes.take() is lane
