"""
The judge: what an agent may do to a file, and what became of a call that somebody else carried out.

    facts → policies → commit, or note what must come out and compare afterwards → record → answer

Every call goes this way. `admit()` is the first half and is shared by all. Where we carry
a call out ourselves, `engine` commits and records. Where a host or an integrator's executor does (hooks,
`pre_tool_use` and `post_tool_use`), there is nothing to commit, so three functions are called around
it:

| function | what is done |
|---|---|
| `before` | claim every file, look, ask the policies; refuse, or note what must come out of it |
| `after` | as noted: the new baseline; if not, a race: told, on record, and the baseline unknown |
| `failed` | end the claim; if the file changed all the same, that goes on record |

Each may be called twice for one call; the second time changes nothing.

A read by somebody else (ruling 22): if the file had the same hash before and after, that is what was seen,
however it was shown. If not, or if nobody looked before, what was shown is compared with what is there now.
If that does not tell either, the agent saw an unknown version, and must read again before it writes.

Light to import: a hook is a process per event, and this is its core.
"""

from __future__ import annotations

from noclobber.core.actions import CREATE, EDIT, MOVE, READ, WRITE, CallResult
from noclobber.core.values import WHOLE, Coverage
from noclobber.disk import hashing, paths
from noclobber.disk.reading import look_at
from noclobber.errors import (
    ABSENT,
    DELETED,
    UNKNOWN,
    AccessDeniedError,
    LedgerError,
    NoclobberError,
    NotAFileError,
    StaleFileError,
)
from noclobber.guard import claims
from noclobber.guard.facts import gather
from noclobber.guard.outcome import UNKNOWN_OUTCOME, Outcome, foresee, outcome_of, plain_hash
from noclobber.guard.policies import decide

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Protocol

    from noclobber.core.actions import Action
    from noclobber.core.clock import Clock
    from noclobber.core.options import Options
    from noclobber.core.values import ToolCall
    from noclobber.disk.reading import FileState
    from noclobber.guard.facts import Facts, Target
    from noclobber.guard.memory import Memory, Notes
    from noclobber.guard.recording import Recorder
    from noclobber.guard.snapshot import TurnContext

    class Checker(Protocol):
        """Claims and locks, asked about a write that somebody else carries out."""

        def check(self, path: str) -> None:
            """Raise if a write to `path` would be refused now."""

    class JudgedTurn(Protocol):
        """What the judge has to know of the turn that a call belongs to."""

        @property
        def root(self) -> str:
            """The project's folder."""

        @property
        def confined_to(self) -> str | None:
            """The folder that paths must not leave; None for a host, whose tools go anywhere."""

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
        def clock(self) -> Clock:
            """What the time is."""

        @property
        def outside_level(self) -> str:
            """What a write by somebody else is called on record: `hook` or `executor`."""

        def ledger_trouble(self) -> LedgerError | None:
            """Return why events cannot be recorded now, None if they can."""


def admit(turn: JudgedTurn, facts: Facts) -> Facts:
    """Return the facts if the rules and the ledger let the call through; raise the refusal if not."""
    decision = decide(facts)
    broken = turn.ledger_trouble() if facts.kind != READ else None
    if (not decision.allowed or broken) and facts.actual is None and facts.kind != READ:
        # A refusal gives the right reason, and staleness comes before most. So look now.
        facts = facts._replace(actual=look(turn, facts.path))
        decision = decide(facts)
    if not decision.allowed:
        raise decision.error
    if broken:
        raise broken
    if facts.actual == DELETED and facts.expected is None and facts.kind == WRITE:
        return facts._replace(expected=ABSENT)  # Let through because there is no file: hold it to that.
    return facts


def look(turn: JudgedTurn, path: str) -> str:
    """Return the hash of what is on the disk now, or the word for why there is none."""
    return look_at(path, turn.confined_to, clock=turn.clock).sha256


