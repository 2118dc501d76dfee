"""
A shell command that may write: what a hook does before it and after it.

`guarded`, where the host's shell comes to us and a private view can be made: the hook leaves a note, and the
shell that takes it runs the command as a transaction (`guarded_calls`). Its landing asks the session's
memory, and tells it what landed. The hook afterwards has nothing to do. If nobody took the note, or who took
it was killed, the command was not guarded: what has changed is recorded as a watched command's, and told.

`watched`, elsewhere. Before: targets that the command's text tells for certain are judged like any other
write, so a stale one is refused; and files that the agent knows and that are stale are copied to the
versions. After: what has changed goes on record as the command's, and a version that was written over unseen
is kept and told.

Plainly read-only commands pass without any of this. A command that the host does not wait for passes as well:
nobody knows when it ends.

Loaded for such commands only.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from noclobber.core.actions import DELETE, EDIT, READ, WRITE, Action
from noclobber.disk import hashing, paths
from noclobber.disk.reading import look_at
from noclobber.errors import ABSENT, DELETED
from noclobber.guard import claims
from noclobber.guard.judge import call_key, pop_note
from noclobber.guard.watched_changes import keeper, record
from noclobber.hook import guarded_calls
from noclobber.hosts.launched import launch_of
from noclobber.ledger.last_writer import last_writer
from noclobber.shell import watched
from noclobber.shell.read_only import is_read_only
from noclobber.shell.syntax import parse
from noclobber.shell.targets import targets
from noclobber.text.visible import visible

if TYPE_CHECKING:
    from noclobber.errors import NoclobberError
    from noclobber.guard.outside import Outside
    from noclobber.hook.guarded_calls import GuardedCall
    from noclobber.hook.turn import HookTurn
    from noclobber.hosts.event import Event
    from noclobber.shell.syntax import SimpleCommand

MOST_KNOWN = 1000
PROGRAM = "noclobber"
GUARDED, WATCHED = "guarded", "watched"
MOST_NAMED = 10
_STARTERS = ("uv", "uvx", "run", "python", "python3", "-m", "command", "exec", "time")
_KINDS = (EDIT, WRITE, DELETE)


def only_runs_us(text: str) -> bool:
    """
    True if a command runs noclobber, which cannot write its state inside a guarded one, and else only looks.

    By its commands, and not by its text: a word in a comment, or a write beside it, takes no guard away.
    """
    if PROGRAM not in text or not any(map(_is_us, parse(text).commands)):
        return False
    return is_read_only(text, but_for=_is_us)


def _is_us(command: SimpleCommand) -> bool:
    """True for noclobber itself, as it is found on the path or where we are installed."""
    words = [word.text if word.is_literal else "" for word in command.words[:4]]
    while words and words[0].rpartition("/")[2] in _STARTERS:
        del words[0]
    is_found = words[:1] == [PROGRAM] or words[:1] == [f"{sys.prefix}/bin/{PROGRAM}"]
    return (is_found or command.name == PROGRAM) and not command.assignments


def before(turn: HookTurn, event: Event) -> NoclobberError | None:
    """Judge what a command is certain to write, and note what is there; return the refusal, if any."""
    wish = "off" if event.is_background else turn.options.shell
    launch = launch_of(event.host)
    if launch or is_routed(event):
        is_guarded = wish == "guarded" and not only_runs_us(event.command) and level(turn, event) == GUARDED
        since_ns = watched.now_ns(turn.root)
        guarded_calls.leave(event, turn.root, is_plain=not is_guarded, launch=launch, since_ns=since_ns)
        if is_guarded:
            turn.is_command_guarded = True
            return None
    if wish == "off":
        return None
    turn.outside_level = watched.LEVEL
    actions = _targets(turn, event)
    outside = _outside(turn, event, actions)
    if actions:
        error = outside.before()
        turn.forget_memory()
        if error is not None:
            return error
    with turn.memory as memory:
        known = [watched.FileSeen(*one) for one in memory.known_files(MOST_KNOWN) if hashing.is_hash(one[1])]
    turn.forget_memory()
    if "git" in event.command and (error := _takes_others_work(turn, event, known)) is not None:
        _release(turn, outside, actions)
        turn.recorder.refusal(turn.call(), error)
        return error
    with turn.memory as memory:
        named = {file.path for file in known}
        for action in actions:
            state = look_at(paths.lexical(turn.folder, action.path))
            if state.path not in named:
                known.append(watched.FileSeen(state.path, state.sha256))
        start = watched.begin(turn.root, known, keeper(turn))
        memory.note_call(outside.key, [start.pack(), [[action.kind, action.path] for action in actions]])
    turn.forget_memory()
    return None


def after(turn: HookTurn, event: Event) -> NoclobberError | None:
    """Put on record what a command changed; return what the agent has to be told, if anything."""
    turn.outside_level = watched.LEVEL
    key = call_key(turn.call(), [Action(READ, event.command)])
    if (call := guarded_calls.unreported(event, launch_of(event.host))) is not None:
        _did_not_come_back(turn, call, key)
        return None
    with turn.memory as memory:
        noted = memory.pop_call(key)
    turn.forget_memory()
    try:
        packed, spelled = noted
        start = watched.WatchedStart.unpack(packed)
        actions = tuple(Action(kind, path, is_certain=False) for kind, path in spelled if kind in _KINDS)
    except (ValueError, TypeError):
        return None  # It ran in the guarded shell; or nobody asked before, or the note is damaged.
    recorded = _settle(turn, event, actions)
    told: NoclobberError | None = None
    changes = watched.end(start).files
    if changes and (broken := turn.ledger_trouble()):
        raise broken
    for change in changes:
        if change.path not in recorded:
            told = record(turn, turn.call(), change, key) or told
    return told


def _did_not_come_back(turn: HookTurn, call: GuardedCall, key: str) -> None:
    """Look at what has changed since a command was let through as guarded, record it, and have it told."""
    found = watched.end(watched.WatchedStart(turn.root, call.since_ns, ()))
    unknown = [change for change in found.files if last_writer(turn.root, change.path, change.after) is None]
    if unknown and (broken := turn.ledger_trouble()):
        raise broken
    for change in unknown:
        record(turn, turn.call(), change, key)
    if unknown or not found.is_complete:
        names = [visible(change.path.removeprefix(f"{turn.root}/")) for change in unknown[:MOST_NAMED]]
        more = ", and more" if len(unknown) > MOST_NAMED or not found.is_complete else ""
        turn.to_tell = (
            "noclobber: this command was to run in the guarded shell and did not run there, so nothing"
            f" checked what it wrote. It, or somebody else meanwhile, changed: {', '.join(names)}{more}. Read"
            " these files again before you write them, and tell the user that the guard was passed by."
        )


def of_background(turn: HookTurn, event: Event) -> str:
    """Return what the agent is told about a command that its host does not wait for: once a session."""
    from noclobber.hook.session_notes import BACKGROUND, note_told

    if turn.options.shell == "off" or not note_told(event.host, event.session_id, BACKGROUND):
        return ""
    return (
        "noclobber: this command runs in the background, so what it writes is not guarded: it may write over "
        "what others save, and its changes will count as an outsider's. Read a file that it may have changed "
        "before you write it. Run commands that change files in the foreground. This is said once a session."
    )


def is_routed(event: Event) -> bool:
    """True if the host's shell comes to us, and takes the note that the hook leaves."""
    if event.is_routed:
        return True
    if event.host != "claude-code":
        return False
    from noclobber.hook.session_notes import noted_shell_file
    from noclobber.hosts.shell_prefix import has_line

    file = noted_shell_file(event.host, event.session_id)
    return file is not None and has_line(file)


