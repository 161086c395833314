"""Streams of NATS JetStream fulfil the contract of sources, on the version of Go's module proxy and on Debian's."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.testing import Broker, SourceContract
from support.processes.nats import shared
from support.sources.nats import NatsBroker, WorkQueueBroker

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("nats")]


class TestNats(SourceContract):
    def make_broker(self, folder: Path) -> Broker:
        return NatsBroker(shared("go"))


class TestNats29(SourceContract):
    many = 20_000

    def make_broker(self, folder: Path) -> Broker:
        return NatsBroker(shared("package"))


class TestWorkQueue(SourceContract):
    many = 20_000

    def make_broker(self, folder: Path) -> Broker:
        return WorkQueueBroker(shared("go"))


@pytest.mark.exhaustive
class TestWorkQueue29(SourceContract):
    many = 20_000

    def make_broker(self, folder: Path) -> Broker:
        return WorkQueueBroker(shared("package"))
