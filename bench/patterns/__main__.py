"""Measure event patterns and print JSON: python -m bench.patterns [--only NAME ...] [--watches N ...] [--peer]

Each figure is of one process on one processor, in events per second of processor time, and includes the decoding of the event: of the
fields that the patterns name, and of all fields (`decoded_whole`).
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tracemalloc
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from time import process_time
from typing import Any, Final

import msgspec
from bench.api_process import commit, load, machine
from bench.patterns.cases import OPERATORS, Pattern, events, mixed, mixed_events, watches
from bench.patterns.naive import compiled
from bench.streams.case import ROWS
from bench.streams.sides import Worker

from headrace.core.matching.patterns.match_index import MatchIndex
from headrace.core.matching.patterns.parser import parse_pattern
from headrace.core.matching.projection import Projection

NAMES: Final = (*(operator.name for operator in OPERATORS), "mix")
SIZES: Final = (300, 3_000)
_EVENTS: Final = 20_000
_SECONDS: Final = 0.5
"""Shortest duration of a round of the naive evaluator."""
_ROUNDS: Final = 3
_WITH_MANY_MATCHES: Final = {"anything-but", "exists"}
_MAX_MATCHES: Final = 2_000_000
"""Limit of the matches of one round, for operators of which an event matches many."""


def main() -> None:
    """Print the figures of the requested operators."""
    options = _arguments()
    answer: dict[str, Any] = {"machine": machine(), "commit": commit(), "rounds": _ROUNDS}
    answer["cases"] = [_case(name, number) for name in options.only for number in options.watches]
    if options.peer:
        answer["airflow"] = _peer()
    answer["machine"]["load_after"] = load()
    print(json.dumps(answer, indent=2))


def _case(name: str, number: int) -> dict[str, Any]:
    patterns = list(_patterns(name, number))
    row: dict[str, Any] = {"watches": number, "operator": name, "load_seconds": round(_seconds_to_load(patterns), 3)}
    row["bytes_per_watch"] = round(_bytes(patterns) / number)
    index, projection = _index(patterns), _projection(patterns)
    filters = [compiled(pattern) for pattern in patterns]
    for size in SIZES:
        count = _EVENTS if name not in _WITH_MANY_MATCHES else max(10, min(_EVENTS, _MAX_MATCHES * 100 // number))
        texts = _texts(name, number, count, size)
        matched = sum(len(index.matches(msgspec.json.decode(text))) for text in texts[:1_000])
        checked = texts[: max(1, 20_000 // number)]
        assert all(
            sorted(index.matches(projection.decode(text))) == [n for n, test in enumerate(filters) if test(msgspec.json.decode(text))]
            for text in checked
        )
        row[f"{size}_bytes"] = figures = {
            "events_per_second": round(max(_rate(texts, projection.decode, index.matches) for _ in range(_ROUNDS))),
            "decoded_whole_events_per_second": round(max(_rate(texts, msgspec.json.decode, index.matches) for _ in range(_ROUNDS))),
            "naive_events_per_second": round(_naive_rate(texts, filters), 1),
            "matches_per_event": round(matched / len(texts[:1_000]), 2),
        }
        figures["times_naive"] = round(figures["events_per_second"] / figures["naive_events_per_second"], 1)
    print(f"  {name:<20} {json.dumps(row)}", file=sys.stderr, flush=True)
    return row


def _patterns(name: str, number: int) -> Iterable[Pattern]:
    return mixed(number) if name == "mix" else watches(_operator(name), number)


def _texts(name: str, number: int, count: int, size: int) -> list[bytes]:
    return mixed_events(number, count, size) if name == "mix" else events(_operator(name), number, count, size)


def _operator(name: str) -> Any:
    return next(operator for operator in OPERATORS if operator.name == name)


def _index(patterns: Sequence[Pattern]) -> MatchIndex:
    index = MatchIndex()
    for number, pattern in enumerate(patterns):
        index.add(parse_pattern(pattern), number)
    return index


def _projection(patterns: Sequence[Pattern]) -> Projection:
    projection = Projection()
    for path in {path for pattern in patterns for path in parse_pattern(pattern).paths}:
        projection.add(path)
    return projection


def _seconds_to_load(patterns: Sequence[Pattern]) -> float:
    gc.collect()
    begun = process_time()
    _index(patterns)
    return process_time() - begun


def _bytes(patterns: Sequence[Pattern]) -> int:
    gc.collect()
    tracemalloc.start()
    index = _index(patterns)
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(index) == len(patterns)
    return size


def _rate(texts: Sequence[bytes], decode: Callable[[bytes], Any], matches: Callable[[Any], list[int]]) -> float:
    begun = process_time()
    for text in texts:
        matches(decode(text))
    return len(texts) / (process_time() - begun)


def _naive_rate(texts: Sequence[bytes], filters: Sequence[Callable[[Any], bool]]) -> float:
    begun = process_time()
    count = 0
    while count < len(texts) and process_time() - begun < _SECONDS:
        event = msgspec.json.decode(texts[count])
        for test in filters:
            test(event)
        count += 1
    return count / (process_time() - begun)


def _peer() -> list[dict[str, Any]]:
    """Return the throughput of Airflow's Python filters where each event matches one, in events per second of processor time."""
    with ExitStack() as stack:
        airflow = stack.enter_context(Worker.start("airflow"))
        rows = [row for row in ROWS if "matches one" in row.name]
        return [{"case": row.name, "events_per_second": round(row.peer.events / airflow.run(row.peer).cpu)} for row in rows]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.patterns", description="Measure event patterns.")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, help="measure only these operators")
    parser.add_argument("--watches", nargs="+", type=int, default=[1, 100, 10_000, 100_000], help="numbers of watches (%(default)s)")
    parser.add_argument("--peer", action="store_true", help="also measure Airflow, which needs the environment .venv-bench")
    return parser.parse_args()


if __name__ == "__main__":
    main()
