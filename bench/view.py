"""
The live page with a ledger of a million lines: in a real browser, with the server in a process of its own.

First paint is from the start of the navigation to the first event on the screen, with a server that has just
been started. Memory is the server's largest, after it has counted the whole ledger and told a hundred events.
An event's way is from before its append to the frame that shows it, at fifty events a second.

These are bars in seconds and bytes, not ratios: a person waits in seconds.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from bench import Row
from noclobber.core.clock import iso8601
from noclobber.ledger import AgentTraceLedger
from noclobber.ledger.line import START, encode, seal

LINES = int(os.environ.get("BENCH_VIEW_LINES", "1000000"))
EVENTS, EVENTS_PER_S = 200, 50
FIRST_PAINT_S, MEMORY_MB, ON_SCREEN_S = 1.0, 60.0, 0.3
FILES, AGENTS = 500, 12
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SEEN = """() => {
  window.seenAt = {};
  new MutationObserver((changes) => requestAnimationFrame(() => {
    for (const change of changes) for (const row of change.addedNodes)
      if (row.dataset?.seq) window.seenAt[row.dataset.seq] ??= Date.now();
  })).observe(document.getElementById("events"), { childList: true });
}"""


def event(number: int) -> dict[str, Any]:
    """One of many events: mostly writes, every seventh refused, every eleventh merged."""
    file = f"src/part-{number % 7}/file-{number * number % FILES}.py"
    who = {
        "agent_id": f"agent-{number % AGENTS}",
        "session_id": f"s-{number % AGENTS:08x}",
        "call_id": f"c-{number}",
    }
    first, second = (f"sha256:{number + offset:064x}" for offset in (0, 1))
    if number % 7 == 0:
        payload = {
            "tool_name": "write_file",
            "target_file": file,
            "baseline_hash": first,
            "current_hash": second,
        }
        result = {"status": "DENIED", "error_type": "STALE_FILE"}
        return {"action_type": "MUTATION_CONFLICT", "payload": payload, "result": result, "identity": who}
    payload = {"tool_name": "write_file", "target_file": file, "before_hash": first, "after_hash": second}
    payload["level"] = "lease+exchange"
    more = (
        {"merged": {"base_hash": first, "theirs_hash": first, "ours_hash": second}}
        if number % 11 == 0
        else {}
    )
    return {
        "action_type": "MUTATION",
        "payload": {**payload, **more},
        "result": {"status": "APPLIED"},
        "identity": who,
    }


def generate(path: str, lines: int, now_s: float) -> None:
    """Write a ledger with a whole chain, the last event a moment ago and thirty a second before it."""
    link, parts = START, []
    with open(path, "wb") as file:
        for number in range(lines):
            line, link = seal(encode(path, event(number)), link, iso8601(now_s - (lines - number) / 30))
            parts.append(line)
            if len(parts) == 5000:
                file.write(b"".join(parts))
                parts.clear()
        file.write(b"".join(parts))


def rows() -> Iterator[Row]:
    """Measure, or say what is missing."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        print("  not measured: Playwright is not installed (requirements-dev.txt)")
        return
    program = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if program is None:
        print(f"  not measured: no browser was found ({', '.join(BROWSERS)})")
        return
    with tempfile.TemporaryDirectory(prefix="noclobber-bench-") as folder:
        root = Path(folder).resolve()
        (root / ".noclobber").mkdir()
        ledger = str(root / ".noclobber" / "agent_trace.jsonl")
        generate(ledger, LINES, time.time())
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
            try:
                yield from _measured(browser, root, ledger)
            finally:
                browser.close()


def _measured(browser: Any, root: Path, ledger: str) -> Iterator[Row]:
    told = f"{LINES:,} lines, {os.path.getsize(ledger) >> 20} MiB"
    command = [sys.executable, "-m", "noclobber", "view", "--root", str(root), "--no-browser", "--json"]
    browser.new_page().close()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            link = json.loads(server.stdout.readline())["url"]
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            began_s = time.perf_counter()
            page.goto(link)
            page.wait_for_selector(".event")
            paint_s = time.perf_counter() - began_s
            yield Row(
                "view: first paint",
                "a second",
                paint_s,
                f"≤ {FIRST_PAINT_S:g}",
                paint_s <= FIRST_PAINT_S,
                told,
            )
            page.wait_for_selector("#facts:not(:has-text('counting'))", timeout=300_000)
            counted_s = time.perf_counter() - began_s
            ways_s = _ways(page, ledger)
            worst_s = quantiles(ways_s, n=100)[98]
            detail = (
                f"median {median(ways_s) * 1000:.0f} ms, 99 % within {worst_s * 1000:.0f} ms, {EVENTS} events"
            )
            yield Row(
                "view: from the ledger to the screen",
                "a second",
                worst_s,
                f"≤ {ON_SCREEN_S:g}",
                worst_s <= ON_SCREEN_S,
                detail,
            )
            peak_mb = _peak_mb(server.pid)
            detail = f"all counted {counted_s:.1f} s after the navigation began"
            yield Row(
                "view: the server's largest memory",
                "a megabyte",
                peak_mb,
                f"≤ {MEMORY_MB:g}",
                peak_mb <= MEMORY_MB,
                detail,
            )
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(30)


def _ways(page: Any, path: str) -> list[float]:
    """Append events at a steady rate; return how long each took to the screen."""
    page.evaluate(SEEN)
    ledger = AgentTraceLedger(path)
    began: dict[str, float] = {}
    for number in range(EVENTS):
        at_s = time.time()
        began[str(ledger.append(event(number)).seq)] = at_s
        page.wait_for_timeout(max(0.0, 1000 / EVENTS_PER_S - (time.time() - at_s) * 1000))
    page.wait_for_selector(f'.event[data-seq="{max(map(int, began))}"]')
    page.wait_for_timeout(200)
    seen = page.evaluate("window.seenAt")
    return [seen[seq] / 1000 - at_s for seq, at_s in began.items()]


def _peak_mb(pid: int) -> float:
    with open(f"/proc/{pid}/status") as file:
        line = next(line for line in file if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1000
