"""
The sweep: remove displaced files that are unchanged, and keep those that somebody wrote to.

How it knows that a displaced file is still what was verified: its name carries the hash that was
expected. Where hashing again would cost too much (large files, and those that the next durable commit writes
over), the file also has the modification time `VERIFIED_NS`, which any later write changes.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from typing import TYPE_CHECKING

from noclobber.core.project import LEASE_NAME
from noclobber.disk import forks, hashing, leases
from noclobber.disk.commit import departed
from noclobber.disk.commit.journal import BOOK_PREFIX
from noclobber.disk.reading import LOOK
from noclobber.disk.steps import reached

if TYPE_CHECKING:
    from noclobber.disk.commit.store import Displaced, Store

VERIFIED_NS = 1_234_567_891  # A second and a bit after the epoch: no real file has it.
MARK_FROM_BYTES = 1 << 16
MOST_WAITING = 256
MANY = 16
MOST_SPARE, MOST_SPARE_BYTES = 8, 1 << 20  # Old versions of other files that wait to be written over.
LATE_S = 1.0  # How long after it was displaced somebody may come who had found the file before.
MOST_YOUNG, LARGE_BYTES = 16, 1 << 22  # How many displaced files wait for that, and up to which size.
YOUNG_S = 60.0  # A swap file younger than this may belong to a commit whose note is not written yet.
_NO_FILE = (errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.EACCES, errno.EPERM)
BUSY, WATCHED = "\0busy", "\0watched"  # Not paths: a NUL cannot be in one.


def sweep(store: Store, sparing: str = "", *, young: bool = True) -> list[tuple[str, str]]:
    """
    Remove displaced files that are unopened and unchanged; keep those that somebody wrote to.

    Returns (original path, where it is kept) for each of the latter. A process that was suspended
    inside `open()` during the exchange may write to the displaced file much later; the sweep keeps
    those bytes.

    `sparing`: the path that is about to be written. Past versions of it and of a few other files are
    not removed then, because `reuse` may write over them.

    `young=False` spares what was displaced a moment ago, too. Somebody may have found the file before that
    (by its name, or by a handle as file servers have them), and be on the way into it: nobody can see that.
    As long as it has a name, what they write is kept.
    """
    kept = departed.look_after(store) if store.departed else []
    if not store.waiting:
        return kept
    spare = _spare_versions(store, sparing) if sparing else set()
    if not young:
        spare |= _young(store)
    if store.keeper is None or len(store.waiting) < MANY:
        return kept + _sweep_waiting(store, spare)
    with store.keeper.many():
        return kept + _sweep_waiting(store, spare)


def _sweep_waiting(store: Store, spare: set[str]) -> list[tuple[str, str]]:
    kept = []
    for displaced in [each for each in tuple(store.waiting) if each.name not in spare]:
        try:
            store.waiting.remove(displaced)  # One step between threads: strings and numbers are compared.
        except ValueError:
            continue  # Another thread sweeps too.
        where = _sweep_one(store, displaced.name, displaced.descriptor, displaced)
        if where is BUSY and len(store.waiting) < MOST_WAITING:
            store.waiting.append(displaced)
            continue
        if where is not WATCHED:
            forks.close(displaced.descriptor)
        if where and where not in (BUSY, WATCHED):
            kept.append((displaced.path, where))
    return kept


def _spare_versions(store: Store, path: str) -> set[str]:
    """Name what may yet be written over: one past version of a path, and of a few small other files."""
    past = {displaced.path: displaced for displaced in tuple(store.waiting) if displaced.is_past}
    mine = past.pop(path, None)
    others = [each.name for each in past.values() if each.size <= MOST_SPARE_BYTES]
    return {*others[-MOST_SPARE:], mine.name} if mine else set(others[-MOST_SPARE:])


def _young(store: Store) -> set[str]:
    """Name what was displaced a moment ago: the youngest, and no large files, which take up space."""
    late_s = time.monotonic() - LATE_S
    found = [each for each in tuple(store.waiting) if each.since_s > late_s and each.size < LARGE_BYTES]
    found.sort(key=lambda each: each.since_s)
    return {each.name for each in found[-MOST_YOUNG:]}


def _sweep_one(
    store: Store,
    name: str,
    descriptor: int,
    displaced: Displaced | None = None,
) -> str:
    """
    Return where it is kept; "" if it is gone, BUSY if somebody has it open.

    WATCHED: we have removed it, somebody has come in between, and `departed` has its descriptor now.
    """
    has_lease = True
    try:
        # Open for reading is enough to wait: such a process can open it again for writing (/proc/self/fd),
        # and would write to a file without a name.
        if not leases.try_lease(descriptor, leases.WRITE):
            return BUSY
    except leases.LeasesUnavailableError:
        has_lease = False  # Then only its content shows whether it was changed.
    except OSError:
        return BUSY  # It cannot be told now. It waits, and the commit that runs this sweep does not fail.
    try:
        status = os.fstat(descriptor)
        # An empty orphan: its process died before it wrote a byte. There is nothing to keep in it. Nor in one
        # of several names of a file: what was written to it is under the others.
        is_spent = status.st_nlink > 1 or (displaced is None and status.st_size == 0)
        if is_spent or is_unchanged(name, descriptor, status):
            if has_lease and not leases.is_quiet(descriptor, leases.WRITE):
                return BUSY  # Somebody opened it while we looked.
            reached("sweeping")
            is_kept = _orphan_to_versions(store, name, descriptor) if displaced is None else False
            if not is_kept and (displaced is None or not _to_versions(store, displaced)):
                mark_verified(descriptor)  # Under the lease: what is written to it from now on shows.
                store.remove_swap(name)
            reached("swept")
            if has_lease and not leases.is_quiet(descriptor, leases.WRITE):
                departed.watch(store, displaced.path if displaced else name, descriptor)
                return WATCHED
            return ""
        return store.keep(name)
    except OSError:
        # Another process swept it between our check and our rename; or it cannot be read or moved, and
        # stays for `adopt_orphans()`. The write that runs this sweep must not fail for that.
        return ""
    finally:
        leases.release(descriptor)


def _to_versions(store: Store, displaced: Displaced) -> bool:
    """Move a displaced file to the versions; False if they do not want it, or it was never at its name."""
    if store.keeper is None or not displaced.sha256:
        return False
    status = os.fstat(displaced.descriptor)
    if status.st_nlink != 1:  # Under another name somebody may still write to it: a copy is kept.
        if store.keeper.wants(displaced.path, status.st_size):
            data = os.pread(displaced.descriptor, status.st_size, 0)
            if hashing.of_bytes(data) == displaced.sha256:
                store.keeper.keep(displaced.path, data, displaced.sha256)
        return False
    return store.keeper.take(store, displaced.name, displaced.path, displaced.sha256, status.st_size)


def _orphan_to_versions(store: Store, name: str, descriptor: int) -> bool:
    """
    Move what a killed process had replaced to the versions, if it is known which file it was.

    Hashed here: our own bytes that never landed may lie under such a name, too, with the mark on them.
    """
    status = os.fstat(descriptor)
    head, _, target = name.partition("~")
    sha256 = head.rpartition("-")[2]
    if store.keeper is None or status.st_nlink != 1 or not status.st_size or not hashing.is_hash(sha256):
        return False
    known = store.left_closed.pop(name, None)
    if known is not None:  # Our own, and just found unchanged.
        return store.keeper.take(store, name, known[0], known[1], status.st_size)
    path = store.keeper.origin(target, sha256)
    if path is None or hashing.of_descriptor(descriptor, size_hint=status.st_size) != sha256:
        return False
    return store.keeper.take(store, name, path, sha256, status.st_size)


def orphans(store: Store, now_s: float) -> list[str]:
    """
    Return swap files of commits that are over, of any process.

    All but those that wait here, those that a note in use names, and those so young that their note may
    not be written yet.
    """
    names = [
        name
        for name in os.listdir(store.swap_fd)
        if name.startswith(f"{store.prefix}swap-") and store.may_tidy(name)
    ]
    if not names:
        return []
    waiting = {displaced.name for displaced in tuple(store.waiting)}
    named_in_notes = _prefixes_in_use(store)
    found = []
    for name in names:
        if name in waiting or name.startswith(named_in_notes):
            continue
        try:
            status = os.stat(name, dir_fd=store.swap_fd, follow_symlinks=False)
        except FileNotFoundError:
            continue
        if now_s - status.st_ctime >= YOUNG_S or status.st_mtime_ns == VERIFIED_NS:
            found.append(name)
    return found


def _prefixes_in_use(store: Store) -> tuple[str, ...]:
    prefixes = []
    for note in store.notes_in_use():
        content = note.read()
        prefixes += [content.prefix] if content.prefix else []
        prefixes += [name for planned in content.files for name in (planned.swap, planned.undo) if name]
    return tuple(prefixes)


def _drop_books(store: Store, now_s: float) -> None:
    """Remove records of commits that are over, whose processes were killed before they could do it."""
    opened = f"{store.tag and f'.{store.tag}'}.{BOOK_PREFIX}"  # Other machines' notes cannot be read here.
    books = [name for name in os.listdir(store.notes_fd) if name.startswith(store.prefix) and opened in name]
    if not books:
        return
    in_use = set()
    for note in store.notes_in_use():
        in_use.add(note.book)
    for name in books:
        try:
            status = os.stat(name, dir_fd=store.notes_fd, follow_symlinks=False)
            if name not in in_use and now_s - status.st_ctime >= YOUNG_S:
                os.unlink(name, dir_fd=store.notes_fd)
        except OSError:
            pass  # Another process removed it; or we may not.


def adopt_orphans(store: Store, now_s: float) -> list[tuple[str, str]]:
    """Sweep what dead processes left; return (name, where) of what had to be kept."""
    _drop_books(store, now_s)
    if store.is_alone:  # Of a process that was killed while it took another's lease away.
        store.remove_swap(f"{store.prefix}{LEASE_NAME}.old")
    kept = []
    for name in orphans(store, now_s):
        try:
            descriptor = forks.open_tracked(name, LOOK, dir_fd=store.swap_fd)
        except OSError as error:
            # A link or a folder that somebody had put there. Not if it cannot be opened for another reason:
            # the process that made it still runs, and has a lease on it; or the disk fails. Then it stays.
            if error.errno in _NO_FILE:
                kept.append((name, store.keep(name)))
            continue
        where = ""
        try:
            where = _sweep_one(store, name, descriptor)
            if where and where not in (BUSY, WATCHED):
                kept.append((name, where))
        finally:
            if where is not WATCHED:
                forks.close(descriptor)
    return kept


def mark_verified(descriptor: int) -> None:
    """
    Give a file the modification time that means: nobody has written to it since it was verified.

    Only while we hold a lease on it. Later, a write could come before the mark, and the mark would hide it.
    Not if it has further names: people see the time there. (finding G12)
    """
    try:
        has_other_names = os.fstat(descriptor).st_nlink > 1
    except OSError:
        has_other_names = False  # Nearly no file has. Without the mark a version would stay aside for ever.
    try:
        if not has_other_names:
            os.utime(descriptor, ns=(VERIFIED_NS, VERIFIED_NS))
    except OSError:
        pass  # Then a sweep hashes it, or keeps it if its name has no hash. Nothing is lost.


def mark_if(descriptor: int, sha256: str) -> None:
    """The same without a lease: mark it, then hash it, so that a write before or after the mark shows."""
    mark_verified(descriptor)
    if hashing.of_descriptor(descriptor) != sha256:
        os.utime(descriptor)


def is_unchanged(name: str, descriptor: int, status: os.stat_result | None = None) -> bool:
    """True if a displaced file is still the version that was verified."""
    status = status or os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        return False
    if status.st_mtime_ns == VERIFIED_NS:
        return True
    # `swap-<token>-<hash>~<name>`; beside a target another prefix comes first.
    expected = name.partition("~")[0].rpartition("-")[2]
    if not hashing.is_hash(expected):
        return False
    return hashing.of_descriptor(descriptor, size_hint=status.st_size) == expected
