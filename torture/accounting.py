"""
Which updates were lost, and who lost them.

The question is narrow: which completed updates vanished because a *guard* put its bytes over a version
that it had not seen? Outsiders overwrite guards all the time, which is not counted. The accounting
rests on three arrangements, each of which makes one question exact:

1. **One outsider a file, and it never drops a number of its own.** Then an outsider's number that is missing
   from the final content was dropped by a guard, and by nobody else. (Writers that overwrite a slot hide
   a loss with their next number, so they look first, and log what they miss.) If the number is found in a
   file that the guard kept aside, it is *kept*, not lost.
2. **Every version names its parent, and no content comes back.** Then the versions form a tree, and the
   final content's ancestors are its trunk. A guard's committed version that is not on the trunk was
   overwritten by whichever version took its place at the fork. If that one is an outsider's, it is the
   outsider's doing; if it is a guard's, one guard lost the other's update. Two commits on the same bytes
   are the same fault, and so is a commit that never reached the disk.
3. **Everybody who looks keeps a log of what they saw.** A guard's version that somebody saw although its
   commit was refused, or that was followed by the return of an older version, was *withdrawn*. A guard's
   version that somebody saw in part is *torn*, except where the outsider rewrites the same inode in place:
   there the reader's own `read` may mix the two, and the final content alone is judged.

A *false refusal* is a `STALE_FILE` after which the very same bytes are read again.

Killed agents have attempts without an outcome. Such a version may be on disk or not, and both are right;
but if it was seen, and then overwritten by a guard that had not seen it, it was *undone*. That has a column
of its own. A process that dies between its exchange and its decisive look leaves its version in the open,
and if it had displaced a save that it had not seen, only undoing brings that save back.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from torture import versions
from torture.outsiders import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

EVIDENCE_LINES = 12


class LoggedAttempt(NamedTuple):
    """One agent's try: what it was based on, and what became of it ('' if the agent died in the middle)."""

    id: str
    parent: str
    base_sha256: str
    base_whole: bool
    outcome: str


class Account(NamedTuple):
    """The result of one round."""

    kind: str
    updates: int
    """Outside updates that were completed; for storms, how often the file was touched."""
    lost: int
    """The outsider's completed updates that vanished through a guard."""
    lost_commits: int
    """Guards' commits that vanished through another guard."""
    kept: int
    """The outsider's updates that are not in the file but in a file that was kept aside."""
    false_refusals: int
    withdrawn: int
    undone: int
    """Versions of killed agents that were seen, and that the recovery took back."""
    stood_in: int
    """How often a reader saw an older file where a folder was. Reported, but not a withdrawal."""
    torn: int
    commits: int
    stale: int
    busy: int
    refused_otherwise: Mapping[str, int]
    overwritten_by_outsider: int
    """Commits that the outsider overwrote, between its look and its save. Not the guard's doing."""
    lost_modes: int
    """Changes of permission bits that vanished. Bits are not bytes: reported, and not among the lost."""
    levels: Mapping[str, int]
    kills: int
    watched: int
    """How often the watcher looked."""
    slowest_update_ms: float
    faults: tuple[str, ...]
    """Crashes, hangs and other things that must not happen at any level."""
    evidence: tuple[str, ...]
    """Which versions are behind the figures above, for whoever has to find out why."""

    @property
    def is_clean(self) -> bool:
        """True if this round meets the bars of the strongest level."""
        found = self.lost or self.lost_commits
        return not (found or self.false_refusals or self.withdrawn or self.torn or self.faults)


