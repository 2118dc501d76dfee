"""
The gateway that every tool call of an agent goes through: HookEngine.

    tool call → facts → policies → guard → ledger → answer

The engine gathers the facts, asks the policies, lets the guard commit, takes note in the turn, records,
and raises or returns. It decides nothing and touches no file itself.

Two ways to use it:

- `execute(call)`: the engine carries the call out. Check and commit are one step under the guard, and
  the promise is the guard's own.
- `execute(call, executor)`, or `pre_tool_use` and `post_tool_use` around a host's own executor. *Weaker*:
  the check comes before the executor runs, so what somebody else writes in between can be lost, and
  the engine believes what the executor returns (`foreign` says what it makes of it).

Refusals are exceptions here (`pre_tool_use` returns them in its decision). Each refused write is on record
once, and so is each that landed; `recording` says what happens if the ledger fails.
"""

from __future__ import annotations

from noclobber.core.values import ALLOW, WHOLE, Coverage, Decision, ReadResult, WriteResult
from noclobber.disk import hashing
from noclobber.disk.commit.swap import UnflushedError
from noclobber.disk.optimistic_guard import Change
from noclobber.errors import (
    ABSENT,
    AccessDeniedError,
    BadPathError,
    BadRequestError,
    LedgerError,
    MissingFileError,
    NoclobberError,
    NotAFileError,
    OutsideWorkspaceError,
    RefusalError,
    StaleFileError,
    UnknownToolError,
)
from noclobber.guard import executors
from noclobber.guard.catalogue import FORMS
from noclobber.guard.claims import retrying
from noclobber.guard.facts import gather, look
from noclobber.guard.policies import Facts, decide, stale
from noclobber.text.lines import line_span

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from noclobber.core.clock import Clock
    from noclobber.core.values import ToolCall
    from noclobber.guard.catalogue import Catalogue, Request
    from noclobber.guard.facts import OpenTurn, Target
    from noclobber.guard.recording import Recorder

    class Host(Protocol):
        """What the engine needs of the workspace."""

        catalogue: Catalogue
        clock: Clock

        @property
        def recorder(self) -> Recorder:
            """What puts events on record."""

        def ledger_trouble(self) -> LedgerError | None:
            """Return why events cannot be recorded now, None if they can."""

        def open_turn(self, call: ToolCall) -> OpenTurn:
            """Return the turn that a call belongs to."""


EDIT_RACES = 32  # How often an edit of a file that nobody read starts over before it counts as stale.


