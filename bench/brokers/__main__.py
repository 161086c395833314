"""Measure brokers to stored and advanced events, and print JSON: python -m bench.brokers [--broker NAME ...] [--only CASE ...]"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import Any, Final

from bench.api_process import commit, load, machine
from bench.brokers.broker import BROKERS, running
from bench.brokers.measure import BARE, CASES, LIMIT_SECONDS, Case, measure

ORDERED: Final = "from the due time of a message until it is advanced, and until its event is committed"
UNORDERED: Final = "from the due time of a message until its event is committed: the broker does not report which messages are advanced"


def main() -> None:
    """Measure the cases on each broker."""
    arguments = _arguments()
    answer: dict[str, Any] = {"machine": machine(), "commit": commit(), "seconds": arguments.seconds, "brokers": {}}
    for kind in arguments.broker:
        answer["brokers"][kind] = _measure_broker(kind, arguments)
    answer["machine"]["load_after"] = load()
    print(json.dumps(answer, indent=2))


def _measure_broker(kind: str, arguments: argparse.Namespace) -> dict[str, Any]:
    with running(kind) as broker:
        messages = arguments.messages or broker.messages
        cases: dict[str, Any] = {}
        for number, case in enumerate(CASES):
            if not arguments.only or case.name in arguments.only:
                say(f"{kind}: {case.name}")
                cases[case.name] = asyncio.run(measure(broker, kind, case, f"bench_{number}", messages, arguments.seconds))
                _compare(cases, case)
                say(json.dumps(cases[case.name]))
        return {
            "source": broker.source,
            "advanced": broker.count,
            "latency": ORDERED if broker.ordered else UNORDERED,
            "messages": messages,
            "rate": broker.rate,
            "cases": cases,
        }


def _compare(cases: dict[str, Any], case: Case) -> None:
    """Add the ratios of a case to the bare client, or None for what was not measured."""
    measured, bare = cases[case.name], cases.get(BARE.name, {})
    measured["of_bare"] = {
        "messages_per_second": _ratio(measured["messages_per_second"], bare.get("messages_per_second")),
        **{
            f"advanced_{name}": _ratio((measured["advanced_ms"] or {}).get(name), (bare.get("advanced_ms") or {}).get(name))
            for name in ("p50", "p99")
        },
    }


def _ratio(value: float | None, bare: float | None) -> float | None:
    return round(value / bare, 3) if value is not None and bare else None


def say(text: str) -> None:
    """Print a progress message."""
    print(text, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.brokers", description="Brokers to stored and advanced events, beside a bare client.")
    parser.add_argument("--broker", nargs="+", choices=BROKERS, default=BROKERS, metavar="NAME", help=f"only these of {', '.join(BROKERS)}")
    parser.add_argument(
        "--messages", type=int, help=f"messages of the throughput runs, by default as many as fit into {LIMIT_SECONDS:g} s for each broker"
    )
    parser.add_argument("--seconds", type=float, default=8.0, help="seconds of the latency runs (%(default)s)")
    parser.add_argument("--only", nargs="+", choices=[case.name for case in CASES], help="only these cases")
    return parser.parse_args()


if __name__ == "__main__":
    main()
