"""
deepagents: a backend whose writes are compare-and-swap.

    from noclobber.adapters.deepagents import GuardedBackend

    agent = create_deep_agent(model=..., backend=GuardedBackend("path/to/project"))

`GuardedShellBackend` is the same with `execute`, in the place of `LocalShellBackend`: a command is one
transaction.

The framework's tools, names and prompts stay as they are: `read_file`, `write_file`, `edit_file`, `ls`,
`glob`, `grep` and `delete` go through this backend. A refusal is the exact 009 object, as the content of a
`ToolMessage` with the status `error`.

Who calls is taken from the run's config (`langchain`): threads, subagents and parallel branches have
snapshots of their own, and a run that is resumed or rewound knows what its messages know.
"""

from __future__ import annotations

import base64
import functools
import os
from typing import TYPE_CHECKING, Any, TypeVar

from noclobber.adapters import extra

with extra("deepagents"):
    from deepagents.backends import FilesystemBackend
    from deepagents.backends.protocol import (
        DeleteResult,
        EditResult,
        ExecuteResponse,
        FileData,
        FileDownloadResponse,
        FileUploadResponse,
        GlobResult,
        GrepResult,
        LsResult,
        ReadResult,
        SandboxBackendProtocol,
        WriteResult,
    )
    from deepagents.backends.utils import check_empty_content

from noclobber.adapters import commands
from noclobber.adapters.langchain import HOST, current_caller
from noclobber.adapters.shared import run_turns
from noclobber.aio import in_thread, stoppable
from noclobber.core.values import Edit
from noclobber.errors import BadRequestError, MissingFileError, NoclobberError, NotAFileError
from noclobber.guard.tools.answers import refused, sendable
from noclobber.guard.tools.definitions import as_replacement
from noclobber.guard.tools.listing import is_ours, walk
from noclobber.text.edits import Edits

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Unpack

    from noclobber.core.options import OptionValues
    from noclobber.guard.commands import CommandStop
    from noclobber.guard.turn import Turn

    Result = TypeVar("Result")

_MEDIA = {
    *(".png", ".jpg", ".jpeg", ".gif", ".webp", ".heic", ".heif", ".bmp", ".pdf", ".ppt", ".pptx"),
    *(".mp3", ".wav", ".aiff", ".aac", ".ogg", ".flac", ".mp4", ".mpeg", ".mov", ".avi", ".webm", ".wmv"),
}


def _in_thread(call: Callable[..., Result]) -> Callable[..., Any]:
    """Return the asynchronous twin of a method."""

    @functools.wraps(call)
    async def run(self: Any, *args: Any, **more: Any) -> Result:
        return await in_thread(getattr(self, call.__name__), *args, **more)

    return run


