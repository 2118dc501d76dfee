"""
The locks of one connection, as a guarded write is asked about them.

A turn carries one lock and stays in its folder. A connection may hold several and works elsewhere, too: each
write shows the lock of the folder that it goes to, if the connection has one, and none otherwise.
"""

from __future__ import annotations

from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.lock.fence import LockFence
from noclobber.lock.lock import DeliverableLock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from noclobber.core.clock import Clock
    from noclobber.lock.fence import Fence


class ConnectionFence(LockFence):
    """Shows for each path the lock that the connection holds there."""

    def __init__(self, root: str, held: Mapping[str, str], clock: Clock = SYSTEM_CLOCK) -> None:
        """`held` maps ids to folders, and is looked at anew for each write."""
        super().__init__(root, None, clock)
        self._held = held

    def folder(self, path: str) -> str | None:
        """Return the locked folder that a path is inside of, whose mutex must be held for a write."""
        return self._at(path).folder(path)

    def guarding(self, path: str, held: Sequence[int]) -> AbstractContextManager[Fence]:
        """Let a write to `path` pass, or raise, and keep the answer true meanwhile."""
        return self._at(path).guarding(path, held)

    def _at(self, path: str) -> LockFence:
        inside = [(folder, lock_id) for lock_id, folder in list(self._held.items()) if _is_in(path, folder)]
        if not inside:
            return LockFence(self.root, None, self._clock)
        folder, lock_id = max(inside, key=lambda found: len(found[0]))
        # `LockLost` if somebody has it by now: then this write must not happen.
        return LockFence(self.root, DeliverableLock.attach(folder, lock_id, clock=self._clock), self._clock)


def _is_in(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")
