"""The registry of all metrics that `GET /metrics` serves.

Each metric is one line here, or one field of `StreamCounters` for the counters of shared streams. `/metrics` and the reference page
are made of this registry.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias

from headrace.core.ledger.counters import COUNTER_HELP

PREFIX: Final = "headrace_"

MetricKind: TypeAlias = Literal["counter", "gauge", "histogram"]


class Metric(NamedTuple):
    """One metric. `name` is without the prefix and the suffix `_total`.

    `field` is the attribute that has the value, of the item that the label names; "" if the API works it out.
    """

    name: str
    kind: MetricKind
    help: str
    label: str = ""
    field: str = ""

    @property
    def full_name(self) -> str:
        """The name as Prometheus shows it: with prefix, and with `_total` if it is a counter."""
        return f"{PREFIX}{self.name}_total" if self.kind == "counter" else PREFIX + self.name

    @property
    def unit(self) -> str:
        """The unit of the value, or "" for a number of things."""
        return "seconds" if self.name.endswith("_seconds") else ""


SERVER_METRICS: Final = (
    Metric("build_info", "gauge", "Always 1; the label has the version of the API server.", "version"),
    Metric("events_stored", "counter", "Events in the event log, pruned ones included."),
    Metric("dead_letters", "gauge", "Dead letters by state: open, redriven, discarded.", "state"),
    Metric("alerts", "gauge", "Alerts by severity: error, warning.", "severity"),
    Metric("jobs", "gauge", "Running processes by kind: triggerer, pipeline, worker.", "kind"),
    Metric("triggerers_blocked", "gauge", "Triggerers in which one trigger blocks all others."),
    Metric("triggers", "gauge", "Registered triggers by state: waiting, running, failed, parked.", "state"),
)

STREAM_COUNTERS: Final = tuple(
    Metric(f"stream_{name}", "counter", text, "stream", f"counters.{name}") for name, text in COUNTER_HELP.items()
)

STREAM_METRICS: Final = (
    *STREAM_COUNTERS,
    Metric("stream_advances_in_flight", "gauge", "Lanes that are being advanced.", "stream", "in_flight"),
    Metric("stream_lag", "gauge", "Positions between the lanes and their ends, if the upstream reports ends.", "stream", "lag"),
    Metric("stream_outstanding", "gauge", "Raw events that are read and not advanced.", "stream", "outstanding"),
    Metric("stream_unread", "gauge", "Messages of the upstream that are not read, if the upstream reports them.", "stream", "unread"),
    Metric("stream_dead_letter_copies", "counter", "Dead letters copied to the broker.", "stream", "copied"),
    Metric("stream_dead_letter_copies_rejected", "counter", "Copies that the broker permanently rejected.", "stream", "rejected_copies"),
    Metric("stream_dead_letters_uncopied", "gauge", "Open dead letters that wait for their copy, up to 10,000.", "stream", "uncopied"),
    Metric("stream_oldest_unresolved_seconds", "gauge", "Age of the oldest unresolved raw event.", "stream", "oldest_unresolved"),
)

TRIGGER_METRICS: Final = (
    Metric("trigger_fired", "counter", "Events on which the trigger fired.", "trigger", "fired"),
    Metric("trigger_rejected", "counter", "Raw events of the trigger that became dead letters.", "trigger", "rejected"),
    Metric("trigger_spilled", "counter", "Raw events that were stored in the trigger's backlog.", "trigger", "spilled"),
    Metric("trigger_conflicts", "counter", "Events dropped because their id is stored with another payload.", "trigger", "conflicts"),
    Metric("backlog_depth", "gauge", "Raw events in the trigger's backlog.", "trigger", "backlog"),
)

SCOPE_METRICS: Final = (
    Metric("scope_cursor", "gauge", "The `seq` up to which the scope has committed.", "scope", "cursor"),
    Metric("scope_lag", "gauge", "Events of the log that the scope has not committed.", "scope", "lag"),
    Metric("scope_open_runs", "gauge", "Planned pipeline runs without an outcome.", "scope", "open_runs"),
    Metric("ordering_waiting", "gauge", "Events that wait for their leader.", "scope", "waiting"),
    Metric("ordering_released", "counter", "Events released in order.", "scope", "ordered"),
    Metric("ordering_lost", "counter", "Events released without their leader, which did not arrive within the lookback.", "scope", "lost"),
    Metric("ordering_late", "counter", "Leaders that arrived after their followers were released.", "scope", "late"),
    Metric("ordering_cycle", "counter", "Cycles of events that follow each other.", "scope", "cycles"),
)

HOLD_SECONDS: Final = Metric("ordering_hold_seconds", "histogram", "Hold time of the events that waited for their leader.", "scope")

PIPELINE_METRICS: Final = (
    Metric("pipeline_runs", "counter", "Pipeline runs.", "pipeline", "runs"),
    Metric("pipeline_runs_failed", "counter", "Pipeline runs that failed.", "pipeline", "failed"),
    Metric("pipeline_events", "counter", "Events processed by pipeline runs that succeeded.", "pipeline", "events"),
    Metric("pipeline_rows", "counter", "Rows written by pipeline runs that succeeded.", "pipeline", "rows"),
)

METRICS: Final = (*SERVER_METRICS, *STREAM_METRICS, *TRIGGER_METRICS, *SCOPE_METRICS, HOLD_SECONDS, *PIPELINE_METRICS)
"""All metrics, in the order in which `/metrics` serves them."""
