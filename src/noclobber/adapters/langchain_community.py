"""
Guarded versions of the file tools in `langchain_community`: the same names, parameters and descriptions.

    from noclobber.adapters.langchain_community import guarded_file_tools

    agent = create_agent(model, tools=guarded_file_tools("path/to/project"))

In place of `FileManagementToolkit(root_dir=…).get_tools()`. Texts for the model are the framework's. A
refusal is a tool error: a `ToolMessage` with the status `error` whose content is the refusal's exact object.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from noclobber.adapters import extra

with extra("deepagents", "langchain-community"):
    from langchain_community.tools.file_management import (
        CopyFileTool,
        DeleteFileTool,
        FileSearchTool,
        ListDirectoryTool,
        MoveFileTool,
        ReadFileTool,
        WriteFileTool,
    )
    from langchain_core.tools import BaseTool, ToolException
    from pydantic import PrivateAttr

from noclobber.adapters.langchain import HOST, current_caller
from noclobber.adapters.shared import run_turns
from noclobber.aio import in_thread
from noclobber.errors import ABSENT, BadRequestError, NoclobberError
from noclobber.guard.tools.answers import refused, sendable
from noclobber.guard.tools.definitions import as_replacement
from noclobber.guard.tools.listing import entries, find
from noclobber.guard.tools.tool_list import names_in, refuse_clashes
from noclobber.text.lines import line_ending, with_ending

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Unpack

    from noclobber.adapters.runs import RunTurns
    from noclobber.core.options import OptionValues
    from noclobber.guard.turn import Turn


def guarded_file_tools(
    workspace: Any,
    selected_tools: Iterable[str] | None = None,
    *,
    beside: Iterable[BaseTool] = (),
    **options: Unpack[OptionValues],
) -> list[BaseTool]:
    """
    Return the guarded tools, all of them or those with the names in `selected_tools`.

    `beside`: your own tools, whose names must be others.
    """
    turns = run_turns(workspace, HOST, **options)
    kinds = {kind.model_fields["name"].default: kind for kind in _KINDS}
    names = list(kinds) if selected_tools is None else list(selected_tools)
    for name in names:
        if name not in kinds:
            raise BadRequestError("", f"There is no file tool {name!r}. There are: {', '.join(kinds)}.")
    refuse_clashes(names, names_in(beside), "Rename yours, or leave this one out of selected_tools.")
    return [kinds[name].on(turns) for name in names]


class _GuardedFileTool:
    """What the guarded tools share: the turn of who calls, and how a refusal is told."""

    _turns: Any = PrivateAttr()

    @classmethod
    def on(cls, turns: RunTurns) -> Any:
        """Return this tool for a workspace."""
        tool: Any = cls(root_dir=turns.workspace.root, handle_tool_error=True)  # type: ignore[call-arg]
        tool._turns = turns
        return tool

    def _guarded(self, work: Callable[[Turn], str]) -> str:
        try:
            with self._turns.call(current_caller()) as turn:
                return work(turn)
        except (NoclobberError, OSError) as error:
            raise ToolException(refused(error).text) from error

    async def _arun(self, *args: Any, **kwargs: Any) -> str:
        kwargs.pop("run_manager", None)
        run: Any = self._run  # type: ignore[attr-defined]
        return await in_thread(run, *args, **kwargs)


class GuardedReadFile(_GuardedFileTool, ReadFileTool):
    """`read_file`, noted as what the agent saw."""

    def _run(self, file_path: str, run_manager: Any = None) -> str:
        return self._guarded(lambda turn: sendable(turn.read_file(file_path).text))


class GuardedWriteFile(_GuardedFileTool, WriteFileTool):
    """`write_file`: replaces or appends, if the file is still what the agent saw."""

    def _run(self, file_path: str, text: str, append: bool = False, run_manager: Any = None) -> str:
        def work(turn: Turn) -> str:
            if append and os.path.lexists(turn.guard.lexical(file_path)):
                turn.change_file(file_path, _Appended(text), tool="write_file")
            else:
                turn.write_file(file_path, as_replacement(turn, file_path, text))
            return f"File written successfully to {file_path}."

        return self._guarded(work)


class GuardedDeleteFile(_GuardedFileTool, DeleteFileTool):
    """`file_delete`: deletes a file that is still what the agent saw."""

    def _run(self, file_path: str, run_manager: Any = None) -> str:
        def work(turn: Turn) -> str:
            turn.delete_file(file_path)
            return f"File deleted successfully: {file_path}."

        return self._guarded(work)


class GuardedMoveFile(_GuardedFileTool, MoveFileTool):
    """`move_file`: moves a file that is still what the agent saw, to a name that is free."""

    def _run(self, source_path: str, destination_path: str, run_manager: Any = None) -> str:
        def work(turn: Turn) -> str:
            turn.move_file(source_path, destination_path)
            return f"File moved successfully from {source_path} to {destination_path}."

        return self._guarded(work)


class GuardedCopyFile(_GuardedFileTool, CopyFileTool):
    """`copy_file`: to a name that is free, so that it replaces nothing unseen."""

    def _run(self, source_path: str, destination_path: str, run_manager: Any = None) -> str:
        def work(turn: Turn) -> str:
            content = turn.guard.read(source_path).content
            turn.write_file(destination_path, content, expected_hash=ABSENT)
            return f"File copied successfully from {source_path} to {destination_path}."

        return self._guarded(work)


class GuardedListDirectory(_GuardedFileTool, ListDirectoryTool):
    """`list_directory`, without noclobber's own files."""

    def _run(self, dir_path: str = ".", run_manager: Any = None) -> str:
        def work(turn: Turn) -> str:
            found = [os.path.basename(entry.path) for entry in entries(turn, dir_path)]
            return "\n".join(found) if found else f"No files found in directory {dir_path}"

        return self._guarded(work)


class GuardedFileSearch(_GuardedFileTool, FileSearchTool):
    """`file_search`, without noclobber's own files."""

    def _run(self, pattern: str, dir_path: str = ".", run_manager: Any = None) -> str:
        def work(turn: Turn) -> str:
            found = [entry.path for entry in find(turn, pattern, dir_path)]
            return (
                "\n".join(found) if found else f"No files found for pattern {pattern} in directory {dir_path}"
            )

        return self._guarded(work)


class _Appended:
    """Text after the last byte of a file, with the file's own line endings."""

    def __init__(self, text: str) -> None:
        self._text = text

    def apply(self, data: bytes, path: str) -> bytes:
        """Return the new content."""
        added = self._text.encode("utf-8", "surrogateescape")
        return data + (with_ending(added, line_ending(data)) if b"\r\n" in data else added)


_KINDS: tuple[Any, ...] = (
    GuardedCopyFile,
    GuardedDeleteFile,
    GuardedFileSearch,
    GuardedMoveFile,
    GuardedReadFile,
    GuardedWriteFile,
    GuardedListDirectory,
)
