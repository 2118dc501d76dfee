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
import fcntl
import mmap
import os
import shutil
import stat
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from noclobber.disk import renames
from torture import versions
from torture.outside_git import check_out_with_git, prepare_git
from torture.outside_writer import PATIENCE_S, OutsideWriter
from torture.versions import Version

if TYPE_CHECKING:
    from collections.abc import Callable


PROGRAM = "NOCLOBBER_OUTSIDE_WRITERS"  # In the environment: the compiled program with the other kinds.
CLONE = 0x40049409  # FICLONE

# --- whole-file savers -------------------------------------------------------------


def save_by_rename(writer: OutsideWriter) -> None:
    """Most editors: a temporary file, renamed over the old one."""
    base = writer.look()
    _write_new(writer.scratch, writer.next_version(base))
    os.replace(writer.scratch, writer.path)
    writer.done(base.id)


def save_by_exchange(writer: OutsideWriter) -> None:
    """Both names exchanged in one step, and the old version deleted: what careful programs do, as we do."""
    base = writer.look()
    _write_new(writer.scratch, writer.next_version(base))
    folder = os.open(os.path.dirname(writer.path), os.O_RDONLY)
    try:
        names = (os.path.basename(writer.scratch), folder, os.path.basename(writer.path))
        renames.exchange(folder, *names)
    finally:
        os.close(folder)
    writer.done(base.id)
    os.unlink(writer.scratch)


def save_from_nameless_file(writer: OutsideWriter) -> None:
    """`O_TMPFILE`: written before it has any name, then linked and renamed."""
    base = writer.look()
    descriptor = os.open(os.path.dirname(writer.path), os.O_TMPFILE | os.O_RDWR, 0o644)
    try:
        os.write(descriptor, writer.next_version(base))
        # With a folder, although the path needs none: only then does Python make the call that follows links.
        os.link(f"/proc/self/fd/{descriptor}", writer.scratch, src_dir_fd=descriptor, follow_symlinks=True)
    finally:
        os.close(descriptor)
    os.replace(writer.scratch, writer.path)
    writer.done(base.id)


def clone_over(writer: OutsideWriter) -> None:
    """`cp --reflink`: the same inode gets the blocks of another file."""
    base = writer.look()
    _write_new(writer.scratch, writer.next_version(base))
    try:
        with open(writer.scratch, "rb") as source, open(writer.path, "wb", buffering=0) as file:
            fcntl.ioctl(file.fileno(), CLONE, source.fileno())
    finally:
        os.unlink(writer.scratch)
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
    """`mmap`, with the descriptor closed at once. (Python keeps another one; the program in C does not.)"""
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


def _by_program(writer: OutsideWriter) -> None:
    raise NotImplementedError(f"{writer.path}: `work()` runs a program for this kind")


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
    is_compiled: bool = False
    """True: a program in C makes the updates, in ways that Python does not have (torture/)."""


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
    "exchange": Kind(save_by_exchange, "save by exchange"),
    "nameless": Kind(save_from_nameless_file, "save from a nameless file"),
    "clone": Kind(clone_over, "clone over", rewrites="all", leaves_gaps=True),
    **{
        name: Kind(_by_program, says, is_compiled=True, rewrites=rewrites)
        for name, says, rewrites in (
            ("dsync", "pwrite, O_DSYNC", "nothing"),
            ("direct", "O_DIRECT", "all"),  # A short file is longer for a moment.
            ("copy-range", "copy_file_range", "nothing"),
            ("sendfile", "sendfile", "nothing"),
            ("splice", "splice", "nothing"),
            ("append-flag", "append, RWF_APPEND", "nothing"),
            ("aio", "asynchronous I/O", "nothing"),
            ("ring", "io_uring", "nothing"),
            ("ring-file", "io_uring, registered file", "nothing"),
            ("passed", "descriptor in a socket", "nothing"),
            ("reopened", "open of /proc/self/fd", "nothing"),
            ("handle", "open by handle", "nothing"),
            ("child", "child's descriptor", "nothing"),
            ("mapping", "mapping alone", "nothing"),
            ("child-mapping", "child's mapping", "nothing"),
        )
    },
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


def unavailable(kind: str, folder: str | None = None) -> str | None:
    """Return why this kind cannot run on this machine, and on a folder's filesystem; or None."""
    if kind == "git" and shutil.which("git") is None:
        return "git is not installed"
    if KINDS[kind].is_compiled and not os.environ.get(PROGRAM):
        return "its program is not there: it takes a C compiler"
    if folder is None or not (KINDS[kind].is_compiled or kind in ("exchange", "nameless", "clone")):
        return None
    path = os.path.join(folder, "probe")
    _write_new(path, versions.render("start:0", versions.NO_ID, ()))
    log = os.path.join(folder, "probe.log")
    try:
        if KINDS[kind].is_compiled:
            command = [os.environ[PROGRAM], "--probe", kind, path]
            tried = subprocess.run(command, capture_output=True, text=True, check=False)
            return None if tried.returncode == 0 else tried.stderr.strip() or "its program failed"
        step = KINDS[kind].step
        assert step is not None
        step(OutsideWriter(path, log, 1, 0.0))
    except (OSError, AttributeError) as error:
        return f"not here: {error}"
    finally:
        for left in (path, log):
            with suppress(FileNotFoundError):
                os.unlink(left)
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
    if KINDS[kind].is_compiled:
        program = os.environ[PROGRAM]
        os.execv(program, [program, kind, path, log_path, str(seed), str(start_s), str(until_s)])
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
