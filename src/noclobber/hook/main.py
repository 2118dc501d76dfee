"""
One hook call: an event on stdin, an answer on stdout, and an exit code.

A failure never lets a write through. If the host waits for this answer before a write, or may do so, every
failure is answered with a refusal that says what to do. Reads and mere notifications always go ahead. Either
way the failure is logged in `hook.log` in the runtime folder.

The command line says what the call is for (the *duty*), because an event that cannot be read does not say it:
`check` if a write waits for the answer, `note` if nothing waits, `shell` for a command that may contain a
patch, `write` to carry a write out in the host's place (`writing`), `auto` to tell from the event. `install`
writes the duty into the host's configuration.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from noclobber.core.clock import SYSTEM_CLOCK, iso8601
from noclobber.core.json_text import parse, spell
from noclobber.core.project import COORDINATOR
from noclobber.disk import small_file
from noclobber.errors import (
    BadRequestError,
    HookFailedError,
    NoclobberError,
    RefusalError,
    UnknownToolError,
)
from noclobber.hosts import GUESTS, HOSTS, load, vscode
from noclobber.hosts.event import GUARD, NOTHING, Answer, Event

if TYPE_CHECKING:
    from noclobber.guard.outside import Outside
    from noclobber.hook.turn import HookTurn
    from noclobber.hosts import Host

MOST_BYTES = 256 << 20
LOG_NAME = "hook.log"
LOG_BYTES = 1 << 20
UNTOLD_S = 5.0  # How long a command may have run, if the host does not say.
CHECK, NOTE, SHELL, AUTO, WRITE = "check", "note", "shell", "auto", "write"
DUTIES = (CHECK, NOTE, SHELL, AUTO, WRITE)
STAND_BY = "stand-by"  # After the duty: leave a process behind that answers the next events (`standby`).


def main(words: Sequence[str]) -> int:
    """Answer one event; return the exit code."""
    has_stdout = _keep_standard_descriptors()
    if not words or words[0] not in HOSTS or any(word not in DUTIES for word in words[1:2]):
        _write(2, f"usage: noclobber hook {{{','.join(HOSTS)}}} [{'|'.join(DUTIES)}] < event.json\n")
        return 2
    host_name, duty = words[0], words[1] if len(words) > 1 else AUTO

    def deliver(answer: Answer) -> None:
        _write(2, answer.stderr)
        if answer.stdout and not has_stdout:
            raise OSError("stdout is closed")
        _write(1, answer.stdout)

    if duty == WRITE:
        from noclobber.hook.writing import converse  # Here: only hosts whose tools we replace need it.

        _ask_lightly()
        return converse(host_name, _answer_failure, _with_guidance)
    code = carry_out(host_name, duty, 0, deliver)
    if duty == NOTE and words[2:3] == [STAND_BY]:
        from noclobber.hook import standby  # Here: once a session.

        standby.start(_real_host(host_name))
    return code


def _ask_lightly() -> None:
    if COORDINATOR in os.environ:
        from noclobber.postgres.coordinator import ask_lightly

        ask_lightly()


def carry_out(host_name: str, duty: str, stdin_fd: int, deliver: Callable[[Answer], None]) -> int:
    """Answer the event that a descriptor has, and do what there is to do once the host has its answer."""
    _ask_lightly()
    answer = respond(_real_host(host_name), duty, stdin_fd)
    if answer.watch is not None:
        from noclobber.guard import approval  # Loaded before, to make it.

        approval.start(answer.watch)  # Before the host hears: it may write the moment that it does.
    try:
        deliver(answer)
    except OSError:
        return _refuse_by_exit_code(answer)
    if answer.versions:
        from noclobber.guard import host_versions  # Loaded before, to make them.

        host_versions.keep_beside(answer.versions)
    return answer.code


def _refuse_by_exit_code(answer: Answer) -> int:
    """
    Say what could not be printed by an exit code: 2 for a refusal, which every host takes for one.

    So is other content to be written: without it the host would write what the model sent, over somebody's
    changes. Everything else is 0. After a call or at a stop, 2 would make some hosts go on for ever.
    """
    if not answer.is_refusal and not answer.is_rewrite:
        return 0
    try:
        _write(2, f"{answer.stdout}\n")
    except OSError:
        pass
    return 2


def _real_host(name: str) -> str:
    """Copilot runs Claude Code's hooks too. Without this, one event would count for two agents."""
    return "copilot" if name == "claude-code" and os.environ.get("COPILOT_CLI") else name


