"""The upstream `RedisStreams` fulfils the contract of sources, on Redis and on Valkey."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.testing import Broker, SourceContract
from support.processes.redis import shared
from support.sources.redis import RedisBroker

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("redis")]


class TestRedis(SourceContract):
    def make_broker(self, folder: Path) -> Broker:
        return RedisBroker(shared("redis"))


class TestValkey(SourceContract):
    def make_broker(self, folder: Path) -> Broker:
        return RedisBroker(shared("valkey"))
