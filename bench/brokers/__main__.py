"""Measure brokers to stored and advanced events, and print JSON: python -m bench.brokers [--broker NAME ...] [--only CASE ...]"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
from typing import Any, Final

from bench.api_process import ROOT, commit, load, machine
from bench.brokers import takeover
from bench.brokers.broker import BROKERS, Broker, running
from bench.brokers.case import BARE, CASES, COMPARISONS, PEERS, Case, Comparison
from bench.brokers.measure import LIMIT_SECONDS, measure, warm_up
from bench.brokers.readers import PEER_PYTHON

ORDERED: Final = "from the due time of a message until it is advanced, and until its event is committed"
UNORDERED: Final = "from the due time of a message until its event is committed: the broker does not report which messages are advanced"
TAKEOVER: Final = "takeover"
ONLY_KAFKA: Final = (*(case.name for case in PEERS), TAKEOVER)


def main() -> None:
    """Measure the cases on each broker."""
    arguments = _arguments()
    needs_airflow = any(case in PEERS for kind in arguments.broker for case in _cases(kind, arguments))
    if needs_airflow and not PEER_PYTHON.exists():
        raise SystemExit("error: The environment of Airflow is missing.\nhint: Create it: make bench-brokers")
    answer: dict[str, Any] = {"machine": machine(), "commit": commit(), "seconds": arguments.seconds, "brokers": {}}
    for kind in arguments.broker:
        answer["brokers"][kind] = _measure_broker(kind, arguments)
    answer["machine"]["load_after"] = load()
    print(json.dumps(answer, indent=2))


def _cases(kind: str, arguments: argparse.Namespace) -> list[Case]:
    """Return the cases of a broker that the command chooses."""
    return [case for case in (*CASES, *(PEERS if kind == "kafka" else ())) if not arguments.only or case.name in arguments.only]


def _measure_broker(kind: str, arguments: argparse.Namespace) -> dict[str, Any]:
    cases = _cases(kind, arguments)
    with running(kind) as broker:
        messages = arguments.messages or broker.messages
        measured: dict[str, Any] = {}
        answer: dict[str, Any] = {
            "source": broker.source,
            "advanced": broker.count,
            "latency": ORDERED if broker.ordered else UNORDERED,
            "messages": messages,
            "rate": broker.rate,
            "cases": measured,
        }
        if cases:
            say(f"{kind}: warm-up")
            answer["warm_up_messages_per_second"] = asyncio.run(warm_up(broker, kind, messages))
            say(json.dumps(answer["warm_up_messages_per_second"]))
        for number, case in enumerate(cases):
            measured[case.name] = _measure_case(broker, kind, case, f"bench_{number}", measured, arguments)
        if any(case in PEERS for case in cases):
            answer["airflow"] = _compare_with_airflow(measured)
            say(json.dumps(answer["airflow"], indent=2))
        if kind == "kafka" and (not arguments.only or TAKEOVER in arguments.only):
            say(f"{kind}: {TAKEOVER}")
            answer[TAKEOVER] = asyncio.run(takeover.measure(broker))
            say(json.dumps(answer[TAKEOVER]))
        return answer


def _measure_case(
    broker: Broker, kind: str, case: Case, name: str, others: dict[str, Any], arguments: argparse.Namespace
) -> dict[str, Any]:
    """Measure a case, with its ratios to the bare client and the load before."""
    say(f"{kind}: {case.name}")
    load_before = load()
    messages = case.messages or arguments.messages or broker.messages
    measured = asyncio.run(measure(broker, kind, case, name, messages, arguments.seconds))
    bare = others.get(BARE.name, {})
    measured["of_bare"] = {
        "messages_per_second": _ratio(measured["messages_per_second"], bare.get("messages_per_second")),
        **{
            f"advanced_{name}": _ratio((measured["advanced_ms"] or {}).get(name), (bare.get("advanced_ms") or {}).get(name))
            for name in ("p50", "p99")
        },
    }
    measured["load_before"] = load_before
    say(json.dumps(measured))
    return measured


def _compare_with_airflow(cases: dict[str, Any]) -> dict[str, Any]:
    """Return the ratios of Headrace to Airflow, as far as both were measured, with the goals."""
    rows = {
        comparison.ours.name: _compared(comparison, cases)
        for comparison in COMPARISONS
        if comparison.ours.name in cases and comparison.peers.name in cases
    }
    return {"versions": _peer_versions(), "compared": rows} if rows else {}


def _compared(comparison: Comparison, cases: dict[str, Any]) -> dict[str, Any]:
    ours, peers = cases[comparison.ours.name], cases[comparison.peers.name]
    times = _ratio(ours["messages_per_second"], peers["messages_per_second"])
    per_processor = _ratio(peers["reader_cpu_seconds_per_100k"], ours["reader_cpu_seconds_per_100k"])
    return {
        "headrace": ours["messages_per_second"],
        "airflow": peers["messages_per_second"],
        "times": times,
        "times_by_reader_cpu": per_processor,
        "goal": comparison.goal,
        "reached": None if times is None or comparison.goal is None else times >= comparison.goal,
        **{
            f"{side}_advanced_ms": {name: case["advanced_ms"][name] for name in ("p50", "p99")} if case["advanced_ms"] else None
            for side, case in (("headrace", ours), ("airflow", peers))
        },
    }


def _peer_versions() -> dict[str, str]:
    command = [str(PEER_PYTHON), "-m", "bench.brokers.peer", "--versions"]
    versions: dict[str, str] = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    return versions


def _ratio(value: float | None, other: float | None) -> float | None:
    return round(value / other, 3) if value is not None and other else None


def say(text: str) -> None:
    """Print a progress message."""
    print(text, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.brokers", description="Brokers to stored and advanced events, beside a bare client.")
    parser.add_argument("--broker", nargs="+", choices=BROKERS, default=BROKERS, metavar="NAME", help=f"only these of {', '.join(BROKERS)}")
    parser.add_argument(
        "--messages",
        type=int,
        help=f"messages of the throughput runs, by default as many as fit into {LIMIT_SECONDS:g} s for each broker. "
        "A run that ends too soon for a rate is repeated with more",
    )
    parser.add_argument("--seconds", type=float, default=8.0, help="seconds of the latency runs (%(default)s)")
    names = [*(case.name for case in CASES), *ONLY_KAFKA]
    parser.add_argument("--only", nargs="+", choices=names, metavar="CASE", help=f"only these cases: {', '.join(names)}")
    return parser.parse_args()


if __name__ == "__main__":
    main()
