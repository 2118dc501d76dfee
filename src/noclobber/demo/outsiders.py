"""
Writers that do not use noclobber: one function for each way in which people and programs save.

Each runs as a process of its own and makes numbered updates to one shared file. It reads the
file before it saves and adds its number to what it read, so it never drops a number of its own. It is the
only outsider on its file, so a number that goes missing was dropped by a guard. (It may overwrite a guard's
version between its read and its save, as editors do. The accounting tells these losses from the guard's.)

What it logs is in `outside_writer`.
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import stat
import subprocess
import sys
import time
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from noclobber.demo import versions
from noclobber.demo.outside_writer import PATIENCE_S, OutsideWriter
from noclobber.demo.versions import Version

if TYPE_CHECKING:
    from collections.abc import Callable


# --- whole-file savers -------------------------------------------------------------


def save_by_rename(writer: OutsideWriter) -> None:
    """Most editors: a temporary file, renamed over the old one."""
    base = writer.look()
    _write_new(writer.scratch, writer.next_version(base))
    os.replace(writer.scratch, writer.path)
    writer.done(base.id)


def save_like_vim(writer: OutsideWriter) -> None:
    """vim, backupcopy=no: the original is moved away, a new file is created and written."""
    base = writer.look()
    content = writer.next_version(base)
    os.rename(writer.path, writer.path + "~")
    # A guard may create the file in this gap. vim opens without O_EXCL and takes it over.
    with open(writer.path, "wb", buffering=0) as file:
        file.write(content)
    writer.done(base.id)
    os.unlink(writer.path + "~")


def truncate_and_write(writer: OutsideWriter) -> None:
    """A shell's `>`: the same inode, emptied and filled."""
    base = writer.look()
    content = writer.next_version(base)
    with open(writer.path, "wb", buffering=0) as file:
        file.write(content)
    writer.done(base.id)


def truncate_and_write_slowly(writer: OutsideWriter) -> None:
    """A slow program that opens its output first: empty, then half, then whole."""
    base = writer.look()
    content = writer.next_version(base)
    with open(writer.path, "wb", buffering=0) as file:
        writer.pause(0, 0.001, 0.004)
        cut = writer.chance.randrange(len(content))
        file.write(content[:cut])
        writer.pause(0, 0.001, 0.004, 0.02)
        file.write(content[cut:])
    writer.done(base.id)


def delete_and_create(writer: OutsideWriter) -> None:
    """`rm` and then a new file; a guard that finds nothing there may create one in between."""
    base = writer.look()
    content = writer.next_version(base)
    deadline_s = writer.now_s() + PATIENCE_S
    while writer.now_s() < deadline_s:
        try:
            os.unlink(writer.path)
        except FileNotFoundError:
            writer.log("V")
        writer.pause(0, 0, 0.0005)
        try:
            _write_new(writer.path, content)
            break
        except FileExistsError:
            continue
    else:
        writer.log("N could not create the file")
        return
    writer.done(base.id)


def replace_by_symlink(writer: OutsideWriter) -> None:
    """A file becomes a link to a file in another folder, and next time a file again."""
    base = writer.look()
    content = writer.next_version(base)
    folder = os.path.join(os.path.dirname(writer.path), "elsewhere")
    if writer.made % 2:
        _write_new(writer.scratch, content)
        os.replace(writer.scratch, writer.path)
        writer.done(base.id)
        return
    # A new target each time, and none is deleted: one that is used again shows its new version before the
    # link leads to it, to a guard that resolved the link before.
    target = os.path.join(folder, f"real-{writer.made + 1}")
    _write_new(target, content)
    os.symlink(target, writer.scratch)
    os.replace(writer.scratch, writer.path)
    writer.done(base.id)


