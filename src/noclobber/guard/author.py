"""
Who wrote what is in a file now (ruling 21): in words, for the sentence beside a refusal, a merge or a notice.

The ledger knows agents. Of everybody else the disk knows only when.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noclobber.core.clock import iso8601
from noclobber.disk.hashing import is_hash
from noclobber.disk.reading import look_at
from noclobber.ledger.last_writer import last_writer, spelled

if TYPE_CHECKING:
    from noclobber.core.clock import Clock


def author(root: str, path: str, sha256: str, changed_at_s: float = 0.0) -> str:
    """Return who wrote a version: "the agent b (codex session 4f2a91c3) at …", or "an outsider, at …"."""
    writer = last_writer(root, path, sha256) if is_hash(sha256) else None
    if writer is not None:
        return f"{spelled(writer)} at {writer.time}"
    return f"an outsider, at {iso8601(changed_at_s)[:19]}Z" if changed_at_s else "an outsider"


def author_now(root: str, path: str, confined_to: str | None, clock: Clock) -> str:
    """Return who wrote what is there now; empty if there is no file."""
    state = look_at(path, confined_to, clock=clock)
    return author(root, path, state.sha256, state.changed_at_s) if is_hash(state.sha256) else ""