def respond(host_name: str, duty: str, stdin_fd: int) -> Answer:
    """Read an event from a descriptor and answer it."""
    host = load(host_name)
    event: Event | None = None
    data = b""
    try:
        data = _read_all(stdin_fd)
        payload = parse(data)
        if not isinstance(payload, dict):
            raise ValueError("the event is not an object")
        if host_name == "claude-code" and vscode.is_its_own(payload, _is_guests_session):
            host = load(host_name := "vscode")
        event = host.read(payload)
        if (
            duty in (CHECK, SHELL) and event.kind == "other"
        ):  # An unknown event name, and a call waits for it.
            event = host.read({**payload, **host.CHECK_EVENT})
        elif duty == NOTE and _is_of_unknown_kind(event, payload, data):
            event = event._replace(kind="post", trouble=BadRequestError("", "The event's name is not known."))
        return _handle(host, event)
    except Exception as error:  # Any failure: a write that was not judged is not let through.
        return _answer_failure(host, host_name, duty, data, event, error)


def _is_guests_session(session_id: str) -> bool:
    from noclobber.hook.session_notes import has_begun

    return has_begun("vscode", session_id)


def _is_of_unknown_kind(event: Event, payload: dict[str, Any], data: bytes) -> bool:
    """
    True if a note is about a call, and does not say in a known way that the call is over.

    `install` has notes sent after calls. Before a call they are sent only of what may be a lock file
    (Copilot) and of a delegation, which reads nothing.
    """
    if event.kind == "other":
        return any(name in payload for name in ("tool_name", "toolName", "tool_response", "toolResult"))
    is_read = event.kind == "pre" and any(action.kind == "read" for action in event.actions)
    return is_read and not event.writes and b".lock" not in data


def _handle(host: Host, event: Event) -> Answer:
    if event.host in GUESTS and isinstance(event.trouble, UnknownToolError):
        # It did not ask for our hooks, so what they cannot judge passes. `doctor` tells of it.
        _log(event.host, event, b"", event.trouble)
        return host.phrase(event, None)
    if event.trouble is not None:
        raise event.trouble
    if event.is_agent_unknown:
        event = _with_agent(event)
    if event.command and event.kind in ("pre", "post", "failure"):
        from noclobber.shell.read_only import is_read_only  # Here: only a shell command needs it.

        if not is_read_only(event.command, cwd=event.cwd):
            if event.kind != "pre":
                _note_command(event)
            if not event.writes:
                return _handle_command(host, event)
    return _handle_call(host, event)


def _handle_command(host: Host, event: Event) -> Answer:
    """Answer an event about a shell command that may write: what it shows counts as ever."""
    from noclobber.hook import commands
    from noclobber.hook.turn import HookTurn

    answer = _handle_call(host, event)
    turn = HookTurn(event)
    if event.kind == "pre":
        if answer.is_refusal:
            return answer
        refusal = _with_guidance(host, turn, event, commands.before(turn, event))
        if refusal is None:
            return GUARD if turn.is_command_guarded and event.is_routed else answer
        return host.phrase(event, refusal)
    told = _with_guidance(host, turn, event, commands.after(turn, event))
    if told is not None:
        return host.warn(event, told)
    if turn.to_tell:
        return host.tell(event, turn.to_tell)
    if event.kind == "post" and event.is_background and answer == host.phrase(event, None):
        said = commands.of_background(turn, event)
        return host.tell(event, said) if said else answer
    return answer


