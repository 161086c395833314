"""Headrace's own upstreams fulfil the contract of sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.testing import Broker, SourceContract
from support.processes.kafka import shared
from support.sources.brokers import FolderBroker, HttpBroker, KafkaBroker, MemoryBroker, QueueBroker


class TestDirectory(SourceContract):
    def make_broker(self, folder: Path) -> Broker:
        return FolderBroker(folder)


class TestQueue(SourceContract):
    def make_broker(self, folder: Path) -> Broker:
        return QueueBroker(folder)


@pytest.mark.slow
class TestHttp(SourceContract):
    def make_broker(self, folder: Path) -> Broker:
        return HttpBroker()


class TestMemory(SourceContract):
    def make_broker(self, folder: Path) -> Broker:
        return MemoryBroker(folder)


@pytest.mark.brokers
@pytest.mark.xdist_group("kafka-contract")
class TestKafka(SourceContract):
    def make_broker(self, folder: Path) -> Broker:
        return KafkaBroker(shared("kafka"))


@pytest.mark.brokers
@pytest.mark.xdist_group("kafka-contract")
class TestKafkaShard(SourceContract):
    many = 20_000

    def make_broker(self, folder: Path) -> Broker:
        return KafkaBroker(shared("kafka"), shards=2)


@pytest.mark.xdist_group("kfake")
class TestKafkaOnKfake(SourceContract):
    many = 20_000

    def make_broker(self, folder: Path) -> Broker:
        return KafkaBroker(shared("kfake"))
