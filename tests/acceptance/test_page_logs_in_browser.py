"""A log on the status page, in a real browser, while it grows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from playwright.async_api import expect

from headrace.logs.format import encode
from headrace.logs.names import run_log_name, trigger_log
from headrace.logs.writer import LogFiles
from support.processes.admin_scene import at_work, opened, run, serving
from support.processes.browser import looking, need_chromium

pytestmark = [pytest.mark.browser, pytest.mark.acceptance]

EVIL = "<img src=x onerror=\"document.title='taken'\">"


def refuse(error: OSError) -> None:
    raise error


def line(event: str, level: str = "info", **more: object) -> bytes:
    return encode({"timestamp": "2026-11-21T12:00:00.000000Z", "level": level, "event": event, "logger": "user", **more}).encode() + b"\n"


@pytest.mark.parametrize("scheme", ["dark", "light"])
async def test_a_growing_log_is_shown_live_as_text(tmp_path: Path, scheme: str) -> None:
    need_chromium()
    files = LogFiles(tmp_path / "logs", refuse)
    with opened(tmp_path) as store, serving(store, logs=tmp_path / "logs") as url:
        async with at_work(url) as scene, looking(scheme="dark" if scheme == "dark" else "light") as look:
            united = trigger_log(scene.triggers["legs.united"], 1)
            files.append(united, line("first", n=1))
            files.append(united, line(EVIL, "error", exception=f"Traceback\n  {EVIL}"))
            await scene.report(run(1))
            page = look.page
            await page.goto(url)
            await page.get_by_role("button", name="legs.united: show the log").click()
            log = page.get_by_role("log")
            await expect(log.locator(".line")).to_have_count(2)
            files.append(united, line("and more", "warning"))
            await expect(log.locator(".line")).to_have_count(3)
            files.append(trigger_log(scene.triggers["legs.united"], 2), line("in the next job"))
            await expect(log).to_contain_text("in the next job")
            await expect(log).to_contain_text(EVIL)
            assert await log.locator("img").count() == 0
            if folder := os.environ.get("HEADRACE_TEST_SCREENSHOTS"):
                await page.screenshot(path=Path(folder) / f"log-{scheme}.png")
            await page.keyboard.press("Escape")
            await expect(log).to_be_hidden()
            files.append(run_log_name("flights/knock_on_delay/1"), line("of the run"))
            await page.get_by_role("button", name="knock_on_delay: show the log").click()
            await expect(log).to_contain_text("of the run")
            await page.keyboard.press("Escape")
            files.append(trigger_log(scene.triggers["legs.delta"], 1), b"")
            await page.get_by_role("button", name="legs.delta: show the log").click()
            await expect(page.get_by_role("log")).to_contain_text("Nothing is logged here yet.")
            assert await page.title() != "taken"
            assert look.complaints == []
