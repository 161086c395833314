"""Causal order on the status page in a real browser: waiting events and leaders, hold times, the running batch, and events of runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from playwright.async_api import expect

from headrace.pipeline.runs.slices import Slice
from headrace.wire.control.jobs import CompleteJob, Heartbeat, RunningBatch
from headrace.wire.custody.events import Cursor, ScopeReport, WaitingEvent
from headrace.wire.pipelines.plans import PositionBlock
from headrace.wire.pipelines.runs import RunReport
from support.pipelines.plans import NOON
from support.processes.admin_scene import PROJECT, Scene, at_work, opened, run, serving
from support.processes.browser import looking, need_chromium

pytestmark = [pytest.mark.browser, pytest.mark.acceptance]

TAKEN = "<img src=x onerror=\"document.title='taken'\">"


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    need_chromium()
    with opened(tmp_path) as store, serving(store) as url:
        async with at_work(url) as made:
            yield made


def reported_cursor(cursor: int, *waits: tuple[int, float]) -> Cursor:
    report = ScopeReport(
        read=500,
        seconds=0.5,
        lookback=900,
        holds=[0, 30, 0, 6, 0, 0, 0, 0],
        hold_seconds=72,
        waits=[WaitingEvent(seq=seq, seconds=seconds) for seq, seconds in waits],
    )
    return Cursor(cursor=cursor, batch=0, ordered=36, waiting=len(waits), lost=3, late=2, cycles=1, report=report)


async def test_a_waiting_event_is_shown_with_its_leader_until_its_release(scene: Scene) -> None:
    leader, follower, last = scene.leg(1, tail=TAKEN), scene.leg(2, tail=TAKEN), scene.leg(3)
    await scene.store(replace(last, follows=follower.id), replace(follower, follows=leader.id))
    await scene.plan(reported_cursor(1, (1, 500), (2, 480)), run_of="late_legs")
    await asyncio.to_thread(scene.pipeline.heartbeat, Heartbeat(batch=RunningBatch(scope=PROJECT, batch=1, events=4_321, seconds=2)))
    async with looking() as look:
        page = look.page
        await page.goto(scene.url)
        rows = page.locator("#scope-cards .waits tbody tr")
        await expect(rows).to_have_count(2)
        await expect(rows.nth(0)).to_contain_text(f"{follower.id} waits for {leader.id} (not in the log)")
        await expect(rows.nth(0).locator("td").nth(0)).to_contain_text("8 min 0")
        await expect(rows.nth(0).locator("td").nth(1)).to_contain_text("min 5")
        await expect(rows.nth(1)).to_contain_text(f"{last.id} waits for {follower.id} (waits itself)")
        await expect(page.locator("#alerts-list")).to_contain_text(f"{follower.id} waits for {leader.id} in flights, and counts as lost")
        await expect(page.locator("#alerts-list li")).to_have_count(3)
        await expect(page.locator("#scope-cards .scope-top")).to_contain_text("3 lost, 2 late, 1 cycle")
        holds = page.locator("#scope-cards .holds")
        await expect(holds).to_contain_text("36 events had to wait, 2.0 s on average")
        await expect(holds.locator("tr", has_text="≤ 1 s")).to_contain_text("30")
        widths = await holds.locator("rect").evaluate_all("bars => bars.map((bar) => bar.getAttribute('width'))")
        assert widths == ["0", "100", "0", "20", "0", "0", "0", "0"]
        line = page.locator("#batches li")
        await expect(line).to_contain_text("batch 1 with 4,321 events for")
        await expect(line).to_contain_text("1,000 events/s of late · 1 open run · 2 events behind")
        await expect(page.locator("#ordering tbody").first).to_contain_text("running")
        await expect(page.locator("#ordering tbody").first.locator("tr").first.locator("td").nth(2)).to_have_text("1")
        await page.set_viewport_size({"width": 360, "height": 800})
        assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")

        facts = page.locator("#detail-facts")
        await rows.nth(1).get_by_role("button").click()
        await expect(facts).to_contain_text(f"Scope {PROJECT}waits for {follower.id} (waits itself) for 8 min")
        await expect(facts).to_contain_text("Leaderevent 2")
        await page.keyboard.press("Escape")

        await scene.store(leader)
        block = Slice(np.array([1, 2]), np.array([38, 37]), np.array([0, 1], dtype=np.int8)).pack()
        await scene.plan(reported_cursor(3), positions=[PositionBlock(first=1, last=2, data=block)])
        await page.locator("#events tbody tr", has_text=follower.id).get_by_role("button").first.click()
        await expect(facts).to_contain_text(
            f"Scope {PROJECT}released at position 37 as lost: its leader did not arrive within the lookback"
        )
        await facts.get_by_role("button", name="event 3").click()
        await expect(page.locator("#detail-h")).to_have_text("Event 3")
        await page.keyboard.press("Escape")
        over = {"run_id": "r", "pipeline": "late_legs", "scope": PROJECT, "batch": 1, "number": 0, "events": 1, "rows": 1, "seqs": [(1, 1)]}
        await scene.report(RunReport.model_validate({**over, "state": "succeeded", "started": NOON}))
        await expect(page.locator("#scope-cards .waits h4")).to_have_text("Nothing waits")
        await expect(rows).to_have_count(0)
        await expect(page.locator("#alerts-list li")).to_have_count(2)
        await expect(line).to_contain_text("idle")
        await expect(line).to_contain_text("nothing behind")
        await expect(line).not_to_contain_text("open run")
        await asyncio.to_thread(scene.pipeline.complete, CompleteJob(state="succeeded"))
        await expect(line).to_contain_text("stopped")
        assert "taken" not in await page.title()
        assert look.complaints == []


async def test_the_page_links_runs_to_events_and_events_to_runs(scene: Scene) -> None:
    await scene.store(*(scene.leg(number, tail=TAKEN) for number in range(1, 61)))
    every = run(1).model_copy(update={"events": 60, "seqs": [(1, 60)]})
    some = run(2, pipeline="late_legs", state="failed", rows=None, error="it broke\nat line 7")
    await scene.report(every, some.model_copy(update={"events": 2, "seqs": [(2, 2), (55, 55)]}))
    async with looking(scheme="light") as look:
        page, dialog = look.page, look.page.locator("dialog")
        await page.goto(scene.url)
        await page.get_by_role("button", name="2: show the 2 events of this run").click()
        await expect(dialog.locator("tbody button")).to_have_text(["55", "2"])
        await expect(dialog.locator("pre")).to_have_text("it broke\nat line 7")
        await dialog.locator("tbody button").nth(1).click()
        await expect(page.locator("#detail-h")).to_have_text("Event 2")
        await expect(dialog.locator("tbody tr")).to_have_count(2)
        await expect(dialog.locator("tbody tr").nth(0)).to_contain_text("late_legs")
        await dialog.locator("tbody button", has_text="knock_on_delay").click()
        await expect(page.locator("#detail-h")).to_have_text("Run")
        await expect(dialog.locator("tbody tr")).to_have_count(50)
        await dialog.get_by_role("button", name="Show older ones").click()
        await expect(dialog.locator("tbody tr")).to_have_count(60)
        await expect(dialog.get_by_role("button", name="Show older ones")).to_have_count(0)
        await expect(dialog.locator("tbody tr").last).to_contain_text(f"2013-01-01/{TAKEN}/1")
        assert "taken" not in await page.title()
        assert look.complaints == []
