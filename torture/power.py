"""
Power cuts: guarded writes on a disk that loses what was not flushed, on ext4, xfs and btrfs.

For each filesystem one run of `power_work` on a `power_disk`, then many cuts at random records of that run.
After each cut the filesystem is mounted again, which replays its journal, every project is used once, and
every file must be whole: an old version or the new one, of several files all or none.

Needs root, /dev/fuse, loop devices and the mkfs programs; without them it says what is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from typing import NamedTuple

from torture import bars, power_work
from torture.power_disk import Cutter, Paths
from torture.power_work import LEDGER

DEFAULT_CUTS = 300
MEMORY = "/dev/shm"
MOST_UNMOUNTS = 100


class Filesystem(NamedTuple):
    """How to make one and mount it so that it commits within a second, as it does in 5 to 30 elsewhere."""

    name: str
    size: int
    make: tuple[str, ...]
    options: str


FILESYSTEMS = (
    Filesystem("ext4", 192 << 20, ("mkfs.ext4", "-q", "-E", "nodiscard"), "commit=1"),
    Filesystem("xfs", 320 << 20, ("mkfs.xfs", "-q", "-K"), "noquota,nouuid"),
    Filesystem("btrfs", 256 << 20, ("mkfs.btrfs", "-q", "-K"), "commit=1,nodiscard"),
)


def unavailable(filesystem: Filesystem) -> str:
    """Say why cuts cannot be made here, or return nothing."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "needs root on Linux, to mount"
    for device in ("/dev/fuse", "/dev/loop-control"):
        if not os.path.exists(device):
            return f"there is no {device}"
    if shutil.which(filesystem.make[0]) is None:
        return f"there is no {filesystem.make[0]}"
    with open("/proc/filesystems") as file:
        if filesystem.name not in file.read().split():
            return f"this kernel has no {filesystem.name}"
    return ""


class Outcome(NamedTuple):
    """What the cuts of one filesystem showed."""

    cuts: int
    operations: Counter[str]
    unflushed: int
    lost: int
    named: int
    """Events whose version the cut took away, and which were named."""
    wrong: list[str]


def run(args: argparse.Namespace) -> bool:
    """Make the cuts, print a line for each filesystem, return whether all was well."""
    wanted = [each for each in FILESYSTEMS if not args.filesystem or each.name in args.filesystem]
    possible = []
    for filesystem in wanted:
        if reason := unavailable(filesystem):
            print(f"{filesystem.name:<8}skipped: {reason}", flush=True)
        else:
            possible.append(filesystem)
    ok = True
    for filesystem in possible:
        begun_s = time.monotonic()
        cuts = -(-args.cuts // len(possible))
        outcome = cut_often(filesystem, cuts, args.seed, min(args.seconds, 5 + cuts / 10), keep=args.keep)
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(outcome.operations.items()))
        print(
            f"{filesystem.name:<8}{outcome.cuts} cuts of {len(power_work.MODES)} modes each,"
            f" {outcome.lost} of {outcome.unflushed} unflushed sectors lost; {len(outcome.wrong)} wrong,"
            f" {outcome.named} lost versions named"
            f" ({kinds}; {time.monotonic() - begun_s:.0f} s)",
            flush=True,
        )
        for line in outcome.wrong[:20]:
            print(f"    MISSED: {line}", flush=True)
        ok = ok and not outcome.wrong
        unreported = sum(LEDGER in line for line in outcome.wrong)
        wrong = len(outcome.wrong) - unreported
        bars.note(
            args.figures,
            "power",
            filesystem=filesystem.name,
            cuts=outcome.cuts,
            wrong=wrong,
            unreported=unreported,
        )
    return ok


def cut_often(filesystem: Filesystem, cuts: int, seed: int, seconds: float, *, keep: bool = False) -> Outcome:
    """Run the work once, and cut it at `cuts` records."""
    parent = MEMORY if os.path.isdir(MEMORY) else None
    folder = tempfile.mkdtemp(prefix="noclobber-power-", dir=parent)
    try:
        _record(filesystem, folder, seed, seconds)
        return _cut(filesystem, folder, cuts, seed)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _record(filesystem: Filesystem, folder: str, seed: int, seconds: float) -> None:
    paths, mount = Paths.below(folder), f"{folder}/mount"
    os.mkdir(mount)
    serve = [sys.executable, "-m", "torture.power_disk", folder, str(filesystem.size)]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as disk:
        assert disk.stdout is not None
        if disk.stdout.readline().strip() != "ready":
            raise RuntimeError("the disk did not start")
        try:
            subprocess.run([*filesystem.make, paths.mount], check=True, stdout=subprocess.DEVNULL)
            _mount(paths.mount, mount, filesystem)
            try:
                subprocess.run(
                    _here("work", mount, paths.position, f"{folder}/notes", seed, seconds), check=True
                )
            finally:
                _unmount(mount)
        finally:
            _unmount(paths.mount)


def _unmount(point: str) -> None:
    """Unmount; the loop device lets go of its file a moment after its own unmounting."""
    for _ in range(MOST_UNMOUNTS):
        if subprocess.run(["umount", point], stderr=subprocess.DEVNULL).returncode == 0:
            return
        time.sleep(0.1)
    subprocess.run(["umount", "--lazy", point], check=True)


def _mount(image: str, mount: str, filesystem: Filesystem) -> None:
    options = f"loop,{filesystem.options}"
    subprocess.run(["mount", "-t", filesystem.name, "-o", options, image, mount], check=True)


def _here(*words: object) -> list[str]:
    return [sys.executable, "-m", "torture.power", *map(str, words)]


def _cut(filesystem: Filesystem, folder: str, cuts: int, seed: int) -> Outcome:
    paths, mount, notes = Paths.below(folder), f"{folder}/mount", f"{folder}/notes"
    with open(notes) as file:
        begun = json.loads(next(file))["begun"]
        operations = Counter(json.loads(line)[1] for line in file if line.endswith("\n"))
    chance = random.Random(f"{seed}/{filesystem.name}")
    cutter = Cutter(paths.log, f"{folder}/stable", filesystem.size)
    unflushed = lost = named = 0
    wrong: list[str] = []
    points = sorted(chance.randint(begun, cutter.count) for _ in range(cuts))
    for number, at in enumerate(points):
        image = f"{folder}/cut-{number}"  # Not one name for all: the loop device may still have the last one.
        sectors, gone = cutter.cut(at, image, chance)
        unflushed, lost = unflushed + sectors, lost + gone
        try:
            _mount(image, mount, filesystem)
        except subprocess.CalledProcessError as error:
            wrong.append(f"cut at {at} (seed {seed}): cannot be mounted: {error}")
            continue
        try:
            answer = subprocess.run(_here("check", mount, notes, at), stdout=subprocess.PIPE, text=True)
            found, more = json.loads(answer.stdout) if answer.returncode == 0 else (["the check failed"], 0)
            named += more
            wrong += [f"cut at {at} (seed {seed}): {text}" for text in found]
        finally:
            _unmount(mount)
            os.unlink(image)
    cutter.close()
    return Outcome(len(points), operations, unflushed, lost, named, wrong)


def main() -> None:
    """One part of a run, in a process of its own: `work` on a mounted disk, or `check` a cut one."""
    part, mount, *rest = sys.argv[1:]
    if part == "work":
        position, notes, seed, seconds = rest
        power_work.work(mount, position, notes, int(seed), float(seconds))
    else:
        print(json.dumps(power_work.check(mount, rest[0], int(rest[1]))))


if __name__ == "__main__":
    main()
