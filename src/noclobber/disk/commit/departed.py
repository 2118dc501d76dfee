"""
Files that somebody has opened in the very moment in which the sweep let go of them.

The sweep looks for the last time whether anybody has a displaced file open, and then takes its name away.
Somebody may come in between who needs no name: a file server that opens by handle, a process that opens
`/proc/self/fd/…` again. They wait for the sweep's lease, and when it ends they write to a file without a
name, or to one that is a past version by now. So the sweep looks once more before it ends its lease. If
somebody waits, the file's descriptor stays open here, and what was written is copied to the kept files.

If nobody does, the descriptor is closed at once: a handle is stale from then on, and who has it looks the
name up again.
"""

from __future__ import annotations

import atexit
import os
from typing import TYPE_CHECKING, NamedTuple
from weakref import ref

from noclobber.core.clock import Patience
from noclobber.disk import forks, hashing, leases

if TYPE_CHECKING:
    from noclobber.disk.commit.store import Store

MOST_WATCHED = 64  # Descriptors.
LET_FINISH_S = 1.0

_stores: dict[int, ref[Store]] = {}


class Departed(NamedTuple):
    """A file that has no name among the swap files any more, still open here."""

    path: str
    descriptor: int
    size: int
    changed_ns: int

    @property
    def is_changed(self) -> bool:
        """True if somebody has written to it since it was let go of."""
        status = os.fstat(self.descriptor)
        return (status.st_size, status.st_mtime_ns) != (self.size, self.changed_ns)


def watch(store: Store, path: str, descriptor: int) -> None:
    """
    Take over the descriptor of a file whose name was just removed, and which somebody waits for.

    While the sweep's lease still holds: what is written after that changes the time that is noted here.
    """
    status = os.fstat(descriptor)
    departed = Departed(path, descriptor, status.st_size, status.st_mtime_ns)
    store.departed.append(departed)
    number = id(store)
    _stores[number] = ref(store, lambda gone: _stores.pop(number, None))


def look_after(store: Store, *, at_once: bool = False) -> list[tuple[str, str]]:
    """
    Close what nobody has open any more; return (original path, where it is kept) of what they changed.

    `at_once`: everything, because the store is about to be closed. Then it waits for those who write now.
    """
    kept = []
    for _ in range(len(store.departed)):
        try:
            departed = store.departed.popleft()
        except IndexError:
            break  # Another thread does the same.
        if at_once:
            _let_finish(departed)
        elif not _is_closed(departed) and len(store.departed) < MOST_WATCHED:
            leases.release(departed.descriptor)
            store.departed.append(departed)
            continue
        try:
            if departed.is_changed:
                kept.append((departed.path, _keep(store, departed)))
        except OSError:
            pass  # For example, the disk is full. The commit that runs this sweep must not fail for that.
        finally:
            leases.release(departed.descriptor)
            forks.close(departed.descriptor)
    return kept


def _is_closed(departed: Departed) -> bool:
    """True if nobody has it open, or is about to. A reader, too, can open it again for writing."""
    descriptor = departed.descriptor
    try:
        return leases.try_lease(descriptor, leases.WRITE) and leases.is_quiet(descriptor, leases.WRITE)
    except leases.LeasesUnavailableError:
        return True
    except OSError:
        return False  # It cannot be told now.


def _let_finish(departed: Departed) -> None:
    """Wait for a process that is writing to it, but not for ever."""
    try:
        leases.lease(departed.descriptor, leases.READ, Patience(LET_FINISH_S))
    except OSError:  # No leases, or it cannot be told: then what is there now is looked at.
        pass


def _keep(store: Store, departed: Departed) -> str:
    name, copy_fd = store.create_swap(store.new_prefix(), os.path.basename(departed.path), None, 0o600)
    try:
        offset = 0
        while chunk := os.pread(departed.descriptor, hashing.CHUNK_BYTES, offset):
            offset += os.write(copy_fd, chunk)
    except BaseException:
        store.remove_swap(name)
        raise
    finally:
        forks.close(copy_fd)
    return store.keep(name)


def _at_exit() -> None:
    """A program that ends without closing its workspace is the last that could keep anything."""
    for store in [store for found in tuple(_stores.values()) if (store := found()) is not None]:
        look_after(store, at_once=True)


atexit.register(_at_exit)
