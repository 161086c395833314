from __future__ import annotations

import pytest

from headrace.store.leases import Claimable, choose

FREE = [Claimable(1, "a"), Claimable(2, None), Claimable(3, "a"), Claimable(4, "b")]


@pytest.mark.parametrize(
    ("own", "elsewhere", "room", "idle", "chosen"),
    [
        (set(), set(), 4, True, [1, 3, 2, 4]),
        (set(), set(), 2, True, [1, 3]),
        (set(), set(), 1, False, [2]),
        (set(), set(), 1, True, [1, 3]),
        (set(), {"a"}, 4, True, [2, 4]),
        ({"b"}, set(), 1, False, [4]),
        ({"a"}, set(), 0, False, [1, 3]),
        (set(), set(), 0, False, []),
    ],
    ids=[
        "all",
        "a whole stream",
        "no half stream",
        "an idle job takes one too large",
        "polled elsewhere",
        "own first",
        "own always",
        "full",
    ],
)
def test_streams_are_claimed_whole(own: set[str], elsewhere: set[str], room: int, idle: bool, chosen: list[int]) -> None:
    assert choose(FREE, own=own, elsewhere=elsewhere, room=room, idle=idle) == chosen
