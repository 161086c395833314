from __future__ import annotations

from headrace.sources.kafka.partitions import NO_EPOCH, NO_OFFSET, Partition, Partitions, TopicPartitionKey

KEY = TopicPartitionKey("orders", 3)


def partition(start: int = 0, committed: int = NO_OFFSET) -> Partition:
    return Partition(KEY, "5f1c", start, committed)


def test_a_lane_names_topic_partition_and_birthmark() -> None:
    assert partition().lane == "orders/3@5f1c"
    assert Partition(KEY, None, 0, NO_OFFSET).lane == "orders/3"


def test_an_offset_is_delivered_once() -> None:
    one = partition(start=5)
    assert [one.deliver(offset, 0) for offset in (4, 5, 7, 7, 6, 8)] == [False, True, True, False, False, True]


def test_the_target_is_behind_the_last_answered_message() -> None:
    one = partition()
    for offset in (0, 1, 6, 7):
        one.deliver(offset, 0)
    one.answer(6, None)
    assert (one.target, one.is_drained, one.needs_commit) == (7, False, True)
    one.answer(1, None)  # a repeated advance
    assert one.target == 7


def test_a_drained_lane_is_committed_up_to_the_end_that_was_read() -> None:
    one = partition()
    one.deliver(0, 0)
    one.reached_end(9)
    assert one.target == 0
    one.answer(0, None)
    assert one.target == 9
    one.confirm(9)
    assert not one.needs_commit
    assert one.committed_position == one.end_position == 8


def test_a_failed_message_holds_the_committed_offset() -> None:
    one = partition()
    for offset in range(10):
        one.deliver(offset, 0)
    one.answer(5, 4)
    one.answer(9, 7)
    one.reached_end(12)
    assert one.target == 4


def test_a_floor_that_another_reader_has_passed_is_dropped() -> None:
    one = partition()
    for offset in range(10):
        one.deliver(offset, 0)
    one.answer(9, 4)
    assert (one.assign(committed=4), one.floor) == (10, 4)
    assert (one.assign(committed=5), one.floor) == (10, None)


def test_a_reassigned_partition_continues_after_its_delivered_messages() -> None:
    one = partition()
    one.deliver(0, 0)
    one.deliver(1, 0)
    one.is_assigned = False
    assert not one.needs_commit
    assert one.assign(committed=NO_OFFSET) == 2
    assert one.assign(committed=50) == 50


def test_the_first_start_is_committed_also_at_offset_0() -> None:
    """Without a committed offset, the next opening of a group that begins at the latest message would skip what was sent meanwhile."""
    for start in (50, 0):
        one = partition(start=start)
        before = one.needs_commit
        one.confirm(start)
        assert (before, one.needs_commit) == (True, False)
        assert one.committed_position == (start - 1 if start else None)


def test_lost_messages_count_as_committed() -> None:
    one = partition(start=50, committed=10)
    one.lost_before = 50
    assert one.committed_position == 49


def test_a_recreated_topic_has_a_new_partition() -> None:
    partitions = Partitions()
    old, new = partition(), Partition(KEY, "77aa", 0, NO_OFFSET)
    partitions.add(old)
    partitions.add(new)
    assert partitions.get(KEY) is new
    assert partitions.of_lane(old.lane) is old
    assert partitions.assigned == [new]


def test_the_epoch_before_an_offset_is_that_of_delivered_messages_on_both_sides() -> None:
    one = partition(start=5, committed=5)
    one.committed_epoch = 1
    for offset, epoch in ((5, 2), (6, 2), (8, 2), (12, 4), (13, None)):
        one.deliver(offset, epoch)
    assert [one.epoch_before(offset) for offset in (4, 5, 6, 8, 9)] == [NO_EPOCH, 1, 2, 2, 2]
    # 9 to 11 may be the markers of a newer leader: with the epoch of 8, the broker would say that they are lost
    assert [one.epoch_before(offset) for offset in (10, 12, 13, 14)] == [NO_EPOCH, NO_EPOCH, 4, NO_EPOCH]


def test_a_committed_epoch_follows_the_committed_offset_and_older_ones_are_dropped() -> None:
    one = partition()
    for offset in range(6):
        one.deliver(offset, offset // 2)
    one.confirm(4)
    assert (one.committed_epoch, [run.epoch for run in one.earlier_epochs]) == (1, [1])
    one.confirm(3)
    assert one.committed_epoch == 1
    one.confirm(20)  # a marker after the last message
    assert (one.committed_epoch, one.epoch_before(20)) == (NO_EPOCH, NO_EPOCH)
    one.assign(committed=20, epoch=7)
    assert one.epoch_before(20) == 7


def test_the_message_before_the_start_is_read_again_if_its_epoch_is_known_and_it_still_exists() -> None:
    for epoch, low, begins in ((3, 0, 4), (3, 4, 4), (3, 5, 5), (NO_EPOCH, 0, 5)):
        partitions, one = Partitions(), partition(start=5, committed=5)
        partitions.add(one)
        one.committed_epoch = epoch
        one.compare(low)
        assert partitions.client_start(one.key, 5) == (begins, epoch)
        assert partitions.client_start(one.key, 9) == (9, NO_EPOCH)
        assert not one.deliver(4, 7)
        assert one.is_truncated(4, 7) == (begins == 4)
        assert not one.is_truncated(4, 3)
        assert not one.is_truncated(4, None)
        assert not one.is_truncated(3, 7)
