"""
Which turns of a workspace are open: in this process, for calls to find them, and for people to see.

A snapshot lives in the memory of its process. So that others can see that there is a turn at all
(`noclobber status`), a process keeps one small file for each workspace in `.noclobber/turns/`. It names the
process by more than its number (`disk.processes`), so that the file of a killed process is told from one in
use, and lists the turns.

A workspace that is only read leaves nothing behind: where there is no state folder yet, turns are shown
after the first write, which makes that folder. Showing is a courtesy, never a condition: whatever goes
wrong (a full disk, a folder of somebody else's), the turn goes on unseen.
"""

from __future__ import annotations

import json
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from noclobber.core.clock import iso8601
from noclobber.core.project import TURNS_FOLDER
from noclobber.disk import after_fork, forks, small_file
from noclobber.disk.paths import OPEN_FOLDER
from noclobber.disk.processes import GONE, ProcessIdentity, fate, identify
from noclobber.errors import TurnClosedError

if TYPE_CHECKING:
    from noclobber.core.clock import Clock
    from noclobber.core.values import ToolCall
    from noclobber.guard.turn import Turn

MAX_BYTES = 1 << 20  # Of one process's file: thousands of turns.
MAX_NAME_LETTERS = 96  # Of an agent's name, and so on.
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


class ShownTurn(NamedTuple):
    """One turn, as others see it."""

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


class OpenTurns:
    """The open turns of one workspace in this process. Showing them never raises."""

    def __init__(self, state_folder: str, clock: Clock) -> None:
        self._state_folder, self._clock = state_folder, clock
        # Weak: a turn that is dropped without an end must not be kept alive by us.
        self._turns: weakref.WeakValueDictionary[str, Turn] = weakref.WeakValueDictionary()
        self._lock = threading.RLock()  # Re-entrant: a signal handler may end a turn.
        after_fork.renew(self, "_lock", threading.RLock)
        self._shown: dict[str, list[str | None]] = {}
        self._pid, self._descriptor, self._file = os.getpid(), -1, ""

    def __iter__(self) -> Any:
        return iter(list(self._turns.values()))

    def add(self, turn: Turn) -> None:
        """Let a turn be found, and show it."""
        self._turns[turn.turn_id] = turn
        names = (turn.turn_id, turn.agent_id, turn.session_id, turn.host, turn.intent_id)
        started = iso8601(self._clock.now_s())
        self._shown[turn.turn_id] = [*(name and str(name)[:MAX_NAME_LETTERS] for name in names), started]
        weakref.finalize(turn, self._dropped, turn.turn_id).atexit = False
        self.show()

    def remove(self, turn_id: str) -> None:
        """The turn has ended."""
        self._turns.pop(turn_id, None)
        if self._shown.pop(turn_id, None) is not None:
            self.show()

    def _dropped(self, turn_id: str) -> None:
        """A turn was collected. If it never ended it is shown still; another one may have its id by now."""
        if turn_id not in self._turns:
            self.remove(turn_id)

    def find(self, call: ToolCall) -> Turn:
        """Return the turn that a call belongs to: by its id, or the agent's only one."""
        if call.turn_id is not None:
            turn = self._turns.get(call.turn_id)
            found = [turn] if turn is not None else []
        else:
            found = [
                turn for turn in self if turn.agent_id == call.agent_id and turn.session_id == call.session_id
            ]
        if len(found) == 1:
            return found[0]
        reason = "has several turns open; say which" if found else "has no such turn open; start one"
        raise TurnClosedError("", f"The agent {call.agent_id!r} {reason}.", turn_id=call.turn_id)

    def show(self) -> None:
        """Write which turns are open, if there is a state folder to write it in."""
        try:
            with self._lock:
                if self._pid != os.getpid():  # A forked child: what it inherited is its parent's to change.
                    self._pid, self._descriptor, self._file = os.getpid(), -1, ""
                if self._descriptor < 0 and not self._shown:
                    return
                self._open_if_gone()
                told = {"process": list(identify()), "turns": list(self._shown.values())}
                body = json.dumps(told, ensure_ascii=False).encode("utf-8", "backslashreplace")
                os.pwrite(self._descriptor, body, 0)
                os.ftruncate(self._descriptor, len(body))
        except (OSError, ValueError):
            pass

    def close(self) -> None:
        """Take the file away."""
        with self._lock:
            if self._pid == os.getpid() and self._descriptor >= 0:
                try:
                    forks.close(self._descriptor)
                    os.unlink(self._file)
                except OSError:
                    pass
            self._descriptor, self._file = -1, ""
            self._shown.clear()

    def _open_if_gone(self) -> None:
        """Make the file if there is none: at first, and after somebody removed it (`git clean -fdx`)."""
        if self._descriptor >= 0:
            if os.fstat(self._descriptor).st_nlink:
                return
            forks.close(self._descriptor)
            self._descriptor = -1
        # No-follow, a step at a time: a link in our folder's place would lead this file elsewhere.
        state_fd = os.open(self._state_folder, OPEN_FOLDER | os.O_NOFOLLOW)
        try:
            try:
                os.mkdir(TURNS_FOLDER, 0o775, dir_fd=state_fd)
            except FileExistsError:
                pass
            turns_fd = os.open(TURNS_FOLDER, OPEN_FOLDER | os.O_NOFOLLOW, dir_fd=state_fd)
        finally:
            os.close(state_fd)
        try:
            name = os.urandom(8).hex()
            self._descriptor = forks.open_tracked(name, _CREATE, 0o664, dir_fd=turns_fd)
        finally:
            os.close(turns_fd)
        self._file = f"{self._state_folder}/{TURNS_FOLDER}/{name}"


def look(state_folder: str) -> list[ShownTurn]:
    """Return every turn that is shown in a workspace, oldest first. Reads only, and never raises."""
    found = [turn for file in _files(state_folder) for turn in _read(file)[1]]
    return sorted(found, key=lambda turn: (turn.started, turn.turn_id))


def left_behind(state_folder: str) -> list[str]:
    """Return the files whose process is gone. Removing one harms nobody."""
    return [file for file in _files(state_folder) if _read(file)[0] == GONE]


def _files(state_folder: str) -> list[str]:
    folder = f"{state_folder}/{TURNS_FOLDER}"
    try:
        return [f"{folder}/{name}" for name in os.listdir(folder)]
    except OSError:
        return []


def _read(file: str) -> tuple[str, list[ShownTurn]]:
    """Return what became of a file's process, and its turns. What is not (yet) whole says nothing."""
    try:
        told = json.loads(small_file.read(file, most_bytes=MAX_BYTES))
        process = ProcessIdentity(*told["process"])
        state = fate(process)
        return state, [
            ShownTurn(file, *_as_text(turn), process.pid, str(process.host), state) for turn in told["turns"]
        ]
    except (OSError, ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return "", []


def _as_text(turn: list[Any]) -> tuple[str, str, str | None, str | None, str | None, str]:
    turn_id, agent_id, session_id, host, intent_id, started = turn
    maybe = [None if name is None else str(name) for name in (session_id, host, intent_id)]
    return str(turn_id), str(agent_id), maybe[0], maybe[1], maybe[2], str(started)
