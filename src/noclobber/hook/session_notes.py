"""
What hooks note of a session as a whole, for its next events: small files in the runtime folder.

| note | what for |
|---|---|
| the project | which rules apply; settled by the first event, whatever is changed to later |
| marks | one for each call that a process looks on during (`guard/approval`); without its mark it ends |
| what was delegated | which subagent is at work, in hosts that do not name them |
| the last command | whether a change may be the agent's own |
| level, shell file | how the session's commands are run |
| background, trust | what the session was told once: about such commands, about options that do not count |

All of them go with the session (`session_memory.end_session`). Without the project no event is answered. The
others only make an answer better, or are found out again.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from noclobber.core.json_text import parse, spell
from noclobber.core.switches import runtime_folder
from noclobber.disk import mutex, small_file
from noclobber.disk.small_file import closing
from noclobber.errors import HookFailedError
from noclobber.hook.session_memory import PATIENCE_S, open_runtime, short

PROJECT = "project"
COMMAND = "command"
WATCH = "watch"
WATCH_END_S = 5.0
DELEGATED = "delegated"
LEVEL = "level"
SHELL_FILE = "shell-file"  # Which file the session's shells read first.
BACKGROUND = "background"
TRUST = "trust"


# -- the project -----------------------------------------------------------------------------------------


def settle_project(host: str, session_id: str, find: Callable[[], str]) -> str:
    """
    Return the project of a session: what its first event found, for as long as that folder exists.

    A later `cd`, a nested repository or a submodule must not change the rules that apply to the agent.
    """
    with small_file.closing(open_runtime()) as runtime_fd:
        name = _name(host, session_id, PROJECT)
        while True:
            settled = _settled(runtime_fd, name)
            if settled is None:
                found = find()
                if not _settle(runtime_fd, name, found):
                    continue  # Another event found one first, and that one counts.
                settled = found
            return settled


def has_begun(host: str, session_id: str) -> bool:
    """True if an event of this session has been answered before."""
    with closing(open_runtime()) as runtime_fd:
        return _noted_project(runtime_fd, f"{host}.{short(session_id)}.{PROJECT}") is not None


def _settled(runtime_fd: int, name: str) -> str | None:
    """Return the project that was settled; None if there is none, or none that exists any more."""
    settled = _noted_project(runtime_fd, name)
    if settled is None or _is_folder(settled):
        return settled
    # The project is gone, so the session gets another one. Under the mutex, with another look: between ours
    # and the removal somebody else may have settled the next one, which must not be removed.
    try:
        held = mutex.hold(runtime_fd, patience_s=PATIENCE_S)
    except OSError:
        held = True  # No flock on this filesystem.
    if not held:
        raise HookFailedError("", "Another hook is still settling its project after 5 seconds. Try again.")
    try:
        settled = _noted_project(runtime_fd, name)
        if settled is None or _is_folder(settled):
            return settled
        small_file.remove(name, runtime_fd)
        return None
    finally:
        mutex.release(runtime_fd)


def _noted_project(runtime_fd: int, name: str) -> str | None:
    try:
        return os.fsdecode(small_file.read(name, runtime_fd))
    except FileNotFoundError:
        return None


def _is_folder(settled: str) -> bool:
    return settled.startswith("/") and os.path.isdir(settled)


def _settle(runtime_fd: int, name: str, found: str) -> bool:
    """Publish what an event found; False if that must be tried again."""
    try:
        # Once, so that parallel first events agree on one project.
        small_file.publish(name, os.fsencode(found), runtime_fd, once=True)
        return True
    except (FileExistsError, FileNotFoundError):
        return False  # Not found: the end of the session has just removed all that it had, this as well.


# -- marks ------------------------------------------------------------------------------------------------


def make_mark(host: str, session_id: str, agent_id: str, key: str) -> str | None:
    """Make the mark of a call that is watched; return its path, None if it cannot be made."""
    path = _mark(host, session_id, agent_id) + short(key)
    try:
        small_file.append(path, b"")
    except OSError:
        return None
    return path


def remove_mark(host: str, session_id: str, agent_id: str, key: str) -> None:
    """Remove the mark of a call: nobody has to look on any more. Who looked on has made all copies then."""
    _end_watch(_mark(host, session_id, agent_id) + short(key))


def remove_marks(host: str, session_id: str, agent_id: str) -> bool:
    """Remove the marks of all calls of an agent; False if there was none."""
    folder, _, prefix = _mark(host, session_id, agent_id).rpartition("/")
    names = [name for name in os.listdir(folder) if name.startswith(prefix)]
    for name in names:
        _end_watch(f"{folder}/{name}")
    return bool(names)


def _end_watch(mark: str) -> None:
    """
    Remove a mark, and wait for the end of the process that has a lock on it.

    It is told by the folder, has its last look, and ends. Without the wait its copy of what somebody saved a
    moment before the host wrote could come after the call is judged, and nobody would find it.
    """
    try:
        descriptor = os.open(mark, small_file.READ)
    except OSError:
        return
    try:
        os.unlink(mark)
        mutex.hold(descriptor, patience_s=WATCH_END_S)
    except OSError:
        pass
    finally:
        os.close(descriptor)


def _mark(host: str, session_id: str, agent_id: str) -> str:
    return f"{runtime_folder()}/{host}.{short(session_id)}.{WATCH}.{short(agent_id)}."


# -- what happens in the session ---------------------------------------------------------------------------


def note_delegation(host: str, session_id: str, *, is_start: bool) -> None:
    """
    Note that a subagent starts, or that it has ended, in a host that does not name them.

    One letter each, appended, so that events at the same time do not overwrite each other.
    """
    with small_file.closing(open_runtime()) as runtime_fd:
        small_file.append(_name(host, session_id, DELEGATED), b"+" if is_start else b"-", runtime_fd)


def delegated_agent(host: str, session_id: str) -> str | None:
    """Return a name for the subagent that is at work now, None if it is the main agent."""
    with small_file.closing(open_runtime()) as runtime_fd:
        try:
            letters = small_file.read(_name(host, session_id, DELEGATED), runtime_fd)
        except FileNotFoundError:
            return None
    running = started = 0
    for letter in letters:
        is_start = letter == ord("+")
        started += is_start
        running = running + 1 if is_start else max(0, running - 1)
    return f"subagent-{started}" if running else None


def end_delegation(host: str, session_id: str) -> None:
    """Forget what was delegated: the turn of the main agent is over, so no subagent is at work."""
    try:
        os.unlink(f"{runtime_folder()}/{_name(host, session_id, DELEGATED)}")
    except OSError:
        pass


def note_command(host: str, session_id: str, start_s: float, end_s: float) -> None:
    """Note when a session's last shell command ran. Never raises: it only makes a refusal's text better."""
    _note(host, session_id, COMMAND, spell([start_s, end_s]))


def last_command(host: str, session_id: str) -> tuple[float, float] | None:
    """Return when a session's last shell command began and ended, None if that is not known."""
    try:
        start_s, end_s = parse(_noted(host, session_id, COMMAND) or "")
        return float(start_s), float(end_s)
    except (ValueError, TypeError):
        return None


