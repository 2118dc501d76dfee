"""
Whether the commit of thousands of files needs the one flush that it makes: power cuts where it matters.

It flushes the folder of the swap files, and no other, before its note says that it has landed: every
exchange changes that folder. To see that this is needed and enough, another program's flush divides the
exchanges between two transactions of the filesystem, the kernel writes the note, and then the power fails.
What was exchanged after the division is lasting by then only because of that flush. Without it
(`without_flush`), files that were written together differ.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile

from noclobber.disk import ordering, steps
from noclobber.disk.commit.many import Change
from noclobber.disk.commit.open_folders import OpenFolders
from noclobber.disk.file_guard import FileGuard
from torture import large_commits
from torture.power import MEMORY, Filesystem, _mount, _unmount
from torture.power_disk import Cutter, Paths

COMMITS = 6
FILES = ("one/l", "two/l", "three/l", "four/l")


def _position(path: str) -> int:
    with open(path, "rb") as file:
        return int.from_bytes(file.read(8), "little")


def write_back(folder: str) -> None:
    """Write the pages of some files to the disk, without a flush, as the kernel does whenever it likes."""
    for name in os.listdir(folder):
        descriptor = os.open(f"{folder}/{name}", os.O_RDONLY)
        try:
            ordering.wait(descriptor, "ext4")
        finally:
            os.close(descriptor)


def work(mount: str, position: str, *, without_flush: bool) -> None:
    """Commit some times; print at which records the power shall fail."""
    root = f"{mount}/project"
    for name in FILES:
        os.makedirs(os.path.dirname(f"{root}/{name}"))
        with open(f"{root}/{name}", "w") as file:
            file.write("0\n")
    # The folder that leads comes first, so that it is unchanged after the division.
    names = sorted(FILES, key=lambda name: os.stat(os.path.dirname(f"{root}/{name}")).st_ino)
    guard = FileGuard(root)
    guard.write("one/w", b"", expected=None)
    os.sync()
    if without_flush:
        OpenFolders.flush_names = lambda *_: None  # type: ignore[method-assign]
    exchanged = 0

    def observe(step: str) -> None:
        nonlocal exchanged
        if step == "many-committed":
            exchanged = 0
            write_back(f"{root}/.noclobber/notes")
            print(_position(position), flush=True)
        elif step == "many-exchanged":
            exchanged += 1
            if exchanged == 1:
                with open(f"{mount}/noise", "ab") as noise:
                    noise.write(b"noise\n")
                    os.fsync(noise.fileno())

    steps.observer = observe
    with large_commits.large():
        for number in range(1, COMMITS + 1):
            guard.write_many([Change(name, b"%d\n" % number, guard.digest(name)) for name in names])
    os._exit(0)  # A power cut does not wait for tidying.


def differing(filesystem: Filesystem, seeds: int, *, without_flush: bool = False) -> tuple[int, list[str]]:
    """Cut the power at each of the places, `seeds` times; return how often, and what was wrong."""
    folder = tempfile.mkdtemp(prefix="noclobber-power-", dir=MEMORY if os.path.isdir(MEMORY) else None)
    paths, mount = Paths.below(folder), f"{folder}/mount"
    os.mkdir(mount)
    try:
        serve = [sys.executable, "-m", "torture.power_disk", folder, str(filesystem.size)]
        with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as disk:
            assert disk.stdout is not None
            if disk.stdout.readline().strip() != "ready":
                raise RuntimeError("the disk did not start")
            try:
                subprocess.run([*filesystem.make, paths.mount], check=True, stdout=subprocess.DEVNULL)
                _mount(paths.mount, mount, filesystem)
                try:
                    words = ["work", mount, paths.position, "without" if without_flush else "with"]
                    points = _run(*words)
                finally:
                    _unmount(mount)
            finally:
                _unmount(paths.mount)
        return _cut(filesystem, folder, [int(point) for point in points], seeds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(*words: str) -> list[str]:
    command = [sys.executable, "-m", "torture.large_cuts", *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()


def _cut(filesystem: Filesystem, folder: str, points: list[int], seeds: int) -> tuple[int, list[str]]:
    wrong: list[str] = []
    cutter = Cutter(Paths.below(folder).log, f"{folder}/stable", filesystem.size)
    count = 0
    for at in points:
        for seed in range(seeds):
            count += 1
            image = f"{folder}/cut-{count}"
            cutter.cut(at, image, random.Random(seed))
            _mount(image, f"{folder}/mount", filesystem)
            try:
                found = _run("check", f"{folder}/mount")
            finally:
                _unmount(f"{folder}/mount")
                os.unlink(image)
            if len(set(found)) > 1:
                wrong.append(f"cut {seed} at {at}: files that were written together differ: {found}")
    cutter.close()
    return count, wrong


def check(mount: str) -> None:
    """Print the version of each file, after recovery."""
    large_commits.hold_few()
    guard = FileGuard(f"{mount}/project")
    for name in FILES:
        guard.write(f"{os.path.dirname(name)}/probe", b"", expected=None)
    print(*[guard.read(name).content.decode().strip() for name in FILES])


if __name__ == "__main__":
    if sys.argv[1] == "work":
        work(sys.argv[2], sys.argv[3], without_flush=sys.argv[4] == "without")
    else:
        check(sys.argv[2])
