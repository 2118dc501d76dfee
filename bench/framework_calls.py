"""
One framework, in its own environment: how long a step with one tool call takes, own tools against ours.

    .venv/frameworks/deepagents/bin/python -m bench.framework_calls deepagents

A step is timed from one question to the model to the next, so it has everything in it that the framework does
around a tool call. Own and guarded runs take turns. Printed is one JSON object with medians in seconds.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
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
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="noclobber-bench-") as folder:
        for number in range(ROUNDS):
            for kind in ("read", "write"):
                for mode in ("own", "guarded"):
                    root = (Path(folder) / f"{number}-{kind}-{mode}").resolve()
                    root.mkdir()
                    for page in ("page", *(f"page-{number}" for number in range(STEPS + 1))):
                        (root / f"{page}.md").write_text(TEXT)
                    playing = driver(name)(root, guarded=mode == "guarded")
                    try:
                        found.setdefault(f"{kind} {mode}", []).extend(times_of(playing, kind))
                    finally:
                        playing.close()
    return {key: statistics.median(values) for key, values in found.items()}


if __name__ == "__main__":
    print(json.dumps(measured(sys.argv[1])))
