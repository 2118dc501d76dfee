"""Immutable values that the folders pass to each other. Nothing here touches a disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

Level = Literal["lease+exchange", "lease+inplace", "exchange", "plain", "create", "section", "git"]
Reach = Literal["machine", "volume", "mount"]
"""How strongly a write was protected; docs/levels.md says what each one promises."""


BOM = b"\xef\xbb\xbf"  # A byte-order mark: bytes that no text shows.


class Coverage(NamedTuple):
    """Which lines of a file were seen, as half-open ranges; `total` lines there are in all."""

    ranges: tuple[tuple[int, int], ...]
    total: int

    @property
    def is_whole(self) -> bool:
        """True if every line was seen. A file without lines was seen by looking at it."""
        return self.total == 0 or self.ranges == ((0, self.total),)

    def plus(self, other: Coverage) -> Coverage:
        """Add what another read of the same bytes saw."""
        merged: list[tuple[int, int]] = []
        for start, end in sorted(self.ranges + other.ranges):
            if merged and start <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], end))
            elif start < end:
                merged.append((start, end))
        return Coverage(tuple(merged), self.total)


WHOLE = Coverage((), 0)


class Observation(NamedTuple):
    """One read of one file: what was there, and how much of it the agent saw."""

    path: str
    sha256: str
    seen: Coverage
    id: str
    at_s: float


class ReadResult(NamedTuple):
    """What a guarded read gives back. `content` is what was asked for; `sha256` is of the whole file."""

    path: str
    content: bytes
    sha256: str
    observation_id: str
    seen: Coverage

    @property
    def text(self) -> str:
        """The content as UTF-8 text; a byte-order mark is left out, bytes that do not decode are kept
        as lone surrogates, so that writing `text` back loses nothing."""
        return self.content.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")

    def __repr__(self) -> str:
        part = "" if self.seen.is_whole else ", a part"  # Not the content: a log is no place for it.
        return f"<ReadResult {self.path!r} sha256 {self.sha256[:12]}, {len(self.content)} bytes{part}>"


class Peeked(NamedTuple):
    """What a tool read for itself: the file as it was called, where it is, and what it holds."""

    name: str
    path: str
    sha256: str
    """`ABSENT` if there is no such file."""
    content: bytes | None


class Recovered(NamedTuple):
    """One file of a commit that was cut off, and what became of it."""

    path: str
    outcome: str
    """`discarded`: never published; `landed`; `restored`: the old version is back; `kept`: see `kept`."""
    kept: str = ""
    """Where a version is kept that could be neither published nor put back."""


class MergedWrite(NamedTuple):
    """A stale write that landed together with what others had changed since: what it was made of."""

    base_sha256: str
    """What the agent had seen."""
    theirs_sha256: str
    """What others had made of it."""
    ours_sha256: str
    """What the agent sent, or what its edit makes of the base."""
    changes: str
    """What others changed: a unified diff from what the agent had seen."""
    by: str = ""
    """Who wrote theirs: "the agent b at …", or "an outsider"."""


class WriteResult(NamedTuple):
    """What a guarded write gives back: the hash of the bytes that were written, never of a later look."""

    path: str
    sha256: str
    level: Level
    previous_sha256: str
    """What was replaced: a hash, or `ABSENT`."""
    kept: tuple[str, ...] = ()
    """Files kept aside because somebody wrote to a version after it had been replaced."""
    recovered: tuple[Recovered, ...] = ()
    """What dead processes had left unfinished in the file's folder, and what became of it."""
    not_kept: tuple[str, ...] = ()
    """What the new version has not from the old one: `owner` of a colleague's file, `flags` (chattr)."""
    merged: MergedWrite | None = None
    """Set if the file had changed and the write was merged with that (`on_stale = "merge"`)."""

    def __repr__(self) -> str:
        more = f", kept {list(self.kept)}" if self.kept else ""
        more += f", recovered {list(self.recovered)}" if self.recovered else ""
        more += f", not kept {list(self.not_kept)}" if self.not_kept else ""
        more += ", merged" if self.merged else ""
        change = f"{self.previous_sha256[:12]} -> {self.sha256[:12]}"
        return f"<WriteResult {self.path!r} {change}, level {self.level!r}{more}>"


class Edit(NamedTuple):
    """Replace `old` by `new`. `old` must occur exactly once, unless `replace_all` is set."""

    old: str | bytes
    new: str | bytes
    replace_all: bool = False


class ToolCall(NamedTuple):
    """One call of a tool by an agent, as the engine sees it."""

    tool: str
    params: dict[str, Any]
    agent_id: str = "agent"
    session_id: str | None = None
    turn_id: str | None = None
    call_id: str | None = None
    host: str | None = None
    intent_id: str | None = None
    undoes: tuple[str, ...] = ()
    """For a call that takes back earlier writes: the hashes of their lines in the ledger."""
    modes: Mapping[str, int] | None = None
    """For such a call: `st_mode` of the files that go, by path, so that they can come back."""


class Decision(NamedTuple):
    """Whether a call is allowed. `error` is set if and only if it is refused."""

    allowed: bool
    error: Any = None  # NoclobberError | None; Any keeps this file free of imports.


ALLOW = Decision(True)
