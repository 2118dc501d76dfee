"""
Microsoft Agent Framework.

    files = GuardedFiles("project")
    Agent(client=…, context_providers=[FileAccessProvider(files.store)], middleware=[files])

- `files.store` is an `AgentFileStore`: the framework's `file_access_*` tools over a guarded folder, in place
  of `FileSystemAgentFileStore`. The check and the write are one step.
- `files` is the middleware that says who calls.

A refusal is the function's result: the exact object as JSON, whatever sentence the tool made of it.

What was seen is tied to the function calls that the model is shown in each request. If some are gone (another
process, an older thread, a summary), the agent must read a file again before it changes it.
"""

from __future__ import annotations

import os
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from noclobber.adapters import extra

with extra("agent-framework"):
    from agent_framework import (
        AgentFileStore,
        AgentMiddleware,
        ChatMiddleware,
        FileStoreEntry,
        FileSystemAgentFileStore,
        FunctionMiddleware,
        MiddlewareBundle,
    )

from noclobber.adapters.runs import Caller
from noclobber.adapters.shared import run_turns
from noclobber.adapters.tool_io import ToolIO
from noclobber.aio import in_thread
from noclobber.core.project import STATE_FOLDER
from noclobber.errors import (
    ABSENT,
    BadRequestError,
    MissingFileError,
    NoclobberError,
    StaleFileError,
)
from noclobber.guard.tools.answers import refused
from noclobber.lock.names import is_lock_file

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from typing import Unpack

    from agent_framework import AgentContext, ChatContext, FunctionInvocationContext

    from noclobber.adapters.runs import RunTurns
    from noclobber.core.options import OptionValues

HOST = "agent-framework"
MOST_STEPS = 10_000  # Of which it is known what the model saw; the oldest are forgotten, strictly.


class _Run:
    """One run of one agent, and what its model is shown."""

    def __init__(self, agent_id: str, session: Any) -> None:
        self.agent_id = agent_id
        self.session_id: str | None = None if session is None else session.session_id
        self.run_id = os.urandom(8).hex()
        self.shown: frozenset[str] | None = None
        """Ids of the file calls in the model's last request; None if it is not known what it is shown."""
        self.step = 0


RUN = "noclobber_run"
"""The run travels with what the framework forwards to tools: a stream may be read in any context."""
_IO: ContextVar[ToolIO | None] = ContextVar("noclobber_agent_framework_io", default=None)


class GuardedFiles(MiddlewareBundle):
    """The middleware. One for each folder, in every agent that works there."""

    def __init__(self, workspace: Any, **options: Unpack[OptionValues]) -> None:
        self.turns = run_turns(workspace, HOST, **options)
        self.store = GuardedFileStore(self.turns)
        self._steps: dict[str, tuple[str | None, set[str]]] = {}
        """The model's steps that touched files: of which session, and by which calls."""
        self._asked: dict[str, tuple[frozenset[str] | None, str]] = {}
        """Calls that a model asked for: what it was shown then, and its step. One may be approved later."""
        super().__init__([_RunMiddleware(self), _ModelMiddleware(self), _CallMiddleware(self)])

    def asked(self, run: _Run, call_ids: Iterable[str]) -> None:
        """Take note of what a model knew when it asked for these calls."""
        for call_id in call_ids:
            self._asked[f"{run.session_id}/{call_id}"] = (run.shown, f"{run.run_id}/{run.step}")
        while len(self._asked) > MOST_STEPS:
            self._asked.pop(next(iter(self._asked)))

    def caller(self, run: _Run | None, call_id: str | None) -> Caller:
        """Who calls, in the function call that is under way."""
        if run is None:
            return Caller(call_id=call_id)
        shown, mark = self._asked.get(f"{run.session_id}/{call_id}", (run.shown, f"{run.run_id}/{run.step}"))
        memory = None
        if shown is not None:
            known = {
                step
                for step, (session_id, calls) in self._steps.items()
                if session_id == run.session_id and calls <= shown
            }
            told: set[str] = set().union(*(self._steps[step][1] for step in known))
            memory = {*known, *(f"?/{call}" for call in shown - told), mark}
        self._steps.setdefault(mark, (run.session_id, set()))[1].add(f"{call_id}")
        while len(self._steps) > MOST_STEPS:
            self._steps.pop(next(iter(self._steps)))
        return Caller(
            agent_id=run.agent_id,
            session_id=run.session_id,
            run_id=run.run_id,
            call_id=call_id,
            memory=memory,
            mark=mark,
        )


class _RunMiddleware(AgentMiddleware):
    def __init__(self, files: GuardedFiles) -> None:
        self._files = files

    async def process(self, context: AgentContext, call_next: Callable[[], Awaitable[None]]) -> None:
        agent = context.agent
        run = _Run(getattr(agent, "name", None) or getattr(agent, "id", None) or "agent", context.session)
        context.function_invocation_kwargs = {**(context.function_invocation_kwargs or {}), RUN: run}
        context.client_kwargs = {**(context.client_kwargs or {}), RUN: run}

        async def end() -> None:
            await in_thread(self._files.turns.end_run, run.run_id)

        if context.stream:
            context.stream_cleanup_hooks.append(end)
            await call_next()
            return
        try:
            await call_next()
        finally:
            await end()


