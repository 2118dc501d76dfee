"""
The same torture on real mounts: overlay, where containers live, and FUSE, where leases are blind.

Each runs in a mount and a pid namespace of its own: nothing has to be unmounted, and every process there can
be looked at, as in a container. What must hold is what the levels claim there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import argparse

SHARE, LEAST_S = 0.05, 8.0  # Of the whole run's time, for each mount.
NAMESPACES = ("unshare", "--mount", "--pid", "--fork", "--mount-proc")


class Mount(NamedTuple):
    """A filesystem, the command that mounts it on `merged`, and the kinds of outsiders to run on it."""

    name: str
    command: str
    kinds: tuple[str, ...]


MOUNTS = (
    Mount(
        "overlay",
        "mount -t overlay o -o lowerdir=lower,upperdir=upper,workdir=work merged",
        ("mapped", "pwrite", "append", "rename", "held"),
    ),
    # There the level is `exchange` or `plain`: guards lose nothing to each other, and nothing is torn. At
    # `plain` a save between the final check and the rename is lost; the report says how many.
    Mount("FUSE", "bindfs back merged", ("guards", "rename", "truncate", "append", "delete", "vim")),
)


def run(args: argparse.Namespace) -> bool:
    """Run the rounds on every mount that can be made here; True if every bar was met."""
    met = [_run_on(mount, args) for mount in MOUNTS]  # All of them, also after a miss.
    return all(met)


def unavailable(mount: Mount, folder: str) -> str | None:
    """Return why a mount cannot be made on this machine, or None. Makes its folders."""
    program = mount.command.split(" ", 1)[0]
    for needed in ("unshare", program):
        if shutil.which(needed) is None:
            return f"{needed} is not installed"
    for name in ("lower", "upper", "work", "back", "merged"):
        os.makedirs(f"{folder}/{name}", exist_ok=True)
    tried = subprocess.run(
        [*NAMESPACES, "sh", "-c", mount.command], cwd=folder, capture_output=True, text=True, check=False
    )
    return None if tried.returncode == 0 else tried.stderr.strip() or "it cannot be mounted here"


def _run_on(mount: Mount, args: argparse.Namespace) -> bool:
    with tempfile.TemporaryDirectory(prefix="torture-mount-", dir=args.folder) as folder:
        if reason := unavailable(mount, folder):
            print(f"\non {mount.name}: skipped: {reason}", flush=True)
            return True
        print(f"\non {mount.name}:", flush=True)
        seconds = max(LEAST_S, args.seconds * SHARE)
        inner = [sys.executable, "-m", "torture", "--no-counter", "--folder", f"{folder}/merged"]
        inner += ["--seed", str(args.seed), "--seconds", str(seconds)]
        for kind in mount.kinds:
            inner += ["--kind", kind]
        command = f'cd "$0" && {mount.command} && cd "$1" && shift && exec "$@"'
        done = subprocess.run([*NAMESPACES, "sh", "-c", command, folder, os.getcwd(), *inner], check=False)
        return done.returncode == 0