def note_refusal(
    turn: JudgedTurn, call: ToolCall, targets: Sequence[Target], error: NoclobberError, delivery: str = ""
) -> None:
    """
    Put a refused write on record, once a call; of a stale one the agent's memory takes note, too.

    One call may be refused twice: by `pre_tool_use` and then by `execute`, or because a host delivers one
    event twice (`delivery` is then the same). A call without a name is never taken for another one.
    """
    path = getattr(error, "path", None)
    name = f"{call.call_id}" if call.call_id else delivery
    key = f"{name}:{getattr(error, 'actual', error.code)}" if name else None
    for target in targets:
        facts = target.facts
        settle_judged(turn, call, facts.path)
        if facts.path != path and len(targets) > 1:
            continue
        snapshot, notes = turn.memory.recall(facts.name, facts.path)
        if key is not None:
            if notes.get("refused") == key:
                return  # It was refused before, and is on record.
            notes["refused"] = key
        if isinstance(error, StaleFileError):
            refused = None if target.sent is None else hashing.of_bytes(target.sent)
            snapshot.refused(facts.name, error.path, refused, error.expected)
        turn.memory.keep(snapshot, facts.name, facts.path, notes)
    turn.recorder.refusal(call, error)


def settle_judged(turn: JudgedTurn, call: ToolCall, path: str) -> None:
    """End what `before` noted for a call that was then carried out, or refused, by us: one event a call."""
    notes = turn.memory.notes_of(path)
    if notes and _pop_note(notes, "pending", call_key(call)) is not None:
        notes["done"] = f"{call_key(call)}:"
        claims.release(turn.root, path, turn.owner)


# -- around a call that somebody else carries out ----------------------------------------------------------


