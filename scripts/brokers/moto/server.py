"""Run moto's server with shards that behave as those of Kinesis: `server.py PORT`. It runs in the environment that `moto.sh` installs.

Moto 5.2 lets a closed shard take records and never ends it, copies the records of merged shards, and numbers records from 1. Here a closed
shard keeps its records and ends, and sequence numbers are as long as those of AWS. Requests that AWS does not have:

- `POST /headrace/trim/STREAM/COUNT` deletes the first records of each shard, as the retention does.
- `POST /headrace/limit/STREAM/COUNT` takes COUNT requests of records per second and shard from then on, and rejects others.
- `POST /headrace/expire/STREAM/0` lets the present iterator of each shard expire.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final

from moto.core.exceptions import JsonRESTError
from moto.kinesis import models
from moto.kinesis.utils import compose_shard_iterator, decompose_shard_iterator
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, run_simple

FIRST_SEQUENCE: Final = 49_590_338_271_490_256_608_559_692_538_361_571_095_921_575_989_136_588_898
MAX_RECORDS: Final = 10_000
MAX_BYTES: Final = 10 * 1024 * 1024
LOCK: Final = threading.RLock()


class RequestHandler(WSGIRequestHandler):
    """Keeps connections, as AWS does, and logs no requests."""

    protocol_version = "HTTP/1.1"

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log nothing."""


def put_record(self: Any, partition_key: str, data: str, explicit_hash_key: str) -> str:
    """Append a record to a shard."""
    with LOCK:
        number = self.last_sequence = getattr(self, "last_sequence", FIRST_SEQUENCE) + 1
        self.records[number] = models.Record(partition_key, data, number, explicit_hash_key)
        return str(number)


def get_records(self: Any, last_sequence_id: str, limit: int | None) -> tuple[list[Any], int, int]:
    """Return the records after a sequence number, up to the limits of AWS, the last number and the delay."""
    last = int(last_sequence_id)
    with LOCK:
        first = next(iter(self.records), last + 1)
        begin = max(0, last - first + 1)
        following = list(islice(self.records.values(), begin, begin + min(limit or MAX_RECORDS, MAX_RECORDS)))
        newest: Any = next(reversed(self.records.values()), None)
    size = 0
    results: list[Any] = []
    for record in following:
        size += len(record.data) * 3 // 4
        if results and size > MAX_BYTES:
            break
        results.append(record)
    if not results:
        return [], last, 0
    behind = 0 if results[-1] is newest else max(1, int((newest.created_at - results[-1].created_at) * 1_000))
    return results, results[-1].sequence_number, behind


def shard_for_key(self: Any, partition_key: str, explicit_hash_key: str) -> Any:
    """Return the open shard of a key."""
    number = int(explicit_hash_key) if explicit_hash_key else int(models.md5_hash(partition_key.encode()).hexdigest(), 16)
    return next(shard for shard in self.shards.values() if shard.is_open and shard.starting_hash <= number <= shard.ending_hash)


def split_shard(self: Any, shard_to_split: str, new_starting_hash_key: str) -> None:
    """Close a shard, and open two."""
    parent, middle = self.shards[shard_to_split], int(new_starting_hash_key)
    with LOCK:
        parent.is_open = False
        for low, high in ((parent.starting_hash, middle - 1), (middle, parent.ending_hash)):
            child = models.Shard(len(self.shards), low, high, parent=parent.shard_id)
            self.shards[child.shard_id] = child


def merge_shards(self: Any, shard_to_merge: str, adjacent_shard_to_merge: str) -> None:
    """Close two shards, and open one."""
    one, other = self.shards[shard_to_merge], self.shards[adjacent_shard_to_merge]
    with LOCK:
        one.is_open = other.is_open = False
        low, high = min(one.starting_hash, other.starting_hash), max(one.ending_hash, other.ending_hash)
        child = models.Shard(len(self.shards), low, high, parent=one.shard_id, adjacent_parent=other.shard_id)
        self.shards[child.shard_id] = child


def read_stream(self: Any, stream_arn: str | None, shard_iterator: str, limit: int | None) -> tuple[str | None, list[Any], int]:
    """Return the answer to GetRecords. The iterator ends with the last record of a closed shard."""
    stream_name, shard_id, last = decompose_shard_iterator(shard_iterator)
    stream = self.describe_stream(stream_arn=stream_arn, stream_name=stream_name)
    shard = stream.get_shard(shard_id)
    if getattr(shard, "is_expired", False):
        shard.is_expired = False
        raise JsonRESTError("ExpiredIteratorException", "Iterator expired.")
    check_rate(stream, shard)
    with LOCK:
        records, last_id, behind = shard.get_records(last, limit)
        is_over = not shard.is_open and not behind
    return None if is_over else compose_shard_iterator(stream_name, shard, last_id), records, behind


def check_rate(stream: Any, shard: Any) -> None:
    """Reject a request beyond the limit of the stream, if it has one."""
    limit, now = getattr(stream, "limit", None), time.monotonic()
    if limit is None:
        return
    with LOCK:
        times: deque[float] = shard.__dict__.setdefault("times", deque())
        while times and times[0] <= now - 1:
            times.popleft()
        if len(times) >= limit:
            stream.rejected = getattr(stream, "rejected", 0) + 1
            raise JsonRESTError("ProvisionedThroughputExceededException", f"Rate exceeded for shard {shard.shard_id}.")
        times.append(now)


def control(action: str, name: str, count: int) -> str:
    """Carry out one of the requests that AWS does not have, and return a number."""
    backend = next(region for account in models.kinesis_backends.values() for region in account.values() if name in region.streams)
    stream = backend.streams[name]
    with LOCK:
        if action == "limit":
            stream.limit = count
        for shard in stream.shards.values():
            if action == "trim":
                shard.records = OrderedDict(islice(shard.records.items(), count, None))
            elif action == "expire":
                shard.is_expired = True
    return str(getattr(stream, "rejected", 0))


def application() -> Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]:
    """Return moto's application, with the requests that AWS does not have."""
    moto = DomainDispatcherApplication(create_backend_app)

    def answer(environment: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        _, first, *rest = environment["PATH_INFO"].split("/")
        if first != "headrace":
            answered: Iterable[bytes] = moto(environment, start)
            return answered
        action, name, count = rest
        body = control(action, name, int(count)).encode()
        start("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
        return [body]

    return answer


def main() -> None:
    """Change moto's shards, and serve."""
    models.Shard.put_record = put_record
    models.Shard.get_records = get_records
    models.Stream.get_shard_for_key = shard_for_key
    models.Stream.split_shard = split_shard
    models.Stream.merge_shards = merge_shards
    models.KinesisBackend.get_records = read_stream
    run_simple("127.0.0.1", int(sys.argv[1]), application(), threaded=True, request_handler=RequestHandler)


if __name__ == "__main__":
    main()
