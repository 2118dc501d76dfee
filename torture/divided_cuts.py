"""
Whether the commits of many files need each of their waits and flushes: power cuts where it matters.

Two commits are tried: that of several files, and that of a command's changes
(`disk/commit/change_set`). Another program's flush divides the exchanges between two transactions of the
filesystem, the kernel writes the note, and then the power fails. Cuts are made at three places of a commit:

- after the first exchange has become lasting, the others not: only the note can take it back;
- after the note says that everything has landed: what was exchanged after the division must be lasting;
- after what was replaced has been removed for good: the note must not say any more that it can be taken back.

`left_out` takes one step away that a commit needs (`LEFT_OUT`). Then files that were written together differ,
or are no version of themselves, and the cuts must say so, or they prove nothing.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from types import SimpleNamespace

from noclobber.disk import ordering, steps
from noclobber.disk.commit import change_set, rows
from noclobber.disk.commit.change_set import expected_of
from noclobber.disk.commit.journal import LANDED, SWAPPING, Note
from noclobber.disk.commit.rows import Change, TreeRow
from noclobber.disk.file_guard import FileGuard
from torture.power import MEMORY, Filesystem, _mount, _unmount
from torture.power_disk import Cutter, Paths

COMMITS = 6
PLACES = {"several": 1, "tree": 3}
"""How many cuts are made in each commit."""
LEFT_OUT = {"several": ("flush",), "tree": ("flush", "note", "bytes", "landing")}
FOLDERS = ("one", "two", "three", "four")
NOTHING: Callable[..., None] = lambda *_: None  # noqa: E731


def _position(path: str) -> int:
    with open(path, "rb") as file:
        return int.from_bytes(file.read(8), "little")


class Divider:
    """Does on the mounted filesystem what others do: flush something, and write pages back."""

    def __init__(self, mount: str, root: str, position: str, kind: str) -> None:
        self.mount, self.root, self.position, self.kind = mount, root, position, kind
        self.exchanged = 0

    def flush_something(self) -> None:
        """Another program flushes a file of its own, and what was changed before that is lasting."""
        with open(f"{self.mount}/noise", "ab") as noise:
            noise.write(b"noise\n")
            os.fsync(noise.fileno())
        if self.kind == "btrfs":  # It flushes one file alone, and all else only with the transaction.
            folder = os.open(self.mount, os.O_RDONLY)
            ordering.flush_names([folder], self.kind)
            os.close(folder)

    def write_notes(self) -> None:
        """
        The kernel writes the notes, as it does whenever it likes.

        On btrfs that makes nothing lasting before the transaction is, with everything else. So somebody
        flushes them there.
        """
        folder = f"{self.root}/.noclobber/notes"
        for name in os.listdir(folder):
            descriptor = os.open(f"{folder}/{name}", os.O_RDONLY)
            try:
                if self.kind == "btrfs":
                    os.fsync(descriptor)
                else:
                    ordering.wait(descriptor, self.kind)
            finally:
                os.close(descriptor)

    def cut_here(self) -> None:
        """Say at which record the power shall fail."""
        print(_position(self.position), flush=True)

    def observe_several(self, step: str) -> None:
        """Follow a commit of several files."""
        if step == "decided":
            self.exchanged = 0
            self.write_notes()
            self.cut_here()
        elif step == "one-visible":
            self.exchanged += 1
            if self.exchanged == 1:
                self.flush_something()

    def observe_tree(self, step: str) -> None:
        """Follow the commit of a command's changes."""
        if step == "decided":
            self.exchanged = 0
            self.write_notes()
            self.cut_here()
        elif step == "one-visible":
            self.exchanged += 1
            if self.exchanged == 1:
                self.flush_something()
                self.cut_here()

    def watch_the_end(self) -> None:
        """Cut, too, when what was replaced is gone, and the note is about to say that nothing is open."""
        usual = Note.clear

        def clear(note: Note) -> None:
            if note._memory[0:1] == LANDED:
                self.flush_something()
                self.cut_here()
            usual(note)

        Note.clear = clear  # type: ignore[assignment,method-assign]


def work(mount: str, position: str, kind: str, what: str, left_out: str, commits: str) -> None:
    """Commit some times; print at which records the power shall fail."""
    root = f"{mount}/project"
    for folder in FOLDERS:
        os.makedirs(f"{root}/{folder}")
        with open(f"{root}/{folder}/l", "w") as file:
            file.write("0\n")
    # The folder that leads comes first, so that it is unchanged after the division.
    folders = sorted(FOLDERS, key=lambda name: os.stat(f"{root}/{name}").st_ino)
    guard = FileGuard(root)
    guard.write("one/w", b"", expected=None)
    if what == "tree":
        _set_up_tree(root)
    os.sync()
    _leave_out(left_out)
    divider = Divider(mount, root, position, kind)
    if left_out == "landing":
        divider.write_notes = NOTHING  # type: ignore[method-assign]
    if what == "tree":
        divider.watch_the_end()
    steps.observer = divider.observe_tree if what == "tree" else divider.observe_several
    for number in range(1, int(commits) + 1):
        if what == "tree":
            guard.commit(_rows(root, folders, number))
        else:
            names = [f"{folder}/l" for folder in folders]
            guard.commit([Change(name, b"%d\n" % number, guard.digest(name)) for name in names])
    os._exit(0)  # A power cut does not wait for tidying.


