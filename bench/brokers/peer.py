"""Read a topic of Kafka with the provider of Airflow, through public names: python -m bench.brokers.peer TOPIC TRIGGERS MATCH

Only the environment `.venv-bench` has Airflow. The connection is in AIRFLOW_CONN_KAFKA_DEFAULT. Triggers are driven as the runner of a
triggerer does, but each trigger event is confirmed at once: nothing is logged, sent or stored.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from importlib.metadata import version
from typing import Any

from airflow.providers.apache.kafka.triggers.shared_stream import KafkaSharedStreamTrigger
from airflow.triggers.base import TriggerEvent
from airflow.triggers.shared_stream import SharedStreamManager

PROVIDER = "apache-airflow-providers-apache-kafka"
FIELDS = {"one watch": "hundredth", "one in 100": "one_in_100"}


class Selective(KafkaSharedStreamTrigger):
    """Fires on messages with a value in one field. The provider hands over bytes, so that each trigger parses them."""

    field: str
    selected: Any

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        field, selected = self.field, self.selected
        async for value in shared_stream:
            if json.loads(value)[field] == selected:
                yield TriggerEvent(self._decode(value))


def trigger(topic: str, number: int, match: str) -> Any:
    """Return the trigger with this number."""
    if match == "all":
        return KafkaSharedStreamTrigger(topics=[topic])
    result = Selective(topics=[topic])
    result.field, result.selected = FIELDS[match], True if match == "one in 100" else number
    return result


async def consume(manager: Any, trigger_id: int, trigger: Any) -> None:
    """Consume the events of a trigger without end."""
    key = trigger.shared_stream_key()
    stream = trigger.filter_shared_stream(manager.subscribe(trigger_id=trigger_id, trigger=trigger, key=key))
    async for _ in stream:
        seq = manager.bind_pending_event(trigger_id=trigger_id, key=key)
        if seq is not None:
            manager.confirm_persisted((seq,))
    raise SystemExit("A trigger of Airflow has ended.")


async def read(topic: str, triggers: int, match: str) -> None:
    """Read a topic with all triggers until the process is killed, or one of them fails."""
    manager = SharedStreamManager()
    await asyncio.gather(*(consume(manager, number, trigger(topic, number, match)) for number in range(triggers)))


def versions() -> dict[str, str]:
    """Return the versions of what is measured."""
    return {"airflow": version("apache-airflow-core"), PROVIDER: version(PROVIDER), "confluent-kafka": version("confluent-kafka")}


if __name__ == "__main__":
    if sys.argv[1:] == ["--versions"]:
        print(json.dumps(versions()))
    else:
        asyncio.run(read(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
