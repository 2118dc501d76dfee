"""Real mounts for tests: a program runs in a mount namespace of its own, so nothing has to be unmounted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

OVERLAY = "mount -t overlay o -o lowerdir=lower,upperdir=upper,workdir=work merged"
USER_OVERLAY = "mount -t overlay o -o userxattr,lowerdir=lower,upperdir=upper,workdir=work merged"
BINDFS = "bindfs back merged"


def run_in_mounts(
    folder: Path, mount: str, program: str, *, flags: tuple[str, ...] = ("--mount",)
) -> dict[str, Any]:
    """Run a Python program with `merged` mounted in a folder; return the JSON that it prints."""
    if sys.platform != "linux" or shutil.which("unshare") is None:
        pytest.skip("needs Linux and `unshare`")
    if mount.startswith("bindfs") and (shutil.which("bindfs") is None or not os.path.exists("/dev/fuse")):
        pytest.skip("needs bindfs and /dev/fuse")
    for name in ("lower", "upper", "work", "merged", "back"):
        (folder / name).mkdir(exist_ok=True)
    tried = subprocess.run(
        ["unshare", *flags, "sh", "-c", mount], cwd=folder, capture_output=True, text=True, check=False
    )
    if tried.returncode != 0:
        pytest.skip(f"cannot mount here: {tried.stderr.strip()[:200]}")
    done = subprocess.run(
        ["unshare", *flags, "sh", "-c", f'{mount} && exec "$0" -c "$1"', sys.executable, program],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    sys.stderr.write(done.stderr)  # Of the processes that it started; shown if the test fails.
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer
