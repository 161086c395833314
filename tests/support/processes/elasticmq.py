"""ElasticMQ, a real server with the protocol of Amazon SQS, on loopback, for tests with the mark `brokers`."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

from support.processes.broker_server import SECONDS, BrokerServer, java, require_server
from support.processes.shared_servers import shared_server

INSTALLED = "elasticmq-1.7.1/jars"


class ElasticMq(BrokerServer):
    """One server."""

    def __init__(self) -> None:
        import botocore.config
        import botocore.session

        self._queues: set[str] = set()
        super().__init__("elasticmq")
        self.client: Any = botocore.session.get_session().create_client(
            "sqs",
            region_name="elasticmq",
            endpoint_url=f"http://{self.address}",
            aws_access_key_id="x",
            aws_secret_access_key="y",
            config=botocore.config.Config(retries={"total_max_attempts": 5}),
        )

    def start(self) -> str:
        """Start it, and wait until it has loaded the queues that it had when it was killed. It accepts connections before."""
        address = super().start()
        limit = time.monotonic() + SECONDS
        while self._queues and (missing := self._queues - self._loaded_queues()):
            assert time.monotonic() < limit, f"not loaded: {sorted(missing)}"
            time.sleep(0.05)
        return address

    def close(self) -> None:
        self.client.close()
        super().close()

    def create_queue(self, *, fifo: bool = False, **attributes: str) -> str:
        """Create a queue of its own, and return its name."""
        name = f"queue-{secrets.token_hex(6)}" + (".fifo" if fifo else "")
        self.client.create_queue(QueueName=name, Attributes=({"FifoQueue": "true"} if fifo else {}) | attributes)
        self._queues.add(name)
        return name

    def url(self, queue: str) -> str:
        """Return the URL of a queue."""
        return f"http://{self.address}/000000000000/{queue}"

    def delete_queue(self, queue: str) -> None:
        """Delete a queue."""
        self.client.delete_queue(QueueUrl=self.url(queue))
        self._queues.discard(queue)

    def _loaded_queues(self) -> set[str]:
        return {url.rpartition("/")[2] for url in self.client.list_queues().get("QueueUrls", ())}

    def send(self, queue: str, bodies: Sequence[str], group: str = "g", attributes: Mapping[str, Any] | None = None) -> None:
        """Send messages in their order, and wait until the server has stored them."""
        fifo = queue.endswith(".fifo")
        entries = [{"MessageBody": body, "MessageAttributes": dict(attributes or {})} for body in bodies]
        for start in range(0, len(entries), 10):
            batch = [
                entry | {"Id": str(number)} | ({"MessageGroupId": group, "MessageDeduplicationId": secrets.token_hex(16)} if fifo else {})
                for number, entry in enumerate(entries[start : start + 10])
            ]
            parts = [[entry] for entry in batch] if sum(len(entry["MessageBody"]) for entry in batch) > 200_000 else [batch]
            for part in parts:
                answer = self.client.send_message_batch(QueueUrl=self.url(queue), Entries=part)
                assert not answer.get("Failed"), answer["Failed"]

    def receive(self, queue: str, **arguments: Any) -> list[dict[str, Any]]:
        """Receive messages as another program does."""
        answer = self.client.receive_message(QueueUrl=self.url(queue), MaxNumberOfMessages=10, **arguments)
        return list(answer.get("Messages", ()))

    def make_visible(self, queue: str, receipt: str) -> None:
        """End the visibility timeout of a message that a reader holds."""
        self.client.change_message_visibility(QueueUrl=self.url(queue), ReceiptHandle=receipt, VisibilityTimeout=0)

    def count(self, queue: str) -> tuple[int, int]:
        """Return the number of messages that are visible, and of those that readers hold."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        answer = self.client.get_queue_attributes(QueueUrl=self.url(queue), AttributeNames=names)["Attributes"]
        visible, held = (int(answer[name]) for name in names)
        return visible, held


def require() -> None:
    """Skip the test, or fail it in CI, where the server or the client library is not installed."""
    require_server("elasticmq", INSTALLED, library="aiobotocore", program=java())


@shared_server
def shared() -> ElasticMq:
    """Return the server that all tests of this process share. Skip the test where it is not installed."""
    require()
    return ElasticMq()
