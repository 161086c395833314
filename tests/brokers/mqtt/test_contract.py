"""Topics of MQTT fulfil the contract of sources, as far as a session without positions can."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.testing import Broker, SourceContract
from support.processes.mosquitto import shared
from support.sources.mqtt import MqttBroker

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("mqtt")]


class TestMqtt(SourceContract):
    many = 20_000

    def make_broker(self, folder: Path) -> Broker:
        return MqttBroker(shared())
