"""One test of a contract: an async method that needs some of the broker's promises."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Final, Literal, TypeAlias, TypeVar

from headrace.testing.contract.broker import Broker
from headrace.testing.pytest_import import pytest

CASE_TIMEOUT_SECONDS: Final = 240.0

Promise: TypeAlias = Literal["lanes", "ordered", "positions", "redelivery", "progress", "counted", "durable"]
Suite = TypeVar("Suite")


def contract_case(
    *needs: Promise,
) -> Callable[[Callable[[Suite, Broker], Coroutine[Any, Any, None]]], Callable[[Suite, Broker], None]]:
    """Make an async method a test that runs in an event loop of its own, or is skipped if the broker lacks a promise.

    It needs no plugin of pytest, and ends after CASE_TIMEOUT_SECONDS.
    """

    def decorate(method: Callable[[Suite, Broker], Coroutine[Any, Any, None]]) -> Callable[[Suite, Broker], None]:
        async def bounded(suite: Suite, broker: Broker) -> None:
            async with asyncio.timeout(CASE_TIMEOUT_SECONDS):
                await method(suite, broker)

        @wraps(method)
        def test(self: Suite, broker: Broker) -> None:
            missing = [promise for promise in needs if not getattr(broker, promise)]
            if missing:
                pytest.skip(f"{type(broker).__name__} does not promise: {', '.join(missing)}")
            asyncio.run(bounded(self, broker))

        return test

    return decorate
