"""
The approval window: watch a file from the check to the host's write, and keep what others save in between.

A hook's check comes before the host's permission dialogue. Somebody may save the file while the dialogue is
open, and the host then writes over it. Nothing can stop that, so a small process watches the file: it is
forked when a write is allowed, and copies every version that is neither the one that was checked nor what
the call must leave. The event after the call judges the copies (`overwritten`).

The kernel tells the process of each change in the folder (`F_NOTIFY`); where it does not, the process looks
every few milliseconds. The file is held open, so a save into a file that the host replaces by rename is still
found. A version is copied when it is followed by another one, or has not changed for a moment; half of a
write is no version (`is_half`).

Not promised: a save that the host overwrites before the process was scheduled and has read it. How long that
takes is measured by `torture/approval.py`: docs/decisions/approval-window.md has the figures.

A mark in the user's runtime folder says that somebody still wants to know; it goes with the call's next
event, or with the session. The process holds a lock on the mark for as long as it lives, so whoever removes
the mark can wait until every copy is made. It ends when the host has written, when the mark or the host is
gone, and after half an hour. When it ends, it keeps what the call replaced and left as versions
(`host_versions`).
"""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from noclobber.core.project import KEPT_FOLDER, STATE_FOLDER
from noclobber.disk import c_library, forks, hashing, leases, small_file
from noclobber.disk.reading import KEPT_BYTES, LOOK, look_at, read_all
from noclobber.errors import ABSENT

if TYPE_CHECKING:
    from noclobber.core.options import Options
    from noclobber.guard.host_versions import HostVersion

LIFE_S = 1800.0
# Until how long after the start, and how long it sleeps between two looks if the kernel tells of nothing.
NAPS_S = ((2.0, 0.005), (60.0, 0.02), (LIFE_S, 0.2))
QUIET_S = 0.02  # Nobody has written for so long: what is there is somebody's version.
TURN_NS = 100_000
MOST_COPIES = 32
SMALL_BYTES = 1 << 16  # Read at each look: two changes within a tick of the clock have one date.
PAGE_BYTES = 4096  # What the kernel copies under one lock.
_WAKE = signal.SIGURG  # Ignored where it is not waited for.
_F_NOTIFY: int = getattr(fcntl, "F_NOTIFY", -1)


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
    """One call that was allowed."""

    root: str
    key: str
    """Names the call: part of the copies' names."""
    mark: str
    """The file whose end is the end of the watch."""
    host_pid: int
    files: tuple[WatchedFile, ...]


def key_of(owner: str, call: str) -> str:
    """Return the part of a copy's name that says whose it is: the agent first, then the call."""
    return f"{short(owner)}-{short(call)}"


def short(text: str) -> str:
    """Return a name of fixed length for a text."""
    return hashing.of_bytes(text.encode("utf-8", "surrogatepass"))[:16]


def start(watch: Watch) -> None:
    """
    Fork the process that watches, and wait until it has looked once. Never raises.

    The wait is for a busy machine: the host may write, and somebody save, before the process was scheduled.
    """
    try:
        ready_fd, told_fd = os.pipe()
    except OSError:
        return  # As without a watch.
    if forks.beside(lambda: run(watch, told_fd), told_fd):
        os.close(told_fd)
        os.read(ready_fd, 1)
    os.close(ready_fd)


