"""
Read events for a person: what an event is about, and which events are wanted.

`AgentTraceLedger.events()` stops at the first line that is not an entry, which is right for programs. A
person who looks at a damaged ledger wants to see what is before and after the damage: `reader.Lines` yields
every complete line, and `event_in` says which of them are events.
"""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

from noclobber.core.json_text import parse
from noclobber.ledger.root import absolute

if TYPE_CHECKING:
    from collections.abc import Callable

Event = dict[str, Any]
_PATHS = ("target_file", "destination", "path", "folder")
_WILDCARDS = frozenset("*?[")
SHORT_SESSION = 8  # Characters of a session's id that people are shown.


def event_in(line: bytes) -> Event | None:
    """Return the event of a line, None if it is none. A line may come with a folder, and be anything."""
    try:
        event = parse(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


class EventSummary(NamedTuple):
    """What people look for in an event, wherever its kind keeps it."""

    kind: str
    outcome: str
    agent: str
    subject: str
    """What the event is about: a file, a folder, a deliverable; empty if it names none."""
    subjects: tuple[str, ...]
    """All that it names: a move has two."""
    session: str = ""

    @property
    def who(self) -> str:
        """The agent, and the beginning of its session: many sessions have an agent called main."""
        return " ".join(part for part in (self.agent, self.session[:SHORT_SESSION]) if part)


def summary_of(event: Event, root: str | None = None) -> EventSummary:
    """
    Return what people look for. Events of other programs may have anything anywhere.

    With the root of the ledger's workspace all paths are absolute, in lines of every version; without it they
    are as the line has them.
    """
    payload, result, identity = (
        member if isinstance(member := event.get(name), dict) else {}
        for name in ("payload", "result", "identity")
    )
    subjects = [payload[name] for name in _PATHS if isinstance(payload.get(name), str)]
    if root is not None:
        subjects = [absolute(root, path) for path in subjects]
    if isinstance(deliverable := payload.get("deliverable_id"), str):
        subjects.append(deliverable)
    return EventSummary(
        str(event.get("action_type", "?")),
        str(result.get("error_type") or result.get("status") or ""),
        str(identity.get("agent_id") or payload.get("holder") or ""),
        subjects[0] if subjects else "",
        tuple(subjects),
        str(identity.get("session_id") or ""),
    )


class EventFilter(NamedTuple):
    """Which events are wanted: any of the files, any of the agents, any of the kinds; empty means all."""

    files: tuple[str, ...] = ()
    """Names from the working folder, ends of paths, folders, or patterns."""
    agents: tuple[str, ...] = ()
    """Names or patterns."""
    kinds: tuple[str, ...] = ()
    """Names or patterns, in capitals."""
    since: str | None = None
    """The earliest time, in the ledger's form: text is compared with text, and all of it is UTC."""
    until: str | None = None
    """The first time that is too late."""
    root: str | None = None
    """The root of the ledger's workspace, where known."""

    def test(self) -> Callable[[Event], bool]:
        """Return the function that says whether an event is wanted."""
        files = [_file_test(wanted) for wanted in self.files]

        def is_wanted(event: Event) -> bool:
            time = str(event.get("time", ""))
            if (self.since and time < self.since) or (self.until and time >= self.until):
                return False
            about = summary_of(event, self.root)
            return (
                _is_among(about.kind, self.kinds)
                and _is_among(about.agent, self.agents)
                and (not files or any(test(subject) for test in files for subject in about.subjects))
            )

        return is_wanted


def _is_among(text: str, patterns: tuple[str, ...]) -> bool:
    return not patterns or any(text == pattern or fnmatchcase(text, pattern) for pattern in patterns)


def _file_test(wanted: str) -> Callable[[str], bool]:
    if _WILDCARDS & set(wanted):
        return lambda path: _is_among(path, (wanted, f"*/{wanted}"))
    if "\0" in wanted:
        return lambda path: False
    here, plain = os.path.realpath(wanted), os.path.normpath(wanted)
    folders = (f"{here.rstrip('/')}/", f"{plain.rstrip('/')}/")  # The second for a root that is not known.
    end = "/" + plain.lstrip("/")
    return lambda path: path in (wanted, plain, here) or path.startswith(folders) or path.endswith(end)
