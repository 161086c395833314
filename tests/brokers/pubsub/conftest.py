"""Fixtures of the tests on subscriptions of Pub/Sub."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.sources.pubsub import PubSubSubscription


@pytest.fixture
def subscription() -> Iterator[PubSubSubscription]:
    """Return a subscription without order."""
    subscription = PubSubSubscription()
    yield subscription
    subscription.close()


@pytest.fixture
def ordered() -> Iterator[PubSubSubscription]:
    """Return a subscription with message ordering."""
    subscription = PubSubSubscription(ordered=True)
    yield subscription
    subscription.close()
