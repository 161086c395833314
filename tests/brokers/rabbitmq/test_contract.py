"""Queues and streams of RabbitMQ fulfil the contract of sources, as far as queues without positions can."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.testing import Broker, SourceContract
from support.processes.rabbitmq import shared
from support.sources.rabbitmq import ClassicQueueBroker, QuorumQueueBroker, StreamsBroker

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("rabbitmq-contract")]


class TestClassicQueue(SourceContract):
    many = 20_000

    def make_broker(self, folder: Path) -> Broker:
        return ClassicQueueBroker(shared())


class TestQuorumQueue(SourceContract):
    many = 8_000

    def make_broker(self, folder: Path) -> Broker:
        return QuorumQueueBroker(shared())


class TestStream(SourceContract):
    many = 20_000

    def make_broker(self, folder: Path) -> Broker:
        return StreamsBroker(shared())
