from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.identity import event_key
from headrace.core.ordering import causal_order
from headrace.core.ordering.causal_order import CYCLE, LATE, LOST, CausalOrder, Offered, Released
from headrace.core.ordering.snapshot import OrderingSnapshot

LOOKBACK = 1_000


def key(id: str) -> bytes:
    return event_key("tests", id)


class Log:
    """Stamps events as the event log does: known ids are dropped, a leader that came before is told by its seq."""

    def __init__(self) -> None:
        self.seqs: dict[bytes, int] = {}
        self.ids: dict[int, str] = {}

    def append(self, id: str, follows: str | None = None, occurred: int = 0, *, again: bool = False) -> list[Offered]:
        if key(id) in self.seqs and not again:
            return []
        seq = len(self.ids) + 1
        leader = None if follows is None else key(follows)
        stamped = (seq, key(id), leader, -1 if leader is None else self.seqs.get(leader, -1), occurred, id)
        self.seqs.setdefault(key(id), seq)
        self.ids[seq] = id
        return [stamped]

    def extend(self, events: Iterable[tuple[str, str | None, int]]) -> list[Offered]:
        return [offered for event in events for offered in self.append(*event)]

    def marked_ids(self, released: Released) -> list[tuple[str, str | None]]:
        return [(self.ids[seq], mark) for seq, mark in zip(released.seqs, released.marks, strict=True)]


def ids(log: Log, released: Released) -> list[str]:
    return [log.ids[seq] for seq in released.seqs]


def test_an_event_that_follows_no_event_or_itself_is_released() -> None:
    log, order = Log(), CausalOrder(LOOKBACK)
    released = order.offer(log.extend([("a", None, 0), ("b", "b", 0)]), 0)
    assert log.marked_ids(released) == [("a", None), ("b", None)]
    assert released.waited == [0, 0]
    assert (order.position, order.head, len(order)) == (2, 2, 0)


def test_a_leader_before_the_start_of_the_scope_releases_its_follower() -> None:
    order = CausalOrder(LOOKBACK)
    assert order.offer([(900, key("b"), key("a"), 17, 0, "b")], 0).seqs == [900]


def test_followers_are_released_after_their_leader_by_occurred_then_id() -> None:
    log, order = Log(), CausalOrder(LOOKBACK)
    waits = [("z", "root", 1), ("d", "b", 0), ("b", "root", 2), ("a", "root", 2), ("c", "root", 1)]
    assert not order.offer(log.extend(waits), 5)
    assert [entry.id for entry in order.waiting()] == ["z", "d", "b", "a", "c"]
    released = order.offer(log.extend([("root", None, 9)]), 8)
    assert ids(log, released) == ["root", "c", "z", "a", "b", "d"]
    assert released.waited == [0, 3, 3, 3, 3, 3]


def test_a_duplicate_is_released_once() -> None:
    log, order = Log(), CausalOrder(LOOKBACK)
    ready = log.append("a")
    assert ids(log, order.offer([*ready, *ready, *log.append("a", again=True)], 0)) == ["a"]
    waiting = log.append("c", "b")
    assert not order.offer([*waiting, *log.append("c", "b", again=True)], 0)
    assert not order.offer(log.append("c", "b", again=True), 0)
    assert not order.offer(waiting, 0)
    assert len(order) == 1
    assert ids(log, order.offer(log.append("b"), 0)) == ["b", "c"]
    assert not order.offer(ready + waiting, 0)


@pytest.mark.slow
def test_a_reversed_chain_of_100_000_is_ordered() -> None:
    log, order = Log(), CausalOrder(LOOKBACK)
    chain = [(str(i), str(i - 1) if i else None, 0) for i in reversed(range(100_000))]
    released = order.offer(log.extend(chain), 0)
    assert ids(log, released) == [str(i) for i in range(100_000)]


def test_10_000_followers_of_one_leader_are_ordered() -> None:
    log, order = Log(), CausalOrder(LOOKBACK)
    fan = [(str(i), "root", -i) for i in range(10_000)]
    assert not order.offer(log.extend(fan), 0)
    assert ids(log, order.offer(log.append("root"), 0)) == ["root", *(str(i) for i in reversed(range(10_000)))]


def test_repeated_joins_to_a_long_waiting_chain_stay_cheap() -> None:
    # Each of the joins has a follower that waits, so that it might close a cycle, and a chain of 20,000 above it.
    log, order = Log(), CausalOrder(LOOKBACK)
    chain = [(str(i), str(i - 1), 0) for i in range(20_000)]
    leaves = [(f"leaf-{i}", f"join-{i}", 0) for i in range(20_000)]
    joins = [(f"join-{i}", "19999", 0) for i in range(20_000)]
    assert not order.offer(log.extend([*chain, *leaves, *joins]), 0)
    assert len(order.offer(log.append("-1"), 0)) == 60_001


