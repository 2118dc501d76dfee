"""
Commands that will run in the guarded shell: what the hook before them tells the shell that runs them.

The hook knows which agent asks, in which turn, by which call; the shell only knows its session. So the hook
leaves a note in the runtime folder, and the shell takes it: one note, one command. A command without a note
runs as it is: the hook did not ask for a guard, or there is no hook.

| the note | |
|---|---|
| is there | nobody has taken it: the command has not begun, or it did not run in the guarded shell |
| ends in `.taken`, and is locked | the command runs in the guarded shell |
| ends in `.taken`, and is not locked | whoever took it has died, and nobody knows what it did |
| is gone | it ran in the guarded shell, and what became of it is on record |

A call that was let through as guarded and has not come back is not guarded: the hook after the call treats it
as watched (`hook/commands`). No text of a command and no setting of the shell can change that.

A host may spell a command in another way when it runs it (Claude Code puts `< /dev/null` into pipes). So a
note is found by the command without its white space and that redirection, and otherwise it is the oldest one
of the session. A plainly read-only command leaves no note, and must not look for one.

After `noclobber start` every `bash -c` of the host comes here while a note is there, also for hooks of the
user's own. So there a text must be the note's command, or have it inside: Gemini puts lines around it, and
takes blanks and a `bash -c` around the command away.
"""

from __future__ import annotations

import fcntl
import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.core.json_text import parse, spell
from noclobber.core.switches import runtime_folder
from noclobber.disk import hashing, small_file
from noclobber.hook.session_memory import open_runtime

if TYPE_CHECKING:
    from noclobber.hosts.event import Event

RUN = "run"
LIFE_S = 24 * 3600.0  # A permission dialogue may be open overnight.
MOST_COMMAND = 1 << 18
TAKEN = ".taken"
_WRAPPED = re.compile(r"""\s*(?:\S*/)?(?:ba|z|da)?sh\s+-c\s+(["']?)(.*)\1\s*""", re.DOTALL)


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
    since_ns: int = 0
    """When it was let through, by the clock of the project's filesystem."""
    note: str = ""
    """Where it is noted; empty before it is taken."""
    note_fd: int = -1
    """Held as long as its command runs."""


def leave(event: Event, root: str, *, is_plain: bool, launch: str = "", since_ns: int = 0) -> None:
    """
    Note that a command may run. Plain ones are noted, too: nobody may take another command's note.

    `launch`: under this id, and not the session's.
    """
    call = GuardedCall(
        *(root, event.host, event.session_id, event.agent_id, event.turn_id, event.call_id),
        is_plain=is_plain,
        command=event.command if launch and len(event.command) < MOST_COMMAND else "",
        parent_agent_id=event.parent_agent_id,
        since_ns=since_ns,
    )
    # Two calls without an id may be one command twice.
    name = _names(event, launch) + ("" if event.call_id else os.urandom(12).hex())
    with small_file.closing(open_runtime()) as runtime_fd:
        # Whole, or not there: the shell may look at any moment.
        small_file.publish(name, spell(list(call)[:-2]).encode("utf-8", "surrogatepass"), runtime_fd)


def unreported(event: Event, launch: str = "") -> GuardedCall | None:
    """Return the call of an event if it was let through as guarded and has not come back; once."""
    prefix = _names(event, launch)
    with small_file.closing(open_runtime()) as runtime_fd:
        for name in sorted(os.listdir(runtime_fd)):
            if name.startswith(prefix) and (found := _read(runtime_fd, name)) is not None:
                with small_file.closing(found.note_fd):
                    if not found.is_plain and (not name.endswith(TAKEN) or _held(found.note_fd)):
                        _unlink(runtime_fd, name)
                        return found
    return None


def report(call: GuardedCall) -> None:
    """What became of a call's command is known, and on record: the hook after it has nothing to do."""
    try:
        os.unlink(f"{runtime_folder()}/{call.note}")
    except OSError:
        pass
    os.close(call.note_fd)


def take(host: str, session_id: str, command: str, *, is_exact: bool = False) -> GuardedCall | None:
    """
    Return the note about a command, which nobody else can take any more; None if there is none.

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
            if found is None:
                _unlink(runtime_fd, name)
                continue
            is_other = is_exact and not name.startswith(wanted) and not _is_inside(found, command)
            if is_other or not _held(found.note_fd):  # In the second case another command was faster.
                os.close(found.note_fd)
                continue
            is_ours = SYSTEM_CLOCK.now_s() - left_at_s < LIFE_S
            try:
                if is_ours and not found.is_plain:
                    os.rename(name, name + TAKEN, src_dir_fd=runtime_fd, dst_dir_fd=runtime_fd)
                    return found._replace(note=name + TAKEN)
                os.unlink(name, dir_fd=runtime_fd)
            except OSError:
                is_ours = False  # As above.
            os.close(found.note_fd)
            if is_ours:
                return found
        return None


def _read(runtime_fd: int, name: str) -> GuardedCall | None:
    """Return what a note says, with the note open; None if it says nothing."""
    try:
        descriptor = os.open(name, small_file.READ, dir_fd=runtime_fd)
    except OSError:
        return None
    try:
        values: Any = parse(os.read(descriptor, small_file.MOST_BYTES).decode("utf-8", "surrogatepass"))
        return GuardedCall(*values)._replace(note_fd=descriptor)
    except (OSError, ValueError, TypeError):
        os.close(descriptor)
        return None


def _held(descriptor: int) -> bool:
    """Lock a note; False if its command runs. (The lock ends with the process, and is not inherited.)"""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _unlink(runtime_fd: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=runtime_fd)
    except OSError:
        pass


def _is_inside(found: GuardedCall, text: str) -> bool:
    """True if a text has a note's command in it, as a host may spell it."""
    wrapped = _WRAPPED.fullmatch(found.command)
    spelled = {found.command.strip(), wrapped[2].strip() if wrapped else ""} - {""}
    return any(re.search(rf"(?:^|[\s{{(;]){re.escape(one)}(?:$|[\s;)}}])", text) for one in spelled)


def _names(event: Event, launch: str) -> str:
    """Return how the names of the notes about a call begin."""
    prefix = _prefix(event.host, launch or event.session_id)
    return f"{prefix}{_key(event.command)}.{_short(event.call_id) if event.call_id else ''}"


def notes_of(host: str, launch: str) -> str:
    """Return how the paths of the notes of a start begin."""
    return f"{runtime_folder()}/{_prefix(host, launch)}"


def _prefix(host: str, session_id: str) -> str:
    return f"{host}.{_short(session_id)}.{RUN}."


def _key(command: str) -> str:
    return _short("".join(command.replace("< /dev/null", "").split()))


def _short(text: str) -> str:
    return hashing.of_bytes(text.encode("utf-8", "surrogatepass"))[:24]