class Outside:
    """One call that a host or an integrator's executor carries out."""

    def __init__(
        self, turn: JudgedTurn, call: ToolCall, actions: Sequence[Action], delivery: str = ""
    ) -> None:
        self.turn, self.call, self.actions = turn, call, actions
        self.key = call_key(call, actions)
        self.delivery = delivery

    def before(self) -> NoclobberError | None:
        """Judge the call; return the refusal, None to let it through."""
        writes = [action for action in self.actions if action.kind != READ]
        with self.turn.memory:
            targets: list[_Looked] = []
            try:
                for action in self.actions:
                    if action.kind == READ:
                        self._before_read(action)
                if writes:
                    self._before_writes(writes, targets)
            except NoclobberError as error:
                if writes:
                    judged = [looked.target for looked in targets if looked.target is not None]
                    note_refusal(self.turn, self.call, judged, error, self.delivery)
                return error
        return None

    def after(self, result: CallResult) -> NoclobberError | None:
        """Take note of a call that was carried out; return what the agent has to be told, if anything."""
        told: NoclobberError | None = None
        with self.turn.memory:
            for action in self.actions:
                looked = self._look(action, self._name(action.path), settles_others=False)
                if action.kind == READ:
                    self._was_read(looked, result)
                elif action.kind == CREATE:
                    self._settle_destination(looked)
                else:
                    told = self._was_written(looked, result) or told
        return told

    def failed(self, error: BaseException | None = None) -> None:
        """Take note of a call that failed."""
        with self.turn.memory:
            for action in self.actions:
                looked = self._look(action, self._name(action.path))
                if action.kind == READ:
                    self._was_not_read(looked, error)
                elif action.kind == CREATE:
                    self._settle_destination(looked)
                else:
                    self._was_not_written(looked, error)

    # -- before ----------------------------------------------------------------------------------------

    def _before_writes(self, writes: Sequence[Action], targets: list[_Looked]) -> None:
        """Claim, look at and judge every file before any is written; note what must come out of it."""
        turn = self.turn
        names = [self._name(action.path) for action in writes]
        if broken := turn.ledger_trouble():
            raise broken
        claimed: list[str] = []
        try:
            for path in sorted({_where(turn, name) for name in names}):
                claims.acquire(turn.root, path, turn.owner, self.key, clock=turn.clock)
                claimed.append(path)
            for action, name in zip(writes, names, strict=True):
                targets.append(self._look(action, name))
                self._admit(targets[-1])
            _forget_repeated(targets)
            for target in targets:
                target.note_pending(turn, self.key)
        except BaseException:
            for path in claimed:  # Nothing will be written, so nobody has to wait for it.
                claims.release(turn.root, path, turn.owner)
            raise

    def _before_read(self, action: Action) -> None:
        looked = self._look(action, self._name(action.path))
        decision = decide(self._gather(looked).facts)
        if not decision.allowed:
            raise decision.error
        looked.notes.setdefault("reading", {})[self.key] = looked.state.sha256
        looked.keep(self.turn)

    def _admit(self, looked: _Looked) -> None:
        looked.target = self._gather(looked)
        facts = looked.target.facts
        decision = decide(facts)
        if not decision.allowed:
            raise decision.error
        self.turn.fence.check(facts.path)
        looked.outcome = foresee(looked.action, self._content_before(looked), facts.path)

    def _gather(self, looked: _Looked) -> Target:
        turn = self.turn
        return gather(
            looked.action,
            looked.snapshot,
            looked.name,
            looked.path,
            options=turn.options,
            actual=looked.state.sha256,
            write_scope=turn.write_scope,
            is_memory_lost=turn.memory.is_lost,
            by_us=False,
        )

    def _content_before(self, looked: _Looked) -> bytes | None:
        """Return what a change is made from; None if that is too large to hold, or is no file."""
        state = looked.state
        if looked.action.moved_from is not None:
            state = self._look_at(self._name(looked.action.moved_from))
        return b"" if state.sha256 == DELETED and looked.action.moved_from is None else state.content

    # -- after -----------------------------------------------------------------------------------------

    def _was_read(self, looked: _Looked, result: CallResult) -> None:
        from noclobber.guard.shown import asked_part, exact_part, says_missing, seen_part

        snapshot, notes, state = looked.snapshot, looked.notes, looked.state
        before = _pop_note(notes, "reading", self.key)
        if self.delivery:
            if notes.get("read") == self.delivery:
                return  # The same event, delivered again; the file may be another one by now.
            notes["read"] = self.delivery
        if state.sha256 == DELETED:
            # Read, and gone by now: what was known of it stays. Seen to be missing, or removed: absent.
            is_told = looked.action.is_removal or says_missing(result.shown.text, looked.action.path)
            if before == DELETED or is_told:
                snapshot.observe_absent(looked.name, looked.path)
        elif looked.action.is_removal:
            pass  # It is there: not removed, or made anew by somebody. Nothing of it was shown.
        elif not hashing.is_hash(state.sha256):
            snapshot.observe_error(looked.name, looked.path, state.sha256)
        elif looked.action.is_certain or self._may_begin_with(looked):
            if before == state.sha256:
                seen: Coverage | None = asked_part(state, looked.action)
            elif self.turn.confined_to is not None:
                seen = exact_part(state, looked.action, result)
            else:  # Hosts show files in ways of their own, and do not ask before they read.
                seen = seen_part(state, looked.action, result, self.turn.clock.now_s())
            if seen is not None:
                content = state.content if seen.is_whole and self.turn.confined_to is not None else None
                snapshot.observe(looked.name, looked.path, state.sha256, content, seen)
            elif looked.action.is_certain and snapshot.expected_for(looked.name, looked.path) != state.sha256:
                # What the agent was shown is not what is there now, and nobody can say what it was.
                snapshot.saw_unknown(looked.name, looked.path)
        looked.keep(self.turn)

    def _may_begin_with(self, looked: _Looked) -> bool:
        """
        True if a read that is not certain may give a first baseline: that only makes later writes stricter.

        It never refreshes one, and never stands for the read that `unread = "deny"` asks for.
        """
        turn = self.turn
        if turn.options.unread == "deny" or turn.memory.is_lost:
            return False
        return looked.snapshot.expected_for(looked.name, looked.path) is None

    def _was_not_read(self, looked: _Looked, error: BaseException | None) -> None:
        before = _pop_note(looked.notes, "reading", self.key)
        if looked.state.sha256 == DELETED and before in (None, DELETED):
            looked.snapshot.observe_absent(looked.name, looked.path)
        elif error is not None:
            code = getattr(error, "code", type(error).__name__)
            looked.snapshot.observe_error(looked.name, looked.path, code)
        looked.keep(self.turn)

    def _was_written(self, looked: _Looked, result: CallResult) -> NoclobberError | None:
        notes, action = looked.notes, looked.action
        pending = _pop_note(notes, "pending", self.key)
        done = f"{self.key}:{self.delivery}"
        try:
            if notes.get("done") == done:
                return None  # The same event, delivered again.
            notes["done"] = done
            if pending is not None:
                before, outcome = pending[0], _noted_outcome(pending)
            else:  # Nobody asked before, or the note is gone: what the call itself says is left to go by.
                before = looked.snapshot.expected_for(looked.name, looked.path) or ABSENT
                outcome = foresee(action, None) if action.change is None else UNKNOWN_OUTCOME
            if outcome == UNKNOWN_OUTCOME:
                if result.content is not None:
                    outcome = outcome_of(result.content)
                elif result.sha256 is not None:
                    outcome = Outcome(result.sha256, None)
            return self._compare(looked, before, outcome)
        finally:
            looked.keep(self.turn)
            self._end_claim(looked)

    def _end_claim(self, looked: _Looked) -> None:
        """End the agent's claim on a file, unless another call of its is still about to write it."""
        if not looked.notes.get("pending"):
            claims.release(self.turn.root, looked.path, self.turn.owner)

    def _compare(self, looked: _Looked, before: str, outcome: Outcome) -> NoclobberError | None:
        turn, found = self.turn, looked.state.sha256
        is_gone = outcome.sha256 == ABSENT and found == DELETED
        if is_gone or _is_as_foreseen(looked.state, outcome):
            seen = _seen_after(looked) if looked.action.kind == EDIT else WHOLE
            self._landed(looked, before, ABSENT if is_gone else found, seen)
            return None
        looked.snapshot.saw_unknown(looked.name, looked.path)
        before = ABSENT if before == DELETED else before
        if outcome.sha256 is None:  # Nothing was foreseen, so nothing is proven either: it must be read.
            turn.recorder.landed(self.call, looked.path, before, found, turn.outside_level)
            return None
        looked.snapshot.refused(looked.name, looked.path, None, UNKNOWN)
        turn.recorder.race(self.call, looked.path, before, outcome.sha256, found)
        return StaleFileError(looked.path, outcome.sha256, found)

    def _was_not_written(self, looked: _Looked, error: BaseException | None) -> None:
        pending = _pop_note(looked.notes, "pending", self.key)
        self._end_claim(looked)
        if pending is not None:
            before, after, found = pending[0], pending[1], looked.state.sha256
            if after == ABSENT and found == DELETED:
                self._landed(looked, before, after)
            elif found != before and _is_as_foreseen(looked.state, _noted_outcome(pending)):
                self._landed(looked, before, found)
            elif found != before or error is not None:
                failure = error or _FailedCallError()
                self.turn.recorder.failed(self.call, looked.path, failure)
        elif error is not None:
            self.turn.recorder.failed(self.call, looked.path, error)
        looked.keep(self.turn)

    def _settle_destination(self, looked: _Looked) -> None:
        """A move's destination has no outcome of its own; what was noted and claimed for it ends."""
        _pop_note(looked.notes, "pending", self.key)
        looked.keep(self.turn)
        self._end_claim(looked)

    def _landed(self, looked: _Looked, before: str, after: str, seen: Coverage = WHOLE) -> None:
        turn = self.turn
        coverage = looked.snapshot.coverage_for(looked.name, looked.path)
        if after == ABSENT:
            looked.snapshot.removed(looked.name, looked.path)
        else:
            content = looked.state.content if turn.confined_to is not None else None
            looked.snapshot.wrote(looked.name, looked.path, after, content, seen)
        before = ABSENT if before == DELETED else before
        destination = None
        if looked.action.kind == MOVE:
            [goal] = [self._name(action.path) for action in self.actions if action.kind == CREATE]
            moved = self._look_at(goal)
            after, destination = moved.sha256, moved.path
            if coverage is not None and after == before:  # Seen there, so known here.
                snapshot, notes = turn.memory.recall(goal, moved.path)
                snapshot.wrote(goal, moved.path, after, None, coverage)
                turn.memory.keep(snapshot, goal, moved.path, notes)
        turn.recorder.landed(
            self.call, looked.path, before, after, turn.outside_level, destination=destination
        )

    # -- what is known ---------------------------------------------------------------------------------

    def _name(self, path: str) -> str:
        return paths.lexical(self.turn.folder, path)

    def _look_at(self, name: str) -> FileState:
        return look_at(name, self.turn.confined_to, keep=True, clock=self.turn.clock)

    def _look(self, action: Action, name: str, *, settles_others: bool = True) -> _Looked:
        """
        Look at a file, and recall what the agent knows of it.

        `settles_others`: a call that was let through and never reported back (a patch through the shell, a
        host that was killed) has either happened by now or it has not, and the disk tells which.
        """
        state = self._look_at(name)
        snapshot, notes = self.turn.memory.recall(name, state.path)
        looked = _Looked(action, name, state, snapshot, notes)
        others = [key for key in notes.get("pending", ()) if key != self.key] if settles_others else ()
        for key in others:
            pending = _pop_note(notes, "pending", key)
            before, after = pending[:2]
            as_write = _Looked(action._replace(kind=WRITE), name, state, snapshot, notes)
            if after == ABSENT and state.sha256 == DELETED:
                self._landed(as_write, before, ABSENT)
            elif state.sha256 != before and _is_as_foreseen(state, _noted_outcome(pending)):
                self._landed(as_write, before, state.sha256)
        return looked


