"""
The gateway that every tool call of an agent goes through: HookEngine.

    tool call → facts → policies → guard → ledger → answer

The engine gathers the facts, asks the policies, lets the guard commit, takes note in the turn, records,
and raises or returns. It decides nothing and touches no file itself.

Two ways to use it:

- `execute(call)`: the engine carries the call out. Check and commit are one step under the guard, and
  the promise is the guard's own.
- `execute(call, executor)`, or `pre_tool_use` and `post_tool_use` around a host's own executor. *Weaker*: the
  check comes before the executor runs, so what somebody else writes in between can be lost, and the engine
  believes what the executor returns. The baseline is taken from what the call returned or wrote, never
  from a second look at the disk: bytes, text (as UTF-8), or a value with `content` and `sha256`. A part
  of a file returned without the whole file's hash leaves no baseline. After an edit whose outcome
  cannot be told, the old baseline stays, and the agent must read again before it writes.

Refusals are exceptions here (`pre_tool_use` returns them in its decision). Each refused write is on record
once, and so is each that landed; `recording` says what happens if the ledger fails.
"""

from __future__ import annotations

from noclobber import recording
from noclobber.catalogue import FORMS, as_bytes
from noclobber.disk import digest
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
    TurnClosedError,
    UnknownToolError,
)
from noclobber.guard import Change
from noclobber.lines import BOM, line_span
from noclobber.model import ALLOW, WHOLE, Coverage, Decision, ReadResult, WriteResult
from noclobber.policies import Facts, decide, stale

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from noclobber.catalogue import Catalogue, Request
    from noclobber.config import Options
    from noclobber.disk.replace import Commit
    from noclobber.guard import OptimisticGuard
    from noclobber.model import ToolCall
    from noclobber.recording import Ledger
    from noclobber.turn import TurnContext

    class OpenTurn(Protocol):
        """What the engine needs to know of the turn that a call belongs to."""

        context: TurnContext
        guard: OptimisticGuard
        options: Options
        write_scope: tuple[str, ...] | None

    class Host(Protocol):
        """What the engine needs to know of the workspace."""

        catalogue: Catalogue

        @property
        def ledger(self) -> Ledger:
            """Where events go."""

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
        turn, request = self._admit_call(call)
        kind = request.tool.kind
        if kind == "read":
            return self._read(turn, request)
        if kind == "harmless":
            raise UnknownToolError("", f"{call.tool!r} touches no file; run it yourself.", tool=call.tool)
        facts: list[Facts] = []
        try:
            try:
                return getattr(self, f"_{kind}")(turn, call, request, facts)
            except (NotAFileError, AccessDeniedError, MissingFileError):
                for each in facts:  # If it is not what the agent saw, then that is the reason to give.
                    self._refuse_if_stale(turn, each)
                raise
        except NoclobberError as error:
            self._refused(turn, call, request, facts, error)
            raise

    def pre_tool_use(self, call: ToolCall) -> Decision:
        """Judge a call that somebody else will carry out. A refused write is on record when this returns."""
        try:
            turn, request = self._admit_call(call)
        except NoclobberError as error:
            return Decision(False, error)
        if request.tool.kind == "harmless":
            return ALLOW
        facts: list[Facts] = []
        try:
            for wanted in self._wanted(turn, request):
                facts.append(self._look(turn, wanted))
                self._admit(turn, facts[-1])
        except NoclobberError as error:
            if request.tool.kind != "read":
                self._refused(turn, call, request, facts, error)
            return Decision(False, error)
        return ALLOW

    def post_tool_use(self, call: ToolCall, result: Any) -> None:
        """Take note of what somebody else's executor read or wrote. Pass its exception if it raised one."""
        turn, request = self._admit_call(call)
        context, ledger = turn.context, self._workspace.ledger
        if request.tool.kind == "read":
            self._note_foreign_read(turn, request, result)
            return
        for wanted in self._wanted(turn, request):
            if wanted.kind == "create":
                continue
            if isinstance(result, BaseException):
                recording.record_failed(ledger, call, wanted.path, result)
                continue
            before = wanted.expected or "UNKNOWN"
            after, data = self._foreign_outcome(turn, request, wanted, call, result)
            if after == ABSENT:
                context.removed(wanted.name, wanted.path)
            elif after is not None:
                context.wrote(wanted.name, wanted.path, after, data)
            recording.record_landed(ledger, call, wanted.path, before, after or "UNKNOWN", "executor")

    # -- before anything is done -----------------------------------------------------------------------

    def _admit_call(self, call: ToolCall) -> tuple[OpenTurn, Request]:
        """Find the turn and read the parameters. What cannot even be understood is refused as a write."""
        try:
            turn = self._workspace.open_turn(call)
            return turn, self._workspace.catalogue.request(call)
        except (UnknownToolError, BadRequestError, TurnClosedError) as error:
            if not self._only_reads(call):
                self._record(call, error)
            raise

    def _only_reads(self, call: ToolCall) -> bool:
        try:
            return self._workspace.catalogue.tool(call.tool).kind in ("read", "harmless")
        except UnknownToolError:
            return False

    def _wanted(self, turn: OpenTurn, request: Request) -> list[Facts]:
        """Return the facts that need no look at the disk's content, for each file that a call names."""
        kind = request.tool.kind
        if kind == "write_many":
            return [
                self._facts(turn, "write", path, content, expected, None)
                for path, content, expected in request.files
            ]
        first = self._facts(
            turn, kind, request.path, request.content, request.expected_hash, request.observation_id
        )
        if request.destination is None:
            return [first]
        return [first, self._facts(turn, "create", request.destination, None, None, None)]

    def _facts(
        self,
        turn: OpenTurn,
        kind: str,
        given: str,
        content: str | bytes | None,
        expected_hash: str | None,
        observation_id: str | None,
    ) -> Facts:
        context, options = turn.context, turn.options
        name, actual = context.name_of(given), None
        try:
            path = turn.guard.locate(given)
        except (NotAFileError, AccessDeniedError):
            # It leads nowhere now. If the agent knows a file under that name, that file is what changed;
            # if not, the guard will meet the same obstacle and say so.
            path, actual = name, turn.guard.digest(given)
        baseline = context.expected_for(name, path)
        coverage = context.coverage_for(name, path)
        if observation_id is not None:
            seen = context.observation(observation_id)
            if seen.path != path or expected_hash not in (None, seen.sha256):
                raise BadRequestError(path, "That observation is of another file or another hash.")
            expected_hash = seen.sha256
            coverage = coverage if seen.sha256 == baseline else seen.seen
        elif expected_hash not in (None, baseline):
            coverage = None  # A hash from elsewhere: nothing is known of what its owner saw.
        return Facts(
            kind,
            path,
            name,
            expected=baseline if expected_hash is None else expected_hash,
            actual=None if kind == "read" else actual,
            seen_whole=coverage is None or coverage.is_whole,
            refused_from=self._refused_from(context, name, path, content),
            refuse_resubmitted=context.refuse_resubmitted,
            write_scope=turn.write_scope,
            deny_unread=options.unread == "deny",
            deny_partial=options.partial == "deny",
        )

    def _refused_from(
        self, context: TurnContext, name: str, path: str, content: str | bytes | None
    ) -> str | None:
        if content is None or not context.refuse_resubmitted:
            return None
        return context.refused_from(name, path, digest.of_bytes(_data(context, name, path, content)))

    def _admit(self, turn: OpenTurn, facts: Facts) -> Facts:
        """Return the facts if the rules and the ledger let the write through; raise the refusal if not."""
        decision = decide(facts)
        broken = self._workspace.ledger_trouble() if facts.kind != "read" else None
        if (not decision.allowed or broken) and facts.actual is None:
            # Whoever is told no is told the right reason: stale comes before the rest.
            facts = self._look(turn, facts)
            decision = decide(facts)
        if not decision.allowed:
            raise decision.error
        if broken:
            raise broken
        if facts.deny_unread and facts.expected is None and facts.kind == "write":
            return facts._replace(expected=ABSENT)  # Let through because nothing stands there: keep to it.
        return facts

    @staticmethod
    def _look(turn: OpenTurn, facts: Facts) -> Facts:
        return facts if facts.kind == "read" else facts._replace(actual=turn.guard.digest(facts.path))

    def _refuse_if_stale(self, turn: OpenTurn, facts: Facts) -> None:
        decision = stale(self._look(turn, facts))
        if not decision.allowed:
            raise decision.error from None

    # -- carrying out: one function a kind of tool -------------------------------------------------------

    def _read(self, turn: OpenTurn, request: Request) -> ReadResult:
        context = turn.context
        [facts] = self._wanted(turn, request)
        self._admit(turn, facts)
        try:
            snapshot = turn.guard.read(facts.path)
        except MissingFileError:
            context.observe_absent(facts.name, facts.path)
            raise
        except (BadPathError, OutsideWorkspaceError):
            raise
        except RefusalError as error:
            context.observe_error(facts.name, facts.path, error.code)
            raise
        start, end = line_span(snapshot.content, request.first_line, request.last_line, facts.path)
        seen = _coverage(snapshot.content, start, end)
        observation = context.observe(facts.name, snapshot.path, snapshot.sha256, snapshot.content, seen)
        part = snapshot.content[start:end]  # The same object, not a copy, if it is the whole.
        return ReadResult(snapshot.path, part, snapshot.sha256, observation.id, seen)

    def _write(self, turn: OpenTurn, call: ToolCall, request: Request, facts: list[Facts]) -> WriteResult:
        facts += self._wanted(turn, request)
        admitted = self._admit(turn, facts[0])
        assert request.content is not None
        data = _data(turn.context, admitted.name, admitted.path, request.content)
        commit = turn.guard.write(admitted.path, data, expected=admitted.expected)
        return self._landed(turn, call, admitted, commit, data, WHOLE)

    def _edit(self, turn: OpenTurn, call: ToolCall, request: Request, facts: list[Facts]) -> WriteResult:
        facts += self._wanted(turn, request)
        admitted = self._admit(turn, facts[0])
        for attempt in range(EDIT_RACES):
            content, sha256 = self._content_to_edit(turn, admitted)
            data = FORMS[request.tool.form](content, call.params, admitted.path)
            try:
                commit = turn.guard.write(admitted.path, data, expected=sha256)
            except StaleFileError:
                # Not what the agent saw but what we read a moment ago: nothing that it could know better.
                if admitted.expected is None and attempt < EDIT_RACES - 1:
                    continue
                raise
            break
        coverage = turn.context.coverage_for(admitted.name, admitted.path)
        is_known = coverage is not None and coverage.is_whole
        seen = WHOLE if is_known else Coverage((), data.count(b"\n") + 1)
        return self._landed(turn, call, admitted, commit, data, seen)

    @staticmethod
    def _content_to_edit(turn: OpenTurn, facts: Facts) -> tuple[bytes, str]:
        snapshot = turn.guard.read(facts.path)
        if facts.expected is not None and facts.expected != snapshot.sha256:
            raise StaleFileError(facts.path, facts.expected, snapshot.sha256)
        return snapshot.content, snapshot.sha256

    def _write_many(
        self, turn: OpenTurn, call: ToolCall, request: Request, facts: list[Facts]
    ) -> dict[str, WriteResult]:
        facts += self._wanted(turn, request)
        if len({each.path for each in facts}) < len(facts):
            raise BadRequestError("", "Two of the paths lead to one file; what it shall hold is a guess.")
        admitted = [self._admit(turn, each) for each in facts]
        data = [
            _data(turn.context, each.name, each.path, content)
            for each, (_, content, _) in zip(admitted, request.files, strict=True)
        ]
        commits = turn.guard.write_many(
            [Change(each.path, new, each.expected) for each, new in zip(admitted, data, strict=True)]
        )
        together = zip(request.files, admitted, commits, data, strict=True)
        return {
            given: self._landed(turn, call, each, commit, new, WHOLE)
            for (given, _, _), each, commit, new in together
        }

    def _delete(self, turn: OpenTurn, call: ToolCall, request: Request, facts: list[Facts]) -> WriteResult:
        facts += self._wanted(turn, request)
        admitted = self._admit(turn, facts[0])
        commit = turn.guard.delete(admitted.path, expected=admitted.expected)
        turn.context.removed(admitted.name, admitted.path)
        return self._recorded(call, admitted.path, commit)

    def _move(self, turn: OpenTurn, call: ToolCall, request: Request, facts: list[Facts]) -> WriteResult:
        facts += self._wanted(turn, request)
        source, destination = [self._admit(turn, each) for each in facts]
        context = turn.context
        coverage = context.coverage_for(source.name, source.path)
        kept = context.baseline_bytes(source.name, source.path)
        commit = turn.guard.move(source.path, destination.path, expected=source.expected)
        context.removed(source.name, source.path)
        if source.expected is not None:
            # Seen there, so known here. A file that was moved unread stays unread.
            context.wrote(destination.name, destination.path, commit.previous_sha256, kept, coverage or WHOLE)
        return self._recorded(call, source.path, commit, destination=destination.path)

    # -- after it is done ------------------------------------------------------------------------------

    def _landed(
        self, turn: OpenTurn, call: ToolCall, facts: Facts, commit: Commit, data: bytes, seen: Coverage
    ) -> WriteResult:
        turn.context.wrote(facts.name, facts.path, commit.sha256, data, seen)
        return self._recorded(call, facts.path, commit)

    def _recorded(self, call: ToolCall, path: str, commit: Commit, **more: str) -> WriteResult:
        recording.record_landed(
            self._workspace.ledger,
            call,
            path,
            commit.previous_sha256,
            commit.sha256,
            commit.level,
            kept=list(commit.kept),
            **more,
        )
        return WriteResult(commit.path, commit.sha256, commit.level, commit.previous_sha256, commit.kept)

    def _refused(
        self, turn: OpenTurn, call: ToolCall, request: Request, facts: list[Facts], error: NoclobberError
    ) -> None:
        """Put a refusal on record; of a stale one the turn takes note, too."""
        if isinstance(error, StaleFileError):
            contents: list[str | bytes | None] = [content for _, content, _ in request.files]
            contents = contents or [request.content]
            for each, content in zip(facts, contents, strict=False):
                if each.path == error.path or len(facts) == 1:
                    data = None if content is None else _data(turn.context, each.name, each.path, content)
                    refused = None if data is None else digest.of_bytes(data)
                    turn.context.refused(each.name, error.path, refused, error.expected)
        self._record(call, error)

    def _record(self, call: ToolCall, error: NoclobberError) -> None:
        # A ledger that failed is not asked again: its own failure is the answer.
        if not isinstance(error, LedgerError):
            recording.record_refusal(self._workspace.ledger, call, error)

    # -- around somebody else's executor -------------------------------------------------------------------

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

    def _note_foreign_read(self, turn: OpenTurn, request: Request, result: Any) -> None:
        context = turn.context
        path, name = turn.guard.locate(request.path), context.name_of(request.path)
        if isinstance(result, FileNotFoundError):
            context.observe_absent(name, path)
            return
        if isinstance(result, BaseException):
            context.observe_error(name, path, getattr(result, "code", NotAFileError.code))
            return
        content, sha256 = _returned(result)
        is_part = request.first_line is not None or request.last_line is not None
        if isinstance(result, ReadResult) and sha256:
            context.observe(name, path, sha256, content if result.seen.is_whole else None, result.seen)
        elif content is not None and not is_part:
            context.observe(name, path, digest.of_bytes(content), content, WHOLE)

    @staticmethod
    def _foreign_outcome(
        turn: OpenTurn, request: Request, facts: Facts, call: ToolCall, result: Any
    ) -> tuple[str | None, bytes | None]:
        """Return what the call left behind, and its bytes, as far as that can be told without looking."""
        context = turn.context
        if facts.kind in ("delete", "move"):
            return ABSENT, None
        contents = {path: content for path, content, _ in request.files}
        if facts.kind == "write":
            given = request.content
            for path, content in contents.items():
                if context.name_of(path) == facts.name:
                    given = content
            if given is not None:
                data = as_bytes(given, facts.path)
                return digest.of_bytes(data), data
        _, sha256 = _returned(result)
        if sha256:
            return sha256, None
        before = context.baseline_bytes(facts.name, facts.path)
        if facts.kind != "edit" or before is None:
            return None, None
        try:
            data = FORMS[request.tool.form](before, call.params, facts.path)
        except RefusalError:
            return None, None  # It did something else than we would have done.
        return digest.of_bytes(data), data