def _leave_out(step: str) -> None:
    """Take away a step that makes a commit safe."""
    if step == "flush":  # The exchanges are not lasting when the note says that they are.
        change_set.flush_names = NOTHING  # type: ignore[attr-defined]
    elif step == "bytes":  # A name leads to a file whose bytes were never written.
        rows.ordering = SimpleNamespace(start=NOTHING, wait=NOTHING)  # type: ignore[assignment,attr-defined]
    elif step:
        missing, usual = SWAPPING if step == "note" else LANDED, Note.await_bytes

        def await_bytes(self: Note, filesystem: str) -> None:
            if self._memory[0:1] != missing:
                usual(self, filesystem)

        Note.await_bytes = await_bytes  # type: ignore[method-assign]


def _set_up_tree(root: str) -> None:
    os.symlink("0", f"{root}/three/link")
    os.chmod(f"{root}/four/l", 0o600)
    with open(f"{root}/four/c0", "w") as file:
        file.write("0\n")
    os.mkdir(f"{root}/three/d0")
    with open(f"{root}/three/d0/f", "w") as file:
        file.write("0\n")


def _rows(root: str, folders: list[str], number: int) -> list[TreeRow]:
    """Every kind of row, in the order of folders that was asked for."""
    upper, before = f"{root}/.noclobber/run/{number}/upper", number - 1
    os.makedirs(f"{upper}/d")
    for name in ("one", "two", "c", "d/f"):
        with open(f"{upper}/{name}", "w") as file:
            file.write(f"{number}\n")
    os.symlink(str(number), f"{upper}/link")

    def going(kind: str, name: str) -> TreeRow:
        return TreeRow("delete", kind, f"{root}/{name}", expected_of(f"{root}/{name}"))

    def written(folder: str) -> TreeRow:
        at = f"{root}/{folder}/l"
        return TreeRow("write", "file", at, expected_of(at), f"{upper}/{folder}")

    four, modes = f"{root}/four/l", (0o600 + number, 0o600 + before)
    in_folder = {
        "one": [written("one")],
        "two": [written("two")],
        "three": [
            going("link", "three/link"),
            TreeRow("create", "link", f"{root}/three/link", None, f"{upper}/link"),
            going("folder", f"three/d{before}"),
            TreeRow("create", "folder", f"{root}/three/d{number}", None, f"{upper}/d"),
        ],
        "four": [
            TreeRow("mode", "file", four, expected_of(four), "", *modes),
            going("file", f"four/c{before}"),
            TreeRow("create", "file", f"{root}/four/c{number}", None, f"{upper}/c"),
        ],
    }  # fmt: skip
    return [row for folder in folders for row in in_folder[folder]]


def differing(
    filesystem: Filesystem, seeds: int, *, what: str, left_out: str = "", commits: int = COMMITS
) -> tuple[int, list[str]]:
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
                    points = _run(
                        "work", mount, paths.position, filesystem.name, what, left_out, str(commits)
                    )
                finally:
                    _unmount(mount)
            finally:
                _unmount(paths.mount)
        return _cut(filesystem, folder, [int(point) for point in points], seeds, what)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(*words: str) -> list[str]:
    command = [sys.executable, "-m", "torture.divided_cuts", *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()


def _cut(
    filesystem: Filesystem, folder: str, points: list[int], seeds: int, what: str
) -> tuple[int, list[str]]:
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
                found = _run("check", f"{folder}/mount", what)
            finally:
                _unmount(f"{folder}/mount")
                os.unlink(image)
            if len(set(found)) > 1:
                wrong.append(f"cut {seed} at {at}: what was changed together differs: {found}")
    cutter.close()
    return count, wrong


def check(mount: str, what: str) -> None:
    """Print the version of each file, after recovery."""
    root = f"{mount}/project"
    guard = FileGuard(root)
    for folder in FOLDERS:
        guard.write(f"{folder}/probe", b"", expected=None)
    names = ["one/l", "two/l", "three/l", "four/l"]
    if what == "tree":
        coming = [name for name in os.listdir(f"{root}/four") if name.startswith("c")]
        folders = [name for name in os.listdir(f"{root}/three") if name.startswith("d")]
        names = [
            "one/l",
            "two/l",
            *(f"four/{name}" for name in coming),
            *(f"three/{name}/f" for name in folders),
        ]
        link = f"{root}/three/link"
        print(os.readlink(link) if os.path.islink(link) else "no-link")
        print(*(name[1:] for name in (*coming, *folders)))
        print(os.stat(f"{root}/four/l").st_mode & 0o177)
        if (len(coming), len(folders)) != (1, 1):
            print(f"{coming}{folders}".replace(" ", ""))
    print(*[_version_in(guard.read(name).content) for name in names])


def _version_in(content: bytes) -> str:
    number = content.removesuffix(b"\n")
    return number.decode() if number.isdigit() else f"no-version:{content!r}".replace(" ", "")


if __name__ == "__main__":
    if sys.argv[1] == "work":
        work(*sys.argv[2:])
    else:
        check(*sys.argv[2:])
