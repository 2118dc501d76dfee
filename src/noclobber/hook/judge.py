"""
The way of one event: what the agent saw, what it may write, and what became of it.

| event | what is done |
|---|---|
| before a write | claim every file, look, ask the policies; refuse, or note what must come out of it |
| after a write | as foreseen: the new baseline; if not, a race: told, on record, baseline unknown |
| after a failure | end the claim; if the file changed all the same, that goes on record |
| after a read | compare what was shown with what is there, and move the baseline as a turn moves it |
| end of a turn | end all claims of the agent |

The rules are the library's own: `policies` decides, `TurnContext` moves baselines, `recording` records.
Here is only who asks whom, in which order. Every event may come twice; the second time changes nothing.
"""

from __future__ import annotations

from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.core.project import ledger_path
from noclobber.core.values import WHOLE, Coverage, ToolCall
from noclobber.disk import hashing, paths
from noclobber.disk.paths import locate
from noclobber.disk.reading import FileState, look_at
from noclobber.errors import (
    ABSENT,
    DELETED,
    AccessDeniedError,
    NoclobberError,
    NotAFileError,
    OutsideWorkspaceError,
    StaleFileError,
)
from noclobber.guard import claims
from noclobber.guard.fence import WriteFence
from noclobber.guard.foresight import UNFORESEEN, Outcome, foresee, plain_hash, to_bytes
from noclobber.guard.policies import Facts, decide
from noclobber.guard.recording import Recorder
from noclobber.hook.memory import UNKNOWN, Memory, new_context
from noclobber.ledger.open_file import LightLedger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from noclobber.core.actions import Action
    from noclobber.core.clock import Clock
    from noclobber.core.options import Options
    from noclobber.guard.snapshot import TurnContext
    from noclobber.hosts.event import Event


