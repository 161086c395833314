"""The cases of the benchmark: who reads a source, and which messages match."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias

Match: TypeAlias = Literal["all", "one in 100", "one watch"]
"""The messages that match: all of them, one in 100, or all of them one watch each."""
PERIODS: Final[dict[Match, int]] = {"all": 1, "one in 100": 100, "one watch": 1}


class Case(NamedTuple):
    """One reader: Headrace with watches, Airflow with triggers, or the bare client, which has neither."""

    name: str
    watches: int = 0
    match: Match = "all"
    reader: Literal["headrace", "airflow", "bare"] = "headrace"
    messages: int | None = None
    """Of the first run that measures the throughput, if it is not the number of the broker."""

    def matches(self, number: int) -> bool:
        """Return whether a message becomes an event."""
        return number % PERIODS[self.match] == 0

    @property
    def is_stored(self) -> bool:
        """Whether the events are in a database of Headrace."""
        return self.reader == "headrace"


class Comparison(NamedTuple):
    """A case of Headrace and the same one of Airflow. `goal` is the least ratio of their messages per second, or None."""

    ours: Case
    peers: Case
    goal: float | None = None


BARE: Final = Case("bare client", reader="bare")
ONE: Final = Case("1 watch, all match", 1)
ONE_OF_MANY: Final = Case("100 watches, each message matches one", 100, "one watch")
RARE_OF_MANY: Final = Case("100 watches, one in 100 matches", 100, "one in 100")
CASES: Final = (
    BARE,
    Case("1 watch, one in 100 matches", 1, "one in 100"),
    ONE,
    RARE_OF_MANY,
    ONE_OF_MANY,
    Case("100 watches, all match", 100),
    Case("bare client at the end", reader="bare"),
)
"""Of each broker. The second measurement of the bare client shows how far the machine and the server have changed."""
COMPARISONS: Final = (
    Comparison(ONE, Case("airflow: 1 trigger, all match", 1, "all", "airflow", 20_000), 14),
    Comparison(ONE_OF_MANY, Case("airflow: 100 triggers, each message matches one", 100, "one watch", "airflow", 4_000), 50),
    Comparison(RARE_OF_MANY, Case("airflow: 100 triggers, one in 100 matches", 100, "one in 100", "airflow", 4_000), 50),
)
"""Of Kafka. The goal of 50 does not say which messages match none of the triggers, so that two comparisons have it."""
PEERS: Final = tuple(comparison.peers for comparison in COMPARISONS)
