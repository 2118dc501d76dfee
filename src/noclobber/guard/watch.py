"""
The approval window: watch a file from the check to the host's write, and keep what others save in between.

A hook's check comes before the host's permission dialogue. Somebody may save the file while the dialogue is
open, and the host then writes over it. Nothing can stop that, so a small process looks on (`lookout`): it is
forked when a write is let through, and copies every version that is neither the one that was checked nor
what the call must leave. The event after the call finds the copies: if the host wrote over one, it goes to
`kept`, the race is on record, and the agent is told. Otherwise the copies go.

Copies are in `.noclobber/kept`, with a name that begins with a dot until it is known that they are needed.
A mark in the user's runtime folder says that somebody still wants to know; it goes with the call's next
event, or with the session. The process holds a lock on the mark for as long as it lives, so whoever removes
the mark can wait until every copy is made.
"""

from __future__ import annotations

import os

from noclobber.core.project import KEPT_FOLDER, STATE_FOLDER
from noclobber.disk import hashing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    from noclobber.core.options import Options
else:
    from noclobber.core.light.named_tuples import NamedTuple

MOST_DESCRIPTORS = 1024  # More than a hook ever has open.
PAGE_BYTES = 4096  # What the kernel copies under one lock.
MOST_SHELLS = 8  # Hosts run hooks by a shell, and our command line has another one in it.
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class WatchedFile(NamedTuple):
    """One file of a call: what was checked, and what the call may leave."""

    path: str
    before: str
    own: tuple[str, ...]
    options: Options | None = None
    """The rules by which versions of it are kept; None: none are."""
    versions: tuple[bytes, ...] = ()
    """What to keep if the call writes: what was there, and what its agent had seen of it."""
    content: bytes | None = None
    """What was checked, where it is known: it need not be hashed again."""


class Watch(NamedTuple):
    """One call that was let through."""

    root: str
    key: str
    """Names the call: part of the copies' names."""
    mark: str
    """The file whose end is the end of the watch."""
    host_pid: int
    files: tuple[WatchedFile, ...]


class Copy(NamedTuple):
    """A version that somebody saved meanwhile."""

    file: str
    sha256: str


def key_of(owner: str, call: str) -> str:
    """Return the part of a copy's name that says whose it is: the agent first, then the call."""
    return f"{_short(owner)}-{_short(call)}"


def _short(text: str) -> str:
    return hashing.of_bytes(text.encode("utf-8", "surrogatepass"))[:16]


# -- the process -----------------------------------------------------------------------------------------


def start(watch: Watch) -> None:
    """
    Fork the process that looks on, and wait until it does. Returns in the parent only; never raises.

    The wait is for a machine that is busy: the host may write, and somebody save, before the process has had
    its first turn.
    """
    try:
        from noclobber.guard.lookout import run  # Before the fork: the process must not lose time there.

        ready_fd, told_fd = os.pipe()
        child = os.fork()
    except OSError:
        return  # No process to be had: as without a watch.
    if child:
        os.close(told_fd)
        os.read(ready_fd, 1)
        os.close(ready_fd)
        return
    try:
        detach(told_fd)
        run(watch, told_fd)
    except BaseException:  # noqa: S110 - nobody is there to be told
        pass
    finally:
        os._exit(0)


def detach(kept_fd: int | None = None) -> None:
    """
    Leave everything of the host's: it waits for the end of our output, and may end its whole group.

    And what is the caller's: the lock of the process that stands by (`standby`) would be held until we end.
    Only `kept_fd`, which is none of the first three, is left open.
    """
    if kept_fd is None:
        os.closerange(0, MOST_DESCRIPTORS)
    else:
        os.closerange(0, kept_fd)
        os.closerange(kept_fd + 1, MOST_DESCRIPTORS)
    for _ in range(3):
        os.open(os.devnull, os.O_RDWR)
    os.setsid()
    os.chdir("/")


def host_of(parent_pid: int) -> int:
    """Return the process that a hook answers: the first above it that is no shell; 0: unknown."""
    pid = parent_pid
    for _ in range(MOST_SHELLS):
        name, above = _name_and_parent(pid)
        if not above:
            return 0
        if name not in ("sh", "bash", "dash", "zsh", "ash", "ksh", "fish"):
            return pid
        pid = above
    return 0


