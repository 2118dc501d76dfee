"""
The judge: what an agent may do to files.

    change set → judge → verdict → commit, or foresee and compare afterwards → record → answer

Every change goes this way, whoever asks for it: a program's turn, a hook, MCP, a command, an undo. Nobody
else asks the policies, or claims and locks, or says that a change is stale. Where we carry a change out
ourselves, `engine` commits and records. Where a host or an integrator's executor does, there is nothing to
commit, and `outside` has what is done around it.

Light to import: a hook is a process per event, and this is its core. The rules themselves are loaded when
the first change is judged: what comes after a call decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from noclobber.core.actions import WRITE
from noclobber.disk import hashing
from noclobber.disk.reading import look_at
from noclobber.errors import (
    ABSENT,
    DELETED,
    LedgerError,
    NoclobberError,
    StaleFileError,
)
from noclobber.guard import claims
from noclobber.guard.change_set import Verdict

if TYPE_CHECKING:
    from noclobber.core.actions import Action
    from noclobber.core.clock import Clock
    from noclobber.core.options import Options
    from noclobber.core.values import ToolCall
    from noclobber.guard.change_set import ChangeSet
    from noclobber.guard.facts import Facts
    from noclobber.guard.memory import Memory, Notes
    from noclobber.guard.recording import Recorder


class Checker(Protocol):
    """Claims and locks, asked about a write that somebody else carries out."""

    def check(self, path: str) -> None:
        """Raise if a write to `path` would be refused now."""


class LimitedTurn(Protocol):
    """What has to be known of a turn to let a call through."""

    @property
    def confined_to(self) -> str | None:
        """The folder that paths must not leave; None for a host, whose tools go anywhere."""

    @property
    def clock(self) -> Clock:
        """What the time is."""

    def ledger_trouble(self) -> LedgerError | None:
        """Return why events cannot be recorded now, None if they can."""


class JudgedTurn(LimitedTurn, Protocol):
    """What the judge has to know of the turn that a call belongs to."""

    @property
    def root(self) -> str:
        """The project's folder."""

    @property
    def folder(self) -> str:
        """What relative paths are relative to."""

    @property
    def owner(self) -> str:
        """The agent, as claims name it."""

    @property
    def options(self) -> Options:
        """The rules that this turn was asked to keep."""

    @property
    def write_scope(self) -> tuple[str, ...] | None:
        """Canonical folders, or None for anywhere."""

    @property
    def fence(self) -> Checker:
        """Claims and locks."""

    @property
    def memory(self) -> Memory:
        """What the agent saw."""

    @property
    def recorder(self) -> Recorder:
        """What puts events on record."""

    @property
    def parallel_s(self) -> float:
        """How long a call that was let through may still be under way when the next one comes."""

    def begin_watch(self, key: str) -> tuple[str, int] | None:
        """Return a mark that exists while a call is watched, and the host's process; None: no watch."""

    def end_watch(self, key: str) -> None:
        """End the watch of a call."""

    @property
    def outside_level(self) -> str:
        """What a write by somebody else is called on record: `hook` or `executor`."""


def refusal_of(facts: Facts, fence: Checker | None = None) -> NoclobberError | None:
    """Return why the rules, or with a `fence` claims and locks, forbid a change; None: they allow it."""
    from noclobber.guard.policies import decide

    decision = decide(facts)
    if not decision.allowed:
        refused: NoclobberError = decision.error
        return refused
    return None if fence is None else refusal_by_fence(facts.path, fence)


def refusal_by_fence(path: str, fence: Checker) -> NoclobberError | None:
    """Return why claims and locks forbid a write to a path; None: they allow it."""
    try:
        fence.check(path)
    except NoclobberError as error:
        return error
    return None


def judge(turn: LimitedTurn, wanted: ChangeSet, fence: Checker | None = None) -> Verdict:
    """Ask the rules, the ledger and, if given, claims and locks about every change of a set."""
    verdict, broken = Verdict(), turn.ledger_trouble()
    if broken and not wanted.changes:
        verdict.refuse(broken)  # What a command changes is not known yet, and could not be recorded.
    for change in wanted.changes:
        refusal = refusal_of(change.facts, fence)
        if (refusal or broken) and change.facts.actual is None:
            # A refusal gives the right reason, and staleness comes before most. So look now.
            change.facts = change.facts._replace(actual=look(turn, change.facts.path))
            refusal = refusal_of(change.facts, fence)
        facts = change.facts
        if refusal or broken:
            verdict.refuse(refusal or broken)  # type: ignore[arg-type]
        elif facts.actual == DELETED and facts.expected is None and facts.kind == WRITE:
            # Let through because there is no file: hold it to that.
            change.facts = facts._replace(expected=ABSENT)
    return verdict


