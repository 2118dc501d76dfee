"""
Versions that were kept aside for a person: which file each belongs to, put one back, or drop it.

A version is kept if somebody wrote to it after it had been replaced, or if a host wrote over what somebody
had just saved. Putting it back is a guarded write like any other: what is there now becomes a past version,
and if the file changes in between, nothing is written.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.core.project import state_folder
from noclobber.disk.commit import leftovers
from noclobber.disk.reading import LOOK
from noclobber.errors import BadRequestError, MissingFileError
from noclobber.ledger.browse import event_in
from noclobber.ledger.chosen import recent_lines
from noclobber.ledger.root import absolute

if TYPE_CHECKING:
    from noclobber.core.clock import Clock
    from noclobber.disk.commit.leftovers import Kept

AGENT_ID = "noclobber kept"


def listed(root: str, clock: Clock = SYSTEM_CLOCK) -> tuple[Kept, ...]:
    """Return what is kept in a project's state folder."""
    return leftovers.found_in(state_folder(root), clock.now_s()).kept


def named(root: str, name: str, clock: Clock = SYSTEM_CLOCK) -> Kept:
    """Return the one with this name (the last part of its path), or that begins so."""
    found = (
        [each for each in listed(root, clock) if os.path.basename(each.path).startswith(name)] if name else []
    )
    exact = [each for each in found if os.path.basename(each.path) == name]
    if len(exact or found) != 1:
        told = f"{len(found)} kept versions begin with this name; give more of it"
        missing = "no kept version has this name; `noclobber kept list` lists them"
        raise MissingFileError(name, f"{told if found else missing}.")
    return (exact or found)[0]


def origin(root: str, kept: Kept) -> str | None:
    """Return the path of the file that a kept version belonged to, if the ledger knows it."""
    own = os.path.basename(kept.path).partition("~")[0].encode("utf-8", "surrogateescape")
    replaced = f'"before_hash":"sha256:{kept.replaced_sha256}"'.encode() if kept.replaced_sha256 else own
    likely = None
    for line in recent_lines(root):
        if line is None or (own not in line and (likely is not None or replaced not in line)):
            continue
        path = _target(line, root)
        if path is None or not os.path.basename(path).startswith(kept.name):
            continue
        if own in line:
            return path  # The event names this very version.
        likely = path
    return likely


def replaced(root: str) -> dict[str, list[str]]:
    """Return where the versions that recent events replaced were, by their hashes."""
    found: dict[str, list[str]] = {}
    mark = b'"before_hash":"sha256:'
    for line in recent_lines(root):
        _, is_there, rest = (line or b"").partition(mark)
        if is_there and (path := _target(line or b"", root)) is not None:
            found.setdefault(rest[:64].decode("ascii", "replace"), []).append(path)
    return found


def _target(line: bytes, root: str) -> str | None:
    payload = (event_in(line) or {}).get("payload")
    path = payload.get("target_file") if isinstance(payload, dict) else None
    return absolute(root, path) if isinstance(path, str) and path else None


def restore(root: str, name: str, file: str | None = None) -> str:
    """Make a kept version the content of its file, or of `file`, and drop it; return that path."""
    from noclobber.guard.workspace import Workspace

    kept = named(root, name)
    path = file or origin(root, kept)
    if path is None:
        raise BadRequestError(
            kept.path, f"Which file {kept.name} it belongs to is not on record; name the file."
        )
    content, status = read(kept)
    with Workspace(root) as workspace, workspace.turn(agent_id=AGENT_ID, on_stale="refuse") as turn:
        try:
            turn.read_file(path)
        except MissingFileError:
            pass
        turn.write_file(path, content)
    _remove(kept, status)
    return path


def drop(root: str, name: str) -> str:
    """Remove a kept version; return what its path was."""
    kept = named(root, name)
    _remove(kept, os.lstat(kept.path))
    return kept.path


def read(kept: Kept) -> tuple[bytes, os.stat_result]:
    """Return a kept version's bytes, and the status of what they were read from."""
    descriptor = os.open(kept.path, LOOK)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # It was replaced since it was listed.
            raise BadRequestError(kept.path, "this is not a file; noclobber has not made it.")
        content = file.read()
        return content, os.fstat(descriptor)


def _remove(kept: Kept, seen: os.stat_result) -> None:
    """Remove it, unless somebody has written to it since: that was never looked at."""
    now = os.lstat(kept.path)
    if (now.st_ino, now.st_size, now.st_mtime_ns) != (seen.st_ino, seen.st_size, seen.st_mtime_ns):
        raise BadRequestError(kept.path, "Somebody wrote to this kept version just now; look at it again.")
    os.unlink(kept.path)