def _handle_call(host: Host, event: Event) -> Answer:
    if event.kind in ("pre", "post", "failure"):
        is_free = event.kind == "pre" and not event.writes and not event.is_read_asked
        if not event.actions or (is_free and not _reads_lock_file(event)):
            return host.phrase(event, None)
        from noclobber.hook.turn import HookTurn

        turn = HookTurn(event)
        outside = turn.outside()
        if event.kind == "pre":
            refusal = _with_guidance(host, turn, event, outside.before())
            if refusal is not None:
                return host.phrase(event, refusal)._replace(versions=outside.versions)
            merged = outside.content
            answer = host.phrase(event, None) if merged is None else host.rewrite(event, merged)
            return answer._replace(
                watch=outside.watch, is_rewrite=merged is not None, versions=outside.versions
            )
        if event.kind == "failure":
            outside.failed()
            return host.phrase(event, None)
        told = _with_guidance(host, turn, event, outside.after(event.result))
        return host.warn(event, told) if told is not None else _tell(host, turn, event, outside)
    if event.kind == "prompt":
        return _tell_at_start(host, event)
    _note(event)
    return host.phrase(event, None)


def _tell(host: Host, turn: HookTurn, event: Event, outside: Outside) -> Answer:
    """Tell the agent after a call that its write was merged, and what others have changed since."""
    told = ""
    try:
        if outside.merges:
            from noclobber.hook import guidance

            told = guidance.merged(turn, event, outside.merges)
        from noclobber.hook import notices

        told = "\n".join(filter(None, (told, notices.of_options(turn, event))))
        if turn.options.notices != "off":
            told = "\n".join(filter(None, (told, notices.after_call(turn, event, outside.looked))))
    except Exception as failure:  # What happened is on record, and the next write is checked all the same.
        _log(event.host, event, b"", failure)
    return host.tell(event, told) if told else host.phrase(event, None)


def _tell_at_start(host: Host, event: Event) -> Answer:
    """Tell the agent at the start of its turn what others have changed since."""
    told = ""
    try:
        from noclobber.hook import notices
        from noclobber.hook.turn import HookTurn

        turn = HookTurn(event)
        told = notices.of_options(turn, event)
        if turn.options.notices != "off":
            told = "\n".join(filter(None, (told, notices.at_start(turn, event))))
    except Exception as failure:
        _log(event.host, event, b"", failure)
    return host.tell(event, told) if told else host.phrase(event, None)


def _with_guidance(
    host: Host, turn: HookTurn, event: Event, error: NoclobberError | None
) -> NoclobberError | None:
    """Put beside a refusal what helps the model to go on. Without it, it is a refusal all the same."""
    if error is not None:
        try:
            from noclobber.hook import guidance  # Here: most calls are let through.

            error.beside = guidance.beside(turn, event, error, host.READ_TOOL)
        except Exception as failure:
            _log(event.host, event, b"", failure)
    return error


def _with_agent(event: Event) -> Event:
    """Tell a subagent from the main agent where the host does not: by what was delegated and goes on."""
    from noclobber.hook import session_notes

    if event.is_delegation:
        is_start = event.kind == "pre"
        session_notes.note_delegation(event.host, event.session_id, is_start=is_start)
        return event
    agent_id = session_notes.delegated_agent(event.host, event.session_id)
    return event if agent_id is None else event._replace(agent_id=agent_id, parent_agent_id=event.agent_id)


def _note_command(event: Event) -> None:
    """Note when the agent's command ran: what changed meanwhile was changed by the agent itself, perhaps."""
    from noclobber.hook import session_notes

    end_s = SYSTEM_CLOCK.now_s()
    duration_s = event.result.duration_s
    start_s = end_s - (UNTOLD_S if duration_s is None else duration_s)
    session_notes.note_command(event.host, event.session_id, start_s, end_s)


