"""
The same targets, driven by atheris (libFuzzer), where it is installed: `python -m fuzz.with_atheris NAME`.

libFuzzer mutates, keeps what reaches new branches, and guesses what is compared. Our own engine (`engine`)
keeps what reaches new lines, needs nothing installed, and repeats a run from its seed. libFuzzer ends the
process, so each target has one of its own.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any


def run(name: str, seconds: float, seed: int) -> tuple[bool, str]:
    """Fuzz one target in a process of its own; return whether nothing broke, and what was said."""
    command = [sys.executable, "-m", "fuzz.with_atheris", name, str(int(max(1, seconds))), str(seed)]
    project = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    return done.returncode == 0, done.stdout + done.stderr


def _work(name: str, seconds: int, seed: int) -> None:
    atheris: Any = importlib.import_module("atheris")  # No types, and not installed everywhere.

    with atheris.instrument_imports(include=["noclobber"]):
        from fuzz.targets import place, targets

    with place() as where, tempfile.TemporaryDirectory() as folder:
        (target,) = [target for target in targets(where) if target.name == name]
        for number, data in enumerate(target.seeds):
            Path(folder, str(number)).write_bytes(data)
        found = f"{os.path.dirname(where.root)}/"  # What broke it goes to standard output as well.
        limits = [f"-max_total_time={seconds}", f"-seed={seed or 1}", "-max_len=6000", "-timeout=30"]
        atheris.Setup([sys.argv[0], *limits, f"-artifact_prefix={found}", folder], target.read)
        atheris.Fuzz()


if __name__ == "__main__":
    _work(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