def test_a_duplicate_that_arrives_with_its_leader_is_dropped() -> None:
    log, order = Log(), CausalOrder(LOOKBACK)
    order.offer(log.append("b", "a"), 0)
    again = [*log.append("a"), *log.append("b", "a", again=True), *log.append("a", again=True)]
    assert ids(log, order.offer(again, 0)) == ["a", "b"]
    assert (order.position, order.head) == (2, 2)


def test_a_tree_without_its_leader_is_released_with_a_lost_root() -> None:
    log, order = Log(), CausalOrder(LOOKBACK)
    order.offer(log.extend([("c", "b", 0), ("b", "a", 0)]), 100)
    order.offer(log.extend([("y", "b", -1), ("late-sibling", "a", 0)]), 600)
    assert not order.expire(1_099)
    released = order.expire(1_100)
    assert log.marked_ids(released) == [("b", LOST), ("y", None), ("c", None)]
    assert released.waited == [1_000, 500, 1_000]
    assert (order.lost, order.position, len(order)) == (1, 3, 1)
    assert not order.expire(1_599)
    assert log.marked_ids(order.expire(1_600)) == [("late-sibling", LOST)]
    assert not order.expire(99_999)


def test_expired_roots_are_released_by_occurred_each_with_its_tree() -> None:
    log, order = Log(), CausalOrder(LOOKBACK)
    order.offer(log.extend([("r2", "gone", 5), ("x", "r2", 0), ("r1", "gone", 4), ("r0", "other", 6)]), 0)
    assert log.marked_ids(order.expire(LOOKBACK)) == [("r1", LOST), ("r2", LOST), ("x", None), ("r0", LOST)]
    assert order.lost == 3


def test_a_descendant_does_not_expire_before_its_root() -> None:
    log, order = Log(), CausalOrder(LOOKBACK)
    order.offer(log.append("c", "b"), 0)
    order.offer(log.append("b", "a"), 900)
    assert not order.expire(1_500)
    assert log.marked_ids(order.expire(1_900)) == [("b", LOST), ("c", None)]


def test_a_leader_that_arrives_after_its_follower_was_lost_is_late() -> None:
    log, order = Log(), CausalOrder(LOOKBACK)
    order.offer(log.append("b", "a"), 0)
    order.expire(LOOKBACK)
    order.offer(log.append("c", "a"), 1_500)
    assert log.marked_ids(order.offer(log.append("a"), 1_600)) == [("a", LATE), ("c", None)]
    assert order.late == 1


def test_a_waiting_late_leader_retains_its_mark_unless_it_is_lost() -> None:
    log, order = Log(), CausalOrder(LOOKBACK)
    order.offer(log.extend([("b", "a", 0), ("n", "m", 0)]), 0)
    order.expire(LOOKBACK)
    order.offer(log.extend([("a", "top", 0), ("m", "never", 0)]), 2_000)
    assert log.marked_ids(order.offer(log.append("top"), 2_001)) == [("top", None), ("a", LATE)]
    assert log.marked_ids(order.expire(9_000)) == [("m", LOST)]
    assert (order.late, order.lost) == (2, 3)


def test_a_cycle_is_released_when_it_closes() -> None:
    log, order = Log(), CausalOrder(LOOKBACK)
    order.offer(log.extend([("hangs", "b", 0), ("a", "c", 3), ("b", "a", 1)]), 0)
    assert len(order) == 3
    released = order.offer(log.append("c", "b", 2), 7)
    assert log.marked_ids(released) == [("b", CYCLE), ("c", CYCLE), ("a", CYCLE), ("hangs", None)]
    assert released.waited == [7, 0, 7, 7]
    assert (order.cycles, order.lost, len(order)) == (1, 0, 0)


def test_a_cycle_that_a_leader_in_the_log_closes_is_released() -> None:
    log, order = Log(), CausalOrder(LOOKBACK)
    assert log.marked_ids(order.offer(log.extend([("a", "b", 0), ("b", "a", 0)]), 0)) == [("a", CYCLE), ("b", CYCLE)]
    assert not order.expire(10 * LOOKBACK)


