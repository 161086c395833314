"""Open the store of an ordering: memory, a database of its own, or the given store."""

from __future__ import annotations

from collections.abc import Callable

from headrace.causal.memory_store import MemoryOrderingStore
from headrace.core.ordering.delivery import DeliveryPolicy
from headrace.ports.ordering_store import OrderingStore


def open_store(
    scope: str,
    store: OrderingStore | str | None,
    lookback: int,
    *,
    policy: DeliveryPolicy | None,
    by_age: bool,
    retention: int,
    ticks: Callable[[], int] | None,
) -> OrderingStore:
    """Return the store of a scope. `store` is as in `CausalOrdering`; `lookback` and `retention` are in µs."""
    if store is None:
        return MemoryOrderingStore(lookback, policy=policy, by_age=by_age, retention=retention, ticks=ticks)
    if isinstance(store, str):
        from headrace.store.ordering.standalone.store import StandaloneOrderingStore  # late: SQLAlchemy is an extra

        return StandaloneOrderingStore(store, scope, lookback, policy=policy, by_age=by_age, retention=retention, ticks=ticks)
    return store
