"""
What a call wrote over: versions that somebody saved between the check and the host's write.

A watch (`watch`) has copied every version that it saw meanwhile. Most are not lost, and their copies go: the
one that is there now, what the host made of it (an edit is made in what is there), and a file that was caught
half written. What is left was overwritten. It goes to `kept`, for a person to look at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from noclobber.disk import hashing
from noclobber.errors import OverwroteError
from noclobber.guard import watch
from noclobber.guard.outcome import plain_hash

if TYPE_CHECKING:
    from noclobber.core.actions import Action
    from noclobber.disk.reading import FileState
    from noclobber.guard.outcome import Outcome


class Overwritten(NamedTuple):
    """What somebody saved, and a call wrote over."""

    sha256: str
    """The last of it."""
    kept: tuple[str, ...]
    data: bytes

    def told(self, path: str) -> OverwroteError:
        """Return what the agent is told after its call."""
        error = OverwroteError(
            path,
            "Your write landed. But somebody else had saved this file after the check and before your write, "
            f"so your write replaced what they saved. Their version is kept in {self.kept[-1]}. Tell the "
            "user. If you can, put their changes back into the file.",
            kept=self.kept[-1],
        )
        error.overwritten = self.data
        return error


def keep_overwritten(
    root: str,
    owner: str,
    key: str,
    action: Action,
    state: FileState,
    outcome: Outcome,
    *,
    was: bytes | None,
    made: bytes | None,
) -> Overwritten | None:
    """
    Keep what a call that was carried out wrote over; None if it wrote over nobody's version.

    `was`: what was checked, and `made`: what the call had to leave; None if those bytes are not held.
    """
    lost: list[tuple[watch.Copy, bytes]] = []
    for copy in watch.copies_of(root, watch.key_of(owner, key), state.path):
        data = watch.content_of(copy)
        # Without an outcome that was foreseen, the host's own version cannot be told from a stranger's.
        if data is None or outcome.sha256 is None or _is_there(data, copy.sha256, action, state, was, made):
            watch.drop([copy])
        else:
            lost.append((copy, data))
    whole = [
        (copy, data)
        for at, (copy, data) in enumerate(lost)
        if not any(later.startswith(data) for _, later in lost[at + 1 :])  # Caught half written.
    ]
    watch.drop([copy for copy, data in lost if (copy, data) not in whole])
    if not whole:
        return None
    kept = tuple(watch.keep(copy, state.path) for copy, _ in whole)
    return Overwritten(whole[-1][0].sha256, kept, whole[-1][1])


def _is_there(
    data: bytes, sha256: str, action: Action, state: FileState, was: bytes | None, made: bytes | None
) -> bool:
    """True if a version is what is there, or is in it, or is a part of what the call has written."""
    now = state.content or b""
    if sha256 == state.sha256 or any(watch.is_half(data, was or b"", new) for new in (now, made or b"")):
        return True
    if action.change is None:
        return False
    try:
        changed = action.change.apply(data, state.path)
    except Exception:  # It does not fit: then what is there was not made from it.
        return False
    return hashing.of_bytes(changed) == state.sha256 or plain_hash(changed) == plain_hash(now)