def admit_read(facts: Facts) -> Facts:
    """Return the facts if the rules let a read through; or raise."""
    if (refusal := refusal_of(facts)) is not None:
        raise refusal
    return facts


def refuse_if_stale(turn: LimitedTurn, facts: Facts, actual: str | None = None) -> None:
    """Raise if a file is not what the agent saw; `actual` is what it holds, if somebody has looked."""
    from noclobber.guard.policies import stale

    decision = stale(facts._replace(actual=look(turn, facts.path) if actual is None else actual))
    if not decision.allowed:
        raise decision.error from None


def stale_since_began(path: str, actual: str, known: str | None = None) -> StaleFileError:
    """Return the refusal of a command for something that is not what it began with, or what was `known`."""
    from noclobber.guard.facts import Facts
    from noclobber.guard.policies import stale

    refused: StaleFileError = stale(
        Facts(WRITE, path, path, expected=known, actual=actual, is_changed=True)
    ).error
    return refused


def refusal_of_place(
    path: str,
    root: str,
    options: Options,
    write_scope: tuple[str, ...] | None,
    *,
    is_folder: bool,
    is_code: bool = False,
) -> NoclobberError | None:
    """
    Return why nothing may be written at a place, whatever is there: `reserved` and `write_scope`.

    `is_code`: and that it is one of the guard's own switches.
    """
    from noclobber.core.actions import MOVE
    from noclobber.guard import policies
    from noclobber.guard.facts import Facts

    # As a move: what is reserved in a folder that comes or goes counts, too.
    rules = options if is_code else options._replace(switches="open")
    facts = Facts(MOVE, path, path, root, rules, write_scope=write_scope)
    decision = policies.switches(facts)
    if decision.allowed:  # A folder may be the scope itself.
        decision = policies.write_scope(facts._replace(path=f"{path}/" if is_folder else path))
        if not decision.allowed:
            decision = policies.write_scope(facts)
    return None if decision.allowed else decision.error


def look(turn: LimitedTurn, path: str) -> str:
    """Return the hash of what is on the disk now, or the word for why there is none."""
    return look_at(path, turn.confined_to, clock=turn.clock).sha256


def note_refusal(turn: JudgedTurn, wanted: ChangeSet, error: NoclobberError) -> None:
    """
    Put a refused change set on record, once; of a stale one the agent's memory takes note, too.

    One call may be refused twice: by `pre_tool_use` and then by `execute`, or because a host delivers one
    event twice (`delivery` is then the same). A call without a name is never taken for another one.
    """
    path, call = getattr(error, "path", None), wanted.call
    name = f"{call.call_id}" if call.call_id else wanted.delivery
    key = f"{name}:{getattr(error, 'actual', error.code)}" if name else None
    for change in wanted.changes:
        facts = change.facts
        settle_judged(turn, call, facts.path)
        if facts.path != path and len(wanted.changes) > 1:
            continue
        snapshot, notes = turn.memory.recall(facts.name, facts.path)
        if key is not None:
            if notes.get("refused") == key:
                return  # It was refused before, and is on record.
            notes["refused"] = key
        if isinstance(error, StaleFileError):
            refused = None if change.sent is None else hashing.of_bytes(change.sent)
            snapshot.refused(facts.name, error.path, refused, error.expected)
        turn.memory.keep(snapshot, facts.name, facts.path, notes)
    turn.recorder.refusal(call, error)


def settle_judged(turn: JudgedTurn, call: ToolCall, path: str) -> None:
    """End what `before` noted for a call that was then carried out, or refused, by us: one event a call."""
    notes = turn.memory.notes_of(path)
    if notes and pop_note(notes, "pending", call_key(call)) is not None:
        notes["done"] = f"{call_key(call)}:"
        claims.release(turn.root, path, turn.owner)


def call_key(call: ToolCall, actions: Sequence[Action] = ()) -> str:
    """Name a call; one that its host did not name, by what it does."""
    if call.call_id:
        return call.call_id
    told = repr((call.tool, call.params or actions))
    return hashing.of_bytes(told.encode("utf-8", "surrogatepass"))[:32]


def pop_note(notes: Notes, kind: str, key: str) -> Any:
    """Take the note of one call, None if there is none."""
    noted = notes.get(kind)
    found = noted.pop(key, None) if isinstance(noted, dict) else None
    if noted is not None and not noted:
        notes.pop(kind, None)
    return found
