"""Queues of Service Bus fulfil the contract of sources, as far as a queue without positions can. The server is a fake."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.testing import Broker, SourceContract
from support.sources.service_bus import ServiceBusBroker, SessionsBroker

pytestmark = [pytest.mark.brokers]


@pytest.mark.xdist_group("service-bus")
class TestQueue(SourceContract):
    many = 5_000
    one_by_one = 70

    def make_broker(self, folder: Path) -> Broker:
        return ServiceBusBroker()


@pytest.mark.xdist_group("service-bus-sessions")
class TestSessions(SourceContract):
    many = 5_000
    one_by_one = 70

    def make_broker(self, folder: Path) -> Broker:
        return SessionsBroker()
