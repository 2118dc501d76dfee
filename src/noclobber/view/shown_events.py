"""
One event of the ledger as a person sees it: who did what to which file, and whose version that replaced.

A line may hold anything, in any size. Every text is cut before it is kept, and control characters are spelled
out, so that neither a terminal nor a reader is fooled.

Whose version a write replaced is known from the writes before it: `Authors` remembers who wrote the version
with which hash, of the files that were written lately.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

from noclobber.ledger.browse import summary_of
from noclobber.ledger.root import relative
from noclobber.text.visible import visible

MOST_LETTERS = 200
SHORT_SESSION = 8
MOST_AUTHORS = 4000

WRITE, MERGE, CONFLICT, REFUSED, RACE, LOCK, OTHER = (
    *("write", "merge", "conflict", "refused", "race"),
    *("lock", "other"),
)
_NO_VERSION = ("", "ABSENT", "DELETED", "NOT_A_FILE", "UNREADABLE", "UNKNOWN")


class Who(NamedTuple):
    """Who asked, as far as the event says; empty where it does not."""

    agent: str = ""
    host: str = ""
    session: str = ""

    def spelled(self) -> str:
        """Return the agent with its host and the beginning of its session."""
        where = " ".join(part for part in (self.host, self.session[:SHORT_SESSION]) if part)
        return f"{self.agent or 'somebody'}{f' ({where})' if where else ''}"


class ShownEvent(NamedTuple):
    """An event, ready to be shown. Every text is short and printable."""

    seq: int
    time: str
    kind: str
    """As the ledger has it: `MUTATION`."""
    group: str
    """What it means for a person: `write`, `merge`, `conflict`, `refused`, `race`, `lock`, `other`."""
    outcome: str
    who: Who
    file: str
    """From the root; empty if it is about no file."""
    text: str
    """The sentence."""
    over: str
    """Whose version was replaced, or was in the way; empty if nobody's, or its own."""
    call: str
    turn: str
    before: str
    after: str


def shortened(value: object, most_letters: int = MOST_LETTERS) -> str:
    """Return text that is printable and short; what is not text is empty."""
    if not isinstance(value, str):
        return ""
    if len(value) > most_letters:
        half = (most_letters - 1) // 2
        value = f"{value[:half]}…{value[-half:]}"
    return visible(value)


class Authors:
    """Who wrote which version of which file, for the files that were written last."""

    def __init__(self, most: int = MOST_AUTHORS) -> None:
        self._most = most
        self._of_version: OrderedDict[tuple[str, str], Who] = OrderedDict()
        self._latest: OrderedDict[str, str] = OrderedDict()

    def wrote(self, file: str, version: str, who: Who) -> None:
        """A version was written."""
        self._of_version.pop((file, version), None)
        self._of_version[file, version] = who
        self._latest.pop(file, None)
        self._latest[file] = version
        if len(self._of_version) > self._most:
            self._of_version.popitem(last=False)
        if len(self._latest) > self._most:
            self._latest.popitem(last=False)

    def of(self, file: str, version: str) -> Who | None:
        """Return who wrote a version; None if that is not known."""
        return self._of_version.get((file, version))

    def is_strange(self, file: str, version: str) -> bool:
        """True if the file was written lately, and this is none of the versions that were written."""
        return file in self._latest and (file, version) not in self._of_version


def group_of(kind: str, *, is_merge: bool = False) -> str:
    """Return what a kind of event means for a person."""
    if kind == "MUTATION":
        return MERGE if is_merge else WRITE
    if kind == "MUTATION_CONFLICT":
        return CONFLICT
    if kind in ("MUTATION_REFUSED", "MUTATION_FAILED"):
        return REFUSED
    if kind in ("MUTATION_RACE", "VERSION_KEPT"):
        return RACE
    return LOCK if kind.startswith("LOCK_") else OTHER


