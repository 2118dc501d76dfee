"""
The timeline of one file: which versions it had, who wrote each, and who was refused; diffs between any two.

The ledger is searched from its end, in blocks, for lines that can be about the file, until enough are found.
Only those are parsed. A search has a deadline: what was not looked at is said.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from noclobber.core.project import state_folder
from noclobber.disk.commit.leftovers import displaced_in
from noclobber.disk.reading import look_at
from noclobber.disk.versions import Versions
from noclobber.errors import ABSENT, DELETED, BadRequestError, NoclobberError
from noclobber.guard.past_bytes import find_bytes
from noclobber.ledger.browse import event_in, summary_of
from noclobber.ledger.chosen import recent_lines
from noclobber.ledger.root import relative
from noclobber.text.visible import visible
from noclobber.view.attention import MOST_DIFFED_BYTES, diff_text, read_bounded
from noclobber.view.shown_events import Authors, shortened, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noclobber.core.clock import Clock
    from noclobber.view.shown_events import ShownEvent

MOST_EVENTS = 200
PATIENCE_S = 5.0
NOW = "now"
_ALTERED = {"…", "\\"}  # One of these is in every name that is not shown as it is.


class Timeline(NamedTuple):
    """What is known of a file, the newest first."""

    file: str
    events: list[ShownEvent]
    kept: frozenset[str]
    """The hashes of those versions whose bytes are kept."""
    current: str
    """The hash of what is there now, or a word."""
    is_whole: bool
    """False if older lines of the ledger were not looked at."""


def timeline(root: str, file: str, clock: Clock, *, most: int = MOST_EVENTS) -> Timeline:
    """Return what happened to a file; `file` is its name from the root, as it is or as the page shows it."""
    path = meant(root, file, clock)
    deadline_s = clock.monotonic_s() + PATIENCE_S
    found: list[dict[str, Any]] = []
    is_whole = True
    for event in _about(root, path):
        if event is None:  # A block was searched.
            if clock.monotonic_s() > deadline_s:
                is_whole = False
                break
            continue
        found.append(event)
        if len(found) >= most:
            is_whole = False
            break
    authors = Authors()
    events = [shown(event, root, authors) for event in reversed(found)]
    named = frozenset(
        version for event in events for version in (event.before, event.after) if len(version) == 64
    )
    return Timeline(
        visible(relative(root, path)),
        events[::-1],
        _kept(root, named),
        _current(root, path),
        is_whole,
    )


def diff_between(root: str, file: str, before: str, after: str, clock: Clock) -> str:
    """Return the diff between two versions of a file, each a hash, a word such as `ABSENT`, or `now`."""
    path = meant(root, file, clock)
    old, new = (_content(root, path, version) for version in (before, after))
    for version, content in ((before, old), (after, new)):
        if content is None:
            return f"The bytes of version {version[:12]} are kept nowhere, so there is nothing to compare."
        if len(content) > MOST_DIFFED_BYTES:
            return f"Version {version[:12]} is too large to be shown."
    return diff_text(old or b"", new or b"", path.removeprefix(root.rstrip("/")))


def meant(root: str, file: str, clock: Clock) -> str:
    """
    Return the path of the file that a person chose on the page.

    The page has names as they are shown: a long one is cut in the middle, control characters are spelled out.
    Which file that is, the ledger says. A file that really has such a name comes first.
    """
    path = located(root, file)
    if not _ALTERED & set(file) or os.path.lexists(path):
        return path
    deadline_s = clock.monotonic_s() + PATIENCE_S
    found: set[str] = set()
    for line in recent_lines(root):
        if line is None:
            if clock.monotonic_s() > deadline_s:
                break
        elif (event := event_in(line)) is not None:
            subjects = (relative(root, subject) for subject in summary_of(event, root).subjects)
            found.update(subject for subject in subjects if subject != file and shortened(subject) == file)
    if len(found) > 1:
        raise BadRequestError(
            "", "Several files are shown by this name. `noclobber versions list FILE` tells them apart."
        )
    return located(root, found.pop()) if found else path


def located(root: str, file: str) -> str:
    """Return the path of a file of the project; nothing outside it is shown."""
    if not file or "\0" in file or len(file) > 4096:
        raise BadRequestError("", "That is no file's name.")
    path = os.path.normpath(os.path.join(root, file))
    inside = root.rstrip("/") + "/"
    real_folder = os.path.realpath(os.path.dirname(path))
    if not path.startswith(inside) or not f"{real_folder}/".startswith(inside):
        raise BadRequestError("", "That file is not in the project.")
    return path


def _content(root: str, path: str, version: str) -> bytes | None:
    if version == NOW:
        return read_bounded(path) if os.path.lexists(path) else b""
    if version in (ABSENT, DELETED):
        return b""
    if len(version) != 64 or set(version) - set("0123456789abcdef"):
        raise BadRequestError("", "A version is named by its SHA-256.")
    return find_bytes(root, path, version)[0]


def _kept(root: str, versions: frozenset[str]) -> frozenset[str]:
    displaced = {each.sha256 for each in displaced_in(state_folder(root))}
    try:
        with Versions(root, make=False) as kept:
            displaced.update(version for version in versions if kept.find(version))
    except OSError:
        pass
    return versions & displaced


def _current(root: str, path: str) -> str:
    try:
        return look_at(path, root).sha256
    except (NoclobberError, OSError):
        return ""


def _about(root: str, path: str) -> Iterator[dict[str, Any] | None]:
    """Yield the events about a file, the newest first, and None after each block that was searched."""
    sign = _sign(os.path.basename(path))
    for line in recent_lines(root):
        if line is None:
            yield None
        elif sign is None or sign in line or b"\\u" in line:
            event = event_in(line)
            if event is not None and path in summary_of(event, root).subjects:
                yield event


def _sign(name: str) -> bytes | None:
    """Return bytes that every line about a file of this name has, unless it has escapes; None if unsure."""
    plain = name.isascii() and name.isprintable() and not {'"', "\\", "/"} & set(name)
    return name.encode() if plain else None
