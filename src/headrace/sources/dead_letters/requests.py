"""Send copies in requests, one after the other, until one must be sent again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeAlias, TypeVar

from headrace.errors import CopyRejected, HeadraceError

Entry = TypeVar("Entry")

Result: TypeAlias = HeadraceError | None
"""The result of one copy, as `DeadLetterSender.send` returns it."""


def batches(
    entries: Sequence[Entry],
    size_of: Callable[[Entry], int],
    *,
    max_entries: int,
    max_bytes: int,
    group_of: Callable[[Entry], str | None] = lambda _: None,
) -> Iterator[Sequence[Entry]]:
    """Divide entries into requests of up to `max_entries` and `max_bytes`. An entry that is too large is alone.

    A request has at most one entry of each group. Entries without a group (None) are not restricted.
    """
    batch: list[Entry] = []
    groups: set[str] = set()
    size = 0
    for entry in entries:
        group = group_of(entry)
        if batch and (len(batch) == max_entries or size + size_of(entry) > max_bytes or group in groups):
            yield batch
            batch, groups, size = [], set(), 0
        batch.append(entry)
        if group is not None:
            groups.add(group)
        size += size_of(entry)
    if batch:
        yield batch


async def send_requests(
    requests: Iterable[Sequence[Entry]], send: Callable[[Sequence[Entry]], Awaitable[Sequence[Result]]]
) -> list[Result]:
    """Send requests in order, and return the results of their entries.

    After a copy that must be sent again, the later ones are not sent: they are sent again with it, and their order stays.
    """
    results: list[Result] = []
    error: HeadraceError | None = None
    for request in requests:
        if error is None:
            sent = await send(request)
            error = next((result for result in sent if result is not None and not isinstance(result, CopyRejected)), None)
            results += sent
        else:
            results += [error] * len(request)
    return results


async def send_divided(
    entries: Sequence[Entry],
    request: Callable[[Sequence[Entry]], Awaitable[list[Result]]],
    describe: Callable[[Exception], HeadraceError],
    is_fault: Callable[[Exception], bool],
) -> list[Result]:
    """Send one request, and return the results of its entries.

    If the broker rejects the request for one of its messages (`is_fault`), each gets a request of its own.
    """
    try:
        return await request(entries)
    except Exception as error:
        described = describe(error)
        if not is_fault(error):
            return [described] * len(entries)
    if len(entries) == 1:
        return [CopyRejected(str(described))]
    return await send_requests([[entry] for entry in entries], partial(send_divided, request=request, describe=describe, is_fault=is_fault))
