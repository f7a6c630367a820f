"""Headless Chromium with software rendering, for the tests of pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
)
WAIT = 120_000  # milliseconds; nothing depends on how soon it happens
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> Iterator[Any]:
    """A running browser, or a skip with the reason."""
    playwright = pytest.importorskip("playwright.sync_api", reason="the pages' tests need the package playwright")
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("the pages' tests need Chromium: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=list(ARGUMENTS))
        yield browser
        browser.close()


def complains(message: Any) -> bool:
    """Errors and warnings; software rendering's remark that showing a picture means reading it back is neither."""
    return message.type in ("error", "warning") and "GL Driver Message (OpenGL, Performance" not in message.text
