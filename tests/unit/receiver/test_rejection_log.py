"""One line for each endpoint, status and interval."""

from __future__ import annotations

from structlog.testing import capture_logs

from headrace.receiver.rejection_log import INTERVAL_SECONDS, RejectionLog


def test_repeated_rejections_are_counted_and_named_in_the_next_line() -> None:
    now = [0.0]
    log = RejectionLog(lambda: now[0])
    with capture_logs() as lines:
        for _ in range(5):
            log.add("a", 401, "wrong")
        log.add("a", 400, "x" * 10_000)
        log.add("b", 503, "full")
        now[0] = INTERVAL_SECONDS
        log.add("a", 401, "wrong again")
    assert [(line["endpoint"], line["status"], line["log_level"], line["omitted"]) for line in lines] == [
        ("a", 401, "warning", 0),
        ("a", 400, "warning", 0),
        ("b", 503, "error", 0),
        ("a", 401, "warning", 4),
    ]
    assert all(len(line["reason"]) <= 500 for line in lines)