def level(turn: HookTurn, event: Event) -> str:
    """Return which level this project gives, as the first command of the session found out."""
    from noclobber.hook.session_notes import note_level, noted_level

    known = noted_level(event.host, event.session_id)
    if known is None:
        from noclobber.shell.level import probe  # Slow to load: once a session.

        known = WATCHED if turn.ledger_trouble() is not None else probe(turn.root).name
        note_level(event.host, event.session_id, known)
    return known


def _takes_others_work(turn: HookTurn, event: Event, known: list[watched.FileSeen]) -> NoclobberError | None:
    """Return the refusal of a git command that would take others' work away or sweep it up."""
    from noclobber.guard.git.literal import reaches_of  # Here: slow to load, and few commands are git's.

    if not reaches_of(event.command, turn.folder):
        return None
    from noclobber.guard.git.lineage import WrittenBy
    from noclobber.guard.git.literal import others_work_before

    if (trouble := turn.ledger_trouble()) is not None:
        return trouble
    return others_work_before(
        event.command,
        root=turn.root,
        cwd=turn.folder,
        me=WrittenBy(event.agent_id, event.session_id),
        known={file.path: file.sha256 for file in known},
    )


def _release(turn: HookTurn, outside: Outside, actions: tuple[Action, ...]) -> None:
    """End the claims of a command that is refused after its targets were let through."""
    for action in actions:
        path = look_at(action.path).path
        with turn.memory as memory:
            snapshot, notes = memory.recall(action.path, path)
            pop_note(notes, "pending", outside.key)
            memory.keep(snapshot, action.path, path, notes)
            claims.release(turn.root, path, turn.owner)
        turn.forget_memory()


