"""
The same torture on real mounts: the filesystems that are promised, overlay as in containers, and FUSE.

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

from torture import bars

if TYPE_CHECKING:
    import argparse

NAMESPACES = ("unshare", "--mount", "--pid", "--fork", "--mount-proc")
MEMORY = "/dev/shm"  # Where the images of disks are: the outsiders are not to wait for a real one.


class Mount(NamedTuple):
    """A filesystem, the command that mounts it on `merged`, and how much of the time it gets."""

    name: str
    command: str
    needs: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    """Which outsiders run on it; none named: all of them."""
    share: float = 1.0


def _disk(name: str, make: str) -> Mount:
    program = make.split(" ", 1)[0]
    return Mount(name, f"truncate -s 1G image && {make} image && mount -o loop image merged", (program,))


MOUNTS = (
    _disk("ext4", "mkfs.ext4 -q -F"),
    _disk("xfs", "mkfs.xfs -q -f"),
    _disk("btrfs", "mkfs.btrfs -q -f -m single"),
    Mount("tmpfs", "mount -t tmpfs t merged"),
    Mount("overlay", "mount -t overlay o -o lowerdir=lower,upperdir=upper,workdir=work merged"),
    # There the level is `exchange` or `plain`: guards lose nothing to each other, and nothing is torn. At
    # `plain` a save between the final check and the rename is lost; the report says how many.
    Mount(
        "FUSE", "bindfs back merged", ("bindfs",), ("guards", "rename", "truncate", "append", "delete"), 0.4
    ),
)


def run(args: argparse.Namespace) -> bool:
    """Run the rounds on every mount that can be made here; True if every bar was met."""
    unit_s = args.seconds / sum(mount.share for mount in MOUNTS)
    met = [_run_on(mount, args, unit_s * mount.share) for mount in MOUNTS]  # All of them, also after a miss.
    return all(met)


def unavailable(mount: Mount, folder: str) -> str | None:
    """Return why a mount cannot be made on this machine, or None. Makes its folders."""
    for needed in ("unshare", *mount.needs):
        if shutil.which(needed) is None:
            return f"{needed} is not installed"
    for name in ("lower", "upper", "work", "back", "merged"):
        os.makedirs(f"{folder}/{name}", exist_ok=True)
    tried = subprocess.run(
        [*NAMESPACES, "sh", "-c", mount.command], cwd=folder, capture_output=True, text=True, check=False
    )
    return None if tried.returncode == 0 else tried.stderr.strip() or "it cannot be mounted here"


def _run_on(mount: Mount, args: argparse.Namespace, seconds: float) -> bool:
    where = args.folder or (MEMORY if os.path.isdir(MEMORY) else None)
    with tempfile.TemporaryDirectory(prefix="torture-mount-", dir=where) as folder:
        if reason := unavailable(mount, folder):
            print(f"\non {mount.name}: skipped: {reason}", flush=True)
            return True
        print(f"\non {mount.name}:", flush=True)
        inner = [sys.executable, "-m", "torture", "--no-counter", "--rounds-only"]
        inner += ["--folder", f"{folder}/merged", "--filesystem-name", mount.name]
        inner += ["--seed", str(args.seed), "--seconds", str(seconds)]
        if args.figures:
            inner += ["--figures", args.figures]
        for kind in args.kind or mount.kinds:
            inner += ["--kind", kind]
        command = f'cd "$0" && {mount.command} && cd "$1" && shift && exec "$@"'
        done = subprocess.run([*NAMESPACES, "sh", "-c", command, folder, os.getcwd(), *inner], check=False)
        if mount.name == "FUSE":
            bars.note(args.figures, "FUSE", is_met=done.returncode == 0)
        return done.returncode == 0
