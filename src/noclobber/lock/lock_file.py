"""
Where a lock's record lives: the file `.lock` in the deliverable folder, changed by compare-and-set only.

Two arbiters, because neither is enough alone.

The folder's mutex (`flock` on its descriptor) serialises every change among the processes of one machine:
`with lock_file.section():`. But on FUSE, NFS, SMB and across overlay layers that call succeeds and excludes
nobody. So every change of an existing record also needs a *bid*: a file `.lock.take.<id of the record that
is to be changed>` is made with `link()`, which succeeds for exactly one. Under the bid the record is
read again; if it still is the one that was judged, it is changed, otherwise the bid is dropped.

- create: `link(staged, .lock)`. Fails if there is anything. Never `rename`: it would replace a
  rival's lock that was published a moment ago.
- replace (renewal, take-over): bid with the staged new record itself, verify, `rename(bid, .lock)`.
  One step both publishes the new record and ends the bid, so a kill leaves the old lock or the new one.
- remove (release): bid by linking the lock file itself, verify what was linked, unlink both.

A bidder that is killed leaves its bid. The bid is a complete record with an id of its own, so it is
judged like a lock and broken like one: by bidding for *it* (`.lock.take.<id of the bid>`), verifying, and
renaming over it. So two that break the same dead bid cannot both believe that they did.

Nothing above `file_arbiter` knows of this file.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.disk import filesystems, mutex, renames, signals, small_file
from noclobber.disk.paths import OPEN_FOLDER
from noclobber.disk.steps import reached
from noclobber.errors import FileBusyError, MissingFileError, NoclobberError
from noclobber.lock.liveness import FolderIdentity, is_copied
from noclobber.lock.names import BID_PREFIX, LOCK_NAME, SET_ASIDE_PREFIX, STAGED_PREFIX
from noclobber.lock.os_errors import LINK, explain
from noclobber.lock.record import read

if TYPE_CHECKING:
    from collections.abc import Callable

    from noclobber.core.clock import Clock
    from noclobber.lock.record import LockContent, LockRecord

PATIENCE_S = (
    2.0  # Sections last a fraction of a millisecond. A process that holds one longer was stopped in it.
)

_IS_LINUX = sys.platform == "linux"
_UNNAMED_FLAGS = os.O_WRONLY | os.O_CLOEXEC | getattr(os, "O_TMPFILE", 0)
_UNNAMED = hasattr(os, "O_TMPFILE") and os.path.isdir("/proc/self/fd")
_NO_MUTEX_HERE = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)  # Bids arbitrate alone.
_STALE_NAPS_S = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)
_BID_DEPTH = 16  # How many bidders in a row may have been killed while breaking each other's bids.

# Descriptors that a forked child must close: its copy would keep a mutex that the parent held at the
# fork, if the parent is killed before it lets go.
_OPEN: set[LockFile] = set()


def _close_inherited() -> None:
    for lock_file in list(_OPEN):
        descriptor, lock_file.descriptor, lock_file.is_held = lock_file.descriptor, -1, False
        os.close(descriptor)  # And no LOCK_UN: that would unlock the parent, which shares the open file.
        lock_file.unpin()
    _OPEN.clear()


os.register_at_fork(after_in_child=_close_inherited)


def _open_folder(path: str) -> int:
    """
    Open a folder by its canonical path, and make sure that it is that one.

    Somebody may have put a link in the place of a folder on the way after the path was found, and then
    a lock file would be created wherever it leads: outside of what an MCP client may touch, for one.
    """
    descriptor = os.open(path, OPEN_FOLDER)
    try:
        # Of the open folder. To look at the path once more would prove nothing: it may be back by then.
        name = os.readlink(f"/proc/self/fd/{descriptor}") if _IS_LINUX else path
    except OSError:
        name = path  # No /proc here.
    if name != path:
        os.close(descriptor)
        raise FileNotFoundError(errno.ENOENT, "the folder was moved, or a link is in its place", path)
    return descriptor


class LockFile:
    """One deliverable folder, open. Remembers the folder and not its path: a moved folder stays the same."""

    def __init__(self, folder: str) -> None:
        """
        Open a folder, by its canonical path; a clear error if it is missing, no folder, or not ours to
        open.
        """
        self.descriptor = -1
        self.is_held = False
        self._given_path = folder
        self._pinned = -1  # The lock file that we created, open.
        try:
            self.descriptor = _open_folder(folder)
        except OSError as error:
            explain(error, folder, "open the deliverable folder")
        _OPEN.add(self)
        try:
            status = os.fstat(self.descriptor)
        except OSError as error:
            self.close()
            explain(error, folder, "open the deliverable folder")
        self.identity = FolderIdentity(status.st_dev, status.st_ino, folder)

    def close(self) -> None:
        """Close the folder. Twice is once."""
        _OPEN.discard(self)
        if self.descriptor >= 0:
            if self.is_held:
                self.let_go()
            descriptor, self.descriptor = self.descriptor, -1
            os.close(descriptor)
        self.unpin()

    def unpin(self) -> None:
        """Close the lock file that was kept open."""
        pinned, self._pinned = self._pinned, -1
        if pinned >= 0:
            os.close(pinned)

    def open_again(self) -> None:
        """Open the folder if it was closed: in a forked child, at the fork."""
        if self.descriptor < 0:
            try:
                self.descriptor = _open_folder(self._given_path)
            except OSError as error:
                explain(error, self._given_path, "open the deliverable folder")
            _OPEN.add(self)

    def leave(self) -> None:
        """Leave the section if an interrupt on the way out of it left it held: the folder stays open."""
        if self.is_held:
            self.let_go()

    def let_go(self) -> None:
        """Leave the section that was entered."""
        try:
            mutex.release(self.descriptor)
        except OSError:  # Never taken: a filesystem without.
            pass
        self.is_held = False  # Last: an interrupt before it leaves a reason to do this again.

    def location(self) -> str:
        """Return where the folder is now, canonical; where it was given, if the system does not tell."""
        try:
            there = os.stat(self._given_path)  # Not moved, nearly always; and this is the cheaper question.
            if there.st_ino == self.identity.inode and there.st_dev == self.identity.device:
                return self._given_path
        except OSError:
            pass
        try:
            if _IS_LINUX:
                return os.readlink(f"/proc/self/fd/{self.descriptor}").removesuffix(" (deleted)")
            import fcntl

            answer = fcntl.fcntl(self.descriptor, 50, bytes(1024))  # F_GETPATH
            return os.fsdecode(answer.split(b"\0")[0])
        except OSError:
            return os.path.realpath(self._given_path)

    def exists(self) -> bool:
        """False once the folder was deleted, wherever it had been moved to."""
        return self.is_same_folder(self.location())

    def is_same_folder(self, path: str) -> bool:
        """True if a path names this very folder now."""
        try:
            there = os.stat(path)
        except (OSError, ValueError):
            return False
        return (there.st_dev, there.st_ino) == (self.identity.device, self.identity.inode)

    def judge_copied(self, found: LockContent) -> bool:
        """True if the record came here in a copy of the folder it was made for."""
        return found.record is not None and is_copied(found.record, self.identity)

    # The calls that the protocol is written on

    def read(self) -> LockContent | None:
        """Return what is there. Needs no section: a record is published whole or not at all."""
        return self._read(LOCK_NAME)

    def section(self, *, patience_s: float = PATIENCE_S, clock: Clock = SYSTEM_CLOCK) -> _HeldMutex:
        """Exclude every other change of this record on this machine: `with lock_file.section():`."""
        return _HeldMutex(self, patience_s, clock)

    def create(self, record: LockRecord) -> bool:
        """Publish a record if there is none. False if there is one."""
        return self._publish(record, LOCK_NAME)

    def replace(
        self,
        expected: str,
        record: LockRecord,
        may_break: Callable[[LockContent], bool],
        judged: LockContent | None = None,
    ) -> bool:
        """
        Put a record in place of the one with the key `expected`. False if there is another one now.

        `judged` is for a take-over: not a byte may have changed since. A holder that renewed in between has
        the same id, and is no orphan.
        """
        try:
            bid = self._bid(LOCK_NAME, expected, record, may_break)
            return bid is not None and self._finish(bid, LOCK_NAME, expected, record, judged)
        except BaseException:
            self._drop(BID_PREFIX + expected, record)
            raise

    def is_free(self) -> bool:
        """True if there is nothing at the lock's name, not even a broken link. A quarter of a read's cost."""
        try:
            return not os.access(LOCK_NAME, os.F_OK, dir_fd=self.descriptor, follow_symlinks=False)
        except (NotImplementedError, OSError):
            return self.read() is None

    def remove_undisputed(self) -> bool:
        """
        Take away the record that this lock_file created, whose lease is far from its end. False: look closer,
        with `remove`.

        For the holder itself, and only while by every rule nobody may take it over: then nobody has a
        reason to bid, and excluding bids would cost as much as the rest of a release. The file is
        known by its inode: our descriptor keeps that number from being given to another.
        """
        pinned, self._pinned = self._pinned, -1
        if pinned < 0:
            return False
        try:
            ours, there = os.fstat(pinned), os.stat(LOCK_NAME, dir_fd=self.descriptor, follow_symlinks=False)
            if ours.st_ino != there.st_ino or ours.st_dev != there.st_dev:
                return False
        except OSError:
            return False
        finally:
            os.close(pinned)
        reached("lock-undisputed")
        self._unlink(LOCK_NAME)
        return True

    def remove(
        self,
        expected: str,
        bidder: LockRecord,
        may_break: Callable[[LockContent], bool],
        is_in_time: Callable[[], bool] = lambda: True,
    ) -> bool:
        """
        Take the record with the key `expected` away. False if there is another one now.

        `is_in_time` is asked last. A process that was stopped under its bid for longer than its lease may
        have had the bid broken; where the mutex excludes nobody, it would take away the lock that the
        breaker is about to replace, a third process would find nothing there, and two would hold it.
        """
        bid = BID_PREFIX + expected
        try:
            # An owner's release: the lock file itself becomes the bid, and its content is then proof of
            # what was bid for. Cheaper than staging, and a recoverer's bid excludes it all the same.
            if expected == bidder.lock_id and self._link(LOCK_NAME, bid):
                is_ours = self._mark(bid, LOCK_NAME) == expected
            elif self._bid(LOCK_NAME, expected, bidder, may_break) is None:
                return False
            else:
                is_ours = self._mark(LOCK_NAME, LOCK_NAME) == expected
            reached("lock-release-bid")
            if is_ours and not is_in_time():
                self._drop(bid, bidder)
                return False
            if is_ours:
                self._unlink(LOCK_NAME)
                reached("lock-removed")
                with suppress(NoclobberError):  # The lock is gone. A bid on what is gone blocks nobody.
                    self._unlink(bid)
            else:
                self._unlink(bid)
        except BaseException:
            self._drop(bid, bidder)
            raise
        return is_ours

    def leftovers(self) -> list[str]:
        """
        Return names of bids and staged records that killed processes left. None of them blocks anybody.
        """
        try:
            return sorted(
                name for name in os.listdir(self.descriptor) if name.startswith((BID_PREFIX, STAGED_PREFIX))
            )
        except OSError as error:
            explain(error, self.location(), "list the folder")

    def sweep(self, may_break: Callable[[LockContent], bool]) -> list[str]:
        """Remove leftovers whose makers are gone; return their names. Only within a section."""
        current = self._mark(LOCK_NAME, LOCK_NAME)
        gone = []
        for name in self.leftovers():
            found = self._read(name)
            # A bid on the current record is for `_bid` to break, in order, whoever made it.
            if found is not None and name != f"{BID_PREFIX}{current}" and may_break(found):
                self._unlink(name)
                gone.append(name)
        return gone

    # Bids

    def _bid(
        self,
        name: str,
        expected: str,
        record: LockRecord,
        may_break: Callable[[LockContent], bool],
        depth: int = 0,
    ) -> str | None:
        """
        Bid for the right to change what is at `name`; return the bid's name, or None if another has
        it.
        """
        bid = BID_PREFIX + expected
        for _ in range(_BID_DEPTH):
            if self._mark(name, name) != expected:
                return None
            if self._publish(record, bid):
                reached("lock-bid")
                return bid
            rival = self._read(bid)
            if rival is None:
                continue  # It was dropped between our two looks.
            if depth >= _BID_DEPTH or not may_break(rival):
                return None
            # The bidder was killed. Its bid is itself changed only under a bid: two breakers that each
            # unlinked it and linked their own would both believe that they had it.
            try:
                inner = self._bid(bid, rival.fingerprint, record, may_break, depth + 1)
                if inner is not None and self._finish(inner, bid, rival.fingerprint, record):
                    return bid
            except BaseException:
                self._drop(BID_PREFIX + rival.fingerprint, record)
                raise
        return None

    def _finish(
        self, bid: str, name: str, expected: str, record: LockRecord, judged: LockContent | None = None
    ) -> bool:
        """Under our bid: if it is still what we bid for, rename the bid over it."""
        found = self._read(name)
        if (
            found is None
            or (found.key if name == LOCK_NAME else found.fingerprint) != expected
            or (judged is not None and found.content != judged.content)
        ):
            self._unlink(bid)
            return False
        reached("lock-verified")
        try:
            if self._is_directory(name):
                self._displace_directory(bid, name)
            else:
                os.rename(bid, name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
        except FileNotFoundError:
            pass  # We were stopped for longer than our own lease, and somebody broke our bid.
        except OSError as error:
            self._unlink(bid)
            explain(error, self._path(name), "replace the lock", self.descriptor, name)
        reached("lock-replaced")
        # The current content, and not what the calls returned, says who won.
        found = self._read(name)
        return found is not None and found.record is not None and found.record.lock_id == record.lock_id

    def _mark(self, name: str, kind: str) -> str | None:
        """Return what a change of this file compares: a lock's id, or for a bid (which may carry the id
        of the very lock it is a bid on, when its owner made it) the fingerprint of its content."""
        found = self._read(name)
        if found is None:
            return None
        return found.key if kind == LOCK_NAME else found.fingerprint

    def _drop(self, bid: str, record: LockRecord) -> None:
        """
        After an interruption: a bid of ours that stayed would look live for as long as this process
        runs.
        """
        with suppress(Exception):
            found = self._read(bid)
            if found is not None and found.record is not None and found.record.lock_id == record.lock_id:
                self._unlink(bid)

    def _is_directory(self, name: str) -> bool:
        try:
            return stat.S_ISDIR(os.stat(name, dir_fd=self.descriptor, follow_symlinks=False).st_mode)
        except OSError:
            return False

    def _displace_directory(self, bid: str, name: str) -> None:
        """
        A directory can be neither replaced nor unlinked. It is set aside, with what somebody keeps in it.

        The two names are exchanged: moving it away first would leave a moment without any lock, in
        which a rival creates one, and our rename would replace that.
        """
        ours = self.descriptor
        try:
            renames.exchange(ours, bid, ours, name)
        except OSError as error:
            if error.errno not in renames.UNSUPPORTED:
                raise
            self._set_aside(name)
            if self._link(bid, name):  # Not rename, for the same reason.
                self._unlink(bid)
            return
        self._set_aside(bid)

    def _set_aside(self, name: str) -> None:
        aside = SET_ASIDE_PREFIX + os.urandom(8).hex()
        os.rename(name, aside, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
        with suppress(OSError):  # Not empty: it stays aside, for a person to look at.
            os.rmdir(aside, dir_fd=self.descriptor)

    # Single steps

    def _publish(self, record: LockRecord, target: str) -> bool:
        """Give a complete record a name. False if the name is taken."""
        content = record.to_bytes()
        published = self._publish_unnamed(content, target) if _UNNAMED else None
        return self._publish_named(content, target) if published is None else published

    def _publish_unnamed(self, content: bytes, target: str) -> bool | None:
        """Through a file that has no name until it is complete, so that a kill leaves nothing behind. None
        where that does not work: not on this filesystem, not for this user. The other way says which."""
        try:
            descriptor = os.open(".", _UNNAMED_FLAGS, 0o644, dir_fd=self.descriptor)
        except OSError:
            return None
        try:
            small_file.write_all(descriptor, content)
            os.link(f"/proc/self/fd/{descriptor}", target, dst_dir_fd=self.descriptor, follow_symlinks=True)
            if target == LOCK_NAME:
                self.unpin()
                self._pinned, descriptor = descriptor, -1
        except FileExistsError:
            return False
        except OSError:
            return None
        finally:
            if descriptor >= 0:
                os.close(descriptor)
        return True

    def _publish_named(self, content: bytes, target: str) -> bool:
        name = STAGED_PREFIX + os.urandom(8).hex()
        try:
            descriptor = os.open(name, small_file.NEW, 0o644, dir_fd=self.descriptor)
        except OSError as error:
            explain(error, self.location(), "create a lock here")
        try:
            try:
                small_file.write_all(descriptor, content)
            except OSError as error:
                explain(error, self.location(), "create a lock here")
            return self._link(name, target)
        finally:
            os.close(descriptor)
            self._unlink(name)

    def _link(self, source: str, target: str) -> bool:
        """Give a file a second name; False if that name is taken, or the first one gone."""
        try:
            os.link(
                source, target, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor, follow_symlinks=False
            )
        except FileExistsError:
            return False
        except FileNotFoundError:
            if source == LOCK_NAME:
                return False
            raise MissingFileError(self.location(), "the deliverable folder was deleted") from None
        except OSError as error:
            if source == LOCK_NAME and error.errno in (errno.EPERM, errno.EACCES, errno.EMLINK):
                return False  # A directory, or a file of somebody else's (fs.protected_hardlinks).
            explain(error, self._path(target), LINK, self.descriptor, target)
        return True

    def _unlink(self, name: str) -> None:
        try:
            os.unlink(name, dir_fd=self.descriptor)
        except FileNotFoundError:
            pass
        except OSError as error:
            explain(error, self._path(name), "remove the lock", self.descriptor, name)

    def _read(self, name: str) -> LockContent | None:
        for nap_s in (*_STALE_NAPS_S, None):
            try:
                return read(name, self.descriptor)
            except OSError as error:
                if error.errno != errno.ESTALE or nap_s is None:
                    explain(error, self._path(name), "read the lock", self.descriptor, name)
            # On NFS: the record that this name led to is gone, and another machine has put up its own.
            filesystems.ask_anew(self.descriptor)
            SYSTEM_CLOCK.sleep(nap_s)
        raise AssertionError("the last look returns or raises")

    def _path(self, name: str) -> str:
        return os.path.join(self.location(), name)

    def busy(self, patience_s: float) -> FileBusyError:
        """Say who has been in the section for so long."""
        from noclobber.disk.processes import mutex_holder

        pid = mutex_holder(self.identity.device, self.identity.inode)
        who = f"process {pid}" if pid else "another process"
        return FileBusyError(
            self.location(),
            f"{who} has been changing a lock or a file here for {patience_s:g} s, so it is probably stopped; "
            f"continue it (kill -CONT {pid or 'PID'}) or end it (kill -KILL {pid or 'PID'}), then try again",
            pid=pid,
        )


class _HeldMutex:
    """The folder's mutex, for a block; `FileBusyError` if that takes too long."""

    __slots__ = ("_clock", "_lock_file", "_patience_s")

    def __init__(self, lock_file: LockFile, patience_s: float, clock: Clock) -> None:
        self._lock_file, self._patience_s, self._clock = lock_file, patience_s, clock

    def __enter__(self) -> None:
        lock_file = self._lock_file
        try:
            lock_file.is_held = (
                True  # Before it is: an interruption right after the call must not leave it held.
            )
            waiting = signals.Interruptible(self._clock)
            if not mutex.hold(lock_file.descriptor, patience_s=self._patience_s, clock=waiting):
                lock_file.is_held = False
                raise lock_file.busy(self._patience_s)
        except OSError as error:
            if error.errno not in _NO_MUTEX_HERE:
                lock_file.is_held = False
                explain(error, lock_file.location(), "lock the deliverable folder")

    def __exit__(self, *_: object) -> None:
        if self._lock_file.is_held:  # Not in a child that was forked meanwhile, and not after close().
            self._lock_file.let_go()
