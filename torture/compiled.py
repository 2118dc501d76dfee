"""Compile the outside writers that Python cannot be, where there is a compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from torture.outsiders import PROGRAM

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "outside_writers.c")


def compile_into(folder: str) -> str | None:
    """Compile them, and tell every process that is started from now on; return why not, or None."""
    if os.environ.get(PROGRAM):
        return None
    if sys.platform != "linux":
        return "they are for Linux"
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        return "there is no C compiler"
    program = os.path.join(folder, "outside_writers")
    done = subprocess.run([compiler, "-O1", "-o", program, SOURCE], capture_output=True, text=True)
    if done.returncode != 0:
        return f"{compiler} failed: {done.stderr.strip()[:300]}"
    os.environ[PROGRAM] = program
    return None