def run(watch: Watch, told_fd: int | None = None) -> None:
    """Watch until the host has written, or nobody wants to know; close `told_fd` after the first look."""
    try:
        mark_fd = os.open(watch.mark, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        fcntl.flock(mark_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        # Nobody wants to know. Or a host that runs two installations of the hook asks twice about one call,
        # and the first one's process watches already.
        return
    folders = {os.path.dirname(path) for path in (watch.mark, *(file.path for file in watch.files))}
    notifying_fds = _notify(folders)
    if told_fd is not None:  # In a process of its own.
        _ask_for_short_turns()
    start_s = time.monotonic()
    sights = [Sight(watch, file) for file in watch.files]
    try:
        while True:
            is_last = not os.path.exists(watch.mark)  # Whoever removed it waits for this process.
            is_written = [sight.look() for sight in sights]
            if told_fd is not None:
                os.close(told_fd)
                told_fd = None
            age_s = time.monotonic() - start_s
            if all(is_written) or is_last or age_s > LIFE_S or not _runs(watch.host_pid):
                return
            _nap(next((nap_s for until_s, nap_s in NAPS_S if age_s <= until_s), NAPS_S[-1][1]))
    finally:
        for sight in sights:
            sight.close()
        for descriptor in notifying_fds:
            os.close(descriptor)
        _keep_versions(sights)
        os.close(mark_fd)  # Whoever waits for the end of this process may look for the versions.


def _keep_versions(sights: list[Sight]) -> None:
    versions = [version for sight in sights for version in sight.versions()]
    if versions:
        from noclobber.guard.host_versions import keep

        keep(versions)


def _runs(pid: int) -> bool:
    """True unless a process is known to be gone."""
    try:
        os.kill(max(pid, 0), 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def _notify(folders: set[str]) -> list[int]:
    """Have the kernel signal every change in some folders; return the descriptors to close."""
    descriptors: list[int] = []
    if _F_NOTIFY < 0:
        return descriptors
    # From here on the signal is kept until it is waited for, so none is lost between a look and a nap.
    signal.pthread_sigmask(signal.SIG_BLOCK, {_WAKE})
    events = fcntl.DN_MODIFY | fcntl.DN_CREATE | fcntl.DN_DELETE | fcntl.DN_RENAME | fcntl.DN_MULTISHOT
    for folder in folders:
        try:
            descriptors.append(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            fcntl.fcntl(descriptors[-1], leases.F_SETSIG, _WAKE)
            fcntl.fcntl(descriptors[-1], _F_NOTIFY, events)
        except OSError:
            continue  # The folder is made together with the file, or the kernel does not offer it.
    return descriptors


def _nap(nap_s: float) -> None:
    if _F_NOTIFY < 0:
        time.sleep(nap_s)
    else:
        signal.sigtimedwait({_WAKE}, nap_s)


def _ask_for_short_turns() -> None:
    """
    Have this process run at once when it is woken, on a busy machine, too. Its share stays the same.

    Linux (6.12) runs those first who asked for turns that are shorter than others', 0.1 ms at least. What it
    saves is in docs/decisions/approval-window.md.
    """
    number = {"x86_64": 314, "aarch64": 274, "riscv64": 274}.get(os.uname().machine)
    call = c_library.function("syscall") if sys.platform == "linux" else None
    if number is None or call is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return
    # The kernel's `struct sched_attr` in its first form; policy and nice value stay as they are.
    size, policy, flags, priority, unused = 48, 0, 0, 0, 0
    nice = os.getpriority(os.PRIO_PROCESS, 0) & 0xFFFFFFFF
    words = (size, 4), (policy, 4), (flags, 8), (nice, 4), (priority, 4), (TURN_NS, 8), (unused, 16)
    wanted = b"".join(value.to_bytes(length, sys.byteorder) for value, length in words)
    call(c_library.LONG(number), c_library.LONG(0), wanted, c_library.LONG(0))


class Sight:
    """One path that is watched."""

    def __init__(self, watch: Watch, file: WatchedFile) -> None:
        self._watch, self._file = watch, file
        self._now_fd: int | None = None
        """The file that has the name."""
        self._replaced: list[int] = []
        """Files that had it, and that somebody may still be writing."""
        self._stamp: tuple[int, ...] = ()
        self._last = b""
        """The last version that nobody was writing any more."""
        self._pending: bytes | None = None
        """What was read since, at `_changed_s`: a version, or half of one."""
        self._changed_s = 0.0
        self._copied: set[str] = set()
        self._left: bytes | None = None
        """What the call left, once it was seen."""

    def look(self) -> bool:
        """Take a look; True once the host has written, and nobody writes into a file that had the name."""
        if self._left is None:
            try:
                self._look()
            except OSError:
                pass  # A commit hides its new version for a moment; or it is not ours to read.
        if self._left is not None:
            self._let_go()
        self._replaced = [descriptor for descriptor in self._replaced if not self._is_over(descriptor)]
        return self._left is not None and not self._replaced

    def close(self) -> None:
        """Copy what was found last, and close the files."""
        self._settle()
        for descriptor in self._replaced:
            self._copy(_read(descriptor))
            os.close(descriptor)
        self._let_go()

    def versions(self) -> list[HostVersion]:
        """Return what to keep: what the call replaced, and what it left; nothing if it wrote nothing."""
        file, options = self._file, self._file.options
        now = None if options is None else look_at(file.path, keep=True)
        if options is None or now is None or now.sha256 == file.before:
            return []
        from noclobber.guard.host_versions import HostVersion

        left = now.content if self._left is None else self._left
        found = file.versions if left is None else (*file.versions, left)
        return [HostVersion(self._watch.root, options, file.path, data) for data in found]

    def _look(self) -> None:
        try:
            status = os.stat(self._file.path, follow_symlinks=False)
        except FileNotFoundError:
            status = None
        now_fd = self._now_fd
        if now_fd is not None and (status is None or not os.path.samestat(status, os.fstat(now_fd))):
            self._replaced.append(now_fd)
            self._now_fd = None
        if status is None:
            if ABSENT in self._file.own:
                self._left = b""
            return
        stamp = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        if stamp != self._stamp or status.st_size <= SMALL_BYTES:
            if self._now_fd is None:
                self._now_fd = os.open(self._file.path, LOOK)
            self._stamp = stamp
            self._see(_read(self._now_fd))
            if status.st_nlink > 1:
                self._let_go()  # A commit in place needs a file that nobody else has open.
        if self._pending is not None and time.monotonic() - self._changed_s > QUIET_S:
            self._settle()

    def _let_go(self) -> None:
        if self._now_fd is not None:
            os.close(self._now_fd)
            self._now_fd = None

    def _see(self, data: bytes) -> None:
        """Note what is there. What was there before is copied, unless it was half of this."""
        if data == (self._last if self._pending is None else self._pending):
            return
        if self._pending is not None and not is_half(self._pending, self._last, data):
            self._settle()
        sha256 = self._hash(data)
        if sha256 in self._file.own:
            self._left = data
        if sha256 == self._file.before:
            self._last, self._pending = data, None
        else:
            self._pending, self._changed_s = data, time.monotonic()

    def _settle(self) -> None:
        if self._pending is not None:
            self._copy(self._pending)
            self._last, self._pending = self._pending, None

    def _is_over(self, descriptor: int) -> bool:
        """Copy what is in a file that had the name, and close it, unless somebody has it open to write."""
        try:
            if leases.try_lease(descriptor, leases.READ):
                leases.release(descriptor)
            else:
                return False
        except OSError:
            pass  # That cannot be told here.
        self._copy(_read(descriptor))
        os.close(descriptor)
        return True

    def _hash(self, data: bytes) -> str:
        # The hook waits for the first look: 100 KiB take 0.3 ms to hash, and nothing to compare.
        return self._file.before if data == self._file.content else hashing.of_bytes(data)

    def _copy(self, data: bytes) -> None:
        sha256 = self._hash(data)
        if not data or sha256 == self._file.before or sha256 in self._file.own or sha256 in self._copied:
            return
        if len(self._copied) < MOST_COPIES and copy(self._watch, self._file, data):
            self._copied.add(sha256)


def _read(descriptor: int) -> bytes:
    """Return all that is in a file; nothing if that is too much to hold."""
    status = os.fstat(descriptor)
    if status.st_size > KEPT_BYTES or not stat.S_ISREG(status.st_mode):
        return b""
    os.lseek(descriptor, 0, os.SEEK_SET)
    return read_all(descriptor)


def copy(watch: Watch, file: WatchedFile, data: bytes) -> str:
    """Copy a version; return where, or nothing if that failed. The name has a dot until it is needed."""
    folder = f"{watch.root}/{STATE_FOLDER}/{KEPT_FOLDER}"
    name = f"{folder}/.watch-{watch.key}-{short(file.path)}-{hashing.of_bytes(data)}"
    try:
        os.mkdir(folder, 0o700)
    except OSError:
        pass
    if os.path.islink(folder):
        return ""  # It may have come with the project, and lead anywhere.
    try:
        small_file.create(f"{name}~", data)
    except OSError:
        return ""
    os.rename(f"{name}~", name)  # Whole, or not there.
    return name


def is_half(data: bytes, old: bytes, new: bytes) -> bool:
    """
    True if some bytes are what a writer of `new` over `old` leaves in the middle.

    Either a beginning of the new (the file was emptied first), or that and the rest of the old; or, where
    the writer asked for the room first, as Claude Code does for megabytes, that and zeros. Who reads a large
    file reads it in pieces, and may be overtaken by the writer: then a page is old and one behind it is new,
    and where the writer has just emptied the file, a page is the last one. Who writes over the old and then
    cuts its end off, as opencode does, leaves zeros up to the page's end.
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
    if len(data) == len(new) and not data[low:].strip(b"\0"):
        return True
    if not PAGE_BYTES < len(data) <= max(len(old), len(new)):
        return False
    is_cut = len(data) not in (len(old), len(new))
    return not (is_cut and len(data) % PAGE_BYTES) and _is_overtaken(data, old, new)


def _is_overtaken(data: bytes, old: bytes, new: bytes) -> bool:
    """
    True if every page is one of the new, one of the old, or one that nobody has written to yet.

    Two may be both: that in which the writer came past the reader, and that in which the writer was.
    """
    both = 0
    for at in range(0, len(data), PAGE_BYTES):
        page, before = data[at : at + PAGE_BYTES], old[at : at + PAGE_BYTES]
        after = new[at : at + PAGE_BYTES]
        after += b"\0" * (len(page) - len(after))  # Behind the end of the new, if it was just being cut off.
        if page in (before, after) or not page.strip(b"\0"):
            continue
        both += 1
        if both > 2 or not (_turns(page, before, after) or _turns(page, after, before)):
            return False
    return True


def _turns(page: bytes, first: bytes, then: bytes) -> bool:
    """True if a page is one up to somewhere, and another one from there on."""
    turn = next((at for at, (a, b) in enumerate(zip(page, first, strict=False)) if a != b), len(first))
    return page[turn:] == then[turn:]
