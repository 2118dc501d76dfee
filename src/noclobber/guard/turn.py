"""
The guarded file tools of one turn: what an agent program calls.

Each tool builds a tool call and hands it to the engine, so a program and a host's hook go the same
way and leave the same trace. Refusals are exceptions; `wire.to_json(error)` makes a tool result of one.

    with workspace.turn(agent_id="builder-1") as turn:
        seen = turn.read_file("plan.md")
        turn.write_file("plan.md", seen.text + "- one more\\n")

A turn belongs to one agent. Its threads may share it; two agents must not.
"""

from __future__ import annotations

from noclobber.core.values import ToolCall
from noclobber.errors import BaselineNotRetainedError, MissingFileError, UnreadFileError
from noclobber.text.diff import unified

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Any

    from noclobber.core.options import Options
    from noclobber.core.values import Edit, ReadResult, WriteResult
    from noclobber.disk.optimistic_guard import OptimisticGuard
    from noclobber.guard.engine import HookEngine
    from noclobber.guard.fence import WriteFence
    from noclobber.guard.snapshot import TurnContext

    Path = str | os.PathLike[str]


class Turn:
    """One turn of one agent. Made by `Workspace.turn()`; ends with its `with` block or by `end()`."""

    def __init__(
        self,
        engine: HookEngine,
        context: TurnContext,
        guard: OptimisticGuard,
        options: Options,
        write_scope: tuple[str, ...] | None,
        on_end: Callable[[Turn], None],
        fence: WriteFence,
        host: str | None = None,
        intent_id: str | None = None,
    ) -> None:
        self.engine, self.context, self.guard = engine, context, guard
        self.options, self.write_scope, self.fence = options, write_scope, fence
        self.turn_id, self.agent_id, self.session_id = context.turn_id, context.agent_id, context.session_id
        self.host, self.intent_id = host, intent_id
        self.kept: list[str] = []
        """After the end: files kept aside because somebody wrote to a version that had been replaced."""
        self._on_end = on_end
        self._calls = 0

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

    def end(self) -> None:
        """Forget what was seen and clear away what commits left. Ending twice is fine."""
        if self.context.is_open:
            try:
                self._on_end(self)
            finally:
                self.context.end()

    # -- tools -----------------------------------------------------------------------------------------

    def read_file(
        self, path: Path, *, start_line: int | None = None, end_line: int | None = None
    ) -> ReadResult:
        """Read a file, or the lines from `start_line` to `end_line` (both counted, the first is 1)."""
        params: dict[str, Any] = {"path": path, "start_line": start_line, "end_line": end_line}
        result: ReadResult = self.call("read_file", params)
        return result

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
        params = {"path": path, "content": content, **_explicit(expected_hash, observation_id)}
        result: WriteResult = self.call("write_file", params)
        return result

    def edit_file(
        self,
        path: Path,
        edits: Sequence[Edit],
        *,
        expected_hash: str | None = None,
        observation_id: str | None = None,
    ) -> WriteResult:
        """Make all edits or none. Each one's `old` must stand exactly once in the file as it is."""
        params = {"path": path, "edits": list(edits), **_explicit(expected_hash, observation_id)}
        result: WriteResult = self.call("edit_file", params)
        return result

    def write_files(
        self,
        files: Mapping[str, str | bytes],
        *,
        expected_hashes: Mapping[str, str] | None = None,
    ) -> dict[str, WriteResult]:
        """Replace or create several files: all of them or none. Keys of the result are the keys given."""
        params = {"files": dict(files), "expected_hashes": dict(expected_hashes or {})}
        result: dict[str, WriteResult] = self.call("write_files", params)
        return result

    def delete_file(
        self, path: Path, *, expected_hash: str | None = None, observation_id: str | None = None
    ) -> WriteResult:
        """Delete a file, if it is still what was seen."""
        params = {"path": path, **_explicit(expected_hash, observation_id)}
        result: WriteResult = self.call("delete_file", params)
        return result

    def move_file(
        self,
        source: Path,
        destination: Path,
        *,
        expected_hash: str | None = None,
        observation_id: str | None = None,
    ) -> WriteResult:
        """Move a file to a free name, if it is still what was seen. The result's path is the new one."""
        explicit = _explicit(expected_hash, observation_id)
        params = {"source": source, "destination": destination, **explicit}
        result: WriteResult = self.call("move_file", params)
        return result

    def call(self, tool: str, params: dict[str, Any], *, call_id: str | None = None) -> Any:
        """Call any registered tool by name, as a model does."""
        return self.engine.execute(self.tool_call(tool, params, call_id=call_id))

    def tool_call(self, tool: str, params: dict[str, Any], *, call_id: str | None = None) -> ToolCall:
        """Return a call in this turn's name, for the engine."""
        self._calls += 1
        return ToolCall(
            tool,
            params,
            agent_id=self.agent_id,
            session_id=self.session_id,
            turn_id=self.turn_id,
            call_id=call_id or f"{self.turn_id}/{self._calls}",
            host=self.host,
            intent_id=self.intent_id,
        )

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

    def baseline_bytes(self, path: Path) -> bytes | None:
        """Return the bytes that the turn last saw or wrote, if they are still kept."""
        return self.context.baseline_bytes(self.context.name_of(path), self.guard.locate(path))


def _explicit(expected_hash: str | None, observation_id: str | None) -> dict[str, str]:
    given = {"expected_hash": expected_hash, "observation_id": observation_id}
    return {key: value for key, value in given.items() if value is not None}
