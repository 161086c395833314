from __future__ import annotations

from collections.abc import Sequence

from headrace.errors import CopyRejected, HeadraceError, StreamError
from headrace.sources.dead_letters.requests import Result, batches, send_divided, send_requests

REFUSED = CopyRejected("too large")
AWAY = StreamError("away")


def test_entries_are_divided_by_number_and_bytes_and_one_that_is_too_large_is_alone() -> None:
    sizes = [3, 3, 4, 9, 1, 11, 1, 1, 1, 1]
    divided = list(batches(sizes, lambda size: size, max_entries=3, max_bytes=10))
    assert divided == [[3, 3, 4], [9, 1], [11], [1, 1, 1], [1]]
    assert list(batches([], len, max_entries=3, max_bytes=10)) == []


def test_a_request_has_one_entry_of_each_group_and_any_number_without_one() -> None:
    def divided(entries: str) -> list[str]:
        requests = batches(entries, lambda _: 1, max_entries=4, max_bytes=10, group_of=lambda name: name if name.isalpha() else None)
        return ["".join(request) for request in requests]

    assert divided("aab") == ["a", "ab"]
    assert divided("abcbad") == ["abc", "bad"]
    assert divided("1a1a11") == ["1a1", "a11"]
    assert divided("abcdea") == ["abcd", "ea"]


async def test_nothing_is_sent_after_a_copy_that_is_sent_again() -> None:
    answers: dict[int, Result] = {1: REFUSED, 3: AWAY}
    sent: list[int] = []

    async def send(request: Sequence[int]) -> Sequence[Result]:
        sent.extend(request)
        return [answers.get(number) for number in request]

    results = await send_requests([[0, 1], [2, 3, 4], [5], [6]], send)
    assert results == [None, REFUSED, None, AWAY, None, AWAY, AWAY]
    assert sent == [0, 1, 2, 3, 4]


async def test_a_rejected_request_is_divided_and_an_error_of_the_service_is_not() -> None:
    requests: list[list[int]] = []

    async def request(entries: Sequence[int]) -> list[Result]:
        requests.append([*entries])
        if 4 in entries:
            raise TimeoutError
        if 2 in entries:
            raise ValueError
        return [None] * len(entries)

    def describe(error: Exception) -> HeadraceError:
        return StreamError(type(error).__name__)

    async def send(*entries: int) -> list[type[HeadraceError] | None]:
        results = await send_divided(entries, request, describe, lambda error: isinstance(error, ValueError))
        return [None if result is None else type(result) for result in results]

    assert await send(1, 2, 3) == [None, CopyRejected, None]
    assert requests == [[1, 2, 3], [1], [2], [3]]
    assert await send(4, 5) == [StreamError] * 2
    assert requests[4:] == [[4, 5]]
