"""The store that the app was made with, for its routes."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from headrace.store import Store


async def store(request: Request) -> Store:
    """Return the store of the app that serves the request."""
    opened: Store = request.app.state.store
    return opened


StoreOf = Annotated[Store, Depends(store)]
