"""Debian's Chromium, headless, for tests that look at the page as a person does."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from playwright.async_api import ConsoleMessage, Error, Page, async_playwright, expect

PATIENCE = 30_000  # ms for what is expected of a page: a loaded machine takes its time
CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass
class Look:
    """A page, and all that its browser complained of."""

    page: Page
    complaints: list[str] = field(default_factory=list)

    def heard(self, message: ConsoleMessage) -> None:
        """Keep what the console says is wrong."""
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def failed(self, error: Error) -> None:
        """Keep what the page's script did not catch."""
        self.complaints.append(str(error))


def need_chromium() -> None:
    """Skip the test where there is no Chromium; in CI that is a failure, for there it must be."""
    if CHROMIUM.exists():
        return
    hint = f"{CHROMIUM} is missing: apt-get install chromium"
    if os.environ.get("CI") == "true":
        pytest.fail(hint)
    pytest.skip(hint)


@asynccontextmanager
async def looking(
    *, scheme: Literal["dark", "light"] = "dark", width: int = 1366, height: int = 850, script: bool = True
) -> AsyncIterator[Look]:
    """Open a browser with one empty page."""
    need_chromium()
    expect.set_options(timeout=PATIENCE)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            context = await browser.new_context(
                color_scheme=scheme,
                viewport={"width": width, "height": height},
                locale="en-GB",
                timezone_id="Europe/Berlin",
                java_script_enabled=script,
            )
            look = Look(await context.new_page())
            look.page.on("console", look.heard)
            look.page.on("pageerror", look.failed)
            yield look
        finally:
            await browser.close()