class Judge:
    """Handles the events of one agent in one project. One object, one event."""

    def __init__(self, event: Event, root: str, options: Options, clock: Clock = SYSTEM_CLOCK) -> None:
        self.event, self.root, self.options, self.clock = event, root, options, clock
        self.recorder = Recorder(root, LightLedger(ledger_path(root)))
        self.owner = f"{event.host}/{event.session_id}/{event.agent_id}"
        self.call_key = event.call_id or _fingerprint(event)
        self.event_key = f"{event.kind}:{self.call_key}:{event.moment}"
        self.call = ToolCall(
            event.tool or event.name,
            {},
            agent_id=event.agent_id,
            session_id=event.session_id or None,
            turn_id=event.turn_id,
            call_id=event.call_id,
            host=event.host,
        )

    # -- the entrances ---------------------------------------------------------------------------------

    def before(self) -> NoclobberError | None:
        """Judge a call that the host is about to carry out; return the refusal, None to let it through."""
        writes = [action for action in self.event.actions if action.kind != "read"]
        if not writes:
            return None
        with self._memory() as memory:
            targets: list[_Target] = []
            claimed: list[str] = []
            try:
                targets += [_Target(self._lexical(action.path), action) for action in writes]
                self.recorder.prepare()  # Before claims: what could not be recorded is refused.
                for path in sorted({_where(target.name) for target in targets}):
                    claims.acquire(self.root, path, self.owner, self.call_key, clock=self.clock)
                    claimed.append(path)
                for target in targets:  # All of them before the host touches any.
                    self._admit(memory, target)
                _forget_repeated(targets)
                self._note_pending(memory, targets)
            except NoclobberError as error:
                for path in claimed:
                    claims.release(self.root, path, self.owner)
                self._refused(memory, targets, error)
                return error
        return None

    def after(self) -> NoclobberError | None:
        """Take note of a call that was carried out; return what the agent has to be told, if anything."""
        told: NoclobberError | None = None
        with self._memory() as memory:
            for action in self.event.actions:
                name = self._lexical(action.path)
                if action.kind == "read":
                    self._was_read(memory, name, action)
                else:
                    told = self._was_written(memory, name, action) or told
        return told

    def failed(self) -> None:
        """Take note of a call that failed."""
        with self._memory() as memory:
            for action in self.event.actions:
                name = self._lexical(action.path)
                looked = look_at(name)
                context, noted = self._recall(memory, name, looked)
                if action.kind == "read":
                    if looked.sha256 == DELETED:
                        context.observe_absent(name, looked.path)
                        memory.save(context, name, looked.path, noted)
                    continue
                claims.release(self.root, looked.path, self.owner)
                pending = noted.pop("pending", None)
                if pending is None or pending[0] != self.call_key:
                    continue
                _, before, after, _ = pending
                if looked.sha256 == after or (after == ABSENT and looked.sha256 == DELETED):
                    self._landed(context, name, looked.path, before, after)
                elif looked.sha256 != before:
                    self.recorder.failed(self.call, looked.path, _FailedCallError())
                memory.save(context, name, looked.path, noted)

    def turn_ended(self) -> None:
        """End every claim of the agent: no call of its is under way."""
        claims.release_all(self.root, self.owner)

    # -- before a call ---------------------------------------------------------------------------------

    def _admit(self, memory: Memory, target: _Target) -> None:
        action, name = target.action, target.name
        looked = target.looked = look_at(name, keep=True, clock=self.clock)
        context, noted = self._recall(memory, name, looked)
        target.context, target.noted = context, noted
        if paths.is_reserved(looked.path, None) or paths.is_reserved(name, None):
            raise OutsideWorkspaceError(
                looked.path, "These are noclobber's own records; tools do not touch them."
            )
        coverage = context.coverage_for(name, looked.path)
        options = self.options
        decision = decide(
            Facts(
                action.kind,
                looked.path,
                name,
                expected=context.expected_for(name, looked.path),
                actual=looked.sha256,
                seen_whole=coverage is None or coverage.is_whole,
                write_scope=options.write_scope,
                deny_unread=options.unread == "deny" or memory.is_lost,
                deny_partial=options.partial == "deny",
            )
        )
        if not decision.allowed:
            raise decision.error
        WriteFence(self.root, owner=self.owner, clock=self.clock).check(looked.path)
        before = looked.content if action.moved_from is None else self._source(action.moved_from)
        target.outcome = foresee(action, before)

    def _source(self, moved_from: str) -> bytes | None:
        return look_at(self._lexical(moved_from), keep=True, clock=self.clock).content

    def _note_pending(self, memory: Memory, targets: list[_Target]) -> None:
        for target in targets:
            looked, outcome = target.looked, target.outcome
            target.noted["pending"] = [self.call_key, looked.sha256, outcome.sha256, outcome.plain]
            target.noted.pop("done", None)
            memory.save(target.context, target.name, looked.path, target.noted)

    def _refused(self, memory: Memory, targets: list[_Target], error: NoclobberError) -> None:
        """Put a refusal on record, once; of a stale one the agent's memory takes note, too."""
        for target in targets:
            if target.context is None or target.looked.path != getattr(error, "path", None):
                continue
            told = f"{self.event_key}:{getattr(error, 'actual', error.code)}"
            if target.noted.get("refused") == told:
                return  # The same event, delivered again.
            target.noted["refused"] = told
            if isinstance(error, StaleFileError):
                target.context.refused(target.name, target.looked.path, None, error.expected)
            memory.save(target.context, target.name, target.looked.path, target.noted)
        self.recorder.refusal(self.call, error)

    # -- after a call ----------------------------------------------------------------------------------

    def _was_read(self, memory: Memory, name: str, action: Action) -> None:
        from noclobber.guard.shown import seen_part

        looked = look_at(name, keep=True, clock=self.clock)
        context, noted = self._recall(memory, name, looked)
        if self.event.call_id or self.event.moment:
            if noted.get("read") == self.event_key:
                return  # The same event, delivered again; the file may be another one by now.
            noted["read"] = self.event_key
        if looked.sha256 == DELETED:
            return  # Read, and gone by now. What was known of it stands.
        if len(looked.sha256) != 64:
            context.observe_error(name, looked.path, looked.sha256)
        else:
            event = self.event
            seen = seen_part(looked, action, event.shown, self.clock.now_s(), event.duration_s)
            if seen is not None:
                context.observe(name, looked.path, looked.sha256, None, seen)
            elif context.expected_for(name, looked.path) != looked.sha256:
                # What the model was shown is not what stands here now, and nobody can say what it was.
                context.wrote(name, looked.path, UNKNOWN, None)
        memory.save(context, name, looked.path, noted)

    def _was_written(self, memory: Memory, name: str, action: Action) -> NoclobberError | None:
        looked = look_at(name, keep=True, clock=self.clock)
        path = looked.path
        context, noted = self._recall(memory, name, looked, settle=False)
        pending = noted.pop("pending", None)
        try:
            if noted.get("done") == self.event_key:
                return None  # The same event, delivered again.
            if pending is not None and pending[0] == self.call_key:
                before, outcome = pending[1], Outcome(pending[2], pending[3])
            else:  # The check's note is gone: what the call says is what is left to go by.
                before = context.expected_for(name, path) or ABSENT
                outcome = foresee(action, None) if not action.edits else UNFORESEEN
            noted["done"] = self.event_key
            return self._compare(context, name, looked, before, outcome, is_edit=action.kind == "edit")
        finally:
            memory.save(context, name, path, noted)
            claims.release(self.root, path, self.owner)

    def _compare(
        self,
        context: TurnContext,
        name: str,
        looked: FileState,
        before: str,
        outcome: Outcome,
        *,
        is_edit: bool,
    ) -> NoclobberError | None:
        path, found, after = looked.path, looked.sha256, self.event.after
        if outcome.sha256 is None and outcome.plain is None and after is not None:
            outcome = Outcome(hashing.of_bytes(to_bytes(after)), plain_hash(to_bytes(after)))
        is_gone = outcome.sha256 == ABSENT and found == DELETED
        if found == outcome.sha256 or is_gone or _is_dressed(looked, outcome.plain):
            seen = _seen_after(context, name, looked) if is_edit else WHOLE
            self._landed(context, name, path, before, ABSENT if is_gone else found, seen)
            return None
        context.wrote(name, path, UNKNOWN, None)
        if outcome.sha256 is None:  # Nothing was foreseen, so nothing is proven either: it must be read.
            self.recorder.landed(self.call, path, before, found, "hook")
            return None
        error = StaleFileError(path, outcome.sha256, found)
        context.refused(name, path, None, UNKNOWN)
        self.recorder.race(self.call, path, before, outcome.sha256, found)
        return error

    def _landed(
        self,
        context: TurnContext,
        name: str,
        path: str,
        before: str,
        after: str,
        seen: Coverage = WHOLE,
    ) -> None:
        if after == ABSENT:
            context.removed(name, path)
        else:
            context.wrote(name, path, after, None, seen)
        before = ABSENT if before == DELETED else before
        self.recorder.landed(self.call, path, before, after, "hook")

    # -- what is known ---------------------------------------------------------------------------------

    def _memory(self) -> Memory:
        event = self.event
        turn_id = event.turn_id if self.options.scope == "turn" else None
        return Memory(event.host, event.session_id, event.agent_id, turn_id)

    def _recall(
        self, memory: Memory, name: str, looked: FileState, *, settle: bool = True
    ) -> tuple[TurnContext, dict[str, Any]]:
        """
        Return what the agent knows under a name.

        `settle`: a call that was let through and never reported back (a patch through the shell, a host
        that was killed) has either happened by now or it has not, and the disk tells which.
        """
        context = new_context(self.root, self.event.agent_id, self.options.rebaseline)
        noted = memory.load(context, name, looked.path)
        pending = noted.get("pending")
        if pending is not None and (not isinstance(pending, list) or len(pending) != 4):
            noted.pop("pending")
            pending = None
        if settle and pending is not None and pending[0] != self.call_key:
            _, before, after, plain = noted.pop("pending")
            if after == ABSENT and looked.sha256 == DELETED:
                self._landed(context, name, looked.path, before, ABSENT)
            elif looked.sha256 != before and (looked.sha256 == after or _is_dressed(looked, plain)):
                self._landed(context, name, looked.path, before, looked.sha256)
        return context, noted

    def _lexical(self, path: str) -> str:
        return paths.lexical(self.event.cwd or self.root, path)


