"""
Large files that a command changes in place: they pass through.

An overlay copies a file before the first write to it, all of it, and a landing hashes it twice. For a byte
that is appended to a gigabyte that is out of all proportion. So a file of a certain size (the option
`shell_through_bytes`) is opened in the real tree when a command opens it for writing without emptying it,
and the command gets that descriptor. What it writes is seen by everybody at once, is not taken back if the
command is refused, and goes on record afterwards with the level `plain`.

Only a file as it is in the real tree passes through: one that the command made, replaced, moved or emptied is
in the upper layer, and lands with everything else. So does a large file that is removed. And only if
nothing is known of it that would have to be compared, and neither a rule nor anybody else's lock forbids it;
otherwise it is copied, and judged when it lands.
"""

from __future__ import annotations

import os
import stat

from noclobber.core.project import STATE_FOLDER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

LOOKED_AT_BYTES = 1 << 16  # Below, nobody is asked: no limit is that low.
DROPPED_FLAGS = os.O_CREAT | os.O_EXCL


class LargeFiles:
    """Opens large files for the commands of one view."""

    def __init__(self, root: str, upper: str, may_pass: Callable[[str, int], bool]) -> None:
        """`may_pass` is asked about a canonical path and its size."""
        self._root, self._upper, self._may_pass = root, upper, may_pass
        self.passed: dict[str, tuple[int, int]] = {}
        """Files that passed through, by canonical paths: their size and mtime before."""

    def opened(self, path: str, flags: int) -> int | None:
        """Return a descriptor of the real file that a command is about to open; None: it opens it itself."""
        if flags & os.O_NOFOLLOW and os.path.islink(path):
            return None
        real = os.path.realpath(path)
        below = real[len(self._root) + 1 :]
        if not real.startswith(f"{self._root}/") or below.split("/")[0] == STATE_FOLDER:
            return None
        status = os.lstat(real)
        if not stat.S_ISREG(status.st_mode) or status.st_size < LOOKED_AT_BYTES or self._is_changed(below):
            return None
        if real not in self.passed and not self._may_pass(real, status.st_size):
            return None
        descriptor = os.open(real, flags & ~DROPPED_FLAGS | os.O_CLOEXEC | os.O_NOFOLLOW)
        now = os.fstat(descriptor)
        if (now.st_dev, now.st_ino) != (status.st_dev, status.st_ino):
            os.close(descriptor)  # Replaced this moment.
            return None
        self.passed.setdefault(real, (status.st_size, status.st_mtime_ns))
        return descriptor

    def _is_changed(self, below: str) -> bool:
        """True if the view has something else at a path than the real tree."""
        from noclobber.shell.changes import is_opaque

        parts = below.split("/")
        for count in range(1, len(parts) + 1):
            upper = "/".join((self._upper, *parts[:count]))
            try:
                mode = os.lstat(upper).st_mode
            except FileNotFoundError:
                return False
            if not stat.S_ISDIR(mode) or is_opaque(upper):
                return True
        return False
