"""
One framework, in its own environment: how long a step with one tool call takes, own tools against ours.

    .venv/frameworks/deepagents/bin/python -m bench.framework_calls deepagents

A step is timed from one question to the model to the next, so it has everything in it that the framework does
around a tool call. Own and guarded runs take turns. Printed is one JSON object with medians in seconds.

A framework whose own tools run in another process has a third: a user's tools that do nothing. They cost
the way into this process and back, which no tool of a user's can avoid.
"""

from __future__ import annotations

import importlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.frameworks.driver import Call, FrameworkDriver, Received, Script, read, write
from tests.frameworks.drivers import driver

TEXT = ("x" * 79 + "\n") * 128  # 10 KiB.
ROUNDS, STEPS = 4, 12


def times_of(playing: FrameworkDriver, kind: str) -> list[float]:
    """Run an agent that reads a file and then calls one tool again and again; return what each step took."""
    asked: list[float] = []

    def step(_: list[Received]) -> list[Call]:
        asked.append(time.perf_counter())
        # Another file for each read: CrewAI stops an agent that asks for the same again and again.
        page = f"page-{len(asked)}.md" if kind == "read" else "page.md"
        return [read(page) if kind == "read" else write(page, f"{len(asked) % 10}{TEXT[1:]}")]

    playing.run(Script(lambda _: [read("page.md")], *([step] * STEPS)))
    return [later - earlier for earlier, later in pairwise(asked[1:])]  # The first one warms up.


def measured(name: str) -> dict[str, Any]:
    """Return the medians by tool and mode."""
    kinds: dict[str, Callable[[Path], FrameworkDriver]] = {
        "own": partial(driver(name), guarded=False),
        "guarded": partial(driver(name), guarded=True),
    }
    floor = getattr(importlib.import_module(driver(name).__module__), "FLOOR", None)
    if floor is not None:
        kinds["nothing"] = partial(floor, guarded=True)
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="noclobber-bench-") as folder:
        for number in range(ROUNDS):
            for kind in ("read", "write"):
                for mode, play in kinds.items():
                    root = (Path(folder) / f"{number}-{kind}-{mode}").resolve()
                    root.mkdir()
                    for page in ("page", *(f"page-{number}" for number in range(STEPS + 1))):
                        (root / f"{page}.md").write_text(TEXT)
                    playing = play(root)
                    try:
                        found.setdefault(f"{kind} {mode}", []).extend(times_of(playing, kind))
                    finally:
                        playing.close()
    return {key: statistics.median(values) for key, values in found.items()}


if __name__ == "__main__":
    print(json.dumps(measured(sys.argv[1])))
