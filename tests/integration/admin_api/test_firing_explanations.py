"""Why a trigger fired on an event or did not, from a real API and its log, custody and declarations; the pattern of a watch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headrace.cli.main import app
from headrace.errors import ApiRefused
from headrace.triggers.watch import CLASSPATH
from headrace.wire.control.jobs import Heartbeat
from headrace.wire.control.streams import LeafFailures, WatchSample
from headrace.wire.control.triggers import DeclaredTrigger, DeclareProject
from headrace.wire.custody.dead_letters import DeadLetterSelection
from headrace.wire.pipelines.runs import RunReport
from headrace.wire.secrets import SetConnection, SetVariable
from headrace.wire.status.triggerers import FiringExplanation, TriggerDetail
from support.processes.execution_api import KEY, Api, serving
from support.processes.store import DATABASES, Holder, event, letter, registration
from support.sources.custody import LANE, STREAM, answered, keep, receipt, record, settle, spill

PAID = {"status": ["paid"]}


@pytest.fixture(params=DATABASES)
def api(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    with serving(tmp_path, kind=request.param) as running:
        monkeypatch.setenv("HEADRACE_API_URL", running.url)
        monkeypatch.setenv("HEADRACE_KEY", KEY)
        monkeypatch.setenv("COLUMNS", "200")
        yield running


def watch(name: str, stream: str = STREAM, **arguments: Any) -> DeclaredTrigger:
    kwargs = {"upstream": {"classpath": "headrace.Directory", "kwargs": {}}} | arguments
    return DeclaredTrigger(name=name, classpath=CLASSPATH, kwargs=kwargs, stream=stream)


def in_python(name: str, stream: str | None = STREAM) -> DeclaredTrigger:
    return DeclaredTrigger(name=name, classpath="shop.Late", kwargs={"match": "its own"}, stream=stream)


ALL = (watch("all"), watch("paid", match=PAID), in_python("late"))


def declared(api: Api, *triggers: DeclaredTrigger, owner: Holder | None = None, project: str = "flights") -> Holder:
    """Declare these triggers and load them; with an owner: in its project, anew."""
    if owner is None:
        owner = Holder(api.store, api.store.jobs.register(registration(project=project)).id, {})
    api.store.projects.declare(owner.job_id, project, DeclareProject(triggers=list(triggers), pipelines=[]))
    owner.load()
    return owner


def happened(owner: Holder, position: int = 1, *firings: int, status: str = "open", **other: Any) -> None:
    """Store an event of a message of the stream, on which a watch of all messages fired."""
    fields: dict[str, Any] = {"id": f"order-{position}", "stream": STREAM, "lane": LANE, "position": position}
    fields |= {"payload": f'{{"status": "{status}", "n": {position}}}'} | other
    assert owner.append(event(fields.pop("id"), *firings, **fields)) == ["stored"]


def why(api: Api, trigger: str, event: object, **query: object) -> FiringExplanation:
    answer = api.ask("GET", "/api/v1/firings/explanation", params={"trigger": trigger, "event": event, **query})
    assert answer.status_code == 200, answer.text
    return FiringExplanation.model_validate_json(answer.content)


def headrace(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def output_of(*words: str) -> str:
    """Return what a command that went well printed."""
    result = headrace(*words)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def test_a_firing_and_a_pattern_that_does_not_match(api: Api) -> None:
    owner = declared(api, *ALL)
    happened(owner)
    record(owner, receipt(None, 1, 1, answered(1, fired=1), owed=(1, 2, 3)))
    run = {"run_id": "flights/late/1", "pipeline": "late", "scope": "flights", "batch": 1, "state": "succeeded", "events": 1}
    run |= {"seqs": [(1, 1)], "started": "2026-01-01T00:00:00Z"}
    api.store.runs.report(owner.job_id, [RunReport.model_validate(run)])
    fired = why(api, "all", 1)
    assert fired.runs == ["flights/late/1"]
    assert (fired.fired, fired.reason, fired.seq, fired.id, fired.source, fired.project) == (
        True,
        "fired",
        1,
        "order-1",
        "tests",
        "flights",
    )
    unpaid = why(api, "paid", "order-1")
    assert (unpaid.fired, unpaid.reason, unpaid.seq, unpaid.trigger_id) == (False, "pattern", 1, 2)
    assert unpaid.text == 'The pattern of paid does not match: status is "open"; the pattern needs "paid".'
    late = why(api, "late", 1)
    assert late.reason == "python"
    assert late.notes[0].endswith("other than to skip them: none.")


def test_counts_and_answers_that_are_not_recorded_yet(api: Api) -> None:
    owner = declared(api, *ALL)
    record(owner, receipt(None, 5, 5, answered(3, fired=2, rejected=1), owed=(1, 2, 3)))
    happened(owner, 6)
    late = why(api, "late", 1)
    assert late.reason == "not_answered"
    assert "they end at position 5." in late.text
    assert late.notes[0] == "Its answers to all raw events of the stream, other than to skip them: fired 2, rejected 1."
    happened(owner, 7, 1, status="paid")
    assert why(api, "paid", 2).reason == "not_answered"
    record(owner, receipt(5, 7, 2, answered(1, fired=2), owed=(1, 2, 3)))
    assert why(api, "paid", 2).reason == "unknown"


def test_the_events_of_another_stream_or_of_no_stream(api: Api) -> None:
    owner = declared(api, *ALL, watch("other", "elsewhere"), in_python("alone", None))
    happened(owner)
    assert owner.append(event("alone", 5)) == ["stored"]
    assert why(api, "other", 1).text == f"other reads elsewhere; the event came from another stream, {STREAM}."
    assert why(api, "alone", 1).reason == "other_stream"
    assert why(api, "alone", 2).reason == "fired"
    assert why(api, "paid", 2).text.endswith("the event came from a trigger that polls alone, not from a shared stream.")


def test_a_backlog_and_a_dead_letter_until_they_are_settled(api: Api) -> None:
    owner = declared(api, *ALL)
    happened(owner)
    keep(owner, spill(1, 2, 3))
    waits = why(api, "paid", 1)
    assert (waits.reason, waits.text) == ("in_backlog", "The raw event waits in the backlog of paid, since 2027-01-15T08:00:00.000Z.")
    settle(owner, "filtered", trigger=2)
    settle(owner, "rejected", trigger=3)
    assert why(api, "paid", 1).reason == "pattern"
    assert why(api, "late", 1).text == "The raw event was in the backlog of late, which is settled: its answer is rejected."
    owner.append(dead_letters=[letter("x", 3, lane=LANE, position=1, kind="rejected", reason="no promised time")])
    dead = why(api, "late", 1)
    assert (dead.reason, dead.text) == ("dead_letter", "The raw event is a dead letter of late (rejected, open): no promised time.")
    assert why(api, "paid", 1).reason == "pattern"
    api.store.dead_letters.redrive(DeadLetterSelection(ids=["x"]))
    assert (
        why(api, "late", 1).text
        == "The raw event waits in the backlog of late, since its dead letter is redriven. Before: no promised time."
    )


def test_a_trigger_that_was_registered_later_changed_or_removed(api: Api) -> None:
    owner = declared(api, *ALL)
    api.clock.turn(60)
    happened(owner)
    record(owner, receipt(None, 1, 1, answered(1, fired=1), owed=(1, 2, 3)))
    api.clock.turn(60)
    declared(api, watch("paid", match={"status": ["open"]}), watch("new"), owner=owner)
    new = why(api, "new", 1)
    assert new.reason == "not_registered"
    assert new.text == "new was registered at 2027-01-15T08:02:00.000Z, after the log stored the event at 2027-01-15T08:01:00.000Z."
    changed = why(api, "paid", 1)
    assert changed.reason == "declaration_changed"
    assert changed.text.startswith("The pattern of paid matches now, but its declaration changed at 2027-01-15T08:02:00.000Z")
    assert "late is not declared any more, since 2027-01-15T08:02:00.000Z." in why(api, "late", 1).notes
    happened(owner, 2, 4)
    assert why(api, "all", 2).reason == "removed"
    api.clock.turn(60)
    declared(api, *ALL, watch("new"), owner=owner)
    assert why(api, "late", 2).reason == "not_answered", "registered at first, and declared again since"


def test_the_shard_that_fired_or_reads_the_stream_answers_for_its_watch(api: Api) -> None:
    shards = [watch(f"orders#{n}-of-2", f"{STREAM}#{n}-of-2") for n in range(2)]
    owner = declared(
        api, *shards, watch("paid#0-of-2", f"{STREAM}#0-of-2", match=PAID), watch("paid#1-of-2", f"{STREAM}#1-of-2", match=PAID)
    )
    happened(owner, 1, 2, stream=f"{STREAM}#1-of-2")
    assert (why(api, "orders", 1).trigger, why(api, "orders", 1).fired) == ("orders#1-of-2", True)
    assert (why(api, "paid", 1).trigger, why(api, "paid", 1).reason) == ("paid#1-of-2", "pattern")
    assert why(api, "paid#0-of-2", 1).reason == "other_stream"


def test_a_declared_field_and_another_event_of_the_same_raw_event(api: Api) -> None:
    owner = declared(api, watch("all"), watch("mapped", id="$.order.id"), in_python("late"))
    happened(owner)
    record(owner, receipt(None, 1, 1, answered(1, fired=1), owed=(1, 2, 3)))
    field = why(api, "mapped", 1)
    assert field.reason == "field"
    assert field.text.endswith("declares: The event has no $.order.id, which the watch declares.")
    happened(owner, 1, 3, id="late-1")
    other = why(api, "late", 1)
    assert (other.fired, other.reason, other.text) == (
        True,
        "fired_as_another_event",
        "late fired on the same raw event, as event 2 with the id late-1.",
    )
    assert why(api, "all", 2).text == "all fired on the same raw event, as event 1 with the id order-1."
    assert why(api, "mapped", 2).text.startswith("The payload of event 2 is not the raw event that mapped tested")


def test_events_are_named_by_seq_or_id_and_ambiguous_names_are_refused(api: Api) -> None:
    owner = declared(api, *ALL)
    happened(owner)
    happened(owner, 2, id="1")
    happened(owner, 3, id="order-1", source="others")
    assert why(api, "all", "1").seq == 1
    assert why(api, "all", "1", by_id=True).seq == 2
    assert why(api, "all", "3").seq == 3

    def refused(**query: object) -> dict[str, Any]:
        answer = api.ask("GET", "/api/v1/firings/explanation", params=query)
        body: dict[str, Any] = answer.json()
        assert answer.status_code == body["status"]
        return body

    several = refused(trigger="all", event="order-1")
    assert (several["status"], several["detail"]) == (409, "2 events have the id 'order-1'.")
    assert several["hint"] == "Name the seq of one: 3 (others), 1 (tests)."
    assert refused(trigger="all", event="4")["detail"] == "No event has the seq or id '4'."
    assert refused(trigger="all", event="9" * 30)["status"] == 404
    assert refused(trigger="none", event="1")["detail"] == "No trigger has the name 'none'."
    assert refused(trigger="", event="1")["status"] == 422
    assert refused(trigger="all", event="a\0")["status"] == 422
    declared(api, watch("all"), project="other")
    assert refused(trigger="all", event="1")["hint"] == "Name the project with --project: flights, other."
    assert why(api, "all", "1", project="flights").fired is True
    assert why(api, "all", "1", project="other").fired is False


def detail(api: Api, trigger_id: int) -> TriggerDetail:
    return TriggerDetail.model_validate_json(api.ask("GET", f"/api/v1/triggers/{trigger_id}").content)


def test_the_detail_of_a_watch_has_its_pattern_and_no_stored_secret(api: Api) -> None:
    api.store.secrets.set_variable("token", SetVariable(value="s3cr3t-token"))
    api.store.secrets.set_variable("open", SetVariable(value="nothing-secret", secret=False))
    api.store.secrets.set_connection("shop", SetConnection(kind="http", password="p4ssw0rd", extra={"sig": "sign-4711"}))
    match = {"token": [{"anything-but": "s3cr3t-token"}, {"exists": False}], "sig": {"sign-4711": [True, "p4ssw0rd", "nothing-secret", 5]}}
    owner = declared(api, watch("all"), watch("secret", match=match), in_python("late"), watch("long", match={"a": ["x" * 70_000]}))
    assert [(detail(api, n).is_watch, detail(api, n).pattern) for n in (1, 3)] == [(True, None), (False, None)]
    assert json.loads(detail(api, 2).pattern or "") == {
        "token": [{"anything-but": "***"}, {"exists": False}],
        "sig": {"***": [True, "***", "nothing-secret", 5]},
    }
    assert (detail(api, 4).pattern, detail(api, 4).pattern_hidden) == (None, "It has 70,010 bytes, more than 65,536.")
    happened(owner)
    record(owner, receipt(None, 1, 1, answered(1, fired=1), owed=(1, 2, 3, 4)))
    answer = why(api, "secret", 1)
    assert answer.text.endswith("sig.*** fails; its value is hidden, because the pattern has a stored secret.")
    for trigger_id in range(1, 5):
        assert "s3cr3t" not in api.ask("GET", f"/api/v1/triggers/{trigger_id}").text


def beat(owner: Holder, trigger_id: int, samples: int, **failed: int) -> None:
    leaves = [LeafFailures(path=path.replace("_", "."), failed=count) for path, count in failed.items()]
    watches = [WatchSample(trigger_id=trigger_id, samples=samples, matched=1, leaves=leaves)]
    owner.store.jobs.heartbeat(owner.job_id, Heartbeat(watches=watches))


def test_the_newest_samples_of_a_watch_are_shown(api: Api) -> None:
    owner = declared(api, *ALL)
    other = declared(api, watch("elsewhere"), project="other")
    assert detail(api, 2).sampled is None
    assert "sampled" not in output_of("triggers", "show", "paid")
    beat(owner, 2, 10, status=3)
    beat(owner, 2, 40, status=30, order_total=10)
    beat(other, 2, 1, status=1)
    beat(owner, 77, 1)
    sampled = detail(api, 2).sampled
    assert sampled is not None
    assert [(leaf.path, leaf.failed) for leaf in sampled.leaves] == [("status", 30), ("order.total", 10)]
    assert (sampled.samples, sampled.matched) == (40, 1)
    lines = [line.split() for line in output_of("triggers", "show", "paid").splitlines()]
    assert ["status", "75%", "40"] in lines
    assert ["order.total", "25%", "40"] in lines
    assert "1 of 40 sampled raw events match." in output_of("triggers", "show", "paid")
    api.clock.turn(1)
    declared(api, watch("all"), watch("paid", match={"status": ["open"]}), owner=owner)
    assert detail(api, 2).sampled is None, "the samples are those of the pattern before"


def test_the_command_line_prints_the_answer_and_the_pattern(api: Api) -> None:
    owner = declared(api, *ALL)
    happened(owner)
    record(owner, receipt(None, 1, 1, answered(1, fired=1), owed=(1, 2, 3)))
    assert output_of("triggers", "why", "paid", "order-1") == (
        'The pattern of paid does not match: status is "open"; the pattern needs "paid".\n'
    )
    assert output_of("triggers", "why", "all", "1") == "all fired on event 1, which the log stored at 2027-01-15T08:00:00.000Z.\n"
    assert output_of("triggers", "why", "late", "1").splitlines()[1:] == [
        "  Its answers to all raw events of the stream, other than to skip them: none.",
        "  Its lines about the raw event, if it logs any: headrace logs trigger late",
        "  late was declared at 2027-01-15T08:00:00.000Z, just before the log stored the event: it may have been read before.",
    ]
    assert FiringExplanation.model_validate_json(output_of("triggers", "why", "paid", "1", "--json")).reason == "pattern"
    missing = headrace("triggers", "why", "paid", "1", "--id")
    assert isinstance(missing.exception, ApiRefused)
    assert missing.exit_code == 1
    assert '{"status":["paid"]}' in output_of("triggers", "show", "paid")
    assert "all raw events" in output_of("triggers", "show", "all")
    assert TriggerDetail.model_validate_json(output_of("triggers", "show", "paid", "--json")).pattern == '{"status":["paid"]}'