class GuardedBackend(FilesystemBackend):
    """
    deepagents' `FilesystemBackend` on a workspace, with guarded reads and writes.

    `workspace` is a `noclobber.Workspace` or a path. Options hold for this backend's turns (docs/options.md).
    Paths are virtual, as there: `/plan.md` is the file in the workspace's folder.
    """

    def __init__(
        self, workspace: Any, *, max_file_size_mb: int = 10, **options: Unpack[OptionValues]
    ) -> None:
        self._turns = run_turns(workspace, HOST, **options)
        self.workspace = self._turns.workspace
        super().__init__(self.workspace.root, virtual_mode=True, max_file_size_mb=max_file_size_mb)

    # -- reading -------------------------------------------------------------------------------------

    def read(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        """Read some lines of a file. What is shown and what is hashed come from one read."""
        if limit <= 0:
            return super().read(file_path, offset, limit)
        try:
            with self._call() as turn:
                return self._read(turn, file_path, max(offset, 0), limit)
        except (NoclobberError, OSError) as error:
            return ReadResult(error=_told(error, file_path))

    def _read(self, turn: Turn, file_path: str, offset: int, limit: int) -> ReadResult:
        path = _path(file_path)
        if os.path.splitext(file_path)[1].lower() in _MEDIA:
            data = base64.standard_b64encode(turn.read_file(path).content).decode("ascii")
            return ReadResult(file_data=FileData(content=data, encoding="base64"))
        seen = turn.read_file(path, start_line=offset + 1, end_line=offset + limit)
        text = sendable(seen.text).replace("\r\n", "\n").replace("\r", "\n")
        total = seen.seen.total
        if not seen.content:
            if offset and total:
                return ReadResult(error=f"Line offset {offset} exceeds file length ({total} lines)")
            return ReadResult(file_data=FileData(content=check_empty_content("") or "", encoding="utf-8"))
        if seen.seen.is_whole and (nothing := check_empty_content(text)):
            return ReadResult(file_data=FileData(content=nothing, encoding="utf-8"))
        last = min(offset + limit, total)
        return ReadResult(
            file_data=FileData(content=text, encoding="utf-8"),
            total_lines=total,
            start_line=offset + 1,
            end_line=last,
            next_offset=last if last < total else None,
        )

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Give a program the bytes of files. It is not the model that reads, so nothing counts as seen."""
        return [
            FileDownloadResponse(path=path, error="permission_denied")
            if any(map(is_ours, path.split("/")))
            else super(GuardedBackend, self).download_files([path])[0]
            for path in paths
        ]

    def ls(self, path: str) -> LsResult:
        """List a folder, without noclobber's own files."""
        found = super().ls(path)
        return found if found.entries is None else LsResult(found.error, _theirs(found.entries))

    def glob(self, pattern: str, path: str | None = None) -> GlobResult:
        """Find files by name, without noclobber's own."""
        found = super().glob(pattern, path)
        if found.matches is not None:
            found.matches = _theirs(found.matches)
        return found

    def grep(self, pattern: str, path: str | None = None, glob: str | None = None, **more: Any) -> GrepResult:
        """Find a text in files, without noclobber's own."""
        found = super().grep(pattern, path, glob, **more)
        if found.matches is not None:
            found.matches = _theirs(found.matches)
        return found

    # -- writing -------------------------------------------------------------------------------------

    def write(self, file_path: str, content: str) -> WriteResult:
        """Create a file or replace it, if it is still what this agent saw."""

        def work(turn: Turn) -> WriteResult:
            path = _path(file_path)
            turn.write_file(path, as_replacement(turn, path, content))
            return WriteResult(path=file_path)

        return self._guarded(work, lambda text: WriteResult(error=text))

    def edit(
        self,
        file_path: str,
        old_string: str,
        new_string: str,
        replace_all: bool = False,
    ) -> EditResult:
        """Replace a text in a file. Every other byte stays: line endings, byte-order mark, any encoding."""
        change = _CountedEdit(Edit(old_string, new_string, replace_all))

        def work(turn: Turn) -> EditResult:
            if not old_string and not new_string:
                raise BadRequestError(
                    file_path,
                    "old_string and new_string are both empty, so there is nothing to change. Send the text "
                    "to replace and the text to put in its place.",
                    parameter="old_string",
                )
            turn.change_file(_path(file_path), change)
            return EditResult(path=file_path, occurrences=change.count)

        return self._guarded(work, lambda text: EditResult(error=text))

    def delete(self, file_path: str) -> DeleteResult:
        """Delete a file; of a folder, every file in it that is still what this agent saw, then the folder."""

        def work(turn: Turn) -> DeleteResult:
            path = _path(file_path)
            folder = os.path.join(self.workspace.root, path)
            if os.path.isdir(folder) and not os.path.islink(folder):
                for entry in list(walk(turn, path)):
                    turn.delete_file(entry.path)
                _remove_empty(folder)
            else:
                turn.delete_file(path)
            return DeleteResult(path=file_path)

        return self._guarded(work, lambda text: DeleteResult(error=text))

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Write files that a program brings, each as a guarded write."""

        def upload(path: str, data: bytes) -> FileUploadResponse:
            def work(turn: Turn) -> FileUploadResponse:
                turn.write_file(_path(path), data)
                return FileUploadResponse(path=path)

            return self._guarded(work, lambda text: FileUploadResponse(path=path, error=text))

        return [upload(path, data) for path, data in files]

    # -- asynchronous: a thread is waited for, so that a cancelled write is not under way after its run's end

    aread: Any = _in_thread(read)
    awrite: Any = _in_thread(write)
    aedit: Any = _in_thread(edit)
    adelete: Any = _in_thread(delete)
    aupload_files: Any = _in_thread(upload_files)

    # -- inside --------------------------------------------------------------------------------------

    def _call(self) -> Any:
        return self._turns.call(current_caller())

    def _guarded(self, work: Callable[[Turn], Result], failed: Callable[[str], Result]) -> Result:
        try:
            with self._call() as turn:
                return work(turn)
        except (NoclobberError, OSError) as error:
            return failed(refused(error).text)


class GuardedShellBackend(GuardedBackend, SandboxBackendProtocol):
    """
    `GuardedBackend` with deepagents' `execute` tool: deepagents' `LocalShellBackend`, guarded.

    What a command changes in the workspace lands all together, or is refused (docs/shell.md). It may still do
    anything outside. `env` and `inherit_env` are as for `LocalShellBackend`.
    """

    def __init__(
        self,
        workspace: Any,
        *,
        timeout: int = 120,
        max_output_bytes: int = 100_000,
        env: dict[str, str] | None = None,
        inherit_env: bool = False,
        max_file_size_mb: int = 10,
        **options: Unpack[OptionValues],
    ) -> None:
        super().__init__(workspace, max_file_size_mb=max_file_size_mb, **options)
        if timeout <= 0:
            raise BadRequestError("", f"timeout must be more than 0, not {timeout}.", parameter="timeout")
        self._timeout_s, self._most_bytes = timeout, max_output_bytes
        self._environment = {**(os.environ if inherit_env else {}), **(env or {})}
        self._id = f"noclobber-{os.urandom(4).hex()}"

    @property
    def id(self) -> str:
        """This backend's name among others."""
        return self._id

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Run a command. The refusal of what it changed is the whole output, without an exit code."""
        return self._execute(command, timeout, None)

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Async version of `execute`. Cancelled, the command is ended, and nothing of it lands."""
        return await stoppable(lambda stop: self._execute(command, timeout, stop))

    def _execute(self, command: str, timeout: int | None, stop: CommandStop | None) -> ExecuteResponse:
        limit_s = self._timeout_s if timeout is None else timeout
        if limit_s <= 0:
            raise ValueError(f"timeout must be positive, got {limit_s}")  # As the framework's own says it.
        caller = current_caller()
        try:
            with self._turns.call(caller) as turn:
                done = commands.run(
                    turn,
                    command,
                    environment=self._environment,
                    timeout_s=limit_s,
                    call_id=caller.call_id,
                    stop=stop,
                )
        except (NoclobberError, OSError) as error:
            return ExecuteResponse(refused(error).text)
        if done.timed_out:
            return ExecuteResponse(
                f"Error: Command timed out after {limit_s} seconds, and nothing of it landed.", exit_code=124
            )
        return self._told(done)

    def _told(self, done: commands.Ran) -> ExecuteResponse:
        parts = [done.stdout] if done.stdout else []
        parts += [f"[stderr] {line}" for line in done.stderr.strip().split("\n") if done.stderr]
        output = "\n".join(parts) or "<no output>"
        data = output.encode("utf-8", "replace")
        is_long = len(data) > self._most_bytes
        if is_long:
            output = data[: self._most_bytes].decode("utf-8", "ignore")
            output += f"\n\n... Output truncated at {self._most_bytes} bytes."
        return ExecuteResponse(output, exit_code=done.exit_code, truncated=is_long)


class _CountedEdit:
    """One edit, and how often it was made: the framework tells the model."""

    def __init__(self, edit: Edit) -> None:
        self._edit, self.count = edit, 1

    def apply(self, data: bytes, path: str) -> bytes:
        """Return the new content."""
        changed = Edits((self._edit,)).apply(data, path)
        old = str(self._edit.old).replace("\r\n", "\n").encode("utf-8", "surrogateescape")
        self.count = max(1, data.replace(b"\r\n", b"\n").count(old)) if old else 1
        return changed


def _path(file_path: str) -> str:
    """Return a virtual path as one relative to the workspace."""
    return file_path.lstrip("/") or "."


def _told(error: NoclobberError | OSError, file_path: str) -> str:
    """Return why a file cannot be read, in the framework's words where it has them."""
    if isinstance(error, (MissingFileError, NotAFileError)):
        return f"File '{file_path}' not found"
    return refused(error).text


def _theirs(found: list[Any]) -> list[Any]:
    return [each for each in found if not any(map(is_ours, each["path"].strip("/").split("/")))]


def _remove_empty(folder: str) -> None:
    for each, _, _ in os.walk(folder, topdown=False):
        try:
            os.rmdir(each)
        except OSError as error:
            raise NotAFileError(each, f"The folder is not empty, so it stays: {error.strerror}.") from None
