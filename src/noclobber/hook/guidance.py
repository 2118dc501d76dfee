"""
What stands beside a refusal, so that the model can go on: who changed the file, what changed, what to do.

The exact object comes first and is never touched; this text follows it on the next line. It is bounded, and
names of agents in it are plain and short, because another agent chose them. Loaded only for a refusal or a
warning; whatever fails in here costs the text and not the refusal.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from noclobber.core.clock import SYSTEM_CLOCK, iso8601
from noclobber.core.json_text import parse
from noclobber.disk.reading import look_at
from noclobber.errors import DELETED, OverwroteError, PartialReadError, StaleFileError, UnreadFileError
from noclobber.hook.session_memory import SessionMemory
from noclobber.ledger.last_writer import last_writer, plain_name, spelled
from noclobber.shell import watched
from noclobber.text.diff import short_diff
from noclobber.text.visible import plain

if TYPE_CHECKING:
    from noclobber.core.values import Coverage, MergedWrite
    from noclobber.disk.reading import FileState
    from noclobber.errors import NoclobberError
    from noclobber.hook.turn import HookTurn
    from noclobber.hosts.event import Event

MOST_LETTERS = 4000
MOST_MERGED_LETTERS = (
    24_000  # Of a merged text that the model may send; a longer one it reads and makes anew.
)
MOST_RANGES = 6
MOST_FILES_TOLD = 4  # In a notice.
MOST_NOTICE_LETTERS = 2400


def beside(turn: HookTurn, event: Event, error: NoclobberError, read_tool: str) -> str:
    """Return what to tell the model beside a refusal, or beside a warning after the call."""
    if isinstance(error, OverwroteError):
        return _overwritten(error)
    if not isinstance(error, (StaleFileError, UnreadFileError, PartialReadError)):
        return ""
    state = look_at(error.path, keep=True)
    names = [os.path.normpath(os.path.join(turn.folder, action.path)) for action in event.actions]
    name = next((each for each in names if os.path.realpath(each) == error.path), error.path)
    with SessionMemory(event.host, event.session_id, event.agent_id, root=turn.root) as memory:
        snapshot, _ = memory.recall(name, error.path)
        seen = memory.held(error.expected) if isinstance(error, StaleFileError) else None
        part = snapshot.part_of(name, error.path, state.sha256)
    told: list[str] = []
    if isinstance(error, StaleFileError):
        told.append(_who(turn, event, error, state))
    told.append(_way_out(state, part, read_tool, is_after=event.kind == "post"))
    if seen is not None and state.content is not None:
        changed = short_diff(seen, state.content)
        title = (
            "What your call must have left, and what is there:" if event.kind == "post" else "What changed:"
        )
        told += [title, changed] if changed else []
    text = "\n".join(line for line in told if line)[:MOST_LETTERS]
    return f"{text}\n{_merge(error)}".strip("\n") if isinstance(error, StaleFileError) else text


def _merge(error: StaleFileError) -> str:
    """Say why it was not merged; or give the merged text, where the host writes nothing but what was sent."""
    if error.not_merged is not None:
        return f"It was not merged: {error.not_merged}"
    if error.merged is None:
        return ""
    text = error.merged.decode()
    if len(text) > MOST_MERGED_LETTERS:
        return ""
    return (
        "Your write and their changes do not touch the same lines. If you want both, write the whole file "
        "again with exactly the text between the two marks.\n"
        f"{_mark(error, 'begin')}\n{text}{_mark(error, 'end')}"
    )


def _mark(error: StaleFileError, which: str) -> str:
    # With a part of a hash, so that no text in the file can be taken for the mark.
    return f"<<<{which} {error.actual[:8]}>>>"


def merged(turn: HookTurn, event: Event, merges: list[tuple[str, MergedWrite]]) -> str:
    """Return what to tell the model after a stale write that was merged: by whom it was stale, and how."""
    told = []
    with SessionMemory(event.host, event.session_id, event.agent_id, root=turn.root) as memory:
        held = [(memory.held(of.base_sha256), memory.held(of.theirs_sha256)) for _, of in merges]
    for (path, of), (base, theirs) in zip(merges, held, strict=True):
        who = by(turn, event, path, of.theirs_sha256, 0.0)
        told.append(
            f"noclobber: {plain(path)} had been changed by {who} since you read it. Your write was merged "
            "with that, and both are in the file. You need not read it again."
        )
        changed = "" if base is None or theirs is None else short_diff(base, theirs)
        told += ["What they had changed:", changed] if changed else []
    return "\n".join(told)[:MOST_LETTERS]


def changes(
    turn: HookTurn,
    event: Event,
    changed: list[tuple[str, bytes | None, FileState]],
    *,
    with_diff: bool,
) -> str:
    """
    Return a notice: which files that the agent has read others have changed since, by whom, and how.

    `changed`: for each its path, what the agent saw (None: not held any more), and what is there now.
    """
    one = len(changed) == 1
    told = [f"noclobber: since you read {'it, this file was' if one else 'them, these files were'} changed:"]
    for path, seen, state in changed[:MOST_FILES_TOLD]:
        name = plain(path.removeprefix(f"{turn.root}/"))
        if state.sha256 == DELETED:
            told.append(f"- {name} (deleted)")
            continue
        told.append(f"- {name}, by {by(turn, event, path, state.sha256, state.changed_at_s)}")
        if with_diff and seen is not None and state.content is not None:
            told.append(short_diff(seen, state.content))
    if len(changed) > MOST_FILES_TOLD:
        told.append(f"- and {len(changed) - MOST_FILES_TOLD} more")
    text = "\n".join(line for line in told if line)
    if len(text) > MOST_NOTICE_LETTERS:
        text = text[:MOST_NOTICE_LETTERS] + "…"
    return f"{text}\nRead {'it' if one else 'them'} again before you write to {'it' if one else 'them'}."


def _overwritten(error: OverwroteError) -> str:
    now = look_at(error.path, keep=True).content
    if now is None or error.overwritten is None:
        return ""
    changed = short_diff(error.overwritten, now)
    return f"What they had, and what is there now:\n{changed}"[:MOST_LETTERS] if changed else ""


def _way_out(state: FileState, part: Coverage | None, read_tool: str, *, is_after: bool) -> str:
    again = "" if is_after else ", then send your change again, made for what you read"
    if state.sha256 == DELETED:
        return (
            f"The file is gone. Look with {read_tool} (it will find no file); after that, writing creates it."
        )
    if state.content is None:
        return f"Read it with {read_tool}{again}."
    count = state.content.count(b"\n") + (state.content != b"" and not state.content.endswith(b"\n"))
    lines = "1 line" if count == 1 else f"{count} lines"
    if part is None or part.is_whole:
        return f"Read it with {read_tool}, all {lines}{again}."
    read = ", ".join(f"{start + 1}-{end}" for start, end in part.ranges[:MOST_RANGES]) or "none"
    return (
        f"Read all {lines} of it with {read_tool}{again}. Of this version you have read lines {read}; "
        "parts of one version add up."
    )


# -- who changed it ------------------------------------------------------------------------------------


def _who(turn: HookTurn, event: Event, error: StaleFileError, state: FileState) -> str:
    """Ruling 21: who wrote what is there, where the ledger knows."""
    if error.actual == DELETED:
        return f"{error.target_missing} You had read it before."  # The specification's words for this case.
    found = last_writer(turn.root, error.path, error.actual)
    if found is not None:
        identity, time = found.identity, found.time
        agent = plain_name(identity.get("agent_id")) or "somebody"
        if identity.get("session_id") == event.session_id and identity.get("host") == event.host:
            if identity.get("agent_id") == event.agent_id:
                if found.level == watched.LEVEL:
                    return _seems_own(time)
                return f"You wrote what is there yourself, at {time}."
            return f"Another agent of your session ({agent}) wrote what is there, at {time}."
        who = spelled(found)
        return f"{who[0].upper()}{who[1:]} wrote what is there, at {time}."
    if not state.changed_at_s:
        return ""
    when = iso8601(state.changed_at_s)[:19] + "Z"
    if _is_of_own_command(turn, state.changed_at_s):
        return _seems_own(when)
    return f"An outsider (an editor, a shell command, git) changed it, at {when}."


def _seems_own(time: str) -> str:
    return f"It changed at {time}, while your own command ran: your own command changed it, it seems."


def by(turn: HookTurn, event: Event, path: str, sha256: str, changed_at_s: float) -> str:
    """The same in a few words, for a list: "the agent b at …", "your own command", "an outsider, at …"."""
    found = last_writer(turn.root, path, sha256)
    if found is not None:
        is_session = found.identity.get("session_id") == event.session_id
        if is_session and found.identity.get("agent_id") == event.agent_id:
            if found.level == watched.LEVEL:
                return "your own command, it seems"
            return f"you yourself at {found.time}"
        return f"{spelled(found)} at {found.time}"
    if changed_at_s and _is_of_own_command(turn, changed_at_s):
        return "your own command, it seems"
    return f"an outsider, at {iso8601(changed_at_s)[:19]}Z" if changed_at_s else "an outsider"


def _is_of_own_command(turn: HookTurn, changed_at_s: float) -> bool:
    command = turn.last_command()
    return command is not None and command[0] - 1 <= changed_at_s <= command[1] + 1


# -- what cannot be understood --------------------------------------------------------------------------


def report(host_name: str, event: Event | None, data: bytes) -> str:
    """Return what to report about a call that could not be understood: names, and nothing of any content."""
    from noclobber import __version__

    fields: list[str] = []
    try:
        payload = parse(data)
        given = next((payload[key] for key in ("tool_input", "toolArgs", "args") if key in payload), None)
        fields = [plain_name(name) for name in (*payload, *(given if isinstance(given, dict) else ()))][:30]
    except (ValueError, TypeError, RecursionError):
        pass
    tool = plain_name(event.tool) if event is not None and event.tool else "unknown"
    what = f"tool {tool}, event {plain_name(event.name) if event is not None and event.name else 'unknown'}"
    return (
        f"If {host_name} was updated lately, this version of noclobber may not know its tools yet. Ask the "
        f"user to report this to the noclobber project: noclobber {__version__}, host {host_name}, {what}, "
        f"fields {', '.join(fields) or 'unreadable'}. Time: {iso8601(SYSTEM_CLOCK.now_s())[:19]}Z."
    )