@pytest.mark.parametrize("limit", [1, 7, 1_000])
@pytest.mark.parametrize("again", [False, True])
def test_a_cycle_that_is_released_in_slices_has_the_same_order(limit: int, again: bool) -> None:
    """With `again`, the ordering is built anew before each slice, from what rows would say."""
    chance = random.Random(1)
    cycle = [(f"c{i}", f"c{(i + 1) % 40}", chance.randrange(20)) for i in range(40)]
    below = [(f"b{i}", f"c{chance.randrange(40)}", i) for i in range(30)] + [(f"d{i}", f"b{i}", 0) for i in range(30)]
    waits = [*cycle[1:], *below]
    chance.shuffle(waits)
    log, whole, order = Log(), CausalOrder(LOOKBACK), CausalOrder(LOOKBACK)
    offered = log.extend([*waits, cycle[0]])
    expected = log.marked_ids(whole.offer(offered, 0))
    assert len(expected) == 100
    marked_ids, slices = log.marked_ids(order.offer(offered, 0, limit=limit)), 1
    while order.breaking or order.releasing:
        if again:
            order = rebuilt_as_from_rows(order)
        assert not order.expire(5 * LOOKBACK, limit=limit), "what is to be released is not lost"
        marked_ids, slices = marked_ids + log.marked_ids(order.release(0, limit)), slices + 1
    assert marked_ids == expected
    assert slices >= 100 // limit
    assert (order.cycles, order.lost, len(order)) == (1, 0, 0)


def rebuilt_as_from_rows(order: CausalOrder) -> CausalOrder:
    blob = OrderingSnapshot((order.position, order.head, order.lost, order.late, order.cycles), list(order.waiting()), [])
    breaking = {closing: (cycle.number, cycle.seqs) for closing, cycle in order.breaking.items()}
    return CausalOrder.rebuilt(blob, LOOKBACK, releasing=order.releasing, breaking=breaking)


def test_an_event_that_arrives_during_the_release_of_a_cycle_waits_for_its_leader() -> None:
    log, order = Log(), CausalOrder(LOOKBACK)
    order.offer(log.extend([("b", "a", 1), ("c", "b", 2), ("d", "c", 3)]), 0)
    released = log.marked_ids(order.offer(log.append("a", "d"), 0, limit=1))
    assert released == [("a", CYCLE)]
    assert not order.offer(log.extend([("x", "y", 0), ("y", "d", 0), ("z", "x", 0)]), 0, limit=1)
    while order.breaking or order.releasing:
        released += log.marked_ids(order.release(0, 1))
    assert released == [("a", CYCLE), ("b", CYCLE), ("c", CYCLE), ("d", CYCLE), ("y", None), ("x", None), ("z", None)]


def test_two_cycles_that_close_together_are_both_released() -> None:
    log, order = Log(), CausalOrder(LOOKBACK)
    rings = [(f"{ring}{n}", f"{ring}{(n + 1) % 4}", n) for ring in "ab" for n in range(4)]
    released = log.marked_ids(order.offer(log.extend(rings), 0, limit=1))
    assert released == [("a0", CYCLE), ("b0", CYCLE)]
    assert not order.offer(log.extend([("x", "y", 0), ("y", "b2", 0)]), 0, limit=1), "it asks what the tree of b2 waits for"
    while order.breaking or order.releasing:
        released += log.marked_ids(order.release(0, 1))
    assert released[2:] == [*((f"{ring}{n}", CYCLE) for ring in "ab" for n in (1, 2, 3)), ("y", None), ("x", None)]


def test_a_member_removed_during_the_release_of_its_cycle_is_not_released() -> None:
    log, order = Log(), CausalOrder(LOOKBACK)
    order.offer(log.extend([("b", "a", 1), ("c", "b", 2), ("below", "c", 0)]), 0)
    released = log.marked_ids(order.offer(log.append("a", "c"), 0, limit=1))
    order.remove(key("c"), 0, limit=0)
    order = rebuilt_as_from_rows(order)
    while order.breaking or order.releasing:
        released += log.marked_ids(order.release(0, 1))
    assert released == [("a", CYCLE), ("b", CYCLE), ("below", None)]


def test_the_number_of_retained_lost_leaders_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(causal_order, "GIVEN_UP_LIMIT", 4)
    log, order = Log(), CausalOrder(LOOKBACK)
    order.offer(log.extend([(f"f{i}", f"l{i}", i) for i in range(5)]), 0)
    order.expire(LOOKBACK)
    late = order.offer(log.extend([(f"l{i}", None, 0) for i in range(5)]), LOOKBACK)
    assert log.marked_ids(late) == [("l0", None), ("l1", None), ("l2", None), ("l3", LATE), ("l4", LATE)]


