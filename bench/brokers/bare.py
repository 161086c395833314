"""Read a topic and commit after each fetch, as the bare client: python -m bench.brokers.bare ADDRESS TOPIC"""

from __future__ import annotations

import sys

from bench.brokers.cluster import QUIET
from confluent_kafka import Consumer, TopicPartition

FETCH_MESSAGES = 500


def main(address: str, topic: str) -> None:
    """Read until the process is killed."""
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": topic, "enable.auto.commit": False, "auto.offset.reset": "earliest", **QUIET}
    )
    consumer.subscribe([topic])
    while True:
        first = consumer.poll(1.0)
        if first is None:
            continue
        offsets = {}
        for message in (first, *consumer.consume(FETCH_MESSAGES, 0)):
            if message.error() is None:
                offsets[message.partition()] = message.offset() + 1
        if offsets:
            consumer.commit(offsets=[TopicPartition(topic, number, offset) for number, offset in offsets.items()], asynchronous=False)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
