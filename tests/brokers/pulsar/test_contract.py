"""Topics of Pulsar fulfil the contract of sources. Messages are in batches of 7, which acknowledgements divide."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.testing import Broker, SourceContract
from support.processes.pulsar import shared
from support.sources.pulsar import PulsarBroker

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("pulsar")]


class TestPulsar(SourceContract):
    many = 20_000
    one_by_one = 70

    def make_broker(self, folder: Path) -> Broker:
        return PulsarBroker(shared())