def replace_by_directory(writer: OutsideWriter) -> None:
    """A file becomes a folder that holds it (`plan.md` → `plan.md/index`), and next time a file again."""
    deadline_s = writer.now_s() + PATIENCE_S
    inside = os.path.join(writer.path, "index")
    if writer.made % 2 == 0:
        base = writer.look()
        content = writer.next_version(base)
        aside = writer.path + ".old"
        os.rename(writer.path, aside)
        _insist(
            writer, deadline_s, lambda: os.mkdir(writer.path), on_file_there=lambda: os.unlink(writer.path)
        )
        # A guard that swapped its file for our folder, and is about to swap back, is in the way.
        _insist(writer, deadline_s, lambda: _write_new(inside, content))
        writer.done(base.id)
        _clear(writer, aside)
        return
    base = _insist(writer, deadline_s, lambda: _look_inside(writer, inside))
    _write_new(writer.scratch, writer.next_version(base))
    aside = f"{writer.path}.old"
    _insist(writer, deadline_s, lambda: os.rename(writer.path, aside))
    _insist(writer, deadline_s, lambda: os.replace(writer.scratch, writer.path))
    writer.done(base.id)
    _clear(writer, aside)


def _clear(writer: OutsideWriter, aside: str) -> None:
    if os.path.isdir(aside):
        shutil.rmtree(aside)
    else:
        os.unlink(aside)


def _look_inside(writer: OutsideWriter, inside: str) -> Version:
    os.stat(inside)  # Raises what `_insist` waits for; look() would note the file as gone.
    return writer.look(inside)


T = TypeVar("T")


def _insist(
    writer: OutsideWriter,
    deadline_s: float,
    act: Callable[[], T],
    on_file_there: Callable[[], None] | None = None,
) -> T:
    """Retry for some seconds: a short obstacle is no loss. A lasting one ends the process."""
    while True:
        try:
            return act()
        except OSError as error:
            if writer.now_s() > deadline_s:
                raise
            if error.errno == errno.EEXIST and on_file_there:
                on_file_there()


# --- writers in place -------------------------------------------------------------


def append(writer: OutsideWriter) -> None:
    """A log, `>>`: opened, one line, closed. Does not look: nothing is ever dropped by appending."""
    with open(writer.path, "ab", buffering=0) as file:
        file.write(b"+%010d\n" % (writer.made + 1))
    writer.done()


def append_under_another_name(writer: OutsideWriter) -> None:
    """The same through a hard link: the file has two names, and its writers know one each."""
    with open(writer.path + ".twin", "ab", buffering=0) as file:
        file.write(b"+%010d\n" % (writer.made + 1))
    writer.done()


def write_in_place(writer: OutsideWriter) -> None:
    """A database: opened for reading and writing, a few bytes changed in the middle, closed."""
    descriptor = os.open(writer.path, os.O_RDWR)
    try:
        _one_slot_update(writer, descriptor)
    finally:
        os.close(descriptor)


def hold_open(writer: OutsideWriter) -> None:
    """A descriptor held for long, with writes through it now and then."""
    descriptor = os.open(writer.path, os.O_RDWR)
    try:
        for _ in range(writer.chance.randrange(1, 40)):
            _one_slot_update(writer, descriptor)
            writer.pause(0, 0.0005, 0.003)
    finally:
        os.close(descriptor)
    writer.pause(0, 0.005, 0.02)


def write_through_a_mapping(writer: OutsideWriter) -> None:
    """`mmap`, with the descriptor closed at once: the file is written although no descriptor is open."""
    descriptor = os.open(writer.path, os.O_RDWR)
    mapping = mmap.mmap(descriptor, versions.SLOT_OFFSET + versions.SLOT_WIDTH)
    os.close(descriptor)
    try:
        for _ in range(writer.chance.randrange(1, 20)):
            writer.note_slot(mapping[versions.SLOT_OFFSET :])
            mapping[versions.SLOT_OFFSET :] = b"%010d" % (writer.made + 1)
            writer.done()
            writer.pause(0, 0.0005, 0.002)
    finally:
        mapping.close()
    writer.pause(0, 0.005, 0.01)


