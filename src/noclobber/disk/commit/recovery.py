"""
Finish what a dead process began.

Called when a process takes a folder's mutex and finds its note in use. A commit of one file that had got
as far as the exchange is finished: if what was displaced is what the writer expected, the write has
landed; if not, the displaced file goes back. A commit of several files is all or none: if every one
was exchanged and displaced what was expected, it has landed; otherwise every one goes back. Unless
somebody has written on top of one of the new versions since the crash: that one cannot go back, so the
others land too.

Never deleted: bytes that are not provably the writer's own unpublished ones or the verified old
ones. What cannot be put back because somebody has saved since is kept aside and reported.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from noclobber.core.clock import Patience
from noclobber.core.values import Recovered
from noclobber.disk import forks, hashing, leases, renames
from noclobber.disk.commit import journal
from noclobber.disk.commit.displaced_copy import keep_copy
from noclobber.disk.commit.found_files import Opened, hash_if, inode_of, open_if_readable
from noclobber.disk.commit.inplace_recovery import is_part_new_part_old, recover_inplace
from noclobber.disk.commit.move_recovery import MOVE_KINDS, recover_move
from noclobber.disk.commit.prints import print_of, remove_under_another_name
from noclobber.disk.commit.restore import BEFORE_RESTORING, put_back
from noclobber.disk.commit.sweep import mark_if
from noclobber.disk.paths import PinnedPath
from noclobber.disk.reading import LOOK, NOT_READABLE
from noclobber.disk.small_file import closing
from noclobber.errors import ABSENT

if TYPE_CHECKING:
    from noclobber.core.clock import Clock
    from noclobber.disk.commit.journal import NoteContent, Planned
    from noclobber.disk.commit.store import Store

WAIT_FOR_WRITERS_S = 1.0
O_PATH = getattr(os, "O_PATH", 0)  # Only Linux has it, and rows about permissions.
GONE = "+"  # Appended to a swap file's name: the placeholder of a delete, after it was moved away.


class CutOffFile(NamedTuple):
    """One file of the commit, as it is on the disk now."""

    planned: Planned
    folders: Mapping[str, int]
    store: Store
    was_swapped: bool
    displaced_hash: str  # "" where nothing is displaced
    is_intact: bool  # our own bytes are at the target, unchanged
    is_built_on: bool  # our own file is there, and somebody has written to it since

    @property
    def folder_fd(self) -> int:
        return self.folders[self.planned.folder]

    @property
    def path(self) -> str:
        return f"{self.planned.folder}/{self.planned.name}"

    @property
    def landed(self) -> bool:
        """True if this file's part of the commit is done and right."""
        if not self.was_swapped or (self.planned.kind == "delete" and self.is_intact):
            return False  # Of a delete: the placeholder is still at the name.
        return self.planned.expected in (None, ABSENT) or self.displaced_hash == self.planned.expected


def recover(
    content: NoteContent,
    folders: Mapping[str, int],
    noted: list[str],
    store_of: Callable[[str], Store],
    clock: Clock,
    decide: Callable[[bytes], None],
) -> list[Recovered]:
    """
    Finish or undo. Nobody else commits in one of `folders`: we hold their mutexes.

    `noted` are the folders whose note says this; `decide` makes it say something else, lastingly.
    """
    if content.state == journal.PREPARING:
        for folder in noted:
            store_of(folder).remove_swaps(content.prefix)
        return []
    patience = Patience(WAIT_FOR_WRITERS_S, clock)
    results = _return_saves(content, folders, store_of)
    inplace = [planned for planned in content.files if planned.kind == "inplace"]
    moves = [planned for planned in content.files if planned.kind in MOVE_KINDS]
    if moves:
        is_refused = content.state == journal.RESTORING
        results += recover_move(moves, folders, store_of(moves[0].folder), is_refused=is_refused)
    found = [
        _look(planned, folders, store_of(planned.folder), patience)
        for planned in content.files
        if planned.kind not in ("inplace", *MOVE_KINDS)
    ]
    if found:
        landed = content.state == journal.LANDED or (
            content.state == journal.SWAPPING and all(file.landed for file in found)
        )
        if content.state == journal.SWAPPING and len(found) > 1 and any(file.is_built_on for file in found):
            results += [_carry_on(file, patience) for file in found]
        elif landed:
            if content.state == journal.SWAPPING and len(found) > 1:
                # First: what is concluded looks different afterwards. Cut off in the middle of it, the next
                # one would find that not everything has landed, and take back the rest.
                decide(journal.LANDED)
            results += [_conclude(file, content.state) for file in found]
        else:  # Backwards: a file that went may have made room for a folder of the same name.
            results += [_undo(file, content.state) for file in reversed(found)][::-1]
    for file in found:
        file.store.remove_swap(file.planned.swap + BEFORE_RESTORING)
        if file.planned.kind in ("create", "remove"):  # A folder of which an earlier recovery removed half.
            remove_under_another_name(file.store.swap_fd, file.planned.swap + GONE, file.planned.swap + GONE)
    results += [
        recover_inplace(planned, folders[planned.folder], store_of(planned.folder), content.state)
        for planned in inplace
    ]
    return results