class RoundLogs:
    """Everybody's logs of one round, read into memory."""

    def __init__(self, kind: str, log_folder: str) -> None:
        self.kind = kind
        self.made = 0
        self.parents: dict[str, str] = {"start:0": versions.NO_ID}
        self.missed: dict[int, str] = {}
        self.attempts: dict[str, LoggedAttempt] = {}
        self.sightings: list[tuple[str, bool]] = []
        self.sightings_by_agents: list[str] = []
        self.seen_in_parts: list[str] = []
        self.tally: Counter[str] = Counter()
        self.levels: Counter[str] = Counter()
        self.other_codes: Counter[str] = Counter()
        self.kept_paths: set[str] = set()
        self.faults: list[str] = []
        self.slowest_update_ms = 0.0
        for name in sorted(os.listdir(log_folder)):
            lines = _lines(os.path.join(log_folder, name))
            if name == "outsider.log":
                self._read_outsider(lines)
            elif name == "watcher.log":
                self._read_watcher(lines)
            elif name.endswith(".log"):
                self._read_agent(name.removesuffix(".log"), lines)

    def _read_outsider(self, lines: Iterator[list[str]]) -> None:
        for what, *facts in lines:
            if what == "U":
                self.made = int(facts[0])
                if facts[1] != versions.NO_ID:
                    self.parents[f"o:{facts[0]}"] = facts[1]
            elif what == "M":
                self.missed[int(facts[0])] = facts[1]
            elif what == "T":
                self.seen_in_parts.append(facts[0])
            elif what == "V":
                self.tally["vanished"] += 1
            elif what == "P":
                self.tally["modes lost"] += 1
            elif what == "O":
                self.tally["old again"] += 1
            elif what == "S":
                self.made = int(facts[0])
            elif what == "N":
                self.faults.append("outsider: " + " ".join(facts))
            elif what == "D":
                self.slowest_update_ms = float(facts[0])

    def _read_watcher(self, lines: Iterator[list[str]]) -> None:
        for what, *facts in lines:
            if what == "W":
                self.sightings.append((facts[0], facts[1] == "1"))
            elif what == "Z":
                self.tally["watched"] = int(facts[0])

    def _read_agent(self, name: str, lines: Iterator[list[str]]) -> None:
        for what, *facts in lines:
            if what == "A":
                serial, parent, whole, sha256 = facts
                own_id = f"{name}:{serial}"
                self.parents[own_id] = parent
                self.attempts[own_id] = LoggedAttempt(own_id, parent, sha256, whole == "1", "")
            elif what in "CSBE":
                own_id = f"{name}:{facts[0]}"
                self.attempts[own_id] = self.attempts[own_id]._replace(outcome=what)
                self.tally[what] += 1
                if what == "C":
                    self.levels[facts[1]] += 1
                elif what == "E":
                    self.other_codes[facts[1]] += 1
            elif what == "F":
                self.tally["F"] += 1
            elif what == "H":
                self.sightings_by_agents.append(facts[0])
            elif what == "K":
                self.kept_paths.add(" ".join(facts))
            elif what == "Q":
                self.tally["kills"] += int(facts[0])
            elif what == "X":
                self.faults.append(f"{name} crashed: {' '.join(facts)}")


def settle(
    kind: str, log_folder: str, final: bytes | None, kept: Sequence[str] = (), faults: Sequence[str] = ()
) -> Account:
    """
    Account for a round.

    `final` is the file's content when everything is over and recovered (None: there is no file), `kept` the
    files that the guard says it kept aside.
    """
    logs = RoundLogs(kind, log_folder)
    end = versions.parse(final or b"")
    evidence: list[str] = []
    lost_tags, kept_tags = _outside_losses(logs, end, {*kept, *logs.kept_paths}, evidence)
    lost_commits, overwritten, undone = _lost_commits(logs, end, evidence)
    withdrawn, put_back, stood_in = _withdrawn(logs, evidence)
    torn = _torn(logs, end, evidence)
    if logs.tally["vanished"]:
        logs.faults.append(f"the outsider found its file gone {logs.tally['vanished']} times")
    return Account(
        kind=kind,
        updates=logs.made,
        lost=len(lost_tags),
        lost_commits=lost_commits,
        kept=len(kept_tags),
        false_refusals=logs.tally["F"],
        withdrawn=withdrawn,
        undone=undone + put_back,
        stood_in=stood_in,
        torn=torn,
        commits=logs.tally["C"],
        stale=logs.tally["S"],
        busy=logs.tally["B"],
        refused_otherwise=dict(logs.other_codes),
        overwritten_by_outsider=overwritten,
        lost_modes=logs.tally["modes lost"],
        levels=dict(logs.levels),
        kills=logs.tally["kills"],
        watched=logs.tally["watched"],
        slowest_update_ms=logs.slowest_update_ms,
        faults=(*faults, *logs.faults),
        evidence=tuple(evidence),
    )


def _outside_losses(
    logs: RoundLogs, end: versions.Version, kept_paths: set[str], evidence: list[str]
) -> tuple[list[int], list[int]]:
    """Arrangement 1: the outsider's numbers that are gone, and those of them that were kept aside."""
    if not KINDS[logs.kind].changes_bytes:
        return [], []
    gone = sorted({*end.missing(logs.made), *logs.missed})
    asides = [versions.parse(_bytes(path)) for path in sorted(kept_paths)] if gone else []
    kept = [tag for tag in gone if any(aside.has(tag) for aside in asides)]
    lost = sorted({*gone} - {*kept})
    for tag in lost[:EVIDENCE_LINES]:
        dropped_by = logs.missed.get(tag, end.id)
        attempt = logs.attempts.get(dropped_by)
        based = f", based on {attempt.parent}, outcome {attempt.outcome or 'killed'}" if attempt else ""
        evidence.append(f"o:{tag} lost; first missed in {dropped_by}{based}")
    evidence.extend(
        f"o:{tag} kept aside; first missed in {logs.missed.get(tag, end.id)}" for tag in kept[:EVIDENCE_LINES]
    )
    return lost, kept


