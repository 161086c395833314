from __future__ import annotations

import pytest

from headrace.triggers.event import current_stream, reject_shared_stream_event


class Stream:
    def __init__(self, *, open: bool) -> None:
        self.open = open
        self.reasons: list[str | None] = []

    def reject(self, reason: str | None) -> bool:
        self.reasons.append(reason)
        return self.open


@pytest.mark.parametrize(("open", "warnings"), [(True, 0), (False, 1)])
def test_the_current_stream_receives_the_rejection(open: bool, warnings: int, capsys: pytest.CaptureFixture[str]) -> None:
    stream = Stream(open=open)
    token = current_stream.set(stream)
    reject_shared_stream_event("bad")
    current_stream.reset(token)
    assert stream.reasons == ["bad"]
    assert capsys.readouterr().out.count("Nothing to reject") == warnings


def test_a_rejection_outside_a_filter_logs_one_warning(capsys: pytest.CaptureFixture[str]) -> None:
    reject_shared_stream_event()
    assert capsys.readouterr().out.count("Nothing to reject") == 1
