"""The store that the app was made with, for its routes, and the way to await what it makes durable."""

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
    """Return what brings the writer's answers into the loop that serves the request."""
    made: CommitWaiter | None = getattr(request.app.state, "durable", None)
    if made is None:
        # Here and not with the app: it belongs to the loop that runs now.
        made = request.app.state.durable = CommitWaiter()
    return made


StoreOf = Annotated[Store, Depends(store)]
DurableOf = Annotated[CommitWaiter, Depends(durable)]
