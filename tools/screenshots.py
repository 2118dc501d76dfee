"""
`make screenshots`: the pictures of the live page in docs/images, of a project in which much has happened.

Needs Chromium and Playwright, as the tests of the page do; says so where they are missing.
"""

from __future__ import annotations

import importlib.util
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.view.scene import busy_project
from tests.view.servers import serving

from noclobber.core.clock import iso8601
from noclobber.ledger.line import START, encode, seal

IMAGES = Path(__file__).parents[1] / "docs" / "images"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


FILES = ("src/cart.py", "src/mail.py", "tests/test_cart.py", "docs/api.md")
AGENTS = (
    {"agent_id": "builder-1", "session_id": "4f2a91c3-77aa", "host": "claude-code"},
    {"agent_id": "reviewer", "session_id": "9b1c77d0-12ff", "host": "codex"},
    {"agent_id": "writer", "session_id": "c0ffee11-9a", "host": "opencode"},
)


def an_hour_before(root: Path) -> None:
    """Put a busy hour on record: writes of three agents, some refused and some merged."""
    path = root / ".noclobber" / "agent_trace.jsonl"
    path.parent.mkdir(parents=True)
    chosen, link, lines = random.Random(15), START, []
    moments = sorted(chosen.triangular(60, 3500, 900) for _ in range(260))
    for number, back_s in enumerate(reversed(moments)):
        hashes = [f"sha256:{number + offset:064x}" for offset in (0, 1)]
        kind = chosen.choices(("write", "merge", "conflict"), (10, 2, 3))[0]
        names = ("baseline_hash", "current_hash") if kind == "conflict" else ("before_hash", "after_hash")
        payload: dict[str, Any] = {"tool_name": "write_file", "target_file": chosen.choice(FILES)}
        payload |= dict(zip(names, hashes, strict=True))
        if kind == "merge":
            payload["merged"] = {"base_hash": hashes[0]}
        event = {
            "action_type": "MUTATION_CONFLICT" if kind == "conflict" else "MUTATION",
            "payload": payload,
            "result": {"status": "DENIED", "error_type": "STALE_FILE"}
            if kind == "conflict"
            else {"status": "APPLIED"},
            "identity": chosen.choice(AGENTS),
        }
        line, link = seal(encode(str(path), event), link, iso8601(time.time() - back_s))
        lines.append(line)
    path.write_bytes(b"".join(lines))


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
        an_hour_before(root)
        with busy_project(root), serving(root, with_doctor=True) as server:
            page = browser.new_page(viewport={"width": 1280, "height": 860})
            page.goto(server.access.link())
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