class _Looked:
    """One file of a call: what was asked, what is there, and what the agent knows of it."""

    __slots__ = ("action", "name", "notes", "outcome", "snapshot", "state", "target")

    def __init__(
        self, action: Action, name: str, state: FileState, snapshot: TurnContext, notes: Notes
    ) -> None:
        self.action, self.name, self.state, self.snapshot, self.notes = action, name, state, snapshot, notes
        self.outcome: Outcome = UNKNOWN_OUTCOME
        self.target: Target | None = None

    @property
    def path(self) -> str:
        """Canonical."""
        return self.state.path

    def note_pending(self, turn: JudgedTurn, key: str) -> None:
        """Write down what the call must leave behind."""
        sha256, plain, others = self.outcome
        self.notes.setdefault("pending", {})[key] = [self.state.sha256, sha256, plain, *others]
        self.notes.pop("done", None)
        self.keep(turn)

    def keep(self, turn: JudgedTurn) -> None:
        """Keep what is known now."""
        turn.memory.keep(self.snapshot, self.name, self.path, self.notes)


class _FailedCallError(Exception):
    """The host says that its tool failed."""


def call_key(call: ToolCall, actions: Sequence[Action] = ()) -> str:
    """Name a call; one that its host did not name, by what it does."""
    if call.call_id:
        return call.call_id
    told = repr((call.tool, call.params or actions))
    return hashing.of_bytes(told.encode("utf-8", "surrogatepass"))[:32]


