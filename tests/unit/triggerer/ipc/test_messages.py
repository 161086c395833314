"""Supervisor and runner exchange messages, however their bytes are split."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ProcessFailed
from headrace.triggerer.ipc import messages
from headrace.triggerer.ipc.messages import (
    Call,
    CallFailed,
    CallSucceeded,
    Decoder,
    Drain,
    Drained,
    Frame,
    JobOver,
    Page,
    ProjectInvalid,
    ProjectLoaded,
    Report,
    RunTriggers,
    Stopped,
    encode,
)

ids = st.integers(min_value=1, max_value=2**53)
EPOCHS = st.dictionaries(ids, ids)
FRAMES: st.SearchStrategy[Frame] = st.one_of(
    st.builds(Page, st.text(), st.binary()),
    st.builds(ProjectLoaded, st.text(), st.binary()),
    st.builds(ProjectInvalid, st.text(), st.none() | st.text()),
    st.builds(Call, ids, st.sampled_from(["GET", "POST"]), st.text(), st.none() | st.binary()),
    st.builds(Report, st.binary()),
    st.builds(Stopped, st.dictionaries(ids, ids)),
    st.builds(JobOver, st.text()),
    st.builds(Drained),
    st.builds(CallSucceeded, ids, st.binary()),
    st.builds(
        CallFailed, ids, st.text(), st.text(), st.none() | st.text(), st.none() | ids, st.none() | st.text(), st.none() | st.just(1.5)
    ),
    st.builds(RunTriggers, EPOCHS, st.lists(ids), st.lists(st.binary()), EPOCHS, EPOCHS),
    st.builds(Drain, st.floats(min_value=0, max_value=1e6)),
)


@given(st.lists(FRAMES, max_size=8), st.lists(st.integers(min_value=1, max_value=50), min_size=1))
def test_frames_arrive_in_order_however_they_are_cut(sent: list[Frame], cuts: list[int]) -> None:
    data = b"".join(encode(frame) for frame in sent)
    decoder, got, at, turn = Decoder(), [], 0, 0
    while at < len(data):
        size = cuts[turn % len(cuts)]
        got += decoder.feed(data[at : at + size])
        at, turn = at + size, turn + 1
    assert got == sent


def test_requests_and_responses_are_forwarded_unchanged() -> None:
    content = bytes(range(256)) * 1000
    (frame,) = Decoder().feed(encode(CallSucceeded(7, content)))
    assert frame == CallSucceeded(7, content)


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", (3).to_bytes(4, "big") + b"abc", encode(Drained())[:-8] + b"Strange"])
def test_invalid_bytes_are_reported(data: bytes) -> None:
    with pytest.raises(ProcessFailed):
        Decoder().feed(data + bytes(100))


def test_a_frame_that_is_too_long_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MAX_FRAME_BYTES", 1000)
    with pytest.raises(ProcessFailed, match="too long"):
        encode(Report(bytes(1000)))