def shown(event: dict[str, Any], root: str, authors: Authors) -> ShownEvent:
    """Return an event as it is shown. Call it in the order of the ledger: `authors` learns from it."""
    payload, identity, result = (
        member if isinstance(member := event.get(name), dict) else {}
        for name in ("payload", "identity", "result")
    )
    about = summary_of(event, root)
    kind = shortened(about.kind, 60)
    group = group_of(kind, is_merge=isinstance(payload.get("merged"), dict))
    who = Who(
        shortened(about.agent, 60),
        shortened(identity.get("host"), 30),
        shortened(identity.get("session_id"), 60),
    )
    file = shortened(relative(root, about.subject))
    before, after = (
        _version(payload, *names)
        for names in (("before_hash", "baseline_hash"), ("after_hash", "current_hash"))
    )
    over = _replaced(group, file, who, before, after, payload, authors)
    if kind == "MUTATION" and file:
        destination = payload.get("destination")
        goal = shortened(relative(root, destination)) if isinstance(destination, str) else file
        authors.wrote(goal, after, who)
    seq = event.get("seq")
    outcome = shortened(about.outcome, 60)
    return ShownEvent(
        seq if isinstance(seq, int) else 0,
        shortened(event.get("time"), 30),
        kind,
        group,
        outcome,
        who,
        file,
        _sentence(kind, group, outcome, who, file, over, payload, result),
        over,
        shortened(identity.get("call_id"), 120),
        shortened(identity.get("turn_id"), 120),
        before,
        after,
    )


def _version(payload: dict[str, Any], *names: str) -> str:
    for name in names:
        value = payload.get(name)
        if isinstance(value, str):
            return shortened(value.removeprefix("sha256:"), 64)
    return ""


def _replaced(
    group: str, file: str, who: Who, before: str, after: str, payload: dict[str, Any], authors: Authors
) -> str:
    """Return whose version this event is about, if it is somebody else's."""
    version = {WRITE: before, MERGE: before, CONFLICT: after}.get(group, "")
    if group == RACE:
        version = _version(payload, "overwritten_hash", "current_hash")
    if version in _NO_VERSION or not file:
        return ""
    author = authors.of(file, version)
    if author is not None:
        return "" if author == who else author.spelled()
    # A conflict and a race were somebody's doing, and nobody who is guarded did it.
    is_outsiders = group in (CONFLICT, RACE) or authors.is_strange(file, version)
    return "somebody outside" if is_outsiders else ""


def _sentence(
    kind: str,
    group: str,
    outcome: str,
    who: Who,
    file: str,
    over: str,
    payload: dict[str, Any],
    result: dict[str, Any],
) -> str:
    name, tool = who.spelled(), shortened(payload.get("tool_name"), 40)
    if kind == "MUTATION":
        verb = "merged into" if group == MERGE else "moved" if payload.get("destination") else "wrote"
        verb = "deleted" if payload.get("after_hash") in ("DELETED", "ABSENT") else verb
        joined = ", beside the change of" if group == MERGE else ", over the version of"
        return f"{name} {verb} {file}{f'{joined} {over}' if over else ''}"
    if group == CONFLICT:
        return f"{name} was refused: {over or 'somebody else'} had changed {file} since it was read"
    if kind == "MUTATION_REFUSED":
        return f"{name} was refused ({outcome}): {tool} {file}".rstrip()
    if kind == "MUTATION_FAILED":
        return f"a call of {name} failed after it was let through: {file}"
    if kind == "MUTATION_RACE":
        return f"{name} wrote {file} at the same time as {over or 'somebody else'}; look at it"
    if group == LOCK:
        return _lock_sentence(kind, name, file, payload, result)
    if kind == "VERSION_KEPT":
        return "somebody wrote to a version that had been replaced; it is kept"
    if kind == "COMMIT_RECOVERED":
        return f"a commit whose process died was finished: {file} ({shortened(payload.get('outcome'), 40)})"
    return " ".join(part for part in (kind, outcome, file, f"by {name}" if who.agent else "") if part)


def _lock_sentence(kind: str, name: str, folder: str, payload: dict[str, Any], result: dict[str, Any]) -> str:
    if kind == "LOCK_CONTENTION":
        holder = shortened(result.get("holder"), 60) or "somebody else"
        return f"{name} was refused the lock of {folder}: {holder} holds it"
    if kind == "LOCK_RECOVERED":
        previous = shortened(payload.get("previous_holder"), 60) or "somebody"
        why = {
            "lease_expired": "its lease had run out",
            "pid_dead": "its process was gone",
            "corrupt": "its lock file was damaged",
        }.get(str(payload.get("recovery_reason")), shortened(payload.get("recovery_reason"), 40))
        return f"{name} cleared the lock of {previous} on {folder}{f': {why}' if why else ''}"
    verbs = {
        "LOCK_ACQUIRED": "locked",
        "LOCK_RENEWED": "extended the lock of",
        "LOCK_RELEASED": "released",
        "LOCK_RETIRED": "retired",
    }
    return f"{name} {verbs.get(kind, kind)} {folder}"
