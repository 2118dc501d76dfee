"""
What stands beside a refusal, so that the model can go on: who changed the file, what changed, what to do.

The exact object comes first and is never touched; this text follows it on the next line. It is bounded, and
names of agents in it are plain and short, because another agent chose them. Loaded only for a refusal or a
warning; whatever fails in here costs the text and not the refusal.
"""

from __future__ import annotations

import os

from noclobber.core.clock import SYSTEM_CLOCK, iso8601
from noclobber.core.light.json_text import parse
from noclobber.disk.reading import look_at
from noclobber.errors import DELETED, OverwroteError, PartialReadError, StaleFileError, UnreadFileError
from noclobber.hook.session_memory import SessionMemory
from noclobber.ledger.last_writer import last_writer, plain_name, spelled
from noclobber.text.short_diff import short_diff

TYPE_CHECKING = False
if TYPE_CHECKING:
    from noclobber.core.values import Coverage
    from noclobber.disk.reading import FileState
    from noclobber.errors import NoclobberError
    from noclobber.hook.turn import HookTurn
    from noclobber.hosts.event import Event

MOST_LETTERS = 4000
MOST_RANGES = 6


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
    return "\n".join(line for line in told if line)[:MOST_LETTERS]


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
        identity, time = found
        agent = plain_name(identity.get("agent_id")) or "somebody"
        if identity.get("session_id") == event.session_id and identity.get("host") == event.host:
            if identity.get("agent_id") == event.agent_id:
                return f"You wrote what is there yourself, at {time}."
            return f"Another agent of your session ({agent}) wrote what is there, at {time}."
        who = spelled(found)
        return f"{who[0].upper()}{who[1:]} wrote what is there, at {time}."
    if not state.changed_at_s:
        return ""
    when = iso8601(state.changed_at_s)[:19] + "Z"
    command = turn.last_command()
    if command is not None and command[0] - 1 <= state.changed_at_s <= command[1] + 1:
        return f"It changed at {when}, while your own command ran: your own command changed it, it seems."
    return f"An outsider (an editor, a shell command, git) changed it, at {when}."


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
