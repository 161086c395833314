"""A trigger on the status page, in a real browser: its counts, the pattern of a watch, and its log."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from playwright.async_api import expect

from headrace.triggers.watch import CLASSPATH
from headrace.wire.control.jobs import Heartbeat
from headrace.wire.control.streams import LeafFailures, WatchSample
from headrace.wire.control.triggers import DeclaredTrigger, DeclareProject, TriggerFailure
from support.processes.admin_scene import PROJECT, STREAM, at_work, opened, serving
from support.processes.browser import looking, need_chromium
from support.processes.calls import load_triggers, report_failure

pytestmark = [pytest.mark.browser, pytest.mark.acceptance]

EVIL = "<img src=x onerror=\"document.title='taken'\">"
MATCH = {"carrier": ["UA", {"prefix": EVIL}], "delay": [{"numeric": [">", 12345678901234567]}]}


def declared(name: str, match: object) -> DeclaredTrigger:
    kwargs = {} if match is None else {"match": match}
    return DeclaredTrigger(name=name, classpath=CLASSPATH, kwargs=kwargs, stream=STREAM)


@pytest.mark.parametrize("scheme", ["dark", "light"])
async def test_a_trigger_is_shown_with_its_pattern(tmp_path: Path, scheme: str) -> None:
    need_chromium()
    with opened(tmp_path) as store, serving(store) as url:
        async with at_work(url) as scene, looking(scheme="dark" if scheme == "dark" else "light") as look:
            triggers = [declared("legs.united", MATCH), declared("legs.all", None)]
            named = (await scene.triggerer.declare(PROJECT, DeclareProject(triggers=triggers, pipelines=[]))).triggers
            leases = {lease.trigger_id: lease.epoch for lease in (await load_triggers(scene.triggerer, 100)).leases}
            failure = TriggerFailure(
                epoch=leases[named["legs.united"]], type="OSError", message="no route", traceback=["Traceback", "line 7"]
            )
            await report_failure(scene.triggerer, named["legs.united"], failure)
            leaves = [LeafFailures(path="carrier", failed=60), LeafFailures(path=EVIL[:30], failed=5)]
            sample = WatchSample(trigger_id=named["legs.united"], samples=80, matched=19, leaves=leaves)
            await scene.triggerer.heartbeat(Heartbeat(watches=[sample]))
            page = look.page
            await page.goto(url)
            await page.get_by_role("button", name="0: show the trigger legs.united").click()
            dialog = page.locator("dialog")
            await expect(dialog.locator("#detail-facts")).to_contain_text("legs.united")
            await expect(dialog.locator("#detail-facts")).to_contain_text("OSError: no route")
            pattern = dialog.locator("pre").first
            await expect(pattern).to_contain_text('"carrier": [\n    "UA",')
            await expect(pattern).to_contain_text(EVIL.replace('"', '\\"'))
            await expect(pattern).to_contain_text("12345678901234567")
            await expect(dialog.locator("pre").nth(1)).to_have_text("Traceback\nline 7")
            rows = dialog.locator("tbody tr")
            await expect(rows).to_have_text(["carrier75 %80", f"{EVIL[:30]}6 %80"])
            await expect(dialog).to_contain_text("19 of 80 sampled raw events match.")
            await rows.first.scroll_into_view_if_needed()
            if folder := os.environ.get("HEADRACE_TEST_SCREENSHOTS"):
                await page.screenshot(path=Path(folder) / f"trigger-{scheme}.png")
            assert look.complaints == []
            await dialog.get_by_role("button", name="Show its log").click()
            await expect(page.locator("#detail-h")).to_have_text("Log of trigger legs.united")
            await page.keyboard.press("Escape")
            await page.get_by_role("button", name="0: show the trigger legs.all").click()
            await expect(dialog.locator("#detail-facts")).to_contain_text("it fires on all raw events")
            assert await page.title() != "taken"
            assert await dialog.locator("img").count() == 0
