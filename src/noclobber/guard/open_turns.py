"""
Which turns are open here, for people to see (`noclobber status`). Nothing else depends on it.

A snapshot lives in the memory of its process. So that others can see that there is a turn at all, a
process keeps one small file for each workspace in `.noclobber/turns/`: its board. The first slot names
the process, by more than its number (`disk.processes`), so that a board left by a killed process is told
from one in use; every other slot is a turn, or empty. Showing a turn is one write to an open file. A file
a turn would cost ten times that, and more than the rest of a turn's start and end together.

A workspace that is only read leaves nothing behind: where there is no state folder yet, turns show
themselves at the first write, which makes that folder.

A courtesy, never a condition: whatever goes wrong here (a full disk, a folder of somebody else's), the
turn goes on unseen.
"""

from __future__ import annotations

import json
import os
import threading
from typing import Any, NamedTuple

from noclobber.core.clock import iso8601
from noclobber.core.project import TURNS_FOLDER
from noclobber.disk import after_fork, forks
from noclobber.disk.paths import OPEN_FOLDER
from noclobber.disk.processes import GONE, ProcessIdentity, fate, identify

TYPE_CHECKING = False
if TYPE_CHECKING:
    from noclobber.guard.snapshot import TurnContext

SLOT_BYTES = 2048
MOST_SLOTS = 1024  # A program with more turns open than this shows that many.
_LONGEST_NAME = 96  # Letters of an agent's name, and so on: five of them fit into a slot, in any script.
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Present(NamedTuple):
    """One turn that showed itself."""

    file: str
    turn_id: str
    agent_id: str
    session_id: str | None
    host: str | None
    """The coding agent's program, where known."""
    intent_id: str | None
    started: str
    pid: int
    machine: str
    state: str
    """`running`, `gone` (its process ended without ending it), or `unknown`: another machine or container."""


class Board:
    """What one process shows in one workspace. Its methods never raise."""

    def __init__(self, state_folder: str) -> None:
        self._state_folder = state_folder
        self._lock = threading.RLock()  # Re-entrant: a signal handler may end a turn.
        after_fork.renew(self, "_lock", threading.RLock)
        self._forget()

    def _forget(self) -> None:
        self._pid = os.getpid()
        self._descriptor, self._file = -1, ""
        self._shown: dict[int, bytes] = {}

    def show(self, context: TurnContext, host: str | None, intent_id: str | None, now_s: float) -> int:
        """Show a turn; return the slot to `hide()`, or -1 if it could not be shown."""
        try:
            names = (context.turn_id, context.agent_id, context.session_id, host, intent_id)
            told = [*(name and str(name)[:_LONGEST_NAME] for name in names), iso8601(now_s)]
            body = json.dumps(told, ensure_ascii=False).encode("utf-8", "backslashreplace")
            with self._lock:
                if self._pid != os.getpid():  # A forked child: what it inherited is its parent's to change.
                    self._forget()
                self._open_if_gone()
                slot = next(number for number in range(1, MOST_SLOTS) if number not in self._shown)
                os.pwrite(self._descriptor, _slot(body), slot * SLOT_BYTES)
                self._shown[slot] = body
                return slot
        except (OSError, ValueError, StopIteration):
            return -1

    def hide(self, slot: int, pid: int) -> None:
        """Empty a slot that this very process filled."""
        with self._lock:
            if self._pid != os.getpid() or pid != self._pid or self._shown.pop(slot, None) is None:
                return
            try:
                os.pwrite(self._descriptor, _slot(b""), slot * SLOT_BYTES)
            except OSError:
                pass

    def renew(self) -> None:
        """Show again what is shown, if somebody removed the file (`git clean -fdx`)."""
        with self._lock:
            if self._pid == os.getpid() and self._shown:
                try:
                    self._open_if_gone()
                except OSError:
                    pass

    def close(self) -> None:
        """Take the board away."""
        with self._lock:
            if self._pid == os.getpid() and self._descriptor >= 0:
                try:
                    forks.close(self._descriptor)
                    os.unlink(self._file)
                except OSError:
                    pass
                self._forget()

    def _open_if_gone(self) -> None:
        """Make the file if there is none, and write to it what is shown."""
        if self._descriptor >= 0:
            if os.fstat(self._descriptor).st_nlink:
                return
            forks.close(self._descriptor)
            self._descriptor = -1
        # No-follow, a step at a time: a link in our folder's place would lead this file elsewhere.
        state_fd = os.open(self._state_folder, OPEN_FOLDER | os.O_NOFOLLOW)
        try:
            try:
                os.mkdir(TURNS_FOLDER, dir_fd=state_fd)
            except FileExistsError:
                pass
            turns_fd = os.open(TURNS_FOLDER, OPEN_FOLDER | os.O_NOFOLLOW, dir_fd=state_fd)
        finally:
            os.close(state_fd)
        try:
            name = os.urandom(8).hex()
            self._descriptor = forks.open_tracked(name, _CREATE, 0o666, dir_fd=turns_fd)
        finally:
            os.close(turns_fd)
        self._file = f"{self._state_folder}/{TURNS_FOLDER}/{name}"
        os.pwrite(self._descriptor, _slot(json.dumps(identify()).encode()), 0)
        for slot, body in self._shown.items():
            os.pwrite(self._descriptor, _slot(body), slot * SLOT_BYTES)


def _slot(body: bytes) -> bytes:
    if len(body) > SLOT_BYTES:
        raise ValueError("names full of control characters, which JSON spells in six letters, do not fit")
    return body.ljust(SLOT_BYTES, b"\0")


def look(state_folder: str) -> list[Present]:
    """Return every turn that shows itself in a workspace, oldest first. Reads only, and never raises."""
    found = [present for file in _boards(state_folder) for present in _read(file)[1]]
    return sorted(found, key=lambda present: (present.started, present.turn_id))


def boards_of_the_dead(state_folder: str) -> list[str]:
    """Return the boards whose process is gone. Removing one harms nobody."""
    return [file for file in _boards(state_folder) if _read(file)[0] == GONE]


def _boards(state_folder: str) -> list[str]:
    folder = f"{state_folder}/{TURNS_FOLDER}"
    try:
        return [f"{folder}/{name}" for name in os.listdir(folder)]
    except OSError:
        return []


def _read(file: str) -> tuple[str, list[Present]]:
    """Return what became of a board's process, and its turns. What is not (yet) whole says nothing."""
    try:
        descriptor = os.open(file, _LOOK)
        try:
            content = os.read(descriptor, MOST_SLOTS * SLOT_BYTES)
        finally:
            os.close(descriptor)
        process = ProcessIdentity(*json.loads(_words(content, 0)))
        state = fate(process)
    except (OSError, ValueError, TypeError, RecursionError, OverflowError):
        return "", []
    turns = []
    for start in range(SLOT_BYTES, len(content), SLOT_BYTES):
        try:
            turn_id, agent_id, session_id, host, intent_id, started = json.loads(_words(content, start))
        except (ValueError, TypeError, RecursionError):
            continue
        turns.append(
            Present(
                file,
                str(turn_id),
                str(agent_id),
                _text_or_none(session_id),
                _text_or_none(host),
                _text_or_none(intent_id),
                str(started),
                process.pid,
                str(process.host),
                state,
            )
        )
    return state, turns


def _words(content: bytes, start: int) -> bytes:
    return content[start : start + SLOT_BYTES].rstrip(b"\0")


def _text_or_none(value: Any) -> str | None:
    return None if value is None else str(value)