def _lost_commits(logs: RoundLogs, end: versions.Version, evidence: list[str]) -> tuple[int, int, int]:
    """Arrangement 2: commits lost to guards; overwritten by the outsider; of the killed, seen and undone."""
    trunk: dict[str, str | None] = {}  # Each version on the trunk -> the one that took its place.
    follower, here = None, end.id
    while here in logs.parents and here not in trunk:
        trunk[here] = follower
        follower, here = here, logs.parents[here]
    seen = {own_id for own_id, _ in logs.sightings} | set(logs.parents.values())
    lost: set[str] = set()
    overwritten = undone = 0
    for attempt in logs.attempts.values():
        landed = attempt.outcome == "C" or (attempt.outcome == "" and attempt.id in seen)
        if not landed or attempt.id in trunk:
            continue
        fork = attempt.parent
        while fork in logs.parents and fork not in trunk:
            fork = logs.parents[fork]
        if fork in trunk:
            successor = trunk[fork]
            # A successor that was refused or killed overwrote nothing itself: the outsider did, which had
            # seen it and built on it. That it could be seen is counted as withdrawn or undone.
            rival = logs.attempts.get(successor or "")
            is_outsiders_doing = successor is not None and (rival is None or rival.outcome != "C")
        else:
            # Its line starts at nothing, or at half a file. Only outsiders that leave gaps make that right.
            successor, is_outsiders_doing = end.id, KINDS[logs.kind].leaves_gaps
        if not is_outsiders_doing:
            follows = f"{successor or 'nothing'} follows {fork}"
            if attempt.outcome == "C":
                lost.add(attempt.id)
                evidence.append(f"{attempt.id} (on {attempt.parent}) lost; {follows}")
            else:
                undone += 1
                evidence.append(f"{attempt.id} (killed) was seen, then undone; {follows}")
        else:
            overwritten += 1
    lost |= _twins(logs, trunk, lost, evidence)
    return len(lost), overwritten, undone


def _twins(logs: RoundLogs, trunk: Mapping[str, object], known: set[str], evidence: list[str]) -> set[str]:
    """Commits on the very same bytes: all but one of them overwrote something unseen."""
    by_base: dict[str, list[str]] = {}
    for attempt in logs.attempts.values():
        if attempt.outcome == "C" and attempt.base_whole:
            by_base.setdefault(attempt.base_sha256, []).append(attempt.id)
    extra: set[str] = set()
    for twins in by_base.values():
        if len(twins) == 1:
            continue
        survivor = next((own_id for own_id in twins if own_id in trunk), twins[-1])
        found = {own_id for own_id in twins if own_id != survivor and own_id not in known}
        if found:
            evidence.append(f"{', '.join(sorted(twins))} were all committed on the same bytes")
        extra |= found
    return extra


def _withdrawn(logs: RoundLogs, evidence: list[str]) -> tuple[int, int, int]:
    """Arrangement 3: versions that were seen, then refused, or followed by an older one; by a recovery;
    in a folder's place."""
    put_back = stood_in = 0
    count = logs.tally["old again"]
    if count:
        evidence.append(f"the outsider found what it had replaced in its place again, {count} times")
    seen = {own_id for own_id, _ in logs.sightings} | set(logs.parents.values())
    for attempt in logs.attempts.values():
        if attempt.outcome not in ("", "C") and attempt.id in seen:
            count += 1
            evidence.append(f"{attempt.id} was seen, although it was refused ({attempt.outcome})")
    passed: set[str] = set()
    last = None
    for own_id, _ in logs.sightings:
        if own_id == versions.NO_ID or own_id == last:
            continue
        if own_id in passed:
            if logs.tally["kills"]:  # A recovery put it there, for a version that was left in the open.
                put_back += 1
            elif KINDS[logs.kind].makes_folders:
                stood_in += 1
            else:
                count += 1
            evidence.append(f"{own_id} was seen again after {last}")
        if last:
            passed.add(last)
        last = own_id
    return count, put_back, stood_in


def _torn(logs: RoundLogs, end: versions.Version, evidence: list[str]) -> int:
    """Guards' versions that somebody saw in part, and a final content that is not whole."""
    rewritten = KINDS[logs.kind].rewrites
    partial = [own_id for own_id, whole in logs.sightings if not whole] + logs.sightings_by_agents
    torn = [
        own_id
        for own_id in partial
        if (attempt := logs.attempts.get(own_id))
        and (rewritten == "nothing" or (rewritten == "created" and not _is_from_a_gap(logs, attempt)))
    ]
    torn += logs.seen_in_parts  # The outsider's own looks: it had left the file whole.
    if not end.is_whole:
        torn.append(f"{end.id} (the end)")
    evidence.extend(f"{own_id} was seen torn" for own_id in torn[:EVIDENCE_LINES])
    return len(torn)


def _is_from_a_gap(logs: RoundLogs, attempt: LoggedAttempt) -> bool:
    """True if a guard created the file while the outsider had moved it away, or built on such a file."""
    here: LoggedAttempt | None = attempt
    while here and here.parent != versions.ABSENT_ID:
        here = logs.attempts.get(here.parent)
    return here is not None


def _lines(path: str) -> Iterator[list[str]]:
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.endswith("\n") and line.strip():
                yield line.split()


def _bytes(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except IsADirectoryError:
        return _bytes(os.path.join(path, "index"))
    except OSError:
        return b""