def _reads_lock_file(event: Event) -> bool:
    """True if a call reads a lock file, by name or through a link (REQ-LOCK-010). Other reads are free."""
    from noclobber.lock.names import is_lock_file

    for action in event.actions:
        name = os.path.join(event.cwd, action.path)
        if is_lock_file(name) or (os.path.islink(name) and is_lock_file(os.path.realpath(name))):
            return True
    return False


def _note(event: Event) -> None:
    """Take note of the start or the end of a session or a turn."""
    from noclobber.hook import session_memory, session_notes
    from noclobber.hook.turn import HookTurn

    if event.kind == "session-start":
        session_memory.forget_old()
        HookTurn(event)  # Settles which project the session belongs to.
        if event.host == "claude-code":
            from noclobber.hosts import shell_prefix

            if (file := shell_prefix.write_line()) is not None:
                session_notes.note_shell_file(event.host, event.session_id, file)
        if event.detail == "resume":
            with session_memory.SessionMemory(event.host, event.session_id, event.agent_id) as known:
                if known.is_empty:  # The model remembers files, and our memory of them is gone.
                    known.lose()
    elif event.kind in ("stop", "session-end"):
        turn = HookTurn(event)
        turn.end()
        turn.end_watches()
        session_notes.end_delegation(event.host, event.session_id)
        if event.kind == "session-end":
            session_memory.forget_lost_mark(turn.root, event.host, event.session_id)
            session_memory.end_session(event.host, event.session_id)


# -- when something fails ---------------------------------------------------------------------------------


def _answer_failure(
    host: Host, host_name: str, duty: str, data: bytes, event: Event | None, error: Exception
) -> Answer:
    """Answer an event that could not be judged."""
    _log(host_name, event, data, error)
    known = event or Event(host_name, "pre")
    if not _may_write(host, duty, data, event):
        if event is not None and _may_have_read(event):
            told = _forget_read(event, error)
            if event.trouble is not None:
                _add_report(told, host_name, event, data)
            return host.warn(event, told)
        return host.phrase(known, None) if event is not None or host_name == "cursor" else NOTHING
    if isinstance(error, RefusalError):
        refusal: NoclobberError = error
    else:
        is_unreadable = isinstance(error, ValueError) and event is None
        why = "the host's event could not be read" if is_unreadable else "the hook failed"
        refusal = HookFailedError(
            "",
            f"noclobber could not check this write ({why}: {type(error).__name__}), so the write was refused "
            "and nothing was written. Try again. If it fails again, ask the user to run `noclobber doctor`, "
            "which says what is wrong. To work without the check, the user can run "
            f"`noclobber install {host_name} --uninstall`.",
        )
    if event is None or event.trouble is not None:
        _add_report(refusal, host_name, event, data)
    try:
        _record(known, refusal)
    except Exception as failure:  # It is refused all the same; the log says that it is not on record.
        _log(host_name, event, data, failure)
    return host.phrase(known, refusal)


def _add_report(error: NoclobberError, host_name: str, event: Event | None, data: bytes) -> None:
    """Put beside an error what to report about an event that was not understood."""
    try:
        from noclobber.hook import guidance

        error.beside = guidance.report(host_name, event, data)
    except Exception as failure:
        _log(host_name, event, data, failure)


def _may_have_read(event: Event) -> bool:
    """True if the event tells of a read that was carried out, or of a call that may have been one."""
    return event.kind == "post" and (
        event.trouble is not None or any(action.kind == "read" for action in event.actions)
    )


