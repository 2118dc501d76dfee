"""
The process that looks on while a call waits for permission, and until the host has written (`watch`).

It holds the file open, with a read lease. Whoever opens the file for writing waits inside `open()` until the
lease is given up, which is done when the bytes are known, and copied if they are somebody's. Then it is taken
again as soon as the writer has closed the file, and the bytes are read again:

| somebody saves | the host writes | what is kept |
|---|---|---|
| in place | by rename | the save is in the old file, which is held open: it cannot be missed |
| in place | in place | the save ends while this process looks, and the host waits in `open()` |
| by rename | either way | the new file is held open since it was made, and leased since it was closed |

What is left to speed: the host opens the file while somebody else is saving it in place, or before the
process has the lease again, or both wait in `open()` already when it wakes up. Then both have the file open
at once, and nobody can keep them apart: a lease that is given up lets in everybody who waits. What was
changed before the host emptied the file is found in the file's pages, which are held (`pinned_pages`). The
rest is a matter of speed: the file is read at each change meanwhile, but a host may be faster that empties
it right after an editor that has emptied it, too, or that writes over what was saved after its own emptying.
Also left: a save by rename, if the host opens or replaces the new file before this process has seen it. To
be woken at once, the process asks for short turns (`short_turns`).

Not done, because it would put people's saves at risk: giving each writer a file of its own and joining them
afterwards (a save would be lost with this process), and stopping the host meanwhile (its shell would notice).

A file is judged when nobody has it open for writing. Half of a host's own write is nobody's save. Glimpses
of a file that was being written count only if no writer in the middle can have left them (`is_half`).

On FUSE and network filesystems, on macOS, and for files that cannot be leased (somebody else's, or with
several names) it looks at the file's status, every millisecond at first and less and less often later.

When it ends, it keeps what the call replaced and what it left as versions (`host_versions`).

It ends by itself: when the host has written, when the mark is gone, when the host has ended, and after half
an hour in any case. It has nothing open but the file, its folder, the mark and its folder, and stands in `/`.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import errno
import fcntl
import os
import stat
import time

from noclobber.disk import hashing
from noclobber.disk.reading import KEPT_BYTES, LOOK, look_at, read_all
from noclobber.errors import ABSENT
from noclobber.guard import pinned_pages, short_turns
from noclobber.guard.watch import Watch, WatchedFile, copy, is_half

TYPE_CHECKING = False
if TYPE_CHECKING:
    from noclobber.guard.host_versions import HostVersion

LIFE_S = 1800.0
# Until how long after the start, and how long it naps between two looks at a file without a lease.
NAPS_S = ((0.1, 0.001), (2.0, 0.005), (60.0, 0.02), (LIFE_S, 0.2))
# The same from the moment when somebody was let in. Naps, and not `sched_yield`: who yields on a busy machine
# waits for everybody else's turn, and who wakes up comes first.
BUSY_NAPS_S = ((0.05, 0.00005), (1.0, 0.001), (10.0, 0.005), (LIFE_S, 0.05))
# Whoever was let in is followed for so long, and nothing else is done. Measured with saves within 0.4 ms of
# a host's write: of 720, 81 were lost; with naps of 50 µs and no line to wait in 96, without naps 149.
FOLLOW_S, FOLLOW_NAP_S = 0.005, 0.00001
NEW_S = 1.0  # So long a file that was made in the folder may be a save that is about to get the name.
LEASED_NAP_S = 0.25  # Nothing can happen unnoticed; this is for signals that are lost.
HOST_CHECK_S = 1.0
MOST_COPIES = 32
MOST_NAMES = 2000  # In a folder that is listed at each change; that takes half a millisecond.
MOST_NEWCOMERS = 32
TICK_S = 0.02
EARLY_S = 0.1  # In this time a host that asks nobody writes: nothing is done but looking.
MOST_GLIMPSES = 64
MOST_GLIMPSED_BYTES = 64 << 20
SMALL_BYTES = 1 << 16  # Read at each glimpse: two changes within a tick of the clock have one date.
_WAKE = _signal.SIGURG  # Ignored where it is not waited for.
_F_SETSIG = 10
_F_GETLEASE: int = getattr(fcntl, "F_GETLEASE", -1)
_F_SETLEASE: int = getattr(fcntl, "F_SETLEASE", -1)
_F_NOTIFY: int = getattr(fcntl, "F_NOTIFY", -1)


def run(watch: Watch, told_fd: int | None = None) -> None:
    """
    Look on until the host has written, or nobody wants to know any more.

    `told_fd`: a pipe to the hook, which answers its host when this process looks on.
    """
    start_s = checked_s = time.monotonic()
    try:
        mark_fd = os.open(watch.mark, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return  # Nobody wants to know.
    try:
        fcntl.flock(mark_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        # A host that runs two installations of the hook asks twice about one call, and the first one's
        # process looks on already. Waiting for its end, this one's hook would never answer.
        os.close(mark_fd)
        return
    is_late = False
    short_turns.ask()  # Whoever waits in `open()` waits for this process; the next one may come meanwhile.
    waker = Waker({os.path.dirname(path) for path in (watch.mark, *(file.path for file in watch.files))})
    all_sights = sights = [Sight(watch, file) for file in watch.files]
    try:
        while True:
            sights = [sight for sight in sights if not sight.look()]
            for sight in sights:
                sight.hold_pages()
            if told_fd is not None:
                os.close(told_fd)
                told_fd = None
                continue
            age_s = time.monotonic() - start_s
            if age_s > EARLY_S and not is_late:
                is_late = True
                for sight in sights:
                    sight.ask_filesystem()
            if not sights or age_s > LIFE_S:
                return
            if not os.path.exists(watch.mark):
                # Whoever removed it waits for this process to end: what is to be found is found now.
                for sight in sights:
                    sight.look_a_last_time()
                return
            if time.monotonic() - checked_s > HOST_CHECK_S:
                checked_s = time.monotonic()
                if not _runs(watch.host_pid):
                    return
            waker.wait(min(sight.nap_s(age_s) for sight in sights))
    finally:
        for sight in all_sights:
            sight.close()  # Before anything else is done: somebody may be waiting for the lease.
        waker.close()
        _keep_versions(all_sights)
        os.close(mark_fd)  # Whoever waits for the end of this process may look for the versions.


def _keep_versions(sights: list[Sight]) -> None:
    versions = [version for sight in sights for version in sight.versions()]
    if versions:
        from noclobber.guard.host_versions import keep  # Here: while it looked on there was no time for it.

        keep(versions)


def _runs(pid: int) -> bool:
    """True unless a process is known to be gone."""
    if pid <= 1:
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


class Waker:
    """Sleep until something happens in the folders, or the time is up."""

    def __init__(self, folders: set[str]) -> None:
        self._descriptors: list[int] = []
        if _F_NOTIFY < 0:
            return
        # From here on the signal is kept until it is waited for, so none can come between a look and a nap.
        _signal.pthread_sigmask(_signal.SIG_BLOCK, {_WAKE})
        events = fcntl.DN_MODIFY | fcntl.DN_CREATE | fcntl.DN_DELETE | fcntl.DN_RENAME | fcntl.DN_MULTISHOT
        for folder in folders:
            try:
                descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except OSError:
                continue  # It will be made together with the file; looking now and then has to do.
            self._descriptors.append(descriptor)
            try:
                fcntl.fcntl(descriptor, _F_SETSIG, _WAKE)
                fcntl.fcntl(descriptor, _F_NOTIFY, events)
            except OSError:
                continue  # A kernel without it.

    def wait(self, nap_s: float) -> None:
        """Sleep."""
        _nap(nap_s)

    def close(self) -> None:
        """End it."""
        for descriptor in self._descriptors:
            os.close(descriptor)


class OpenFile:
    """A file that is held open: what is in it, and whether somebody is writing it."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.glimpses: list[bytes] = []
        """What was seen while somebody had it open, since it was last judged."""
        self._is_leased = False
        """Nobody can have changed it since it was read."""
        self._last: bytes | None = None
        """What was in it when it was last judged."""
        self._status = ""
        self._busy_s = time.monotonic()
        self._pages_fd: int | None = None
        """Holds the pages that were the file's when it was last judged."""

    def look(self) -> bytes | None:
        """Return what is in it if that is new and whole; None if not."""
        if self._is_leased:
            if fcntl.fcntl(self.descriptor, _F_GETLEASE) == fcntl.F_RDLCK:
                # Leased under its first name, before it got the one that is watched: not judged yet.
                return self.read() if self._last is None else None
            self._let_in()  # Somebody waits in `open()`: the host, or a person.
            self._follow()
        status = os.fstat(self.descriptor)
        seen = _status(status)
        if seen != self._status or status.st_size <= SMALL_BYTES:
            self._status = seen
            self._glimpse(self.read())
        if not self.is_quiet():
            return None  # However long that takes: a busy machine may stop a host in the middle of its write.
        data = self.read()
        self._take_pages(data)
        return data if data != self._last or self.glimpses else None

    def _follow(self) -> None:
        """Look at each change that is made by who was let in, until they are done; not for long."""
        until_s = self._busy_s + FOLLOW_S
        while time.monotonic() < until_s and not self.is_quiet():
            try:
                # This asks for the lock that who empties or writes the file holds, so it waits in line with
                # the next writer and goes on right after the first one. A nap goes on when it is too late.
                os.lseek(self.descriptor, 0, os.SEEK_DATA)
            except OSError:
                pass  # The file is empty.
            data = os.pread(self.descriptor, SMALL_BYTES + 1, 0)
            if len(data) <= SMALL_BYTES:  # A large file takes longer to read than this process has.
                self._glimpse(data)
            _nap(FOLLOW_NAP_S)

    def hold_pages(self) -> None:
        """Hold the pages: somebody may save, and somebody empty the file, while this process is not awake."""
        if self._pages_fd is None and self._is_leased and self._last:
            self._pages_fd = pinned_pages.hold(self.descriptor, len(self._last))

    def _take_pages(self, data: bytes) -> None:
        """See what was in the pages that were held, if they are no longer the file's: somebody emptied it."""
        if self._pages_fd is None:
            return
        pages, self._pages_fd = pinned_pages.take(self._pages_fd), None
        last = self._last or b""
        # Where it ended is not told. A page is zeros behind the end.
        end = len(last) if pages.startswith(last) else 0
        found = pages[: max(end, len(pages.rstrip(b"\0")))]
        if found not in (last, data) and not data.startswith(found):
            self.glimpses.insert(0, found)

    def _glimpse(self, data: bytes) -> None:
        if data == (self.glimpses[-1] if self.glimpses else self._last):
            return
        self.glimpses = [*self.glimpses, data][-MOST_GLIMPSES:]
        while len(self.glimpses) > 1 and sum(map(len, self.glimpses)) > MOST_GLIMPSED_BYTES:
            del self.glimpses[0]

    def is_quiet(self) -> bool:
        """
        Take the lease, or take it once more; False if somebody has the file open for writing.

        Once more: who is about to wait for a lease is counted as a writer first, and only this sees it.
        """
        try:
            # The kernel's own choice, SIGIO, would end this process. Ending a lease forgets the choice.
            fcntl.fcntl(self.descriptor, _F_SETSIG, _WAKE)
            fcntl.fcntl(self.descriptor, _F_SETLEASE, fcntl.F_RDLCK)
        except BlockingIOError:
            return False
        self._is_leased = True
        return True

    def give_way(self) -> None:
        """Let in who waits in `open()`: the kernel makes them wait for up to 45 seconds otherwise."""
        if self._is_leased and fcntl.fcntl(self.descriptor, _F_GETLEASE) != fcntl.F_RDLCK:
            self._let_in()

    def _let_in(self) -> None:
        self._is_leased = False
        self._busy_s = time.monotonic()
        try:
            fcntl.fcntl(self.descriptor, _F_SETLEASE, fcntl.F_UNLCK)
        except OSError:
            pass  # The kernel has ended it by force: this process was stopped for a while.

    def settle(self, data: bytes) -> list[bytes]:
        """Take what is in it now for whole; return the glimpses that are no half of it."""
        earlier, saved = self._last or b"", []
        for glimpse in self.glimpses:
            if glimpse != data and not is_half(glimpse, earlier, data):
                saved.append(glimpse)
                earlier = glimpse  # The next one may have begun to write over it.
        self.glimpses, self._last = [], data
        return saved

    def has_status(self, status: os.stat_result) -> bool:
        """True if this is the file that a status is of."""
        return os.path.samestat(status, os.fstat(self.descriptor))

    def nap_s(self) -> float:
        """Return for how long nothing has to be looked at, if no signal comes."""
        return LEASED_NAP_S if self._is_leased else _nap_s(BUSY_NAPS_S, self.age_s())

    def age_s(self) -> float:
        """Return for how long somebody may have had it open."""
        return time.monotonic() - self._busy_s

    def close(self) -> None:
        """Let go of it."""
        os.close(self.descriptor)
        if self._pages_fd is not None:
            os.close(self._pages_fd)

    def read(self) -> bytes:
        """Return all that is in it."""
        os.lseek(self.descriptor, 0, os.SEEK_SET)
        return read_all(self.descriptor)