def _return_saves(
    content: NoteContent, folders: Mapping[str, int], store_of: Callable[[str], Store]
) -> list[Recovered]:
    """
    Put back what somebody had saved over a file that a commit created, and was taking away again.

    It was moved aside with the name, and the process died before it saw that the file was not its own.
    """
    results = []
    for planned in content.files:
        store = store_of(planned.folder)
        inode = inode_of(store.swap_fd, planned.swap) if planned.kind == "create" else None
        if inode is None or inode == planned.inode:
            continue
        path = f"{planned.folder}/{planned.name}"
        try:
            renames.move_without_replacing(store.swap_fd, planned.swap, folders[planned.folder], planned.name)
        except FileExistsError:  # Two saves in a row: the later one stays there.
            results.append(Recovered(path, "kept", store.keep(planned.swap)))
    return results


def _look(planned: Planned, folders: Mapping[str, int], store: Store, patience: Patience) -> CutOffFile:
    folder_fd = folders[planned.folder]
    if planned.kind == "remove":
        is_away = inode_of(store.swap_fd, planned.swap) == planned.inode
        print_ = print_of(store.swap_fd, planned.swap) if is_away else ""
        return CutOffFile(planned, folders, store, is_away, print_, False, False)
    if planned.kind == "mode":
        is_set = _mode(folder_fd, planned) == int(planned.new, 16)
        return CutOffFile(planned, folders, store, is_set, planned.expected or "", is_set, False)
    intact = hash_if(folder_fd, planned.name, planned.inode) == planned.new
    built = not intact and inode_of(folder_fd, planned.name) == planned.inode
    try:
        aside = os.stat(planned.swap, dir_fd=store.swap_fd, follow_symlinks=False)
    except FileNotFoundError:
        # A creation renames the swap file itself into place. Of an exchange, what was displaced has been
        # verified and swept, by a recovery that was cut off itself.
        is_done = planned.kind in ("create", "exchange") and (intact or built)
        return CutOffFile(planned, folders, store, is_done, planned.expected or "", intact, built)
    if aside.st_ino == planned.inode:
        return CutOffFile(planned, folders, store, False, "", intact, built)
    if not stat.S_ISREG(aside.st_mode):
        return CutOffFile(planned, folders, store, True, "", intact, built)
    displaced_fd = open_if_readable(store.swap_fd, planned.swap)
    if displaced_fd is None:  # We may not read it. It can go back all the same.
        return CutOffFile(planned, folders, store, True, "", intact, built)
    try:
        # Its writers were let in when the dead process's lease ended. Let them finish.
        try:
            leases.lease(displaced_fd, leases.READ, patience)
        except leases.LeasesUnavailableError:
            pass
        return CutOffFile(planned, folders, store, True, hashing.of_descriptor(displaced_fd), intact, built)
    finally:
        leases.release(displaced_fd)
        os.close(displaced_fd)