class _Target:
    """One file of a call, and what was found out about it so far."""

    __slots__ = ("action", "context", "looked", "name", "noted", "outcome")

    def __init__(self, name: str, action: Action) -> None:
        self.name, self.action = name, action
        self.looked: Any = None
        self.context: Any = None
        self.noted: dict[str, Any] = {}
        self.outcome: Outcome = UNFORESEEN


def _is_dressed(looked: FileState, plain: str | None) -> bool:
    """True if a file holds the text that was foreseen, with other line endings or a byte-order mark."""
    return plain is not None and looked.content is not None and plain_hash(looked.content) == plain


def _where(name: str) -> str:
    """Return the canonical path of a name; the name itself if a folder on its way is none any more."""
    try:
        return locate(name)
    except (NotAFileError, AccessDeniedError):
        return name  # If the agent knows a file under that name, then that is what changed.


def _forget_repeated(targets: list[_Target]) -> None:
    """Foresee nothing for a file that a call changes twice: each change was foreseen from the same bytes."""
    paths_of = [target.looked.path for target in targets]
    for target in targets:
        if paths_of.count(target.looked.path) > 1:
            target.outcome = UNFORESEEN


class _FailedCallError(Exception):
    """The host says that its tool failed."""


def _seen_after(context: TurnContext, name: str, looked: FileState) -> Coverage:
    """An agent that edits a file of which it saw a part still knows only a part."""
    coverage = context.coverage_for(name, looked.path)
    if coverage is not None and coverage.is_whole:
        return WHOLE
    return Coverage((), (looked.content or b"").count(b"\n") + 1)


def _fingerprint(event: Event) -> str:
    """Name a call that its host did not name: by what it does."""
    told = repr((event.tool, event.actions)) if event.actions else event.name
    return hashing.of_bytes(told.encode("utf-8", "surrogatepass"))[:32]
