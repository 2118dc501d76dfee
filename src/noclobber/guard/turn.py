"""
Turn: the guarded file tools of one turn of one agent. What an agent program calls.

Each tool makes an action and hands it, with the turn itself, to the engine. A program and a host's hook go
the same way and leave the same trace. Refusals are exceptions; `wire.to_json(error)` makes a tool result of
one.

    with workspace.turn(agent_id="builder-1") as turn:
        seen = turn.read_file("plan.md")
        turn.write_file("plan.md", seen.text + "- one more\\n")

A turn belongs to one agent. Its threads may share it; two agents must not.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from noclobber.core.values import ToolCall
from noclobber.disk import signals
from noclobber.errors import BaselineNotRetainedError, MissingFileError, NoclobberError, UnreadFileError
from noclobber.guard import claims, engine, requests
from noclobber.guard.call_order import CallOrder
from noclobber.guard.fence import WriteFence
from noclobber.guard.memory import TurnMemory
from noclobber.guard.notices import NoticeBoard
from noclobber.text.diff import unified

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from types import TracebackType
    from typing import Literal, ParamSpec, TypeVar

    from noclobber.core.actions import Action, ContentChange
    from noclobber.core.clock import Clock
    from noclobber.core.options import Options
    from noclobber.core.values import Edit, ReadResult, WriteResult
    from noclobber.disk.file_guard import FileGuard
    from noclobber.errors import LedgerError
    from noclobber.guard.catalogue import Catalogue
    from noclobber.guard.commands import CommandResult, CommandStop
    from noclobber.guard.notices import ChangeNotice
    from noclobber.guard.recording import Recorder
    from noclobber.guard.snapshot import TurnContext
    from noclobber.guard.state import WorkspaceState
    from noclobber.guard.tools.tool_list import ToolList
    from noclobber.lock.lock import DeliverableLock

    P = ParamSpec("P")
    T = TypeVar("T")
    Path = str | os.PathLike[str]
    Format = Literal["openai", "openai-responses", "anthropic", "gemini", "mcp"]

# Not an attribute of the turn: threads share a turn, and each carries out another call of the model's.
_CALL_ID: ContextVar[str | None] = ContextVar("noclobber_call_id", default=None)
_STEP: ContextVar[str | None] = ContextVar("noclobber_step", default=None)


class Turn:
    """One turn of one agent. Made by `Workspace.turn()`; ends with its `with` block or by `end()`."""

    outside_level = "executor"
    """How a write is called on record that an integrator's executor carried out."""
    parallel_s = 0.0

    def begin_watch(self, key: str) -> None:
        """Watch nothing: a program's own executor asks nobody, and is not waited for."""

    def end_watch(self, key: str) -> None:
        """Nothing is watched."""

    def __init__(
        self,
        state: WorkspaceState,
        catalogue: Catalogue,
        context: TurnContext,
        guard: FileGuard,
        options: Options,
        write_scope: tuple[str, ...] | None,
        lock: DeliverableLock | None,
        host: str | None = None,
        intent_id: str | None = None,
    ) -> None:
        self._state, self._catalogue = state, catalogue
        self.context, self.guard, self.options = context, guard, options
        self.write_scope = write_scope
        self.turn_id, self.agent_id, self.session_id = context.turn_id, context.agent_id, context.session_id
        self.host, self.intent_id = host, intent_id
        self.memory = TurnMemory(context)
        self.order = CallOrder()
        self.owner = f"{host or 'library'}/{self.session_id or ''}/{self.agent_id}/{self.turn_id}"
        """The agent, as claims name it."""
        self.fence = WriteFence(state.root, lock, owner=self.owner, clock=state.clock)
        self.kept: list[str] = []
        """After the end: files kept aside because somebody wrote to a version that had been replaced."""
        self.merges: list[WriteResult] = []
        """Writes that were stale and landed merged, the first one first (`on_stale = "merge"`)."""
        self.on_changes: Callable[[list[ChangeNotice]], object] | None = None
        """If set: called before a guarded tool call with what has changed since the last one."""
        self._notices = NoticeBoard()
        self._calls = 0
        self._seen_too_late: dict[tuple[str, str], str] = {}
        """By step and name: the version that was seen before a read of the same step."""
        if options.scope == "session":
            state.sessions.begin(context)  # It starts from what earlier turns of the session saw.
        state.turns.add(self)

    # -- what the judge asks -----------------------------------------------------------------------------

    @property
    def root(self) -> str:
        """The workspace's folder."""
        return self._state.root

    confined_to = folder = root

    @property
    def clock(self) -> Clock:
        """What the time is."""
        return self._state.clock

    @property
    def recorder(self) -> Recorder:
        """What puts events on record."""
        return self._state.recorder

    def ledger_trouble(self) -> LedgerError | None:
        """Return why events cannot be recorded now, None if they can."""
        return self._state.ledger_trouble()

    # -- life ----------------------------------------------------------------------------------------

    def __enter__(self) -> Turn:
        len(self.context)  # Refuses if the turn is over.
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.end()
        except Exception as failure:
            if error is None:
                raise
            error.add_note(f"And the turn's end failed: {failure}")  # The first error is the one to see.

    @signals.whole
    def end(self) -> None:
        """Forget what was seen and clear away what commits left. Ending twice is fine."""
        if not self.context.is_open:
            return
        with self.order.after_all():  # What a thread has begun is waited for.
            if self.context.is_open:
                self._end()

    def _end(self) -> None:
        try:
            self._state.turns.remove(self.turn_id)
            if self.options.scope == "session":
                self._state.sessions.finish(self.context)
            if self.memory.has_notes:
                claims.release_all(self.root, self.owner)
            for path, sha256, data in self.context.last_writes():
                self.guard.keep_written(path, sha256, data)
            self.kept = self.guard.sweep()
            if self.kept:
                self.recorder.kept(self.tool_call("end_turn"), self.kept)
        finally:
            self.context.end()

    def __repr__(self) -> str:
        state = "open" if self.context.is_open else "ended"
        return f"<Turn {self.turn_id!r} of {self.agent_id!r} in {self.root!r}, {state}>"

    # -- tools -----------------------------------------------------------------------------------------

    def read_file(
        self, path: Path, *, start_line: int | None = None, end_line: int | None = None
    ) -> ReadResult:
        """Read a file, or the lines from `start_line` to `end_line` (both counted, the first is 1)."""
        call, action, step = (
            self.tool_call("read_file"),
            requests.read(path, start_line, end_line),
            _STEP.get(),
        )
        if step is None:
            return engine.read(self, call, action)
        name = self.context.name_of(action.path)
        with self.order.one_at_a_time([name]):  # A write of the same step sees the read, or comes before it.
            seen_before = self.context.expected_for(name, name)
            seen = engine.read(self, call, action)
            if seen_before not in (None, seen.sha256):
                self._seen_too_late.setdefault((step, name), seen_before or "")
        return seen

    def write_file(
        self,
        path: Path,
        content: str | bytes,
        *,
        expected_hash: str | None = None,
        observation_id: str | None = None,
    ) -> WriteResult:
        """
        Replace a whole file, or create it.

        Checked against the turn's baseline, unless the caller says what it expects: a hash, `ABSENT`,
        or the id of an earlier read. Text is written as UTF-8, line endings as given.
        """
        call = self.tool_call("write_file")
        action = self._checked(call, requests.write, path, content, expected_hash, observation_id)
        return engine.change(self, call, [action])[0]

    def edit_file(
        self,
        path: Path,
        edits: Sequence[Edit],
        *,
        expected_hash: str | None = None,
        observation_id: str | None = None,
    ) -> WriteResult:
        """Make all edits or none. The old text of each must occur exactly once in the file as it is."""
        return self.change_file(
            path,
            lambda: requests.edits(list(edits), path),
            expected_hash=expected_hash,
            observation_id=observation_id,
        )

    def change_file(
        self,
        path: Path,
        change: ContentChange | Callable[[], ContentChange],
        *,
        expected_hash: str | None = None,
        observation_id: str | None = None,
        tool: str = "edit_file",
    ) -> WriteResult:
        """Change a part of a file, in any way that makes new bytes from old ones: a `ContentChange`."""
        call = self.tool_call(tool)
        made: ContentChange = self._checked(call, change) if callable(change) else change
        action = self._checked(call, requests.edit, path, made, expected_hash, observation_id)
        return engine.change(self, call, [action])[0]

    def write_files(
        self,
        files: Mapping[str, str | bytes],
        *,
        expected_hashes: Mapping[str, str] | None = None,
    ) -> dict[str, WriteResult]:
        """Replace or create several files: all of them or none. Keys of the result are the keys given."""
        call = self.tool_call("write_files")
        actions = self._checked(call, requests.write_many, files, expected_hashes)
        return dict(zip(files, engine.change(self, call, actions), strict=True))

    def delete_file(
        self, path: Path, *, expected_hash: str | None = None, observation_id: str | None = None
    ) -> WriteResult:
        """Delete a file, if it is still what was seen."""
        call = self.tool_call("delete_file")
        action = self._checked(call, requests.delete, path, expected_hash, observation_id)
        return engine.change(self, call, [action])[0]

    def move_file(
        self,
        source: Path,
        destination: Path,
        *,
        expected_hash: str | None = None,
        observation_id: str | None = None,
    ) -> WriteResult:
        """Move a file to a free name, if it is still what was seen. The result's path is the new one."""
        call = self.tool_call("move_file")
        actions = self._checked(call, requests.move, source, destination, expected_hash, observation_id)
        return engine.change(self, call, actions)[0]

    def run(
        self,
        command: str | Sequence[str],
        *,
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        expected_hashes: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        stop: CommandStop | None = None,
        require: bool = False,
    ) -> CommandResult:
        """
        Run a command as one transaction: its changes land all together or not at all (docs/shell.md).

        A string is run by `sh -c`, a list as it is; output is captured (of more than 8 MiB on one stream,
        the beginning and the end, with a line that says so). Where there is no guarded shell the
        command is watched, and the result's `level` says so; with `require`, `ShellUnavailableError`: then
        nothing was run. `stop.ask()`, from another thread, ends the command.
        """
        from noclobber.guard import commands  # Few turns run commands.

        return commands.run_command(
            self,
            command,
            cwd=cwd,
            environment=environment,
            stdin=stdin,
            expect=expected_hashes,
            timeout_s=timeout_s,
            stop=stop,
            require=require,
        )

    def call(self, tool: str, params: dict[str, Any], *, call_id: str | None = None) -> Any:
        """Call any registered tool by name, as a model does."""
        call = self.tool_call(tool, params, call_id=call_id)
        return engine.carry_out(self, call, engine.understand(self.recorder, self._catalogue, call))

    def tools(
        self,
        format: Format = "openai",  # noqa: A002 - the name that says it
        *,
        only: Iterable[str] | None = None,
        prefix: str = "",
        beside: Iterable[Any] = (),
    ) -> ToolList:
        """
        Return the guarded tools as JSON Schemas in the format of a model's API: a list, to be passed to it.

        `tools.call(tool_call)` carries out what the model asks, and returns the tool's result in that format;
        a refusal as its exact object. `only` names the tools that are wanted; with a `prefix` their names do
        not clash with tools of your own, which `beside` lists: a name that occurs twice is an error.
        """
        from noclobber.guard.tools.tool_list import ToolList  # Here: programs without a model need none.

        return ToolList(self, format, only=only, prefix=prefix, beside=beside)

    @contextmanager
    def called(self, call_id: str | None, *, step: str | None = None) -> Iterator[None]:
        """
        Within: the ledger has this id for what this thread or task does. None: an id of the turn's own.

        `step` names the model's message that asked for the call. What a call reads the model sees after that
        message, so a write that the same message asks for was made without it, and is held to what was seen
        before (`[read, write]` in one step, after a refusal).
        """
        before = _CALL_ID.set(call_id)
        step_before = _STEP.set(step or _STEP.get())
        try:
            yield
        finally:
            _STEP.reset(step_before)
            _CALL_ID.reset(before)

    def tool_call(
        self, tool: str, params: dict[str, Any] | None = None, *, call_id: str | None = None
    ) -> ToolCall:
        """Return a call in this turn's name, for the engine."""
        self._calls += 1
        if self.on_changes is not None and (found := self.changes()):
            self.on_changes(found)
        call = ToolCall(
            tool,
            {} if params is None else params,
            agent_id=self.agent_id,
            session_id=self.session_id,
            turn_id=self.turn_id,
            call_id=call_id or _CALL_ID.get() or f"{self.turn_id}/{self._calls}",
            host=self.host,
            intent_id=self.intent_id,
        )
        if (began := self.recorder.began) is not None:
            began(call)
        return call

    def as_seen(self, action: Action) -> Action:
        """
        Hold a write to what its model's message was made from, if a read of the same message saw more.

        Asked within the file's order: a read that another thread has under way counts as well.
        """
        step = _STEP.get()
        if step is None or action.expected_hash is not None or action.observation_id is not None:
            return action
        seen = self._seen_too_late.get((step, self.context.name_of(action.path)))
        return action if seen is None else action._replace(expected_hash=seen)

    def _checked(self, call: ToolCall, make: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Make a request of what the caller gave. What is wrong with it counts as a refused write."""
        try:
            return make(*args, **kwargs)
        except NoclobberError as error:
            self.recorder.refusal(call, error)
            raise

    # -- what was seen -----------------------------------------------------------------------------------

    def get_initial_hash(self, path: Path) -> str | None:
        """Return the hash of the file at this turn's first read; None if it read none. No disk access."""
        return self.context.get_initial_hash(path)

    def changes_since_read(self, path: Path) -> str:
        """
        Return a unified diff from what the turn last saw to what is on the disk; empty if nothing changed.

        Looking does not count as reading: the baseline stays. `UnreadFileError` if nothing was seen,
        `BaselineNotRetainedError` if it was too large to keep.
        """
        canonical, name = self.guard.locate(path), self.context.name_of(path)
        before = self.baseline_bytes(path)
        if before is None:
            if self.context.expected_for(name, canonical) is None:
                raise UnreadFileError(
                    canonical, "This turn has not read the file, so nothing can have changed."
                )
            raise BaselineNotRetainedError(
                canonical, "What was read is too large to be kept, so there is no diff. Read the file again."
            )
        try:
            after = self.guard.read(canonical).content
        except MissingFileError:
            after = b""
        return unified(before, after, canonical)

    def changes(self) -> list[ChangeNotice]:
        """
        Return which files that this turn has seen have changed since, by whom and how. Each change once.

        Looking does not count as reading: the baseline stays.
        """
        return self._notices.new(self)

    def baseline_bytes(self, path: Path) -> bytes | None:
        """Return the bytes that the turn last saw or wrote, if they are still kept."""
        return self.context.baseline_bytes(self.context.name_of(path), self.guard.locate(path))
