"""The status page in a real browser, with a real API server and a real database."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.async_api import expect

from headrace.wire.control.jobs import CompleteJob
from headrace.wire.custody.events import Cursor
from support.processes.admin_scene import Scene, at_work, opened, run, serving
from support.processes.browser import looking, need_chromium

pytestmark = [pytest.mark.browser, pytest.mark.acceptance]

SCRIPT = "<script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    need_chromium()
    with opened(tmp_path) as store, serving(store) as url:
        async with at_work(url) as made:
            yield made


async def test_the_page_shows_events_and_updates_without_a_reload(scene: Scene) -> None:
    first = scene.leg(1)
    await scene.store(first, letters=[scene.letter(7, "not JSON: unexpected end")])
    await scene.beat(read=1_234, advanced=1_230, oldest=90.0, held_by=f"trigger {scene.triggers['legs.delta']}")
    await scene.plan(Cursor(cursor=1, batch=1, ordered=1, waiting=3, lost=2))
    await scene.report(run(1, rows=40), run(2, pipeline="late_legs", state="failed", rows=None, error="it broke\nat line 7"))
    await scene.fail("legs.delta", "no route to the broker")
    async with looking() as look:
        page = look.page
        await page.goto(scene.url)
        await expect(page.locator("#link")).to_have_text("Live")
        await expect(page.locator("#alerts-summary")).to_have_text("3 things need you.")
        await expect(page.locator("#alerts-list")).to_contain_text("Trigger legs.delta failed: ConnectionError: no route to the broker")
        totals = {"read": "1,234", "fired": "1", "stored": "1", "advanced": "1,230", "waiting": "3", "ordered": "1", "rows": "40"}
        for name, value in totals.items():
            await expect(page.locator(f"[data-total={name}]")).to_have_text(value)
        await expect(page.locator(".stream")).to_contain_text("held by legs.delta")
        await expect(page.locator(".stream tbody tr")).to_have_count(2)
        await expect(page.locator("#triggers tbody tr")).to_have_count(4)
        await expect(page.locator("#ordering > .scroll tbody")).to_contain_text("flights")
        await expect(page.locator("#pipelines tbody tr")).to_have_count(2)
        await expect(page.locator("#runs tbody")).to_contain_text("it broke")
        await expect(page.locator("#dead-letters tbody")).to_contain_text("not JSON: unexpected end")
        await expect(page.locator("#processes tbody tr")).to_have_count(2)

        loaded = await page.evaluate("performance.timeOrigin")
        await scene.store(scene.leg(2, follows=first.id))
        await expect(page.locator("[data-total=stored]")).to_have_text("2")
        await expect(page.locator("#events tbody tr").first).to_contain_text(f"{first.id} ↳ 1")
        assert await page.evaluate("performance.timeOrigin") == loaded, "the page was loaded anew"
        assert look.complaints == []


@pytest.mark.smoke
async def test_backlogs_and_stuck_lanes_are_shown_with_their_triggers(scene: Scene) -> None:
    await scene.spill(3, watch="legs.delta")
    await scene.store(letters=[scene.letter(7, "not JSON")])
    await scene.beat(
        read=9, advanced=7, oldest=90.0, held_by=f"trigger {scene.triggers['legs.delta']}", error="TimeoutError: 60 s\nat line 7"
    )
    async with looking() as look:
        page = look.page
        await page.goto(scene.url)
        row = page.locator("#backlog tbody tr")
        await expect(row).to_have_count(1)
        await expect(row).to_contain_text("legs.delta")
        await expect(row.locator("td").nth(0)).to_have_text("3")
        await expect(page.locator("#alerts-list")).to_contain_text("3 raw events wait in the backlog of legs.delta.")
        await expect(page.locator("#alerts-list")).to_contain_text("cannot advance lane 2013-01-02.jsonl: TimeoutError: 60 s")
        await expect(page.locator(".stream tbody")).to_contain_text("TimeoutError")
        await expect(page.locator(".stream .facts")).to_contain_text("held by legs.delta")
        await expect(page.locator(".stream .facts")).to_contain_text("Advance errors4")
        await expect(page.locator("#dead-letters tbody tr")).to_contain_text("open")
        await scene.discard_all()
        await expect(page.locator("#dead-letters tbody tr")).to_contain_text("discarded")
        await scene.settle(watch="legs.delta")
        await expect(page.locator("#backlog .empty")).to_be_visible()
        assert look.complaints == []


async def test_a_blocked_trigger_is_shown_with_its_stack_until_it_continues(scene: Scene) -> None:
    await scene.fail("legs.united", "no route", times=1)
    async with looking(scheme="light") as look:
        page = look.page
        await page.goto(scene.url)
        await expect(page.locator("#triggers tbody")).to_contain_text("running since")
        await expect(page.locator("#alerts")).to_have_attribute("data-level", "warn")
        await expect(page.locator("#alerts-list")).to_contain_text("runs again: ConnectionError: no route")
        await expect(page.locator("#blocked")).to_be_hidden()
        await scene.block("legs.late", 12, 'File "late.py", line 7 in handle', "<b>bold</b>")
        banner = page.locator("#blocked .banner")
        await expect(banner).to_contain_text("Trigger legs.late blocks its process on wheel-1 (job 1) for 12 s")
        await expect(banner.locator("pre")).to_be_hidden()
        await banner.locator("summary").click()
        await expect(banner.locator("pre")).to_have_text('File "late.py", line 7 in handle\n<b>bold</b>')
        await expect(page.locator("#processes tbody")).to_contain_text("blocked")
        await scene.block("legs.late", 13, 'File "late.py", line 7 in handle', "<b>bold</b>")
        await expect(banner).to_contain_text("for 13 s")
        await expect(banner.locator("pre")).to_be_visible()
        await scene.beat(read=3, advanced=3)
        await expect(page.locator("#blocked")).to_be_hidden()
        assert look.complaints == []


async def test_data_is_shown_as_text_not_as_markup(scene: Scene) -> None:
    payload = '{"html": "<script>document.title=1</script>", "big": 12345678901234567890}'
    event = scene.leg(1, tail=SCRIPT, note="</script><script>")
    event = replace(event, id=SCRIPT, type=SCRIPT, follows=SCRIPT + "2", payload=payload)
    await scene.store(event, letters=[scene.letter(1, SCRIPT).model_copy(update={"raw": SCRIPT, "id": SCRIPT})])
    await scene.report(run(1, state="failed", rows=None, error=SCRIPT))
    await scene.fail("legs.late", SCRIPT)
    async with looking() as look:
        page = look.page
        await page.goto(scene.url)
        row = page.locator("#events tbody tr").first
        await expect(row.locator("td").nth(2)).to_have_text(SCRIPT)
        await row.locator("button").click()
        await expect(page.locator("dialog pre")).to_contain_text('"html": "<script>document.title=1</script>"')
        await expect(page.locator("dialog pre")).to_contain_text("12345678901234567890")
        for label in ("Type", "Subject", "Lane", "Position", "Fired by"):
            await expect(page.locator("dialog #detail-facts dt", has_text=label)).to_have_count(1)
        await page.keyboard.press("Escape")
        await page.locator("#dead-letters tbody button").click()
        await expect(page.locator("dialog pre")).to_have_text(SCRIPT)
        await expect(page.locator("dialog #detail-facts")).to_contain_text(SCRIPT)
        assert await page.locator("main script, main img, dialog script, dialog img").count() == 0
        assert "taken" not in await page.title()
        assert look.complaints == []


async def test_the_page_of_a_new_deployment_shows_the_next_commands(tmp_path: Path) -> None:
    need_chromium()
    with opened(tmp_path) as store, serving(store) as url:
        async with looking(scheme="light") as look:
            await look.page.goto(url)
            await expect(look.page.locator("#alerts-summary")).to_contain_text("Nothing is running yet")
            await expect(look.page.locator(".empty:visible")).to_have_count(10)
            await expect(look.page.locator("#triggers .empty")).to_contain_text("headrace triggerer")
            assert await look.page.locator("main table:visible").count() == 0
            assert look.complaints == []


async def test_a_lost_connection_is_shown_until_the_api_server_returns(tmp_path: Path) -> None:
    need_chromium()
    with opened(tmp_path) as store:
        async with looking() as look:
            with serving(store) as url:
                await look.page.goto(url)
                await expect(look.page.locator("#link")).to_have_text("Live")
                await expect(look.page.locator("#lost")).to_be_hidden()
            await expect(look.page.locator("#link")).to_have_text("Connection lost, retrying")
            await expect(look.page.locator("#lost")).to_be_visible()
            port = urlsplit(url).port
            assert port is not None
            with serving(store, port):
                await expect(look.page.locator("#link")).to_have_text("Live", timeout=30_000)
                await expect(look.page.locator("#lost")).to_be_hidden()


async def test_the_page_reports_all_is_well_only_without_alerts(scene: Scene) -> None:
    await scene.store(scene.leg(1))
    async with looking() as look:
        await look.page.goto(scene.url)
        await expect(look.page.locator("#alerts-summary")).to_have_text("All is well.")
        await scene.triggerer.complete(CompleteJob(state="failed"))
        await expect(look.page.locator("#alerts-summary")).to_have_text("1 thing needs you.")
        await expect(look.page.locator("#alerts-list")).to_contain_text("No triggerer is running")
        await expect(look.page).to_have_title(re.compile(r"^\(1\) Headrace$"))


@pytest.mark.parametrize("width", [360, 820, 1366])
async def test_the_page_does_not_scroll_sideways_at_any_width(scene: Scene, width: int) -> None:
    await scene.store(*(scene.leg(number, tail=f"N{number}" * 30) for number in range(1, 4)))
    await scene.beat(read=4, advanced=3)
    await scene.report(run(1, state="failed", rows=None, error="x" * 300))
    async with looking(width=width) as look:
        await look.page.goto(scene.url)
        await expect(look.page.locator("#events tbody tr")).to_have_count(3)
        sizes = await look.page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
        assert sizes[0] <= sizes[1]


async def test_open_details_and_focus_survive_an_update(scene: Scene) -> None:
    await scene.beat(read=4, advanced=3)
    await scene.store(scene.leg(1))
    async with looking() as look:
        page = look.page
        await page.goto(scene.url)
        await page.locator(".stream summary").click()
        await page.locator("#events tbody button").first.focus()
        await scene.store(scene.leg(2))
        await asyncio.gather(
            expect(page.locator("[data-total=stored]")).to_have_text("2"),
            expect(page.locator("#events tbody tr")).to_have_count(2),
        )
        assert await page.locator(".stream details").get_attribute("open") is None
        assert await page.evaluate("document.activeElement.textContent") == "1"