class _ModelMiddleware(ChatMiddleware):
    def __init__(self, files: GuardedFiles) -> None:
        self._files = files

    async def process(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        run = context.kwargs.pop(RUN, None)  # It is not for the client.
        if run is None:
            await call_next()
            return
        run.step += 1
        session = context.session
        if session is not None and session.service_session_id is not None:
            run.shown = None
        else:
            run.shown = frozenset(
                content.call_id
                for message in context.messages
                for content in message.contents
                if content.type == "function_call" and content.call_id and _is_for_files(content.name)
            )
        await call_next()
        messages = getattr(context.result, "messages", None) or ()
        self._files.asked(
            run,
            [
                content.call_id
                for message in messages
                for content in message.contents
                if content.type == "function_call" and content.call_id
            ],
        )


class _CallMiddleware(FunctionMiddleware):
    def __init__(self, files: GuardedFiles) -> None:
        self._files = files

    async def process(
        self, context: FunctionInvocationContext, call_next: Callable[[], Awaitable[None]]
    ) -> None:
        files, name, call_id = self._files, context.function.name, context.metadata.get("call_id")
        run = context.kwargs.get(RUN)
        io = ToolIO(lambda: files.turns.turn(files.caller(run, call_id)), name, call_id)
        token = _IO.set(io)
        try:
            await call_next()
        except NoclobberError as error:
            context.result = refused(error).text
            return
        except Exception as error:
            # The framework would tell the model that "argument parsing failed", and not which argument.
            if type(error).__name__ != "_FunctionArgumentValidationError" or not _is_for_files(name):
                raise
            context.result = refused(BadRequestError("", f"{error}", tool=name)).text
            return
        finally:
            _IO.reset(token)
        if io.refusal is not None and not isinstance(io.refusal, MissingFileError):
            context.result = refused(io.refusal).text
            return
        await io.over_async(_text(context.result))


class GuardedFileStore(FileSystemAgentFileStore):
    """`FileSystemAgentFileStore` whose files are guarded. Used with the `GuardedFiles` that it belongs to."""

    def __init__(self, turns: RunTurns) -> None:
        super().__init__(turns.workspace.root)

    async def read(self, path: str) -> str | None:
        """Return a file's text, None if there is none. The agent has seen it only if the result shows it."""
        full_path = self._resolve_safe_path(path)
        try:
            raw = await in_thread(_io().read, full_path)
        except MissingFileError:
            return None
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"File '{full_path.name}' is not UTF-8 text and cannot be read.") from error

    async def write(self, path: str, content: str, *, overwrite: bool = True) -> None:
        """Replace or create a file, if it is what the agent saw and what the tool read."""
        full_path, io = self._resolve_safe_path(path), _io()
        if overwrite:
            await in_thread(io.write, full_path, content)
            return
        knows_of_none = await in_thread(io.baseline, full_path) == ABSENT
        if os.path.lexists(full_path) and not knows_of_none:
            raise FileExistsError(path)
        try:
            await in_thread(io.create, full_path, content)
        except StaleFileError as error:
            if knows_of_none or error.expected != ABSENT:
                raise
            io.refusal = None  # The agent never looked, so there is nothing for it to read again.
            raise FileExistsError(path) from error

    async def delete(self, path: str) -> bool:
        """Delete a file, if it is what the agent saw. False if there is none."""
        full_path, io = self._resolve_safe_path(path), _io()
        try:
            await in_thread(io.delete, full_path)
        except MissingFileError:
            return False
        return True

    async def list_children(self, directory: str = "") -> list[FileStoreEntry]:
        """List a folder, without noclobber's own files and without lock files."""
        at_root = not directory.strip("/ ")
        return [
            entry
            for entry in await super().list_children(directory)
            if not is_lock_file(entry.name) and not (at_root and entry.name == STATE_FOLDER)
        ]

    async def search(
        self, directory: str, regex_pattern: str, glob_pattern: str | None = None, *, recursive: bool = False
    ) -> list[Any]:
        """Search as any store does, by `read`: a line number from here is of a version that is remembered."""
        return await AgentFileStore.search(self, directory, regex_pattern, glob_pattern, recursive=recursive)


def _io() -> ToolIO:
    io = _IO.get()
    if io is None:
        raise RuntimeError(
            "A guarded store has to know who calls. Pass the GuardedFiles that it belongs to to the agent: "
            "middleware=[files]."
        )
    return io


def _is_for_files(name: str | None) -> bool:
    return name is not None and name.startswith("file_access_")


def _text(result: Any) -> str | None:
    """Return the text of a function's result: one text, or a list of contents."""
    if isinstance(result, list):
        texts = [content.text for content in result if getattr(content, "type", None) == "text"]
        return "".join(texts) if texts else None
    return result if isinstance(result, str) else None