def _data(context: TurnContext, name: str, path: str, content: str | bytes) -> bytes:
    """Return the bytes to write. Text does not show a byte-order mark, so the one that was there stays."""
    data = as_bytes(content, path)
    if isinstance(content, str) and context.starts_with_bom(name, path) and not data.startswith(BOM):
        return BOM + data
    return data


def _coverage(content: bytes, start: int, end: int) -> Coverage:
    total = content.count(b"\n") + (not content.endswith(b"\n") and content != b"")
    if start == 0 and end == len(content):
        return Coverage(((0, total),) if total else (), total)
    if start == end:
        return Coverage((), total)
    first = content.count(b"\n", 0, start)
    part = content[start:end]
    return Coverage(((first, first + part.count(b"\n") + (not part.endswith(b"\n"))),), total)


def _returned(result: Any) -> tuple[bytes | None, str | None]:
    """Return the bytes and the hash that an executor's result carries, None for what it does not."""
    if isinstance(result, dict):
        content, sha256 = result.get("content"), result.get("sha256")
    elif isinstance(result, (bytes, str)):
        content, sha256 = result, None
    else:
        content, sha256 = getattr(result, "content", None), getattr(result, "sha256", None)
    if isinstance(content, str):
        content = content.encode("utf-8", "surrogateescape")
    is_hash = isinstance(sha256, str) and len(sha256) == 64
    return (content if isinstance(content, bytes) else None), (sha256 if is_hash else None)
