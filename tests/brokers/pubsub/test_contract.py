"""Subscriptions of Pub/Sub fulfil the contract of sources, as far as a queue without positions and order can."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.testing import Broker, SourceContract
from support.sources.pubsub import PubSubBroker

pytestmark = [pytest.mark.brokers, pytest.mark.xdist_group("pubsub")]


class TestSubscription(SourceContract):
    many = 5_000

    def make_broker(self, folder: Path) -> Broker:
        return PubSubBroker()
