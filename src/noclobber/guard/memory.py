"""
Where what an agent saw is kept between two of its calls: one small interface, two stores.

`TurnContext` has the rules by which baselines move. A turn of a program lives in one process, so its
snapshot simply stays (`TurnMemory`). A host's hook is a process per event, and so is a command in the guarded
shell: the part of the snapshot that an event or a landing is about is read from a file and written back
(`hook.session_memory`). The judge and the landing ask both in the same way. Nobody is handed a copy.

Beside the snapshot there are notes, one small mapping for each path, about calls that somebody else carries
out:

| note | what it says |
|---|---|
| `pending` | by call: the hash before it, the outcome that it must have, and since when |
| `merged` | by call: base, theirs and ours of a stale write that was merged |
| `offered` | a merged text that the agent was given, its base, theirs and ours |
| `renamed` | by what a call that was given other content does now: the name that it had before |
| `together` | hashes that several pending calls may leave between them |
| `settled` | calls that were found to have landed before their host said so |
| `wrote`, `formatted` | the agent's last own version, and what a formatter made of it: see `formatted` |
| `reading` | by call: the hash before a read |
| `done`, `refused`, `read` | the last call of that kind, so that an event that comes twice changes nothing |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from noclobber.guard.snapshot import TurnContext


Notes = dict[str, Any]


class Memory(Protocol):
    """What one agent saw. Used as a context manager around the handling of one call."""

    holds_bytes: bool
    """True if `hold()` keeps what it is given."""

    @property
    def is_lost(self) -> bool:
        """True if something that the agent saw may be missing here."""

    def __enter__(self) -> Memory:
        """From here on no other process changes what this agent saw."""

    def __exit__(self, *_: object) -> None:
        """Others may."""

    def recall(self, name: str, path: str) -> tuple[TurnContext, Notes]:
        """Return a snapshot that knows what was seen under a name and a path, and the path's notes."""

    def paths(self) -> Sequence[str]:
        """Return the files of which anything is known, the latest first."""

    def notes_of(self, path: str) -> Notes:
        """Return the live notes of a path, for calls that this process carries out itself."""

    def keep(self, snapshot: TurnContext, name: str, path: str, notes: Notes) -> None:
        """Keep what is known now. `HookFailedError` if that is not possible."""

    def hold(self, path: str, sha256: str, data: bytes) -> None:
        """Hold the bytes of a version for a while, if that is possible."""

    def held(self, sha256: str | None) -> bytes | None:
        """Return the bytes of a version that are still held, None if they are not."""


class TurnMemory:
    """The memory of a turn that lives in this process."""

    is_lost = holds_bytes = False

    def __init__(self, snapshot: TurnContext) -> None:
        self._snapshot = snapshot
        self._notes: dict[str, Notes] = {}

    @property
    def has_notes(self) -> bool:
        """True if anything was noted beside the snapshot."""
        return bool(self._notes)

    def __enter__(self) -> TurnMemory:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def recall(self, name: str, path: str) -> tuple[TurnContext, Notes]:
        """Return the turn's own snapshot, and the live notes: threads of the turn change them key by key."""
        return self._snapshot, self._notes.setdefault(path, {})

    def paths(self) -> Sequence[str]:
        """Return the files that the turn has seen or changed, the latest first."""
        return [path for path, _ in reversed(self._snapshot.baselines())]

    def notes_of(self, path: str) -> Notes:
        """Return the notes of a path without making any."""
        return self._notes.get(path, {})

    def keep(self, snapshot: TurnContext, name: str, path: str, notes: Notes) -> None:
        """Drop notes that are empty; everything else is in place."""
        if not notes:
            self._notes.pop(path, None)

    def hold(self, path: str, sha256: str, data: bytes) -> None:
        """Hold nothing: the snapshot has the bytes of baselines."""

    def held(self, sha256: str | None) -> bytes | None:
        """Nothing."""
        return None
