"""Streams of Kinesis fulfil the contract of sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.testing import Broker, SourceContract
from support.processes.moto import shared
from support.sources.kinesis import KinesisBroker

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("kinesis")]


class TestKinesis(SourceContract):
    many = 10_000
    one_by_one = 140

    def make_broker(self, folder: Path) -> Broker:
        return KinesisBroker(shared())
