"""
What was written to files, by whom, in the order in which it landed: the ledger's `MUTATION` events as values.

For commands that look back. Lines of other programs, and lines that are not entries, are passed over; the
ledger's own check is `ledger verify`. Nothing in a line is believed beyond its shape: a path may lead
anywhere, and a hash may name nothing. What is git's (`disk.git_folders`) is nobody's file, and is passed over
as well, except by `all_landed()`.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, NamedTuple

from noclobber.core.project import ledger_path
from noclobber.disk.git_folders import GitFolders
from noclobber.ledger.browse import event_in
from noclobber.ledger.chosen import is_on_server, lines_of
from noclobber.ledger.reader import Lines
from noclobber.ledger.root import absolute

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from noclobber.ledger.reader import LedgerPlace


class LandedWrite(NamedTuple):
    """One landed write of one file. Hashes are 64 digits, or a word such as `ABSENT`."""

    path: str
    before: str
    after: str
    time: str
    tool: str = ""
    agent_id: str | None = None
    session_id: str | None = None
    turn_id: str | None = None
    call_id: str | None = None
    host: str | None = None
    destination: str | None = None
    """For a move: where the file is now; `path` is where it was."""
    base: str | None = None
    """For a merged write: what the agent had seen, ..."""
    ours: str | None = None
    """... and what it wanted to write."""
    entry: str = ""
    """The hash of its line in the ledger: no other has it."""
    undoes: tuple[str, ...] = ()
    """For a write that took others back: their `entry`."""
    before_mode: int = 0
    """What was there, as `st_mode` says it, if a command removed it or changed its mode; 0: not on record."""
    after_mode: int = 0
    """The same of what is no plain file, or got another mode."""
    folder_mode: int = 0
    """Of its folder, if that went with it."""
    folder: str | None = None
    """The folder that came with it, if one did."""

    @property
    def who(self) -> str:
        """The agent as people call it: its name, its host and the beginning of its session."""
        parts = [self.agent_id or "an agent"]
        parts += [f"in {self.host}"] if self.host else []
        parts += [f"session {self.session_id[:8]}"] if self.session_id else []
        return ", ".join(parts)


class History:
    """
    Every landed write, read once, and which of them are of a file: for commands that ask about many files.

    Nothing is kept on the disk: a ledger is what its lines say.
    """

    def __init__(self, writes: Iterable[LandedWrite]) -> None:
        self.writes = list(writes)
        self._numbers: dict[str, list[int]] = {}
        for number, write in enumerate(self.writes):
            for path in {write.path, write.destination or write.path}:
                self._numbers.setdefault(path, []).append(number)

    def of_file(self, path: str) -> list[LandedWrite]:
        """Return the writes of the file that is at a path now, also those under names that it had before."""
        found: list[LandedWrite] = []
        before = len(self.writes)
        while True:
            numbers = self._numbers.get(path, [])
            for number in reversed(numbers[: bisect_left(numbers, before)]):
                write = self.writes[number]
                if write.destination == path:
                    found.append(write)
                    path, before = write.path, number
                    break
                if write.destination is None:
                    found.append(write)
            else:
                return found[::-1]


def landed_writes(root: str, path: str | None = None) -> Iterator[LandedWrite]:
    """Yield every landed write, or those of one file, from the first to the last."""
    git = GitFolders(root)
    for write in all_landed(root):
        if path in (None, write.path, write.destination) and not git.has(write.path):
            yield write


def all_landed(root: str) -> Iterator[LandedWrite]:
    """Yield every landed write, what is git's among them."""
    for line in lines_of(root):
        if (write := _landed_by(line, root)) is not None:
            yield write


def landed_behind(root: str, place: LedgerPlace | None) -> Iterator[tuple[LandedWrite, LedgerPlace]] | None:
    """
    Yield the landed writes behind a place (None: all), each with its own place.

    None if the ledger has not that line any more, or is on a server.
    """
    if is_on_server() or not os.path.lexists(ledger_path(root)):
        return None
    lines = Lines(ledger_path(root))
    if place is not None and not lines.go_on_behind(place):
        return None
    git = GitFolders(root)
    return (
        (write, lines.place_of(line))
        for line in lines
        if (write := _landed_by(line, root)) is not None and not git.has(write.path)
    )


def _landed_by(line: bytes, root: str) -> LandedWrite | None:
    if b'"MUTATION"' not in line:
        return None
    return _landed(event_in(line), root)


def _landed(event: Any, root: str) -> LandedWrite | None:
    if not isinstance(event, dict) or event.get("action_type") != "MUTATION":
        return None
    payload, identity = (
        member if isinstance(member := event.get(name), dict) else {} for name in ("payload", "identity")
    )
    path, before, after = (_text(payload, name) for name in ("target_file", "before_hash", "after_hash"))
    if not path or before is None or after is None:
        return None
    destination = _text(payload, "destination")
    merged = payload.get("merged")
    merged = merged if isinstance(merged, dict) else {}
    return LandedWrite(
        absolute(root, path),
        _plain(before) or "",
        _plain(after) or "",
        str(event.get("time", "")),
        _text(payload, "tool_name") or "",
        agent_id=_text(identity, "agent_id"),
        session_id=_text(identity, "session_id"),
        turn_id=_text(identity, "turn_id"),
        call_id=_text(identity, "call_id"),
        host=_text(identity, "host"),
        destination=None if destination is None else absolute(root, destination),
        base=_plain(_text(merged, "base_hash")),
        ours=_plain(_text(merged, "ours_hash")),
        entry=_plain(_text(event, "hash")) or "",
        undoes=_entries(payload.get("undoes")),
        before_mode=_mode(payload, "before_mode"),
        after_mode=_mode(payload, "after_mode"),
        folder_mode=_mode(payload, "folder_mode"),
        folder=None if (folder := _text(payload, "folder")) is None else absolute(root, folder),
    )


def _entries(value: Any) -> tuple[str, ...]:
    return tuple(_plain(str(each)) or "" for each in value) if isinstance(value, list) else ()


def _mode(payload: dict[str, Any], name: str) -> int:
    spelled = _text(payload, name) or ""
    return int(spelled, 8) if 0 < len(spelled) <= 6 and not set(spelled) - set("01234567") else 0


def _text(member: dict[str, Any], name: str) -> str | None:
    value = member.get(name)
    return value if isinstance(value, str) else None


def _plain(spelled: str | None) -> str | None:
    return None if spelled is None else spelled.removeprefix("sha256:")
