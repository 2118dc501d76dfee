"""
Commands that will run in the guarded shell: what the hook before them tells the shell that runs them.

The hook knows which agent asks, in which turn, by which call; the shell only knows its session. So the hook
leaves a note in the runtime folder, and the shell takes it: one note, one command. A command without a note
runs as it is: the hook did not ask for a guard, or there is no hook.

A host may spell a command in another way when it runs it (Claude Code puts `< /dev/null` into pipes). So a
note is found by the command without its white space and that redirection, and otherwise it is the oldest one
of the session. A plainly read-only command leaves no note, and must not look for one.

After `noclobber start` every `bash -c` of the host comes here, also for hooks of the user's own. So there a
text must be the note's command, or have it inside: Gemini puts lines around it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.core.json_text import parse, spell
from noclobber.disk import hashing, small_file
from noclobber.hook.session_memory import open_runtime

if TYPE_CHECKING:
    from noclobber.hosts.event import Event

RUN = "run"
LIFE_S = 24 * 3600.0  # A permission dialogue may be open overnight.
MOST_COMMAND = 1 << 18


class GuardedCall(NamedTuple):
    """A command that may run, and whose it is."""

    root: str
    host: str
    session_id: str
    agent_id: str
    turn_id: str | None
    call_id: str | None
    is_plain: bool
    """True for one that runs as it is: the host does not wait for it, or it is only watched."""
    command: str = ""
    """As the agent wrote it, if it may come with something around it."""
    parent_agent_id: str | None = None
    """Of a subagent: whose knowledge counts as well."""


def leave(event: Event, root: str, *, is_plain: bool, launch: str = "") -> None:
    """
    Note that a command may run. Plain ones are noted, too: nobody may take another command's note.

    `launch`: under this id, and not the session's.
    """
    call = GuardedCall(
        *(root, event.host, event.session_id, event.agent_id, event.turn_id, event.call_id),
        is_plain=is_plain,
        command=event.command if launch and len(event.command) < MOST_COMMAND else "",
        parent_agent_id=event.parent_agent_id,
    )
    prefix = _prefix(event.host, launch or event.session_id)
    name = f"{prefix}{_key(event.command)}.{_short(event.call_id or '')}"
    with small_file.closing(open_runtime()) as runtime_fd:
        # Whole, or not there: the shell may look at any moment.
        small_file.publish(name, spell(list(call)).encode("utf-8", "surrogatepass"), runtime_fd)


def take(host: str, session_id: str, command: str, *, is_exact: bool = False) -> GuardedCall | None:
    """
    Return the note about a command, and remove it; None if there is none.

    `is_exact`: it must be this command's, or that of a command which is in this text.
    """
    prefix = _prefix(host, session_id)
    with small_file.closing(open_runtime()) as runtime_fd:
        dated = []
        for name in os.listdir(runtime_fd):
            if name.startswith(prefix) and name.count(".") == prefix.count(".") + 1:
                try:
                    dated.append((os.stat(name, dir_fd=runtime_fd).st_mtime, name))
                except OSError:
                    continue
        wanted = f"{prefix}{_key(command)}."
        dated.sort(key=lambda one: (not one[1].startswith(wanted), one[0]))
        for left_at_s, name in dated:
            found = _read(runtime_fd, name)
            inside = found.command if found is not None else ""
            if is_exact and not name.startswith(wanted) and (not inside or inside not in command):
                continue
            try:
                os.unlink(name, dir_fd=runtime_fd)
            except OSError:
                continue  # Another command was faster.
            if found is not None and SYSTEM_CLOCK.now_s() - left_at_s < LIFE_S:
                return found
        return None


def _read(runtime_fd: int, name: str) -> GuardedCall | None:
    try:
        values: Any = parse(small_file.read(name, runtime_fd).decode("utf-8", "surrogatepass"))
        return GuardedCall(*values)
    except (OSError, ValueError, TypeError):
        return None


def _prefix(host: str, session_id: str) -> str:
    return f"{host}.{_short(session_id)}.{RUN}."


def _key(command: str) -> str:
    return _short("".join(command.replace("< /dev/null", "").split()))


def _short(text: str) -> str:
    return hashing.of_bytes(text.encode("utf-8", "surrogatepass"))[:24]
