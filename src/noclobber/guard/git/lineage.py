"""
The life of each file as the ledger tells it: its names, and its versions with whoever made them.

Events are recorded just after their write, so two writes of one file may be on record in the other order.
Each says which version it found, and by that they are put in order again; without it the earlier one would
look like an outsider's, and its author would never get it committed.

A version that no event wrote is an outsider's. Where the bytes of versions are gone, the steps between two
that are left become one: of one author if all of them were his, and otherwise of nobody in particular.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from noclobber.disk import hashing
from noclobber.disk.hashing import is_hash
from noclobber.errors import ABSENT, DELETED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from noclobber.ledger.history import LandedWrite

MAIN_AGENT = "main"  # As hosts' events call the agent that may have others work for it (`hosts/event`).
OUT_OF_ORDER = 32
"""How many events back a write may be recorded too late."""


class WrittenBy(NamedTuple):
    """Who made a version: an agent in a session; or an outsider, if neither is known."""

    agent_id: str | None = None
    session_id: str | None = None
    kind: str = "agent"
    """`agent`, `outsider`, or `unknown`: several, the chosen agent among them."""

    @property
    def who(self) -> str:
        """In words."""
        if self.kind != "agent":
            return "an outsider" if self.kind == "outsider" else "several, in versions that are not kept"
        agent = self.agent_id or "an agent"
        return f"{agent}, session {self.session_id[:8]}" if self.session_id else agent

    def owns(self, other: WrittenBy) -> bool:
        """True if another's changes are this one's own, as a subagent's are its main agent's."""
        is_session = self.agent_id == MAIN_AGENT and bool(self.session_id)
        return other == self or (is_session and other.session_id == self.session_id)


OUTSIDER = WrittenBy(kind="outsider")
UNKNOWN_WRITER = WrittenBy(kind="unknown")


class Rename(NamedTuple):
    """The file got another name."""

    source: str
    destination: str
    by: WrittenBy


class Earlier(NamedTuple):
    """What is known of a file's life before the first of its `writes`, instead of the writes themselves."""

    last: str
    """The hash of the version that it ended with, or `ABSENT`."""
    blob: str | None = None
    """All of it was committed, and this is git's name of that version; None: there was no file."""
    weave: dict[str, Any] | None = None
    """Some of it was not committed: a weave that was put away."""
    is_lost: bool = False
    """Nothing is known, and the whole ledger has to be read."""


class Lineage:
    """One file: what it is called now, what it was called, and its writes as they followed each other."""

    def __init__(self, name: str, earlier: Earlier | None = None, authors: Iterable[WrittenBy] = ()) -> None:
        self.name = name
        self.earlier = earlier
        """None: `writes` are all that there were."""
        self.earlier_authors = frozenset(authors)
        self.writes: list[LandedWrite] = []
        self.renames: list[Rename] = []

    @property
    def authors(self) -> set[WrittenBy]:
        """Everybody who ever wrote or moved it."""
        return {*self.earlier_authors, *map(author_of, self.writes), *(rename.by for rename in self.renames)}


class FileVersion(NamedTuple):
    """One version, who made it of the one before, and its bytes. No bytes: there was no file."""

    by: WrittenBy
    content: bytes | None
    time: str = ""
    """When the write was recorded that left or found it; empty if none did."""


class VersionChain(NamedTuple):
    """Versions that followed each other, as far back as their bytes are kept."""

    versions: tuple[FileVersion, ...]
    cut_off: frozenset[WrittenBy]
    """Who wrote before the first of them."""


def author_of(write: LandedWrite) -> WrittenBy:
    """Return who made a write."""
    return WrittenBy(write.agent_id, write.session_id)


def lineages(writes: Iterable[LandedWrite], before: Iterable[Lineage] = ()) -> list[Lineage]:
    """Return every file on record, with its writes in the order in which they were recorded."""
    found = list(before)
    by_name = {file.name: file for file in found}
    for write in writes:
        file = by_name.get(write.path)
        if file is None:
            file = by_name[write.path] = Lineage(write.path)
            found.append(file)
        if write.destination is None:
            file.writes.append(write)
            continue
        file.renames.append(Rename(write.path, write.destination, author_of(write)))
        file.name = write.destination
        found.remove(file)  # The last of several that have had one name is the one that has it.
        found.append(file)
        del by_name[write.path]
        by_name[write.destination] = file
    return found


