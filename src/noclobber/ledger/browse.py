"""
Read a ledger for a person: what an event is about, which events are wanted, and lines as they are appended.

`AgentTraceLedger.events()` stops at the first line that is not an entry, which is right for programs.
Somebody who looks at a damaged ledger wants to see what is before and after the damage, so `Lines` yields
every complete line, and leaves it to the caller what to do with one that is not an entry.
"""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

from noclobber.core.light.json_text import parse
from noclobber.disk import hashing
from noclobber.errors import LedgerError
from noclobber.ledger.line import MAX_LINE_BYTES, is_sealed, link_of
from noclobber.ledger.open_file import FOR_READING, open_ledger
from noclobber.ledger.root import absolute

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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


class LedgerPlace(NamedTuple):
    """The end of a line: where it is, and the line's length and hash, newline included."""

    offset: int
    length: int
    sha256: str


class Lines:
    """The complete lines of a ledger, once; then what was appended since, as often as it is asked for."""

    def __init__(self, path: str) -> None:
        self.path = path
        descriptor, self._identity = open_ledger(path, FOR_READING)
        self._file = open(descriptor, "rb")  # noqa: SIM115 - closed when all lines were read
        self._offset = 0

    def __iter__(self) -> Iterator[bytes]:
        """Yield them without their newlines. One too long to be an entry comes in pieces."""
        with self._file:
            while line := self._file.readline(MAX_LINE_BYTES + 1):
                lacks_newline = not line.endswith(b"\n") and len(line) <= MAX_LINE_BYTES
                if lacks_newline and not (link_of(line) is not None and is_sealed(line)):
                    return  # A crash tore it, or it is being written.
                self._offset += len(line) + lacks_newline  # Its newline comes with the next line.
                yield line.removesuffix(b"\n")

    def go_on_behind(self, place: LedgerPlace) -> bool:
        """Begin behind a line that was read before; False, and closed, if it is not there any more."""
        begin = place.offset - place.length
        line = os.pread(self._file.fileno(), place.length, begin) if begin >= 0 else b""
        if len(line) != place.length or hashing.of_bytes(line) != place.sha256:
            self._file.close()
            return False
        self._file.seek(place.offset)
        self._offset = place.offset
        return True

    def place_of(self, line: bytes) -> LedgerPlace:
        """Return where the line ends that was just yielded."""
        return LedgerPlace(self._offset, len(line) + 1, hashing.of_bytes(line + b"\n"))

    def appended(self) -> Iterator[bytes]:
        """Yield what has been appended since, in the file that the path names now."""
        try:
            again = Lines(self.path)
        except LedgerError:
            return  # Moved away, and nothing was written since.
        # Another file, or a shorter one, is a new beginning; `verify` says whether that is right.
        size = os.fstat(again._file.fileno()).st_size
        if again._identity == self._identity and size >= self._offset - 1:
            again._file.seek(self._offset)
            again._offset = self._offset
        yield from again
        self._identity, self._offset = again._identity, again._offset