class HookEngine:
    """Judges, carries out and records tool calls. Stateless: what was seen is the turn's."""

    def __init__(self, workspace: Host) -> None:
        self._workspace = workspace

    # -- the three entrances -------------------------------------------------------------------------

    def execute(self, call: ToolCall, executor: Callable[[ToolCall], Any] | None = None) -> Any:
        """Carry out one call, or raise the refusal. Reads return `ReadResult`, writes `WriteResult`."""
        if executor is not None:
            return self._around(call, executor)
        turn, request = self._understand(call)
        kind = request.tool.kind
        if kind == "harmless":
            raise UnknownToolError("", f"{call.tool!r} touches no file; run it yourself.", tool=call.tool)
        if kind == "read":
            [target] = gather(turn, request)
            return self._read(turn, call, request, target)
        carry_out: Callable[..., Any] = getattr(self, f"_{kind}")
        targets: list[Target] = []
        try:
            targets += gather(turn, request)
            try:
                return retrying(
                    lambda: carry_out(turn, call, request, targets),
                    turn.options.wait_s,
                    self._workspace.clock,
                )
            except (NotAFileError, AccessDeniedError, MissingFileError):
                for target in targets:  # If it is not what the agent saw, then that is the reason to give.
                    _refuse_if_stale(turn, target.facts)
                raise
        except UnflushedError as error:
            self._landed_unflushed(turn, call, targets, error.commits)
            raise
        except NoclobberError as error:
            self._refused(turn, call, targets, error)
            raise

    def pre_tool_use(self, call: ToolCall) -> Decision:
        """Judge a call that somebody else will carry out. A refused write is on record when this returns."""
        try:
            turn, request = self._understand(call)
        except NoclobberError as error:
            return Decision(False, error)
        if request.tool.kind == "harmless":
            return ALLOW
        targets: list[Target] = []
        try:
            targets += gather(turn, request, keeps_bom=False)
            for target in targets:
                self._admit(turn, look(turn, target.facts))
                if target.facts.kind != "read":
                    turn.fence.check(target.facts.path)
        except NoclobberError as error:
            if request.tool.kind != "read":
                self._refused(turn, call, targets, error)
            return Decision(False, error)
        return ALLOW

    def post_tool_use(self, call: ToolCall, result: Any) -> None:
        """Take note of what somebody else's executor read or wrote. Pass its exception if it raised one."""
        turn, request = self._understand(call)
        if request.tool.kind == "harmless":
            return
        context, recorder = turn.context, self._workspace.recorder
        for target in gather(turn, request, keeps_bom=False):
            facts = target.facts
            if facts.kind == "read":
                executors.note_read(context, request, target, result)
            elif isinstance(result, BaseException):
                recorder.failed(call, facts.path, result)
            elif facts.kind != "create":
                after, data = executors.outcome(context, request, target, call, result)
                if after == ABSENT:
                    context.removed(facts.name, facts.path)
                elif after is not None:
                    context.wrote(facts.name, facts.path, after, data)
                before = facts.expected or "UNKNOWN"
                recorder.landed(call, facts.path, before, after or "UNKNOWN", "executor")

    def _around(self, call: ToolCall, executor: Callable[[ToolCall], Any]) -> Any:
        decision = self.pre_tool_use(call)
        if not decision.allowed:
            raise decision.error
        try:
            result = executor(call)
        except BaseException as error:
            self.post_tool_use(call, error)
            raise
        self.post_tool_use(call, result)
        return result

    # -- before anything is done -----------------------------------------------------------------------

    def _understand(self, call: ToolCall) -> tuple[OpenTurn, Request]:
        """Find the turn and read the parameters. What cannot be understood counts as a refused write."""
        kind = "unknown"
        try:
            kind = self._workspace.catalogue.tool(call.tool).kind
            return self._workspace.open_turn(call), self._workspace.catalogue.request(call)
        except RefusalError as error:
            if kind not in ("read", "harmless"):
                self._workspace.recorder.refusal(call, error)
            raise

    def _admit(self, turn: OpenTurn, facts: Facts) -> Facts:
        """Return the facts if the rules and the ledger let the call through; raise the refusal if not."""
        decision = decide(facts)
        broken = self._workspace.ledger_trouble() if facts.kind != "read" else None
        if (not decision.allowed or broken) and facts.actual is None:
            # Whoever is told no is told the right reason, and staleness comes before most.
            facts = look(turn, facts)
            decision = decide(facts)
        if not decision.allowed:
            raise decision.error
        if broken:
            raise broken
        if facts.deny_unread and facts.expected is None and facts.kind == "write":
            return facts._replace(expected=ABSENT)  # Let through because nothing stands there: keep to it.
        return facts

    # -- carrying out: one function a kind of tool -------------------------------------------------------

    def _read(self, turn: OpenTurn, call: ToolCall, request: Request, target: Target) -> ReadResult:
        context, facts = turn.context, self._admit(turn, target.facts)
        try:
            snapshot = turn.guard.read(facts.name)
        except MissingFileError:
            context.observe_absent(facts.name, facts.path)
            raise
        except (BadPathError, OutsideWorkspaceError):
            raise
        except RefusalError as error:
            context.observe_error(facts.name, facts.path, error.code)
            raise
        if snapshot.path != facts.path:  # A link was changed since we judged; judge what it led to.
            facts = self._admit(turn, facts._replace(path=snapshot.path))
        if snapshot.recovered and not self._workspace.ledger_trouble():
            # A read does not fail for want of a record. The next write will, and says why.
            self._workspace.recorder.recovered(call, snapshot.recovered)
        start, end = line_span(snapshot.content, request.first_line, request.last_line, facts.path)
        seen = _coverage(snapshot.content, start, end)
        observation = context.observe(facts.name, snapshot.path, snapshot.sha256, snapshot.content, seen)
        part = snapshot.content[start:end]  # The same object, not a copy, if it is the whole.
        return ReadResult(snapshot.path, part, snapshot.sha256, observation.id, seen)

    def _write(self, turn: OpenTurn, call: ToolCall, _: Request, targets: list[Target]) -> WriteResult:
        [target] = targets
        assert target.data is not None
        facts = self._admit(turn, target.facts)
        commit = turn.guard.write(
            facts.name, target.data, expected=facts.expected, at=facts.path, fence=turn.fence
        )
        return self._landed(turn, call, facts, commit, target.data, WHOLE)

    def _edit(self, turn: OpenTurn, call: ToolCall, request: Request, targets: list[Target]) -> WriteResult:
        facts = self._admit(turn, targets[0].facts)
        for races_left in reversed(range(EDIT_RACES)):
            snapshot = turn.guard.read(facts.path)
            _refuse_if_stale(turn, facts, actual=snapshot.sha256)
            data = FORMS[request.tool.form](snapshot.content, call.params, facts.path)
            try:
                commit = turn.guard.write(
                    facts.name, data, expected=snapshot.sha256, at=facts.path, fence=turn.fence
                )
                break
            except UnflushedError:
                targets[0] = targets[0]._replace(data=data)  # It landed: what, is to be remembered.
                raise
            except StaleFileError:
                # It is not what we read a moment ago. An agent that had read nothing knows no better.
                if facts.expected is not None or not races_left:
                    raise
        return self._landed(turn, call, facts, commit, data, _seen_after_edit(turn, facts, data))

    def _write_many(
        self, turn: OpenTurn, call: ToolCall, _: Request, targets: list[Target]
    ) -> dict[str, WriteResult]:
        if len({target.facts.path for target in targets}) < len(targets):
            raise BadRequestError("", "Two of the paths lead to one file; what it shall hold is a guess.")
        admitted = [(target, self._admit(turn, target.facts)) for target in targets]
        changes = [
            Change(facts.name, target.data or b"", facts.expected, facts.path) for target, facts in admitted
        ]
        landed = list(zip(admitted, turn.guard.write_many(changes, fence=turn.fence), strict=True))
        for (target, facts), commit in landed:  # All of them before the ledger can fail.
            turn.context.wrote(facts.name, facts.path, commit.sha256, target.data)
        return {target.given: self._recorded(call, facts.path, commit) for (target, facts), commit in landed}

    def _delete(self, turn: OpenTurn, call: ToolCall, _: Request, targets: list[Target]) -> WriteResult:
        facts = self._admit(turn, targets[0].facts)
        commit = turn.guard.delete(facts.name, expected=facts.expected, at=facts.path, fence=turn.fence)
        turn.context.removed(facts.name, facts.path)
        return self._recorded(call, facts.path, commit)

    def _move(self, turn: OpenTurn, call: ToolCall, _: Request, targets: list[Target]) -> WriteResult:
        context = turn.context
        source, destination = [self._admit(turn, target.facts) for target in targets]
        coverage = context.coverage_for(source.name, source.path)
        kept = context.baseline_bytes(source.name, source.path)
        commit = turn.guard.move(
            source.name,
            destination.name,
            expected=source.expected,
            at=(source.path, destination.path),
            fence=turn.fence,
        )
        context.removed(source.name, source.path)
        if coverage is not None:  # Seen there, so known here. A file that was moved unread stays unread.
            context.wrote(destination.name, destination.path, commit.sha256, kept, coverage)
        return self._recorded(call, source.path, commit, destination=destination.path)

    # -- after it is done, or refused --------------------------------------------------------------------

    def _landed(
        self, turn: OpenTurn, call: ToolCall, facts: Facts, commit: WriteResult, data: bytes, seen: Coverage
    ) -> WriteResult:
        turn.context.wrote(facts.name, facts.path, commit.sha256, data, seen)
        return self._recorded(call, facts.path, commit)

    def _landed_unflushed(
        self, turn: OpenTurn, call: ToolCall, targets: list[Target], commits: tuple[WriteResult, ...]
    ) -> None:
        """The caller hears that the disk would not flush it; all the same it stands, and is no refusal."""
        context = turn.context
        done = list(zip(targets, commits, strict=False))  # A move is two targets and one commit.
        for (facts, data, *_), commit in done:  # All of them before the ledger can fail.
            if facts.kind in ("delete", "move"):
                context.removed(facts.name, facts.path)
            else:
                seen = _seen_after_edit(turn, facts, data or b"") if facts.kind == "edit" else WHOLE
                context.wrote(facts.name, facts.path, commit.sha256, data, seen)
        for (facts, *_), commit in done:
            more = {"destination": commit.path} if facts.kind == "move" else {}
            self._recorded(call, facts.path, commit, flushed="no", **more)

    def _recorded(self, call: ToolCall, path: str, commit: WriteResult, **more: str) -> WriteResult:
        recorder, kept = self._workspace.recorder, list(commit.kept)
        recorder.landed(call, path, commit.previous_sha256, commit.sha256, commit.level, kept=kept, **more)
        recorder.recovered(call, commit.recovered)
        return commit

    def _refused(self, turn: OpenTurn, call: ToolCall, targets: list[Target], error: NoclobberError) -> None:
        """Put a refusal on record; of a stale one the turn takes note, too."""
        if isinstance(error, StaleFileError):
            for target in targets:
                if target.facts.path == error.path or len(targets) == 1:
                    refused = None if target.data is None else hashing.of_bytes(target.data)
                    turn.context.refused(target.facts.name, error.path, refused, error.expected)
        self._workspace.recorder.refusal(call, error)


def _refuse_if_stale(turn: OpenTurn, facts: Facts, actual: str | None = None) -> None:
    looked = look(turn, facts) if actual is None else facts._replace(actual=actual)
    decision = stale(looked)
    if not decision.allowed:
        raise decision.error from None


def _seen_after_edit(turn: OpenTurn, facts: Facts, data: bytes) -> Coverage:
    """Who had not seen it all still has not."""
    coverage = turn.context.coverage_for(facts.name, facts.path)
    return WHOLE if coverage is not None and coverage.is_whole else _coverage(data, 0, 0)


def _coverage(content: bytes, start: int, end: int) -> Coverage:
    """Return which lines the bytes from `start` to `end` are."""
    total = content.count(b"\n") + (content != b"" and not content.endswith(b"\n"))
    first = content.count(b"\n", 0, start)
    last = total if end == len(content) else first + content.count(b"\n", start, end)
    return Coverage(((first, last),) if start < end else (), total)