def _one_slot_update(writer: OutsideWriter, descriptor: int) -> None:
    writer.note_slot(os.pread(descriptor, versions.SLOT_WIDTH, versions.SLOT_OFFSET))
    os.pwrite(descriptor, b"%010d" % (writer.made + 1), versions.SLOT_OFFSET)
    writer.done()


# --- programs -------------------------------------------------------------

GIT_VERSIONS_PER_S = 200  # More than git can check out.


def check_out_with_git(writer: OutsideWriter) -> None:
    """`git checkout --force` of the next version: git deletes the file and creates it anew."""
    folder = os.path.dirname(writer.path)
    commits: list[str] = writer.__dict__.setdefault("commits", [])
    if not commits:
        commits.extend(_git(folder, "rev-list", "--reverse", "versions").stdout.split())
    if writer.made >= len(commits):
        writer.pause(0.01)
        return
    for _ in range(200):
        # A guard that creates the file between git's unlink and create makes git fail; try again.
        if _git(folder, "checkout", "--quiet", "--force", "--detach", commits[writer.made]).returncode == 0:
            break
    else:
        writer.log("N git checkout kept failing")
        return
    writer.done(f"o:{writer.made}" if writer.made else "start:0")
    writer.look()


def _git(folder: str, *words: str, feed: bytes | None = None) -> subprocess.CompletedProcess[str]:
    quiet = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}
    return subprocess.run(
        ["git", "-c", "gc.auto=0", *words],
        cwd=folder,
        input=feed.decode() if feed is not None else None,
        stdin=subprocess.DEVNULL if feed is None else None,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, **quiet},
    )


def prepare_git(path: str, seconds: float) -> None:
    """Make a repository with as many versions of the file as can be needed, in one go."""
    folder, name = os.path.split(path)
    stream: list[bytes] = []
    for number in range(1, int(GIT_VERSIONS_PER_S * (seconds + 1))):
        content = versions.render(
            f"o:{number}",
            f"o:{number - 1}" if number > 1 else "start:0",
            ((1, number),),
            padding_bytes=number % 300,
        )
        stream.append(b"commit refs/heads/versions\ncommitter a <a@example.org> %d +0000\ndata 0\n" % number)
        stream.append(b"M 100644 inline %b\ndata %d\n%b\n" % (name.encode(), len(content), content))
    for words, feed in ((("init", "--quiet"), None), (("fast-import", "--quiet"), b"".join(stream))):
        done = _git(folder, *words, feed=feed)
        if done.returncode:
            raise RuntimeError(f"git {words[0]}: {done.stderr.strip()}")


# --- storms: no byte changes -------------------------------------------------------------


def touch(writer: OutsideWriter) -> None:
    """Change the times, sometimes to the past, and no byte."""
    stamp_s = writer.chance.choice((0, 1_000_000_000, time.time()))
    os.utime(writer.path, (stamp_s, stamp_s))
    writer.made += 1


def change_mode(writer: OutsideWriter) -> None:
    """Change the permission bits, and no byte. Logs bits that are not as they were set."""
    mode = writer.chance.choice((0o600, 0o640, 0o644))
    os.chmod(writer.path, mode)
    writer.made += 1
    writer.pause(0, 0.0005)
    if stat.S_IMODE(os.stat(writer.path).st_mode) != mode:
        writer.log(f"P {mode:o}")


def open_and_close(writer: OutsideWriter) -> None:
    """Backup, indexer, virus scanner: opened in every way, never written."""
    descriptor = os.open(
        writer.path, writer.chance.choice((os.O_RDONLY, os.O_RDONLY, os.O_RDWR, os.O_WRONLY))
    )
    if writer.chance.random() < 0.3:
        writer.pause(0.001)
    os.close(descriptor)
    writer.made += 1


