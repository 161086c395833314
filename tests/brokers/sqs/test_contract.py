"""Queues of SQS fulfil the contract of sources, as far as a queue without positions can."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.testing import Broker, SourceContract
from support.processes.elasticmq import shared
from support.sources.sqs import FifoQueueBroker, StandardQueueBroker

pytestmark = [pytest.mark.brokers]


@pytest.mark.xdist_group("sqs-standard")
class TestStandardQueue(SourceContract):
    many = 5_000
    one_by_one = 140

    def make_broker(self, folder: Path) -> Broker:
        return StandardQueueBroker(shared())


@pytest.mark.xdist_group("sqs-fifo")
class TestFifoQueue(SourceContract):
    many = 400
    one_by_one = 140

    def make_broker(self, folder: Path) -> Broker:
        return FifoQueueBroker(shared())