def _name_and_parent(pid: int) -> tuple[str, int]:
    """Return a process's name and its parent, 0 if that cannot be told."""
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return "", 0
    try:
        text = os.read(descriptor, 1024).decode("ascii", "replace")
    except OSError:
        return "", 0
    finally:
        os.close(descriptor)
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    return name, int(fields[1]) if len(fields) > 1 and fields[1].isdigit() else 0


# -- the copies ------------------------------------------------------------------------------------------


def copy(watch: Watch, file: WatchedFile, data: bytes) -> str:
    """Put a version aside; return where, or nothing if that failed."""
    folder = f"{watch.root}/{STATE_FOLDER}/{KEPT_FOLDER}"
    name = f"{folder}/.watch-{watch.key}-{_short(file.path)}-{hashing.of_bytes(data)}"
    try:
        os.mkdir(folder, 0o700)
    except OSError:
        pass
    if os.path.islink(folder):
        return ""  # It may have come with the project, and lead anywhere.
    try:
        descriptor = os.open(f"{name}~", _NEW, 0o600)
    except OSError:
        return ""
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
    finally:
        os.close(descriptor)
    os.rename(f"{name}~", name)  # Whole, or not there.
    return name


def is_half(data: bytes, old: bytes, new: bytes) -> bool:
    """
    True if some bytes are what a writer of `new` over `old` leaves in the middle.

    Either a beginning of the new (the file was emptied first), or that and the rest of the old; or, where
    the writer asked for the room first, as Claude Code does for megabytes, that and zeros. Who reads a large
    file reads it in pieces, and may be overtaken by the writer: then a page is old and one behind it is new.
    Who writes over the old and then cuts its end off, as opencode does, leaves zeros up to the page's end.
    """
    low, high = 0, min(len(data), len(new))
    while low < high:  # How far it agrees with the new.
        middle = (low + high + 1) // 2
        if data[:middle] == new[:middle]:
            low = middle
        else:
            high = middle - 1
    if low == len(data) or data[low:] == old[low:]:
        return True
    if low == len(new):
        page_end = -(-low // PAGE_BYTES) * PAGE_BYTES
        return not data[low:page_end].strip(b"\0") and data[page_end:] == old[page_end : len(data)]
    if len(data) != len(new):
        return False
    return not data[low:].strip(b"\0") or (len(new) > PAGE_BYTES and _is_overtaken(data, old, new))


def _is_overtaken(data: bytes, old: bytes, new: bytes) -> bool:
    """True if every page is one of the new, one of the old, or one that nobody has written to yet."""
    for at in range(0, len(new), PAGE_BYTES):
        page = data[at : at + PAGE_BYTES]
        if page != new[at : at + PAGE_BYTES] and page.strip(b"\0") and page != old[at : at + PAGE_BYTES]:
            return False
    return True


def copies_of(root: str, key: str, path: str | None = None) -> list[Copy]:
    """Return the versions that somebody saved while a call waited, the oldest first."""
    folder = f"{root}/{STATE_FOLDER}/{KEPT_FOLDER}"
    prefix = f".watch-{key}-" + (f"{_short(path)}-" if path is not None else "")
    try:
        names = [name for name in os.listdir(folder) if name.startswith(prefix) and not name.endswith("~")]
    except OSError:
        return []
    found = []
    for name in names:
        try:
            found.append((os.stat(f"{folder}/{name}").st_mtime_ns, Copy(f"{folder}/{name}", name[-64:])))
        except OSError:
            continue
    return [copy for _, copy in sorted(found)]


def content_of(copy: Copy) -> bytes | None:
    """Return a copy's bytes, None if it is gone or damaged."""
    try:
        # Without blocking: somebody may have put a FIFO there.
        descriptor = os.open(copy.file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        pieces = []
        while piece := os.read(descriptor, 1 << 20):
            pieces.append(piece)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    data = b"".join(pieces)
    return data if hashing.of_bytes(data) == copy.sha256 else None


def drop(copies: list[Copy]) -> None:
    """Remove copies that are not needed."""
    for copy in copies:
        try:
            os.unlink(copy.file)
        except OSError:
            pass


def keep(copy: Copy, path: str) -> str:
    """Give a copy the name of a kept version; return where it is."""
    folder = copy.file.rpartition("/")[0]
    name = path.rpartition("/")[2].encode("utf-8", "surrogateescape")[:120].decode("utf-8", "ignore")
    number = hashing.of_bytes(copy.file.encode("utf-8", "surrogateescape"))[:16]
    kept = f"{folder}/kept-{number}-{copy.sha256}~{name}"
    os.rename(copy.file, kept)
    return kept