def note_level(host: str, session_id: str, level: str) -> None:
    """Note which level shell commands get in a session. Never raises: then it is found out again."""
    _note(host, session_id, LEVEL, level)


def noted_level(host: str, session_id: str) -> str | None:
    """Return which level shell commands get in a session, None if nobody has found out."""
    return _noted(host, session_id, LEVEL)


def note_shell_file(host: str, session_id: str, path: str) -> None:
    """Note the file that the session's shells read first. Never raises: then commands are watched."""
    _note(host, session_id, SHELL_FILE, path)


def noted_shell_file(host: str, session_id: str) -> str | None:
    """Return the file that the session's shells read first, None if there is none."""
    return _noted(host, session_id, SHELL_FILE)


def note_told(host: str, session_id: str, what: str) -> bool:
    """Note that a session was told something; True if it was not told before."""
    try:
        with small_file.closing(open_runtime()) as runtime_fd:
            # Of two events that come together one makes it, so it is told once.
            small_file.create(_name(host, session_id, what), b"", runtime_fd)
        return True
    except (OSError, HookFailedError):
        return False


# -- one note -----------------------------------------------------------------------------------------------


def _name(host: str, session_id: str, kind: str) -> str:
    return f"{host}.{short(session_id)}.{kind}"


def _note(host: str, session_id: str, kind: str, text: str) -> None:
    """Never raises: these notes only make an answer better."""
    try:
        with small_file.closing(open_runtime()) as runtime_fd:
            small_file.publish(_name(host, session_id, kind), os.fsencode(text), runtime_fd)
    except (OSError, ValueError, HookFailedError):
        pass


def _noted(host: str, session_id: str, kind: str) -> str | None:
    try:
        with small_file.closing(open_runtime()) as runtime_fd:
            return os.fsdecode(small_file.read(_name(host, session_id, kind), runtime_fd)) or None
    except (OSError, HookFailedError):
        return None