def _conclude(file: CutOffFile, state: bytes) -> Recovered:
    if file.planned.kind == "mode":
        return Recovered(file.path, "landed")
    if file.planned.kind == "remove":
        return _conclude_remove(file)
    if file.planned.kind == "delete":
        if file.is_intact:  # The empty placeholder is still at the name.
            return _undo(file, state)
        kept = _settle_placeholder(file)
        if kept:
            _set_aside(file)
            return Recovered(file.path, "landed", kept)
    if file.displaced_hash not in ("", file.planned.expected):  # Somebody has written to it since.
        return Recovered(file.path, "landed", file.store.keep(file.planned.swap))
    _set_aside(file)
    return Recovered(file.path, "landed")


def _carry_on(file: CutOffFile, patience: Patience) -> Recovered:
    """Finish one file of several, because another one of them cannot be taken back any more."""
    planned, store = file.planned, file.store
    if planned.kind == "remove":
        return _carry_on_removing(file)
    if planned.kind == "mode":
        if not file.was_swapped and _mode(file.folder_fd, planned) is not None:
            set_mode(file.folder_fd, planned.name, planned.inode, int(planned.new, 16))
        return Recovered(file.path, "landed")
    if planned.kind == "delete":
        return _carry_on_deleting(file, patience)
    if file.landed:
        _set_aside(file)
    elif file.was_swapped:  # Somebody wrote to the displaced file, too, or it was not what was expected.
        return Recovered(file.path, "landed", store.keep(planned.swap))
    elif not file.is_built_on and not _exchange_now(file, patience):
        return _discard(file)  # Somebody has saved there: that stays, as in any commit.
    return Recovered(file.path, "landed")


def _carry_on_removing(file: CutOffFile) -> Recovered:
    planned, store = file.planned, file.store
    if not file.was_swapped:
        if print_of(file.folder_fd, planned.name) != planned.expected:
            return Recovered(file.path, "discarded")
        try:
            renames.move_without_replacing(file.folder_fd, planned.name, store.swap_fd, planned.swap)
        except FileNotFoundError:
            return Recovered(file.path, "landed")
        moved = print_of(store.swap_fd, planned.swap)
        file = file._replace(was_swapped=True, displaced_hash=moved)
    return _conclude_remove(file)


def _carry_on_deleting(file: CutOffFile, patience: Patience) -> Recovered:
    """A delete among several, of which one cannot be taken back: its placeholder goes, if it is there."""
    planned, store = file.planned, file.store
    if not file.was_swapped and not _exchange_now(file, patience):
        return _discard(file)
    if inode_of(file.folder_fd, planned.name) == planned.inode:
        try:
            renames.move_without_replacing(file.folder_fd, planned.name, store.swap_fd, planned.swap + GONE)
        except FileNotFoundError:
            pass
    kept = _settle_placeholder(file)
    if file.was_swapped:
        if file.displaced_hash not in ("", planned.expected):
            return Recovered(file.path, "landed", store.keep(planned.swap))
        _set_aside(file)
    return Recovered(file.path, "landed", kept)


def _exchange_now(file: CutOffFile, patience: Patience) -> bool:
    """Complete what a dead process had staged, if the file is still what it expected."""
    planned, store = file.planned, file.store
    if planned.kind == "create":
        try:
            renames.move_without_replacing(store.swap_fd, planned.swap, file.folder_fd, planned.name)
            return True
        except FileExistsError:
            return False
    old_fd = open_if_readable(file.folder_fd, planned.name)
    if old_fd is None:
        return False
    try:
        try:
            is_quiet = leases.lease(old_fd, leases.READ, patience)
        except leases.LeasesUnavailableError:
            is_quiet = True
        if not is_quiet or hashing.of_descriptor(old_fd) != planned.expected:
            return False
        renames.exchange(store.swap_fd, planned.swap, file.folder_fd, planned.name)
    except FileNotFoundError:
        return False  # Deleted a moment ago.
    finally:
        leases.release(old_fd)
        os.close(old_fd)
    # A write between the hash and the exchange went to the displaced file; then that is kept.
    _leave_to_sweep(file, planned.swap, planned.expected or "")
    return True


def _conclude_remove(file: CutOffFile) -> Recovered:
    """A link or a folder has gone: remove what was moved away, unless somebody wrote to it since."""
    planned, store = file.planned, file.store
    if file.was_swapped and file.displaced_hash != planned.expected:
        return Recovered(file.path, "landed", store.keep(planned.swap))
    if file.was_swapped:
        remove_under_another_name(store.swap_fd, planned.swap, planned.swap + GONE)
    return Recovered(file.path, "landed")