class Sight:
    """One path that is looked at."""

    def __init__(self, watch: Watch, file: WatchedFile) -> None:
        self._watch, self._file = watch, file
        self._now: OpenFile | None = None
        """The file that has the name."""
        self._replaced: list[OpenFile] = []
        """Files that had it, and that somebody may still be writing."""
        self._known: set[str] | None = None
        """The names in the folder when the watch began; None: too many to look at."""
        self._folder_ns, self._folder_s = -1, 0.0
        self._newcomers: dict[str, OpenFile] = {}
        """Files that were made since: one of them may be a save that is about to get the name."""
        self._has_leases = _F_SETLEASE >= 0
        self._is_written = False
        self._status = ""
        self._copied: set[str] = set()
        self._before = b""
        """What was checked, once it was read."""
        self._left: bytes | None = None
        """What the call left, once it was seen."""
        self._know_folder()

    def ask_filesystem(self) -> None:
        """Do without leases where they do not notice everybody who writes."""
        from noclobber.disk import filesystems  # Here: it takes as long as ten looks.

        kind = filesystems.filesystem_type(os.path.dirname(self._file.path))
        if not filesystems.sees_writers("ext4" if kind in ("ext2", "ext3") else kind):
            self._do_without()

    def look(self) -> bool:
        """Take a look; True once the host has written."""
        if not self._has_leases:
            return self._look_without()
        try:
            return self._look()
        except BlockingIOError:
            return False  # A commit hides its new version for a moment.
        except OSError:
            self._do_without()  # Not our file, or no leases here.
            return self._look_without()

    def hold_pages(self) -> None:
        """Hold the pages of the file that has the name."""
        if self._now is not None:
            self._now.hold_pages()

    def look_a_last_time(self) -> None:
        """The call is over, and whoever asks for the copies waits."""
        for file in (*self._replaced, self._now):
            if file is not None:
                self._judge(file, file.read())
        self._meet()

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

    def nap_s(self, age_s: float) -> float:
        """Return for how long nothing has to be looked at, if no signal comes."""
        naps_s = [file.nap_s() for file in self._replaced]
        # A new file is leased as soon as it was closed. Who renames it tells the host nothing of it.
        naps_s += [file.nap_s() for file in self._newcomers.values() if file.age_s() < NEW_S]
        naps_s.append(_nap_s(NAPS_S, age_s) if self._now is None else self._now.nap_s())
        return min(naps_s)

    def close(self) -> None:
        """Let go of everything."""
        for file in (*self._replaced, self._now, *self._newcomers.values()):
            if file is not None:
                file.close()
        self._replaced, self._now, self._newcomers = [], None, {}

    def _look(self) -> bool:
        self._look_into(self._now)  # First of all: somebody may wait in `open()`, and another one come.
        try:
            status = os.stat(self._file.path, follow_symlinks=False)
        except FileNotFoundError:
            status = None
        if self._now is not None and (status is None or not self._now.has_status(status)):
            self._replaced.append(self._now)
            self._now = None
        if self._now is None and status is not None:
            self._open(status)
        self._meet()
        if status is None and ABSENT in self._file.own:
            self._is_written = True
        for file in (*self._replaced, self._now):
            self._look_into(file)
        # A person may be about to write into the file that the host has replaced: that is waited for.
        over = [file for file in self._replaced if not file.glimpses and file.is_quiet()]
        self._replaced = [file for file in self._replaced if file not in over]
        for file in over:
            file.close()
        return self._is_written and not self._replaced

    def _look_into(self, file: OpenFile | None) -> None:
        data = None if file is None else file.look()
        if file is not None and data is not None and self._judge(file, data):
            self._is_written = True

    def _open(self, expected: os.stat_result) -> None:
        for name, file in self._newcomers.items():
            if file.has_status(expected):  # Held since it was made, and leased since it was closed.
                self._now = self._newcomers.pop(name)
                return
        descriptor = os.open(self._file.path, LOOK)
        self._now = OpenFile(descriptor)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1 or status.st_size > KEPT_BYTES:
            raise OSError(errno.EINVAL, "not to be leased")

    # -- files that are about to get the name ------------------------------------------------------------

    def _know_folder(self) -> None:
        names = self._names()
        self._known = set(names) if len(names) <= MOST_NAMES else None

    def _names(self) -> list[str]:
        try:
            return os.listdir(os.path.dirname(self._file.path))
        except OSError:
            return []

    def _meet(self) -> None:
        """
        Hold files that come into the folder, and look at those that have gone.

        A person saves by rename, and the host opens or replaces the new file before this process has seen it
        under the name. It was made under another name first, and that takes longer.
        """
        if self._known is None:
            return
        for file in self._newcomers.values():
            file.give_way()  # Also of files that never get the name, in a folder where nothing changes.
        now_s = time.monotonic()
        changed_ns = os.stat(os.path.dirname(self._file.path)).st_mtime_ns
        if changed_ns != self._folder_ns:
            self._folder_ns, self._folder_s = changed_ns, now_s
        if now_s - self._folder_s > TICK_S:  # Two changes within a tick of the clock have one date.
            return
        names = self._names()
        for name in names:
            if name not in self._known and len(self._newcomers) < MOST_NEWCOMERS:
                self._known.add(name)
                self._welcome(name)
        for name, file in list(self._newcomers.items()):
            status = os.fstat(file.descriptor)
            if status.st_nlink == 0:
                # It is gone. Did it have the name in between? That is not told; its content tells it.
                data = file.read()
                if _is_version(data, self._before):
                    self._copy(data, hashing.of_bytes(data))
                self._newcomers.pop(name).close()
            elif name not in names:
                self._known.discard(name)  # Renamed, perhaps to the name; else it is nothing to us.
                if not self._is_now(status):
                    self._newcomers.pop(name).close()
            else:
                file.look()

    def _is_now(self, status: os.stat_result) -> bool:
        try:
            return os.path.samestat(status, os.stat(self._file.path, follow_symlinks=False))
        except OSError:
            return False

    def _welcome(self, name: str) -> None:
        path = f"{os.path.dirname(self._file.path)}/{name}"
        if path == self._file.path:
            return
        try:
            descriptor = os.open(path, LOOK)
        except OSError:
            return  # Gone already, or none of our business.
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_size <= KEPT_BYTES:
            self._newcomers[name] = OpenFile(descriptor)
        else:
            os.close(descriptor)

    # -- what was saved ----------------------------------------------------------------------------------

    def _judge(self, file: OpenFile, data: bytes) -> bool:
        """Copy what somebody saved; True if this is what the call must leave."""
        for saved in file.settle(data):
            self._copy(saved, hashing.of_bytes(saved))
        # The first look is what the hook waits for: 100 KiB take 0.3 ms to hash, and nothing to compare.
        sha256 = self._file.before if data == self._file.content else hashing.of_bytes(data)
        if sha256 == self._file.before:
            self._before = data
        self._copy(data, sha256)
        return self._is_own(data, sha256)

    def _is_own(self, data: bytes, sha256: str) -> bool:
        if sha256 not in self._file.own:
            return False
        self._left = data
        return True

    def _copy(self, data: bytes, sha256: str) -> None:
        if not data or sha256 == self._file.before or sha256 in self._file.own or sha256 in self._copied:
            return
        if len(self._copied) < MOST_COPIES and copy(self._watch, self._file, data):
            self._copied.add(sha256)

    # -- without leases --------------------------------------------------------------------------------

    def _do_without(self) -> None:
        self._has_leases = False
        self.close()

    def _look_without(self) -> bool:
        try:
            status = _status(os.stat(self._file.path))
        except OSError:
            status = "-"
        if status == self._status:
            return False
        self._status = status
        state = look_at(self._file.path, keep=True)
        if state.content is None:
            return state.sha256 in self._file.own
        self._copy(state.content, state.sha256)
        return self._is_own(state.content, state.sha256)


def _is_version(data: bytes, before: bytes) -> bool:
    """True if a file has at least half of another's lines: a version of it, and no lock or scratch file."""
    lines = set(before.splitlines())
    return bool(lines) and 2 * len(lines & set(data.splitlines())) >= len(lines)


def _nap_s(naps_s: tuple[tuple[float, float], ...], age_s: float) -> float:
    return next((nap_s for until_s, nap_s in naps_s if age_s <= until_s), naps_s[-1][1])


def _nap(nap_s: float) -> None:
    """Sleep for a time, or until the kernel tells of something."""
    if _F_NOTIFY < 0:
        time.sleep(nap_s)
    else:
        _signal.sigtimedwait({_WAKE}, nap_s)


def _status(status: os.stat_result) -> str:
    return f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"
