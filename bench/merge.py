"""Merging, next to `git merge-file`, and what keeping versions adds to a guarded write."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator

from bench import Row, in_turns, spelled
from noclobber import Workspace
from noclobber.guard.turn import Turn
from noclobber.text.merge import merge

KIB, MIB = 1 << 10, 1 << 20
MERGES = ((10_000, "10 KB", 0.001, 60), (1_000_000, "1 MB", 0.1, 8))
WRITES = ((KIB, "1 KiB", 300), (100 * KIB, "100 KiB", 150), (MIB, "1 MiB", 50))
VERSIONS_BAR = 1.15


def rows() -> Iterator[Row]:
    """Two sizes of merges, three of writes."""
    folder = tempfile.mkdtemp(prefix="noclobber-bench-", dir=os.environ.get("BENCH_FOLDER", "."))
    try:
        for size, name, bar_s, rounds in MERGES:
            yield _merge(folder, size, name, bar_s, rounds)
        for size, name, rounds in WRITES:
            yield _versions(folder, size, name, rounds)
    finally:
        shutil.rmtree(folder)


def _merge(folder: str, size: int, name: str, bar_s: float, rounds: int) -> Row:
    """Two changes on each side of a text with lines like those of a program."""
    lines = [b"    value_%d = compute(%d, %d)\n" % (n, n % 97, n % 13) for n in range(size // 34)]
    for number in range(0, len(lines), 9):
        lines[number] = b"\n" if number % 2 else b"    return value\n"
    count = len(lines)
    ours, theirs = list(lines), list(lines)
    ours[count // 10], ours[count // 2 : count // 2] = b"ours 1\n", [b"ours 2\n"]
    theirs[count // 3], theirs[9 * count // 10 : 9 * count // 10] = b"theirs 1\n", [b"theirs 2\n"]
    versions = [b"".join(each) for each in (lines, ours, theirs)]
    paths = [f"{folder}/{each}" for each in ("base", "ours", "theirs")]
    for path, content in zip(paths, versions, strict=True):
        with open(path, "wb") as file:
            file.write(content)
    assert merge(*versions).content is not None
    command = ["git", "merge-file", "-p", "-q", paths[1], paths[0], paths[2]]

    def by_git() -> None:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    mine, gits, ratio = in_turns(lambda: merge(*versions), by_git, rounds=rounds)
    return Row(
        f"merge, {name}, 2 + 2 changes",
        "git merge-file, a process",
        ratio,
        f"<= {spelled(bar_s)}",
        mine <= bar_s,
        f"{spelled(mine)} / {spelled(gits)}",
    )


def _versions(folder: str, size: int, name: str, rounds: int) -> Row:
    with _turn(folder, "on") as keeping, _turn(folder, "off") as dropping:
        mine, theirs, ratio = in_turns(_writer(keeping, size), _writer(dropping, size), rounds=rounds)
    return Row(
        f"guarded write, {name}, versions kept",
        'the same with versions = "off"',
        ratio,
        f"<= {VERSIONS_BAR}",
        ratio <= VERSIONS_BAR,
        f"{spelled(mine)} / {spelled(theirs)}",
    )


def _turn(folder: str, versions: str) -> Turn:
    root = tempfile.mkdtemp(dir=folder)
    return Workspace(root, versions=versions).turn()  # type: ignore[arg-type]


def _writer(turn: Turn, size: int) -> Callable[[], None]:
    rest = os.urandom(size - 8)
    count = 0
    turn.write_file("file", b"0" * 8 + rest)

    def write() -> None:
        nonlocal count
        count += 1
        turn.write_file("file", b"%08d" % count + rest)  # Every version is another one.

    return write
