"""
A host's file tool that we carry out: one process for one call, in a conversation of lines of JSON.

| who | line |
|---|---|
| the host's plugin | the call, as in any event |
| we | `{"decision": "ask", "files": […]}`: what becomes of each file, for the permission dialogue |
| the plugin | anything: the user agrees. The end of the input instead: not so, and nothing is written |
| we | `{"decision": "done"}` |

Instead of either answer: `deny` with the refusal, or `error` with what the host's own tool would have said.

The check is made before the user is asked, so that nobody is asked about a write that cannot be. Check and
write are one step all the same: what is written is compared with what the plan was made from.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

from noclobber.core.json_text import parse, spell_for_any_reader
from noclobber.errors import EditMismatchError, NoclobberError
from noclobber.hook.start import MOST_S, end_after
from noclobber.hook.turn import HookTurn
from noclobber.hosts import load

if TYPE_CHECKING:
    from collections.abc import Callable

    from noclobber.guard.replaced_tool import PlannedFile, ReplacedTool
    from noclobber.hosts import Host
    from noclobber.hosts.event import Answer, Event

MOST_BYTES = 256 << 20
DIFF_CONTEXT_LINES = 4
MOST_DIFF_BYTES = 1 << 20  # A larger file is not shown as a diff.


def converse(
    host_name: str,
    refuse: Callable[[Host, str, str, bytes, Event | None, Exception], Answer],
    guide: Callable[[Host, HookTurn, Event, NoclobberError | None], NoclobberError | None],
) -> int:
    """
    Carry out one call in a host's place; return the exit code.

    `refuse` answers what could not be judged: it logs the failure, and refuses. `guide` puts beside a refusal
    what helps the model to go on.
    """
    host = load(host_name)
    begun = bytearray()
    event: Event | None = None
    line = b""
    planned: list[PlannedFile] = []
    is_judged = False

    def say(step: Callable[[], dict[str, Any]]) -> bool:
        """Carry out one step and tell what came of it; True if the conversation goes on."""
        told, goes_on = "", False
        try:
            told, goes_on = spell_for_any_reader(step()), True
        except EditMismatchError as error:
            told = spell_for_any_reader({"decision": "error", "reason": error.message})
        except Exception as error:  # Any failure: what was not judged is not written.
            if is_judged and event is not None and isinstance(error, NoclobberError):
                told = host.phrase(event, guide(host, HookTurn(event), event, error)).stdout
            else:
                told = refuse(host, host_name, "check", line, event, error).stdout
        _write(f"{told}\n")
        return goes_on

    def plan() -> dict[str, Any]:
        nonlocal event, line, is_judged
        line = _read_line(begun) or b""
        payload = parse(line)
        if not isinstance(payload, dict):
            raise ValueError("the event is not an object")
        event = host.read(payload)
        if event.trouble is not None:
            raise event.trouble
        if not event.writes:
            raise ValueError("the call changes no file")
        tool = _tool(event)
        is_judged = True  # From here on a refusal is on record when it is raised.
        planned.extend(tool.plan())
        return {"decision": "ask", "files": [_shown(file) for file in planned]}

    def commit() -> dict[str, Any]:
        assert event is not None
        tool = _tool(event)
        tool.commit(planned)
        told = _told(event, tool)
        return {"decision": "done", "told": told} if told else {"decision": "done"}

    if not say(plan):
        return 0
    # `start` lets the kernel end a hook that hangs. A user may think for as long as they like.
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    is_agreed = _read_line(begun) is not None
    end_after(MOST_S)
    if is_agreed and say(commit) and event is not None:
        _keep(event, planned)  # The plugin has its answer, and does not wait for our end.
    return 0


def _tool(event: Event) -> ReplacedTool:
    from noclobber.guard.replaced_tool import ReplacedTool

    turn = HookTurn(event)  # Another one for each step: the memory is not kept while a user thinks.
    return ReplacedTool(turn, turn.call(), event.actions)


def _keep(event: Event, planned: list[PlannedFile]) -> None:
    """Keep what was written. What it replaced, the commit has kept."""
    from noclobber.guard.host_versions import HostVersion, is_kept, keep

    turn = HookTurn(event)
    keep(
        HostVersion(turn.root, turn.options, file.path, file.after)
        for file in planned
        if file.after is not None and is_kept(turn.root, turn.options, file.path)
    )


def _told(event: Event, tool: ReplacedTool) -> str:
    """Return what to tell the agent after its write: that it was merged, and what others changed since."""
    turn = HookTurn(event)
    told = []
    try:
        if tool.merges:
            from noclobber.hook import guidance

            told.append(guidance.merged(turn, event, tool.merges))
        if turn.options.notices != "off":
            from noclobber.hook import notices

            told.append(notices.at_start(turn, event))
    except Exception:  # noqa: S110 - the write has landed: without a word more it is still done
        pass
    return "\n".join(filter(None, told))


def _read_line(begun: bytearray) -> bytes | None:
    """Return the next line, None at the end of the input. `begun` keeps what came of the one after it."""
    while (end := begun.find(b"\n")) < 0:
        piece = os.read(0, 1 << 20)
        if not piece:
            return None
        begun += piece
        if len(begun) > MOST_BYTES:
            raise ValueError(f"the event has more than {MOST_BYTES} bytes")
    line = bytes(begun[:end])
    del begun[: end + 1]
    return line


def _write(text: str) -> None:
    data = text.encode("utf-8", "backslashreplace")
    while data:
        data = data[os.write(1, data) :]


def _shown(file: PlannedFile) -> dict[str, Any]:
    """Return one file of a plan as a permission dialogue shows it."""
    before, after = file.before or b"", file.after or b""
    diff, added, removed = _diff(file.name, before, after)
    kind = "delete" if file.after is None else "update" if file.exists else "add"
    return {
        "path": file.name,
        "type": kind,
        "exists": file.exists,
        "movedFrom": file.action.moved_from,
        "diff": diff,
        "additions": added,
        "deletions": removed,
    }


def _diff(name: str, before: bytes, after: bytes) -> tuple[str, int, int]:
    """Return a diff in the form of JavaScript's `diff` package, and how many lines it adds and removes."""
    from noclobber.text.diff import edit_script, hunks, lines

    title = f"Index: {name}\n{'=' * 67}\n--- {name}\n+++ {name}\n"
    if max(len(before), len(after)) > MOST_DIFF_BYTES or b"\0" in before[:8192] + after[:8192]:
        return title, 0, 0
    old, new = (
        lines(data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace").replace("\r\n", "\n"))
        for data in (before, after)
    )
    script = edit_script(old, new)
    shown = [title]
    for hunk in hunks(script, DIFF_CONTEXT_LINES):
        old_start = hunk.old_start + bool(hunk.old_count)
        new_start = hunk.new_start + bool(hunk.new_count)
        shown += (
            f"@@ -{old_start},{hunk.old_count} +{new_start},{hunk.new_count} @@\n",
            hunk.text,
        )
    marks = [mark for mark, _ in script]
    return "".join(shown), marks.count("+"), marks.count("-")
