"""
A guarded call through each framework's adapter against the framework's own tool: what it adds, 10 KiB a file.

Each framework is in an environment of its own, which `make frameworks` makes; without it, it is skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.frameworks.drivers import FRAMEWORKS

from bench import Row, spelled

BAR_S = 0.0015
PROJECT = Path(__file__).parents[1]


def rows() -> Iterator[Row]:
    """A read and a write for each framework."""
    for name in FRAMEWORKS:
        if name == "tools":
            continue  # It has no tools of its own to compare with.
        python = (
            Path(os.environ.get("VENV", PROJECT / ".venv")).absolute() / "frameworks" / name / "bin/python"
        )
        if not python.exists():
            yield _skipped(name, "not installed; `make frameworks` does that")
            continue
        done = subprocess.run(
            [str(python), "-W", "ignore", "-m", "bench.framework_calls", name],
            cwd=PROJECT,
            env={**os.environ, "PYTHONPATH": "src"},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        if done.returncode:
            yield _skipped(name, f"failed: {done.stderr[-300:]}", ok=False)
            continue
        # A framework may print, too: CrewAI does when its process ends.
        [*_, line] = [line for line in done.stdout.splitlines() if line.startswith("{")]
        found = json.loads(line)
        for kind in ("read", "write"):
            own, ours = found[f"{kind} own"], found[f"{kind} guarded"]
            if (nothing := found.get(f"{kind} nothing")) is not None:
                yield Row(
                    what=f"{name}: the same with a user's tool that does nothing, ms added",
                    against=f"{name}'s own {kind}",
                    ratio=(nothing - own) * 1000,
                    bar="none",
                    ok=True,
                    detail=f"{spelled(nothing)} against {spelled(own)}",
                )
            yield Row(
                what=f"{name}: a step with a {kind}, ms added",
                against=f"{name}'s own tool",
                ratio=(ours - own) * 1000,
                bar=f"<= {BAR_S * 1000} ms",
                ok=ours - own <= BAR_S,
                detail=f"{spelled(ours)} against {spelled(own)}",
            )


def _skipped(name: str, why: str, *, ok: bool = True) -> Row:
    return Row(name, "its own tools", 0.0, f"<= {BAR_S * 1000} ms", ok=ok, detail=f"skipped: {why}")
