"""Measure replays on two cores: slim without a key, with a key and 320 bytes of payload, and self-joins in Spark SQL as the peer.

Print JSON: events per second of wall time, processor seconds of all processes, and the maximum memory of each kind of process. At a
high load, wall time is too long. Each history has chains of 10, all shuffled, from Parquet to Parquet. Each payload of a file is
different. The benchmark checks the output.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any, Final

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from bench.ordering import selfjoin
from bench.ordering.memory import PeakMemory
from pyspark.sql import SparkSession

from headrace.pipeline.spark.session import open_session
from headrace.replay.options import Fields, ReplayOptions
from headrace.replay.run import run_replay

SLIM: Final = "no key, slim"
KEYED: Final = "key, 320 bytes of payload"
PEER: Final = "self-joins, slim"
KINDS: Final = {"slim": SLIM, "keyed": KEYED, "peer": PEER}
GOALS: Final = {SLIM: 300_000, KEYED: 200_000}
MILLION: Final = 1_000_000
_SEED: Final = 5
_DIGITS: Final = np.frombuffer(b"0123456789abcdef", np.uint8)


def measure(sizes: Sequence[int] = (1, 3), kinds: Sequence[str] = tuple(KINDS), say: Any = None) -> dict[str, Any]:
    """Replay histories of `sizes` million events; return the figures by kind and size."""
    answer: dict[str, Any] = {"goals": GOALS, "load_before": os.getloadavg()[0]}
    with (
        tempfile.TemporaryDirectory(prefix="bench-replay-") as folder,
        open_session("bench", master="local[2]", work=Path(folder) / "spark", is_batch=True) as spark,
    ):
        for kind in (KINDS[name] for name in kinds):
            _replay(spark, Path(folder), kind, MILLION // 10)  # warms up the compilers of the JVM and the Python workers
            answer[kind] = {}
            for millions in sizes:
                answer[kind][f"{millions} million"] = took = _replay(spark, Path(folder), kind, millions * MILLION)
                if say is not None:
                    say(f"{kind}, {millions} million: {took}")
    if SLIM in answer and PEER in answer:
        answer["ratio, slim"] = {
            size: round(answer[SLIM][size]["events/s"] / peer["events/s"], 1) for size, peer in answer[PEER].items() if size in answer[SLIM]
        }
    answer["load_after"] = os.getloadavg()[0]
    return answer


def _replay(spark: SparkSession, folder: Path, kind: str, events: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=folder) as name:
        source, out = Path(name) / "history", Path(name) / "out"
        source.mkdir()
        keyed = kind == KEYED
        _write(source, events, keyed=keyed)
        fields = Fields("id", "follows", "occurred", key="chain" if keyed else None)
        before, begun = _processor_seconds(), monotonic()
        with PeakMemory() as peak:
            if kind == PEER:
                selfjoin.order(spark, source, out / "ordered", shuffles=max(2, 2 * events // MILLION))
            else:
                run_replay(ReplayOptions(out, Path(name) / "work", (source,), fields=fields), None, lambda *_: None, spark)
        seconds, processor = monotonic() - begun, _processor_seconds() - before
        _check(out / "ordered", events)
    return {
        "events/s": round(events / seconds),
        "seconds": round(seconds, 1),
        "processor seconds": round(processor, 1),
        "events per processor second": round(events / processor),
        "maximum MiB": peak.mib(),
        "load": round(os.getloadavg()[0], 1),
    }


def _write(folder: Path, events: int, *, keyed: bool) -> None:
    """Write chains of 10, shuffled over files of at most a million rows."""
    random = np.random.default_rng(_SEED)
    parts = np.array_split(random.permutation(events), max(4, events // MILLION))
    payloads = (
        _payloads(random, len(parts[0])) if keyed else None
    )  # the same in each file, because their creation takes longer than the replay
    for number, part in enumerate(parts):
        follows = pa.array(part - 1, mask=part % 10 == 0).cast(pa.string())
        columns = {
            "id": pa.array(part).cast(pa.string()),
            "follows": follows,
            "occurred": pa.array(part * 1_000, pa.timestamp("us", "UTC")),
        }
        if payloads is not None:
            columns |= {"chain": pa.array(part // 10), "payload": payloads.slice(0, len(part))}
        pq.write_table(pa.table(columns), folder / f"{number}.parquet")


def _payloads(random: np.random.Generator, count: int) -> pa.Array:
    """Return `count` texts of 320 random hexadecimal digits."""
    texts = _DIGITS[random.integers(0, 16, count * 320, dtype=np.uint8)]
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(np.arange(count + 1, dtype=np.int32) * 320), pa.py_buffer(texts)])


def _check(folder: Path, events: int) -> None:
    """Check that the output has each event once, after its leader. Rows count in file order, because the peer has no positions."""
    ids = [pq.read_table(path, columns=["id"]).column("id") for path in sorted(folder.glob("part-*.parquet"))]
    numbers = np.concatenate([pc.cast(column, pa.int64()).to_numpy() for column in ids])
    positions = np.zeros(events, dtype=np.int64)
    positions[numbers] = np.arange(1, len(numbers) + 1)
    chains = positions.reshape(-1, 10)
    assert len(numbers) == events
    assert positions.all(), "an event is missing"
    assert (chains[:, 1:] > chains[:, :-1]).all(), "a follower came before its leader"


def _processor_seconds() -> float:
    me = psutil.Process()
    return float(sum(sum(process.cpu_times()[:4]) for process in [me, *me.children(recursive=True)]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="bench.ordering.replay", description=__doc__)
    parser.add_argument(
        "--millions", nargs="+", type=int, default=[1, 3], metavar="N", help="sizes of the histories in millions of events, such as 1 3 10"
    )
    parser.add_argument("--only", nargs="+", choices=list(KINDS), default=list(KINDS), help="measure only these kinds")
    options = parser.parse_args()
    print(json.dumps(measure(options.millions, options.only, lambda text: print(text, file=sys.stderr, flush=True)), indent=2))
