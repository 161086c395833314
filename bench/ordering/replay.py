"""Replays of 1 and 3 million events (10 with --long) on two cores: slim without a key, and with a key and 320 bytes of payload.

Prints JSON: events a second on the wall clock, and processor seconds of all processes; the load says how far to trust the former.
Every history is chains of 10, all shuffled together, out of Parquet and into Parquet. The output is checked.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from time import monotonic
from typing import Any, Final

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from headrace.pipeline.replay.asked import Fields, ReplayOptions
from headrace.pipeline.replay.run import run_replay
from headrace.pipeline.session import open_session

GOALS: Final = {"no key, slim": 300_000, "key, 320 bytes of payload": 200_000}
MILLION: Final = 1_000_000
_SEED: Final = 5


def measure(sizes: tuple[int, ...] = (1, 3), say: Any = None) -> dict[str, Any]:
    """Replay histories of so many millions of events."""
    answer: dict[str, Any] = {"goals": GOALS, "load_before": os.getloadavg()[0]}
    with (
        tempfile.TemporaryDirectory(prefix="bench-replay-") as folder,
        open_session("bench", master="local[2]", work=Path(folder) / "spark", long_lived=True) as spark,
    ):
        for kind in GOALS:
            _replay(spark, Path(folder), kind, MILLION // 10)  # the JVM's compilers and the Python workers get warm
            answer[kind] = {}
            for millions in sizes:
                answer[kind][f"{millions} million"] = took = _replay(spark, Path(folder), kind, millions * MILLION)
                if say is not None:
                    say(f"{kind}, {millions} million: {took}")
    answer["load_after"] = os.getloadavg()[0]
    return answer


def _replay(spark: SparkSession, folder: Path, kind: str, events: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(dir=folder) as name:
        source, out = Path(name) / "history", Path(name) / "out"
        source.mkdir()
        keyed = kind.startswith("key")
        _write(source, events, keyed=keyed)
        fields = Fields("id", "follows", "occurred", key="chain" if keyed else None)
        before, begun = _processor_seconds(), monotonic()
        run_replay(ReplayOptions(out, Path(name) / "work", (source,), fields=fields), None, lambda *_: None, spark)
        seconds, processor = monotonic() - begun, _processor_seconds() - before
        _check(out / "ordered", events)
    return {
        "events/s": round(events / seconds),
        "seconds": round(seconds, 1),
        "processor seconds": round(processor, 1),
        "events per processor second": round(events / processor),
        "load": round(os.getloadavg()[0], 1),
    }


def _write(folder: Path, events: int, *, keyed: bool) -> None:
    """Write chains of 10, shuffled over files of at most a million rows."""
    random = np.random.default_rng(_SEED)
    payloads = pa.array([random.bytes(160).hex() for _ in range(1_000)])
    for number, part in enumerate(np.array_split(random.permutation(events), max(4, events // MILLION))):
        follows = pa.array(part - 1, mask=part % 10 == 0).cast(pa.string())
        columns = {
            "id": pa.array(part).cast(pa.string()),
            "follows": follows,
            "occurred": pa.array(part * 1_000, pa.timestamp("us", "UTC")),
        }
        if keyed:
            columns |= {"chain": pa.array(part // 10), "payload": payloads.take(pa.array(part % 1_000))}
        pq.write_table(pa.table(columns), folder / f"{number}.parquet")


def _check(folder: Path, events: int) -> None:
    rows = pq.read_table(folder, columns=["position", "id"])
    place = np.zeros(events, dtype=np.int64)
    place[pc.cast(rows.column("id"), pa.int64()).to_numpy()] = rows.column("position").to_numpy()
    chains = place.reshape(-1, 10)
    assert len(rows) == events
    assert (chains[:, 1:] > chains[:, :-1]).all(), "a follower came before its leader"


def _processor_seconds() -> float:
    me = psutil.Process()
    return float(sum(sum(process.cpu_times()[:4]) for process in [me, *me.children(recursive=True)]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--long", action="store_true", help="10 million events too")
    asked = parser.parse_args()
    print(json.dumps(measure((1, 3, 10) if asked.long else (1, 3), lambda text: print(text, file=sys.stderr, flush=True)), indent=2))