class VersionLink(NamedTuple):
    """A version by its hash, or `ABSENT`; who made it of the one before, and when that was recorded."""

    sha256: str
    by: WrittenBy
    time: str


def links_of(file: Lineage, current: bytes | None) -> list[VersionLink]:
    """Return the versions that followed each other behind the earlier ones, up to what is there now."""
    at = None if file.earlier is None else file.earlier.last
    ordered = in_landing_order(file.writes, at)
    links = linked(ordered, at)
    return [*links, *outside_link(links[-1].sha256 if links else at, current)]


def linked(ordered: Iterable[LandedWrite], at: str | None) -> list[VersionLink]:
    """Return the versions that writes found and left, in the order in which they landed."""
    links: list[VersionLink] = []
    for write in ordered:
        before, after = _hash(write.before), _hash(write.after)
        if before != at:
            links.append(VersionLink(before, OUTSIDER, write.time))
        links.append(VersionLink(after, author_of(write), write.time))
        at = after
    return links


def outside_link(at: str | None, current: bytes | None) -> list[VersionLink]:
    """Return what an outsider has made of the last version since, if anything."""
    now = ABSENT if current is None else hashing.of_bytes(current)
    return [] if at == now else [VersionLink(now, OUTSIDER, "")]


def steps(links: Iterable[VersionLink], find: Callable[[str], bytes | None]) -> list[FileVersion] | None:
    """Return versions with their bytes; None if some are not kept, and it matters whose they were."""
    versions: list[FileVersion] = []
    between: set[WrittenBy] = set()
    for sha256, by, time in links:
        between.add(by)
        content = find(sha256) if is_hash(sha256) else None
        if content is None and sha256 != ABSENT:
            continue
        if len(between) > 1:
            return None
        versions.append(FileVersion(by, content, time))
        between = set()
    return None if between else versions


def chain(
    links: Sequence[VersionLink],
    count: int,
    find: Callable[[str], bytes | None],
    is_mine: Callable[[WrittenBy], bool],
) -> VersionChain:
    """Return the last versions with their bytes. `find` looks for bytes by their hash."""
    versions: list[FileVersion] = []
    between = [link.by for link in links[:-count]]
    cut_off: frozenset[WrittenBy] = frozenset()
    for sha256, by, time in links[-count:]:
        between.append(by)
        content = find(sha256) if is_hash(sha256) else None
        if content is None and sha256 != ABSENT:
            continue  # Not kept.
        if versions:
            versions.append(FileVersion(_together(between, is_mine), content, time))
        else:
            versions.append(FileVersion(OUTSIDER, content, time))
            cut_off = frozenset(between)
        between = []
    return VersionChain(tuple(versions), cut_off)


def in_landing_order(writes: Sequence[LandedWrite], left: str | None = None) -> list[LandedWrite]:
    """Put writes of one file in the order in which they landed: each found what the one before it left."""
    waiting = deque(writes)
    ordered: list[LandedWrite] = []
    while waiting:
        number = _next_to_land(left, waiting)
        ordered.append(waiting[number])
        del waiting[number]
        left = ordered[-1].after
    return ordered


def _next_to_land(left: str | None, waiting: deque[LandedWrite]) -> int:
    """
    Return which write followed what was `left`: as a rule the first on record.

    Another one only if it found what was left and the first one found what a later one on record left. A
    version that was there twice, because somebody went back to it, must not be taken for that.
    """
    if waiting[0].before == left or not is_hash(waiting[0].before):
        return 0
    some = list(islice(waiting, OUT_OF_ORDER))
    at, passed = 0, {0}
    while some[at].before != left:
        earlier = [
            number
            for number, write in enumerate(some)
            if write.after == some[at].before and write.before != some[at].after and number not in passed
        ]
        if not earlier:
            return 0 if left is not None else at
        at = earlier[0]
        passed.add(at)
    return at


def _hash(word: str) -> str:
    return ABSENT if word in (ABSENT, DELETED) else word


def _together(authors: list[WrittenBy], is_mine: Callable[[WrittenBy], bool]) -> WrittenBy:
    """Return whose a step is that several may have made, with nothing left of what was between."""
    of_mine = [is_mine(author) for author in authors]
    if all(of_mine):
        return authors[-1]
    if any(of_mine):
        return UNKNOWN_WRITER
    return authors[-1] if len(set(authors)) == 1 else OUTSIDER