def _undo_remove(file: CutOffFile) -> Recovered:
    """Put a link or a folder back."""
    planned, store = file.planned, file.store
    if not file.was_swapped:
        return Recovered(file.path, "discarded")
    try:
        renames.move_without_replacing(store.swap_fd, planned.swap, file.folder_fd, planned.name)
    except FileExistsError:  # Somebody has put something else there since.
        return Recovered(file.path, "kept", store.keep(planned.swap))
    return Recovered(file.path, "restored")


def _mode(folder_fd: int, planned: Planned) -> int | None:
    """Return the permissions of what a row is about; None if it is another one now."""
    try:
        status = os.stat(planned.name, dir_fd=folder_fd, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return stat.S_IMODE(status.st_mode) if status.st_ino == planned.inode else None


def _settle_placeholder(file: CutOffFile) -> str:
    """Deal with what a delete had moved off the name when it was cut off; return where it is kept, if so."""
    planned, store, gone = file.planned, file.store, file.planned.swap + GONE
    inode = inode_of(store.swap_fd, gone)
    if inode is None:
        return ""
    if inode != planned.inode:  # Not the placeholder, but a save that had just replaced it.
        try:
            renames.move_without_replacing(store.swap_fd, gone, file.folder_fd, planned.name)
            return ""
        except FileExistsError:
            return store.keep(gone)
    _leave_to_sweep(file, gone, planned.new)
    return ""


def _drop(file: CutOffFile) -> None:
    """Let go of our own version, which is among the swap files and unchanged."""
    if print_of(file.store.swap_fd, file.planned.swap):  # A link, a folder: nobody can have it open to write.
        swap = file.planned.swap
        remove_under_another_name(file.store.swap_fd, swap, swap + GONE)
    else:
        _leave_to_sweep(file, file.planned.swap, file.planned.new)


def _set_aside(file: CutOffFile) -> None:
    """Leave what was replaced to the sweep: a version of the file, as in a commit that was not cut off."""
    is_version = file.displaced_hash == file.planned.expected
    _leave_to_sweep(file, file.planned.swap, file.displaced_hash, is_version=is_version)


def _leave_to_sweep(file: CutOffFile, name: str, sha256: str, *, is_version: bool = False) -> None:
    """
    Leave a swap file to the sweep, which deletes it if it still has this hash, and keeps it if not.

    `is_version`: it was at the file's name, so it goes to the versions rather than being deleted.
    Never deleted here: since the crash it was not hidden any more, and a process that has it open may write.
    """
    try:
        descriptor = forks.open_tracked(name, LOOK, dir_fd=file.store.swap_fd)
    except OSError as error:
        if error.errno not in NOT_READABLE:
            raise
        return  # It is gone; or it stays, for `adopt_orphans()`.
    try:
        try:
            is_quiet = leases.try_lease(descriptor, leases.READ)
        except leases.LeasesUnavailableError:
            is_quiet = True
        # If somebody has it open for writing, no mark: it would hide what they have just written.
        if is_quiet:
            mark_if(descriptor, sha256)
        leases.release(descriptor)
        file.store.set_aside(name, file.path, descriptor, sha256=sha256 if is_version else "")
    except OSError as error:
        forks.close(descriptor)
        if error.errno not in NOT_READABLE:
            raise


def _undo(file: CutOffFile, state: bytes) -> Recovered:
    planned, store = file.planned, file.store
    if planned.kind == "mode":
        if file.was_swapped:
            set_mode(file.folder_fd, planned.name, planned.inode, int(planned.expected or "0", 16))
        return Recovered(file.path, "restored" if file.was_swapped else "discarded")
    if planned.kind == "remove":
        return _undo_remove(file)
    if not file.was_swapped:
        return _discard(file)
    if planned.kind == "create":
        return _uncreate(file)
    if hash_if(file.folder_fd, planned.name, None) == file.displaced_hash != "":
        _set_aside(file)  # Restored already; the process died while it removed its own files.
        return Recovered(file.path, "restored")
    # Only what is provably ours is replaced: unchanged bytes of ours, or, while restoring, a mixture of those
    # and the displaced ones. Otherwise somebody has saved there since the crash, in place, and that stays.
    ours = file.is_intact or (state == journal.RESTORING and _is_half_restored(file))
    target = PinnedPath(file.folder_fd, planned.name, file.path)
    # Since the crash others could see our version. A process that has read it will save over what is put
    # back now, without having seen it; so a copy of that is kept. The copy is made first: once at its name,
    # the file may change at once.
    kept = keep_copy(file, only_of_link=not ours)
    if ours and put_back(store, planned.swap, target, planned.inode):
        came_back = hash_if(store.swap_fd, planned.swap, None)
        if came_back not in (planned.new, file.displaced_hash):
            kept = store.keep(planned.swap)
        else:
            _leave_to_sweep(file, planned.swap, came_back)
        return Recovered(file.path, "restored", kept)
    if planned.kind == "delete":
        kept = _settle_placeholder(file) or kept  # Refused with the placeholder off the name already.
    if planned.kind == "delete" and inode_of(file.folder_fd, planned.name) is None:
        try:
            renames.move_without_replacing(store.swap_fd, planned.swap, file.folder_fd, planned.name)
            return Recovered(file.path, "restored")
        except FileExistsError:
            pass
    where = store.keep(planned.swap)  # The file itself; of a link, a copy of what it led to is more use.
    return Recovered(file.path, "kept", kept or where)


def _is_half_restored(file: CutOffFile) -> bool:
    """True if our file holds the beginning of the displaced bytes, and behind it what it held before."""
    planned, swap_fd = file.planned, file.store.swap_fd
    if inode_of(file.folder_fd, planned.name) != planned.inode:
        return False
    with (
        Opened(file.folder_fd, planned.name) as current_fd,
        Opened(swap_fd, planned.swap) as displaced_fd,
        Opened(swap_fd, planned.swap + BEFORE_RESTORING) as before_fd,
    ):
        if current_fd is None or displaced_fd is None or before_fd is None:
            return False
        size, displaced, before = (os.fstat(each).st_size for each in (current_fd, displaced_fd, before_fd))
        if size != displaced and size < before:
            return False  # Somebody has cut it off: a restore never makes it shorter than that.
        return is_part_new_part_old(current_fd, displaced_fd, before_fd, has_zeros=False)


def _discard(file: CutOffFile) -> Recovered:
    """
    Drop our version, which is not at the name.

    It may have been there: an earlier recovery can have taken it back, and been killed before it saw that
    somebody had written to it. The bytes show that.
    """
    planned, store = file.planned, file.store
    ours = hash_if(store.swap_fd, planned.swap, planned.inode)
    if ours == planned.new:
        _drop(file)
    elif ours and ours == hash_if(file.folder_fd, planned.name, None):
        _leave_to_sweep(file, planned.swap, ours)
    elif ours:
        return Recovered(file.path, "discarded", store.keep(planned.swap))
    return Recovered(file.path, "discarded")


def _uncreate(file: CutOffFile) -> Recovered:
    """Take away a file that this commit created, if it is still ours."""
    renames.move_without_replacing(file.folder_fd, file.planned.name, file.store.swap_fd, file.planned.swap)
    if hash_if(file.store.swap_fd, file.planned.swap, file.planned.inode) == file.planned.new:
        _drop(file)
        return Recovered(file.path, "discarded")
    try:  # Somebody saved over it a moment ago: it is theirs.
        renames.move_without_replacing(
            file.store.swap_fd, file.planned.swap, file.folder_fd, file.planned.name
        )
        return Recovered(file.path, "landed")
    except FileExistsError:
        return Recovered(file.path, "kept", file.store.keep(file.planned.swap))


def set_mode(folder_fd: int, name: str, inode: int, mode: int) -> None:
    """Set the permissions of a file or folder, if it is still that one, and no link."""
    with closing(os.open(name, O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder_fd)) as descriptor:
        status = os.fstat(descriptor)
        if status.st_ino != inode or stat.S_ISLNK(status.st_mode):
            raise FileNotFoundError(errno.ENOENT, "it is another file now", name)
        os.chmod(f"/proc/self/fd/{descriptor}", mode)
