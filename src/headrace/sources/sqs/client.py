"""The client library, imported when a stream opens, and the requests about one queue."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

import structlog

from headrace.core.connection import Connection
from headrace.errors import HeadraceError, UpstreamError
from headrace.sources.aws.client import Service, open_client
from headrace.sources.leases.leases import Lease
from headrace.sources.leases.service import Failures
from headrace.sources.sqs.service_errors import REJECTED, described, failure_text, is_receipt_invalid

SERVICE: Final = Service(
    name="sqs",
    kinds=("sqs", "aws"),
    hint="Set it like this: sqs://ACCESS_KEY:SECRET@?region=eu-west-1, or sqs://?region=eu-west-1 for the credentials of the machine.",
    extra="sqs",
    library="SQS cannot be read: its client library",
    rejected=REJECTED,
)
MAX_MESSAGES: Final = 10
"""Messages of one request."""
ANSWER_SECONDS: Final = 10.0
OPEN_SECONDS: Final = 30.0
RETRY_SECONDS: Final = 0.5
MAX_REQUESTS: Final = 40
MIN_RECEIVE_COUNT: Final = 10

log = structlog.get_logger(__name__)


class SqsClient:
    """The requests about one queue. Errors of single messages are in the results; all others raise `StreamError` or `UpstreamError`."""

    def __init__(self, client: Any, stack: AsyncExitStack, queue: str, url: str) -> None:
        self._client = client
        self._stack = stack
        self._queue = queue
        self._url = url

    @classmethod
    async def open(cls, connection: Connection, queue: str, account: str | None, wait: int) -> SqsClient:
        """Connect and look up the queue. Repeats while the service does not answer, for OPEN_SECONDS."""
        async with AsyncExitStack() as stack:
            client = await open_client(SERVICE, connection, stack, answer_seconds=wait + ANSWER_SECONDS, max_requests=MAX_REQUESTS)
            url = await _look_up(client, queue, account)
            return cls(client, stack.pop_all(), queue, url)
        raise AssertionError

    async def receive(self, visibility: int, wait: int, attempt_id: str | None) -> list[Mapping[str, Any]]:
        """Wait up to `wait` seconds for messages, and return up to MAX_MESSAGES. `attempt_id` is that of a repeated request."""
        attempt = {} if attempt_id is None else {"ReceiveRequestAttemptId": attempt_id}
        answer = await self._request(
            f"Queue {self._queue!r} cannot be read",
            self._client.receive_message,
            MaxNumberOfMessages=MAX_MESSAGES,
            WaitTimeSeconds=wait,
            VisibilityTimeout=visibility,
            MessageAttributeNames=["All"],
            MessageSystemAttributeNames=["All"],
            **attempt,
        )
        return list(answer.get("Messages", ()))

    async def delete(self, leases: Sequence[Lease]) -> Failures:
        """Delete up to MAX_MESSAGES messages."""
        entries = [{"Id": str(number), "ReceiptHandle": lease.receipt} for number, lease in enumerate(leases)]
        what = "The messages cannot be deleted"
        return _failures(what, leases, await self._request(what, self._client.delete_message_batch, Entries=entries))

    async def set_visibility(self, leases: Sequence[Lease], seconds: int) -> Failures:
        """Set the visibility timeout of up to MAX_MESSAGES messages."""
        entries = [{"Id": str(number), "ReceiptHandle": lease.receipt, "VisibilityTimeout": seconds} for number, lease in enumerate(leases)]
        what = "The visibility timeouts cannot be set"
        return _failures(what, leases, await self._request(what, self._client.change_message_visibility_batch, Entries=entries))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._stack.aclose()

    async def _request(self, what: str, call: Any, **arguments: Any) -> Mapping[str, Any]:
        try:
            answer: Mapping[str, Any] = await call(QueueUrl=self._url, **arguments)
        except Exception as error:
            raise described(what, error) from error
        return answer


async def _look_up(client: Any, queue: str, account: str | None) -> str:
    """Return the URL of the queue, and log a warning if its redrive policy moves messages after few deliveries."""
    owner = {} if account is None else {"QueueOwnerAWSAccountId": account}
    what = f"Queue {queue!r} cannot be opened"
    failure: HeadraceError = described(what, TimeoutError(f"no answer within {OPEN_SECONDS:g} s"))
    try:
        async with asyncio.timeout(OPEN_SECONDS):
            while True:
                try:
                    url = str((await client.get_queue_url(QueueName=queue, **owner))["QueueUrl"])
                    answer = await client.get_queue_attributes(QueueUrl=url, AttributeNames=["RedrivePolicy"])
                    break
                except Exception as error:
                    failure = described(what, error)
                    if isinstance(failure, UpstreamError):
                        raise failure from None
                await asyncio.sleep(RETRY_SECONDS)
    except TimeoutError:
        raise failure from None
    count = _max_receive_count(answer)
    if count is not None and count < MIN_RECEIVE_COUNT:
        log.warning("redrive policy of a queue with few deliveries", queue=queue, max_receive_count=count, recommended=MIN_RECEIVE_COUNT)
    return url


def _max_receive_count(answer: Mapping[str, Any]) -> int | None:
    policy = answer.get("Attributes", {}).get("RedrivePolicy")
    try:
        return None if policy is None else int(json.loads(policy)["maxReceiveCount"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        log.warning("redrive policy of a queue not read", error=str(error))
        return None


def _failures(what: str, leases: Sequence[Lease], answer: Mapping[str, Any]) -> Failures:
    return {leases[int(failure["Id"])]: _failure(what, failure) for failure in answer.get("Failed", ())}


def _failure(what: str, failure: Mapping[str, Any]) -> HeadraceError | str:
    """Return the error of one message's failure if the same request may succeed later, else the reason."""
    return failure_text(failure) if is_receipt_invalid(failure) else described(what, _Failed(failure))


class _Failed(Exception):
    """The failure of one message in an answer, in the shape of an exception of the client."""

    def __init__(self, failure: Mapping[str, Any]) -> None:
        super().__init__(failure_text(failure))
        self.response = {"Error": dict(failure)}
