"""
The facts that the rules are asked about: one set for each file of a call.

Facts come from the action itself (which file, what it shall hold), from what the agent saw (the snapshot),
from the options, and, where somebody looked, from the disk. Nothing is decided here. The library, hooks and
MCP gather them by the same function, so a rule has the same facts in each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from noclobber.core.actions import EDIT, READ, WRITE
from noclobber.core.options import DEFAULTS
from noclobber.core.switches import is_another_name
from noclobber.core.values import BOM
from noclobber.disk import hashing
from noclobber.errors import ABSENT, BadRequestError
from noclobber.guard.change_set import FileChange
from noclobber.text.encoding import encode, encode_anyway

if TYPE_CHECKING:
    from noclobber.core.actions import Action
    from noclobber.core.options import Options
    from noclobber.guard.snapshot import TurnContext


class Facts(NamedTuple):
    """Everything that the rules may know about one call and one file."""

    kind: str
    """`read`, `write` (the whole file), `edit`, `delete`, `move` or `create` (a move's destination)."""
    path: str
    """Canonical."""
    name: str
    """What the agent called it, absolute."""
    root: str = "/"
    """The project's folder."""
    options: Options = DEFAULTS
    expected: str | None = None
    """What the caller gave, or else the baseline; None: this agent has not read the file."""
    is_explicit: bool = False
    """True if the caller itself said what it expects."""
    is_expected_seen: bool = True
    """False if the caller named a version that this agent has neither read nor written."""
    baseline: str | None = None
    """What this agent last saw, whatever the caller named; None: it has not read the file."""
    actual: str | None = None
    """What is on the disk: a hash, or the word for why there is none. None: nobody looked."""
    is_changed: bool = False
    """Of a command that began with what was there: True if that was changed, made, moved or removed since."""
    seen_whole: bool = True
    refused_from: str | None = None
    """If these very bytes were refused before: the baseline they were made from."""
    write_scope: tuple[str, ...] | None = None
    """Canonical folders."""
    is_memory_lost: bool = False
    """True if something that the agent saw may have been forgotten."""
    is_unseen: bool = False
    """True if the agent's own command made what is there, and the agent has not read it since."""
    is_switch_by_link: bool = False
    """True if the file is a hard link to one that agents must not change."""
    switch_places: frozenset[str] | None = None
    """Where switches are that no name tells; None: the rule has to look."""
    is_around: bool = False
    """True for a link or a folder: what is, or would be, below its name counts."""
    comes_with: str | None = None
    """The folder that a command made, or removed, with this file in it."""


def gather(
    action: Action,
    snapshot: TurnContext,
    name: str,
    path: str,
    *,
    options: Options,
    actual: str | None = None,
    write_scope: tuple[str, ...] | None = None,
    is_memory_lost: bool = False,
    by_us: bool = True,
    names: int | None = None,
) -> FileChange:
    """
    Return what the rules have to know about one file of a call.

    `by_us`: we will write the file. Then text that no file can hold is an error, and a byte-order mark is put
    back: text does not show it, so the agent did not mean to drop it. `names`: how many hard links the file
    has, if somebody has looked; 0 if there is none.
    """
    content = action.content
    data = content if isinstance(content, bytes) else None
    if isinstance(content, str):
        data = encode(content, path) if by_us else encode_anyway(content)
        if by_us and not data.startswith(BOM) and snapshot.starts_with_bom(name, path):
            data = BOM + data
    baseline, left = snapshot.expected_for(name, path), snapshot.left_for(name, path)
    # Whoever replaces a file must have seen it. To edit or delete what an own command left needs no reading.
    last = baseline if action.kind == WRITE else left or baseline
    expected, seen_whole = _expectation(action, snapshot, name, path, last)
    # What the turn last saw it has seen, and that there is no file needs no reading.
    is_expected_seen = expected in (None, ABSENT, baseline, left) or snapshot.saw(name, path, expected)
    refused_from = None
    if data is not None and options.resubmitted == "deny":
        refused_from = snapshot.refused_from(name, path, hashing.of_bytes(data))
    facts = Facts(
        action.kind,
        path,
        name,
        snapshot.root,
        options,
        expected=expected,
        is_explicit=action.expected_hash is not None or action.observation_id is not None,
        is_expected_seen=is_expected_seen,
        baseline=baseline,
        actual=None if action.kind == READ else actual,
        seen_whole=seen_whole,
        refused_from=refused_from,
        write_scope=write_scope,
        is_memory_lost=is_memory_lost,
        is_unseen=left is not None,
        is_switch_by_link=action.kind in (WRITE, EDIT)
        and (names is None or names > 1)
        and is_another_name(
            path,
            snapshot.root,
            options.reserved or (),
            with_switches=options.switches == "reserved",
        ),
    )
    return FileChange(action, facts, data)


def _expectation(
    action: Action, snapshot: TurnContext, name: str, path: str, baseline: str | None
) -> tuple[str | None, bool]:
    """Return what a write is checked against, and whether all of that was seen. The caller's word counts."""
    coverage = None if baseline is None else snapshot.part_of(name, path, baseline)
    is_whole = coverage is None or coverage.is_whole
    expected_hash = action.expected_hash
    if action.observation_id is not None:
        observation = snapshot.observation(action.observation_id)
        if observation.path != path or expected_hash not in (None, observation.sha256):
            raise BadRequestError(path, "That observation is of another file, or of another hash.")
        return observation.sha256, is_whole if observation.sha256 == baseline else observation.seen.is_whole
    if expected_hash is None or expected_hash == baseline:
        return baseline, is_whole
    seen = snapshot.coverage_of(name, path, expected_hash)
    # Of a hash from elsewhere nothing is known about how much its owner saw.
    return expected_hash, True if seen is None else seen.is_whole