def _targets(turn: HookTurn, event: Event) -> tuple[Action, ...]:
    """Return what is certain to be written below the root: files, and names that are free."""
    found = []
    for action in targets(event.command):
        name = paths.lexical(turn.folder, action.path)
        if name.startswith(f"{turn.root}/") and not os.path.isdir(name):
            found.append(action._replace(path=name))
    return tuple(found)


def _outside(turn: HookTurn, event: Event, actions: tuple[Action, ...]) -> Outside:
    from noclobber.guard.outside import Outside

    call = turn.call()
    moment = event.result.happened_at
    delivery = f"{event.kind}:{event.call_id or ''}:{moment}" if event.call_id or moment else ""
    outside = Outside(turn, call, actions, delivery)
    outside.key = call_key(call, [Action(READ, event.command)])
    return outside


def _settle(turn: HookTurn, event: Event, actions: tuple[Action, ...]) -> set[str]:
    """
    Settle the targets of a command; return those that are on record now.

    What was foreseen (a heredoc, a removal) is compared like any host's write, and becomes the agent's own.
    Of the others only the claim ends: what the agent knew of them stays, so it must read them again.
    """
    recorded = set()
    outside = _outside(turn, event, ())
    for action in actions:
        path = look_at(action.path).path
        with turn.memory as memory:
            snapshot, notes = memory.recall(action.path, path)
            pending = notes.get("pending", {}).get(outside.key)
            if pending is None or pending[1] is None:
                pop_note(notes, "pending", outside.key)
                memory.keep(snapshot, action.path, path, notes)
                claims.release(turn.root, path, turn.owner)
                pending = None
        turn.forget_memory()
        if pending is None:
            continue
        found = look_at(path).sha256
        if found != pending[1] and not (pending[1] == ABSENT and found == DELETED):
            # The command failed, or did more: not a race, because a command may do anything.
            with turn.memory as memory:
                snapshot, notes = memory.recall(action.path, path)
                pop_note(notes, "pending", outside.key)
                memory.keep(snapshot, action.path, path, notes)
                claims.release(turn.root, path, turn.owner)
        else:
            outside.actions = (action,)
            outside.after(event.result)
            recorded.add(path)
        turn.forget_memory()
    return recorded
