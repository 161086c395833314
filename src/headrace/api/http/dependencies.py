"""Dependencies of routes: the app's store, and the awaitable results of its writer."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from headrace.api.http.commit_waiter import CommitWaiter
from headrace.store import Store


async def store(request: Request) -> Store:
    """Return the store of the app that serves the request."""
    opened: Store = request.app.state.store
    return opened


async def durable(request: Request) -> CommitWaiter:
    """Return the waiter that passes the writer's results to the loop of the request."""
    waiter: CommitWaiter | None = getattr(request.app.state, "durable", None)
    if waiter is None:
        # Created here and not with the app, because it belongs to the running loop.
        waiter = request.app.state.durable = CommitWaiter()
    return waiter


StoreOf = Annotated[Store, Depends(store)]
DurableOf = Annotated[CommitWaiter, Depends(durable)]