def _pop_note(notes: Notes, kind: str, key: str) -> Any:
    """Take the note of one call, None if there is none."""
    noted = notes.get(kind)
    found = noted.pop(key, None) if isinstance(noted, dict) else None
    if noted is not None and not noted:
        notes.pop(kind, None)
    return found


def _noted_outcome(pending: list[Any]) -> Outcome:
    """Return the outcome that was noted for a call, behind the hash of what was there before it."""
    _, sha256, plain, *others = pending
    return Outcome(sha256, plain, tuple(others))


def _is_as_foreseen(state: FileState, outcome: Outcome) -> bool:
    """True if a file holds what was foreseen, or that text with other line endings or a byte-order mark."""
    if state.sha256 == outcome.sha256 or state.sha256 in outcome.others:
        return True
    is_plain = outcome.plain is not None and state.content is not None
    return is_plain and plain_hash(state.content or b"") == outcome.plain


def _where(turn: JudgedTurn, name: str) -> str:
    """Return the canonical path of a name; the name itself if a folder on its way is none any more."""
    try:
        return paths.locate(name, turn.confined_to)
    except (NotAFileError, AccessDeniedError):
        return name  # If the agent knows a file under that name, then that is what changed.


def _forget_repeated(targets: list[_Looked]) -> None:
    """Foresee nothing for a file that a call changes twice: each change was foreseen from the same bytes."""
    paths_of = [target.path for target in targets]
    for target in targets:
        if paths_of.count(target.path) > 1:
            target.outcome = UNKNOWN_OUTCOME


def _seen_after(looked: _Looked) -> Coverage:
    """An agent that edits a file of which it saw a part still knows only a part."""
    coverage = looked.snapshot.coverage_for(looked.name, looked.path)
    if coverage is not None and coverage.is_whole:
        return WHOLE
    return Coverage((), (looked.state.content or b"").count(b"\n") + 1)
