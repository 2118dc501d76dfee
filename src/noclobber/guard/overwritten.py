"""
What a call wrote over: versions that somebody saved between the check and the host's write.

A watch (`approval`) has copied every version that it saw. Most are not lost, and their copies go: the
one that is there now, what the host made of it (an edit is made in what is there), and a file that was caught
half written. What is left was overwritten. It goes to `kept`, for a person to look at.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from noclobber.core.project import KEPT_FOLDER, STATE_FOLDER
from noclobber.disk import hashing
from noclobber.disk.reading import LOOK, read_all
from noclobber.errors import OverwroteError
from noclobber.guard.approval import is_half, key_of, short
from noclobber.guard.outcome import plain_hash

if TYPE_CHECKING:
    from noclobber.core.actions import Action
    from noclobber.disk.reading import FileState
    from noclobber.guard.outcome import Outcome


class Copy(NamedTuple):
    """A version that somebody saved meanwhile."""

    file: str
    sha256: str


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
    lost: list[tuple[Copy, bytes]] = []
    for copy in copies_of(root, key_of(owner, key), state.path):
        data = content_of(copy)
        # Without an outcome that was foreseen, the host's own version cannot be told from a stranger's.
        over = [was or b"", *(earlier for _, earlier in lost)]
        if data is None or outcome.sha256 is None or _is_there(data, copy.sha256, action, state, over, made):
            drop([copy])
        else:
            lost.append((copy, data))
    whole = [
        (copy, data)
        for at, (copy, data) in enumerate(lost)
        if not any(later.startswith(data) for _, later in lost[at + 1 :])  # Caught half written.
    ]
    drop([copy for copy, data in lost if (copy, data) not in whole])
    if not whole:
        return None
    kept = tuple(keep(copy, state.path) for copy, _ in whole)
    return Overwritten(whole[-1][0].sha256, kept, whole[-1][1])


def _is_there(
    data: bytes, sha256: str, action: Action, state: FileState, over: list[bytes], made: bytes | None
) -> bool:
    """True if a version is what is there, or is in it, or is a part of what the call has written."""
    now = state.content or b""
    if sha256 == state.sha256 or any(is_half(data, old, new) for old in over for new in (now, made or b"")):
        return True
    if action.change is None:
        return False
    try:
        changed = action.change.apply(data, state.path)
    except Exception:  # It does not fit: then what is there was not made from it.
        return False
    return hashing.of_bytes(changed) == state.sha256 or plain_hash(changed) == plain_hash(now)


def copies_of(root: str, key: str, path: str | None = None) -> list[Copy]:
    """Return the versions that somebody saved while a call waited, the oldest first."""
    folder = f"{root}/{STATE_FOLDER}/{KEPT_FOLDER}"
    prefix = f".watch-{key}-" + (f"{short(path)}-" if path is not None else "")
    try:
        names = [name for name in os.listdir(folder) if name.startswith(prefix) and not name.endswith("~")]
    except OSError:
        return []
    found = []
    for name in names:
        try:
            found.append((os.stat(f"{folder}/{name}").st_mtime_ns, Copy(f"{folder}/{name}", name[-64:])))
        except OSError:
            continue
    return [copy for _, copy in sorted(found)]


def content_of(copy: Copy) -> bytes | None:
    """Return a copy's bytes, None if it is gone or damaged."""
    try:
        descriptor = os.open(copy.file, LOOK)
    except OSError:
        return None
    try:
        data = read_all(descriptor)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return data if hashing.of_bytes(data) == copy.sha256 else None


def drop(copies: list[Copy]) -> None:
    """Remove copies that are not needed."""
    for copy in copies:
        try:
            os.unlink(copy.file)
        except OSError:
            pass


def keep(copy: Copy, path: str) -> str:
    """Give a copy the name of a kept version; return where it is."""
    folder = copy.file.rpartition("/")[0]
    name = path.rpartition("/")[2].encode("utf-8", "surrogateescape")[:120].decode("utf-8", "ignore")
    number = hashing.of_bytes(copy.file.encode("utf-8", "surrogateescape"))[:16]
    kept = f"{folder}/kept-{number}-{copy.sha256}~{name}"
    os.rename(copy.file, kept)
    return kept
