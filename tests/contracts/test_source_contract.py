"""Headrace's own upstreams fulfil the contract of sources."""

from __future__ import annotations

from pathlib import Path

from headrace.testing import Broker, SourceContract
from support.sources.brokers import FolderBroker, MemoryBroker, QueueBroker


class TestDirectory(SourceContract):
    def make_broker(self, folder: Path) -> Broker:
        return FolderBroker(folder)


class TestQueue(SourceContract):
    def make_broker(self, folder: Path) -> Broker:
        return QueueBroker(folder)


class TestMemory(SourceContract):
    def make_broker(self, folder: Path) -> Broker:
        return MemoryBroker(folder)