def _forget_read(event: Event, error: Exception) -> HookFailedError:
    """
    Make the session strict, because it saw a file and nobody will know which version.

    Without this a later write would count as one to a file that was never read, and would not be checked.
    Return what the model is told: the mark may fail as well, on a disk that is full.
    """
    from noclobber.hook.session_memory import lose_session
    from noclobber.hook.settings import project_of

    try:
        lose_session(event.host, event.session_id, event.agent_id, lambda: project_of(event.cwd))
        then = "Until then this session can write to no existing file that it has not read."
    except Exception:
        then = "A write without that is not checked."
    why = error.message if isinstance(error, RefusalError) else f"{type(error).__name__}: {error}"
    paths = [action.path for action in event.actions if action.kind == "read"]
    if not paths:
        return HookFailedError(
            "",
            f"noclobber could not understand what this call did ({why[:500]}), so it does not know whether "
            f"you were shown a file. {then} To work without the check, the user can run `noclobber install "
            f"{event.host} --uninstall`.",
        )
    return HookFailedError(
        paths[0],
        f"You were shown this file, but noclobber could not remember which version ({why[:500]}). When that "
        f"is fixed, read the file again before you write to it. {then}",
    )


def _may_write(host: Host, duty: str, data: bytes, event: Event | None) -> bool:
    """True unless it is certain that no write waits for this answer."""
    if event is not None and event.kind != "other":
        return event.kind == "pre" and not event.is_reading
    if duty == NOTE:
        return False
    if duty == CHECK:
        return True
    if duty == SHELL:  # A command without a patch is not checked.
        return b"apply_patch" in data or b'"command"' not in data
    # The event is not understood and no duty is given. No word in it tells: a model chooses its parameters,
    # and one of them may be what our reader could not take.
    return True


def _record(event: Event, refusal: NoclobberError) -> None:
    """Put a refusal on record, if the event names a project."""
    from noclobber.hook.turn import HookTurn

    if event.cwd and event.session_id:
        turn = HookTurn(event._replace(actions=()))
        turn.recorder.refusal(turn.call(), refusal)


def _log(host_name: str, event: Event | None, data: bytes, error: Exception) -> None:
    """Append a failure to the log in the runtime folder. Never raises."""
    try:
        from noclobber.hook.session_memory import open_runtime

        line = _line(host_name, event, data, error)
        with small_file.closing(open_runtime()) as runtime_fd:
            if small_file.append(LOG_NAME, line, runtime_fd) > LOG_BYTES:
                os.rename(LOG_NAME, f"{LOG_NAME}.1", src_dir_fd=runtime_fd, dst_dir_fd=runtime_fd)
    except Exception:  # noqa: S110 - a log that cannot be written must not decide anything
        pass


def _line(host_name: str, event: Event | None, data: bytes, error: Exception) -> bytes:
    entry: dict[str, Any] = {
        "time": iso8601(SYSTEM_CLOCK.now_s()),
        "host": host_name,
        "event": "" if event is None else event.name,
        "tool": "" if event is None else event.tool,
        "session_id": "" if event is None else event.session_id,
        "error": f"{type(error).__name__}: {error}"[:2000],
        "input_bytes": len(data),
    }
    if not isinstance(error, (NoclobberError, ValueError)):
        import traceback

        entry["traceback"] = "".join(traceback.format_exception(error))[-4000:]
    return spell(entry).encode("utf-8", "backslashreplace") + b"\n"


# -- descriptors -----------------------------------------------------------------------------------------


def _keep_standard_descriptors() -> bool:
    """
    Open `/dev/null` where stdin, stdout or stderr is closed; return whether anybody can read our stdout.

    The next file that is opened would get the free number, and the answer would be written into it.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # The lowest free number, which is this one.
    return not os.path.samestat(os.fstat(1), os.stat(os.devnull))


def _read_all(descriptor: int) -> bytes:
    pieces, total = [], 0
    while piece := os.read(descriptor, 1 << 20):
        pieces.append(piece)
        total += len(piece)
        if total > MOST_BYTES:
            raise ValueError(f"the event has more than {MOST_BYTES} bytes")
    return b"".join(pieces)


def _write(descriptor: int, text: str) -> None:
    small_file.write_all(descriptor, text.encode("utf-8", "backslashreplace"))
