"""
Folders by their names, of which a few are open at a time.

For commits over more folders than a process may have files open. A folder is opened when it is asked for,
below a base and without following a link, and must be the one whose inode number is known.
"""

from __future__ import annotations

import errno
import os

from noclobber.disk import forks, ordering, paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import OrderedDict
    from collections.abc import Mapping
else:
    from _collections import OrderedDict  # `collections` takes a millisecond and a half to load.

MOST_OPEN = 8  # A single step uses two at most.


class OpenFolders:
    """Maps canonical paths to descriptors, each of which is good until eight others have been asked for."""

    def __init__(self, base: str, inodes: Mapping[str, int], held: Mapping[str, int]) -> None:
        """`held` are those that somebody else keeps open."""
        self._base, self._inodes, self._held = base.rstrip("/"), inodes, held
        self._open: OrderedDict[str, int] = OrderedDict()

    def __getitem__(self, folder: str) -> int:
        """Return a descriptor. OSError: the folder is not there, or it is another one."""
        held = self._held.get(folder)
        if held is not None:
            return held
        descriptor = self._open.get(folder)
        if descriptor is not None:
            self._open.move_to_end(folder)
            return descriptor
        with forks.undivided():
            descriptor = forks.track(paths.open_below(self._base or "/", folder[len(self._base) + 1 :]))
        try:
            if os.fstat(descriptor).st_ino != self._inodes[folder]:
                raise FileNotFoundError(errno.ENOENT, "another folder has that name now", folder)
        except BaseException:
            forks.close(descriptor)
            raise
        self._open[folder] = descriptor
        if len(self._open) > MOST_OPEN:
            forks.close(self._open.popitem(last=False)[1])
        return descriptor

    def flush_names(self, swap_fd: int, filesystem: str) -> None:
        """
        Make the exchanges lasting that were made between these folders and that of the swap files.

        Every exchange changes the latter, too. So where changes of names last in their order, what flushes
        the last of them flushes all.
        """
        if filesystem in ordering.ORDERED:
            ordering.flush_names([swap_fd], filesystem)
            return
        for folder in self._inodes:
            ordering.flush_names([self[folder]], filesystem)

    def close(self) -> None:
        """Close what is open here."""
        while self._open:
            forks.close(self._open.popitem()[1])