@pytest.mark.parametrize("why", ["old", "many"])
def test_lost_leaders_are_pruned_in_batches(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(causal_order, "PRUNE_BATCH_SIZE", 3)
    log, order = Log(), CausalOrder(LOOKBACK)
    order.offer(log.extend([(f"f{i}", f"l{i}", i) for i in range(20)]), 0)
    order.expire(LOOKBACK)
    if why == "many":
        monkeypatch.setattr(causal_order, "GIVEN_UP_LIMIT", 20)
    now = 2 * LOOKBACK + (causal_order.GIVEN_UP_MICROS if why == "old" else 0)
    forgot = []
    for i in range(3):
        order.offer(log.extend([(f"later{i}", f"lost{i}", i)]), now - LOOKBACK)
        order.expire(now)
        forgot.append(len(order.pruned))
    assert forgot == ([3, 3, 3] if why == "old" else [3, 0, 0]), "the oldest, so that there is room for some more"


def test_an_invalid_snapshot_is_rejected() -> None:
    with pytest.raises(ValueError, match="not an ordering state"):
        OrderingSnapshot.unpack(b"something else")


@dataclass
class Feed:
    """A random history: batches of (id, follows, occurred), some ids twice, some leaders never; and which steps let time pass."""

    batches: list[list[tuple[str, str | None, int]]]
    pauses: list[int] = field(default_factory=list)

    @property
    def follows(self) -> dict[str, str | None]:
        first: dict[str, str | None] = {}
        for batch in self.batches:
            for id, follows, _ in batch:
                first.setdefault(id, follows)
        return first


@st.composite
def feeds(draw: st.DrawFn) -> Feed:
    names = [f"e{i}" for i in range(draw(st.integers(1, 12)))]
    leaders = st.none() | st.sampled_from([*names, "never-1", "never-2"])
    events = [(name, draw(leaders), draw(st.integers(0, 3))) for name in names]
    arrivals = draw(st.permutations(events + draw(st.lists(st.sampled_from(events), max_size=4))))
    cuts = sorted(draw(st.lists(st.integers(0, len(arrivals)), max_size=5)))
    bounds = [0, *cuts, len(arrivals)]
    batches = [list(arrivals[start:end]) for start, end in itertools.pairwise(bounds)]
    pauses = draw(st.lists(st.sampled_from([0, 1, LOOKBACK // 2, LOOKBACK]), min_size=len(batches), max_size=len(batches)))
    return Feed(batches, pauses)


def run(feed: Feed, *, restore: bool) -> tuple[list[tuple[str, str | None]], CausalOrder]:
    log, order, now = Log(), CausalOrder(LOOKBACK), 0
    marked_ids: list[tuple[str, str | None]] = []
    for batch, pause in zip(feed.batches, feed.pauses, strict=True):
        now += pause
        marked_ids += log.marked_ids(order.offer(log.extend(batch), now)) + log.marked_ids(order.expire(now))
        if restore:
            order = CausalOrder.restore(order.snapshot(), LOOKBACK)
        assert order.position == len(marked_ids)
    return marked_ids, order


def on_a_cycle(id: str, follows: dict[str, str | None]) -> bool:
    above = follows[id]
    for _ in follows:
        if above is None or above == id:
            break
        above = follows.get(above)
    return above == id and follows[id] != id


@given(feeds())
def test_each_event_is_released_once_or_waits_and_leaders_precede_followers(feed: Feed) -> None:
    marked_ids, order = run(feed, restore=False)
    follows, released = feed.follows, [id for id, _ in marked_ids]
    waiting = {entry.id for entry in order.waiting()}
    assert len(set(released)) == len(released)
    assert set(released) | waiting == set(follows)
    assert not set(released) & waiting
    place = {id: i for i, id in enumerate(released)}
    for id, mark in marked_ids:
        leader = follows[id]
        leads = leader is not None and leader != id and leader in follows
        if mark == CYCLE:
            assert on_a_cycle(id, follows)
        elif mark == LOST:
            assert leader != id
            assert leader is not None
            assert leader not in place or place[leader] > place[id]
        elif leads and leader is not None:
            assert place[leader] < place[id]
        if mark == LATE:
            assert any(follower in place and place[follower] < place[id] for follower, above in follows.items() if above == id)
    for id in waiting:
        leader = follows[id]
        assert leader in waiting or leader not in follows


@given(feeds())
def test_without_expiry_only_followers_of_missing_leaders_wait(feed: Feed) -> None:
    marked_ids, order = run(Feed(feed.batches, [0] * len(feed.batches)), restore=False)
    follows = feed.follows

    def rests_on_one_that_never_came(id: str) -> bool:
        above: str | None = id
        for _ in range(len(follows) + 1):
            if above is None or above not in follows:
                return above is not None
            above = None if follows[above] == above else follows[above]
        return False

    assert {entry.id for entry in order.waiting()} == {id for id in follows if rests_on_one_that_never_came(id)}
    assert {id for id, mark in marked_ids if mark == CYCLE} == {id for id in follows if on_a_cycle(id, follows)}
    assert {mark for _, mark in marked_ids} <= {None, CYCLE}


@given(feeds())
def test_a_restored_ordering_continues_like_the_original(feed: Feed) -> None:
    marked_ids, order = run(feed, restore=False)
    again, restored = run(feed, restore=True)
    assert again == marked_ids
    assert restored.snapshot() == order.snapshot()
    assert len(restored) == len(order)
