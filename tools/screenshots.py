"""
`make screenshots`: the pictures of the live page in docs/images, of a project in which much has happened.

Needs Chromium and Playwright, as the tests of the page do; says so where they are missing.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.view.scene import busy_project
from tests.view.servers import serving

IMAGES = Path(__file__).parents[1] / "docs" / "images"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def main() -> int:
    """Take them all; 1 if there is nothing to take them with."""
    program = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if program is None or importlib.util.find_spec("playwright") is None:
        print("Screenshots need Chromium (apt-get install chromium) and Playwright (requirements-dev.txt).")
        return 1
    from playwright.sync_api import sync_playwright

    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        root = (Path(folder) / "shop").resolve()
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        with busy_project(root), serving(root, with_doctor=True) as server:
            page = browser.new_page(viewport={"width": 1280, "height": 860})
            page.goto(server.link())
            page.wait_for_selector("#attention-list li")
            page.wait_for_selector("#facts:has-text('lease')", timeout=60_000)
            # Where the project was on this machine is nobody's business.
            page.evaluate("document.querySelector('#facts dd').textContent = '~/shop'")
            page.evaluate("document.documentElement.dataset.theme = 'light'")
            page.screenshot(path=IMAGES / "view-light.png")
            page.evaluate("document.documentElement.dataset.theme = 'dark'")
            page.screenshot(path=IMAGES / "view-dark.png")
            page.click("#hot-rows button:text-is('src/app.py')")
            page.wait_for_selector("#timeline-diff .at")
            page.screenshot(path=IMAGES / "view-timeline.png")
            page.keyboard.press("Escape")
            page.evaluate("document.documentElement.dataset.theme = 'light'")
            page.click("#attention-list button:text-is('restore')")
            page.wait_for_selector("#confirm-diff .add")
            page.screenshot(path=IMAGES / "view-confirm.png")
            page.keyboard.press("Escape")
            page.set_viewport_size({"width": 360, "height": 780})
            page.screenshot(path=IMAGES / "view-narrow.png")
        browser.close()
    print(f"{len(list(IMAGES.glob('view-*.png')))} pictures in {IMAGES}")
    return 0


sys.exit(main())