class Kind(NamedTuple):
    """One kind of outsider, and what may be concluded from what is seen on its file."""

    step: Callable[[OutsideWriter], None] | None
    says: str
    changes_bytes: bool = True
    rewrites: str = "nothing"
    """Whose bytes it empties and fills while a reader may be copying them, so that a reader's mixture is
    nobody's fault: `nothing`, those of any version (`all`), of files that a guard `created` in its gap."""
    makes_folders: bool = False
    """True: at times a folder is at the path. A reader that waits in open() while a guard has it
    displaced cannot be given a folder; it gets the last file that the guard saw there."""
    leaves_gaps: bool = False
    """True: while it saves, there is nothing or half a file at the path, and a guard may find that."""


KINDS: dict[str, Kind] = {
    "guards": Kind(None, "other guards only"),
    "rename": Kind(save_by_rename, "save by rename"),
    "vim": Kind(save_like_vim, "vim: move away, create", rewrites="created", leaves_gaps=True),
    "truncate": Kind(truncate_and_write, "truncate and write", rewrites="all", leaves_gaps=True),
    "slow": Kind(truncate_and_write_slowly, "truncate, write slowly", rewrites="all", leaves_gaps=True),
    "append": Kind(append, "append"),
    "pwrite": Kind(write_in_place, "pwrite in place"),
    "held": Kind(hold_open, "descriptor held open"),
    "mapped": Kind(write_through_a_mapping, "memory mapping"),
    "git": Kind(check_out_with_git, "git checkout", leaves_gaps=True),
    "delete": Kind(delete_and_create, "delete and create", leaves_gaps=True),
    "symlink": Kind(replace_by_symlink, "replace by symlink"),
    "directory": Kind(replace_by_directory, "replace by directory", makes_folders=True, leaves_gaps=True),
    "hardlink": Kind(append_under_another_name, "append, hard link"),
    "touch": Kind(touch, "touch storm", changes_bytes=False),
    "chmod": Kind(change_mode, "chmod storm", changes_bytes=False),
    "open": Kind(open_and_close, "open storm", changes_bytes=False),
}


def prepare(kind: str, path: str, seconds: float) -> None:
    """Put the file there in its first version, with what this kind needs around it."""
    _write_new(path, versions.render("start:0", versions.NO_ID, ()))
    if kind == "git":
        prepare_git(path, seconds)
    if kind == "symlink":
        os.mkdir(os.path.join(os.path.dirname(path), "elsewhere"))
    if kind == "hardlink":
        os.link(path, path + ".twin")


def unavailable(kind: str) -> str | None:
    """Return why this kind cannot run on this machine, or None."""
    if kind == "git" and shutil.which("git") is None:
        return "git is not installed"
    return None


def _write_new(path: str, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        os.write(descriptor, content)
    finally:
        os.close(descriptor)


def work(
    kind: str, path: str, log_path: str, *, seed: int, start_s: float, until_s: float, eagerness: float
) -> None:
    """Make updates until the time is over; `eagerness` is the share of them without a pause before."""
    step = KINDS[kind].step
    assert step is not None
    writer = OutsideWriter(path, log_path, seed, until_s)
    slowest_s = 0.0
    time.sleep(max(0.0, start_s - writer.now_s()))
    while (begun_s := writer.now_s()) < until_s:
        try:
            step(writer)
        except FileNotFoundError:
            if not writer.has_gaps:
                raise
            writer.log("G")  # Nothing was saved, and it saves again.
        slowest_s = max(slowest_s, writer.now_s() - begun_s)
        if writer.chance.random() >= eagerness:
            writer.pause(0.001, 0.003, 0.01)
    if not KINDS[kind].changes_bytes:
        writer.log(f"S {writer.made}")
    writer.log(f"D {slowest_s * 1000:.1f}")


if __name__ == "__main__":
    _, kind_, path_, log_path_, seed_, start_s_, until_s_, eagerness_ = sys.argv
    work(
        kind_,
        path_,
        log_path_,
        seed=int(seed_),
        start_s=float(start_s_),
        until_s=float(until_s_),
        eagerness=float(eagerness_),
    )
