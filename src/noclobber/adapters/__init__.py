"""
Guarded file tools inside agent frameworks: one module for each framework, imported only by who asks for it.

    from noclobber.adapters.deepagents import GuardedBackend
    agent = create_deep_agent(model=..., backend=GuardedBackend("path/to/project"))

Each is an extra of the package (`pip install "noclobber[deepagents]"`) and has a page in docs/frameworks/.
Each framework has one way in: the one under its own file tools and commands, as people use them. Our own
tools in a framework, and tools of the user's own, are a recipe (docs/frameworks/no-framework.md).

What all of them mean by their words:

| here | in a framework |
|---|---|
| session | an agent's run; a conversation or thread, where the framework keeps one |
| turn | one run of the agent, from the request to its answer, with all tool calls of each model's step |
| agent | the agent's name; a subagent or a parallel branch is an agent with a snapshot of its own |
| call | the id that the model gave to its tool call |

| module | what it has |
|---|---|
| `runs` | who calls, and the turn that the call belongs to; when what was seen is forgotten |
| `shared` | one set of turns for all adapters of one workspace, made from what a user passes |
| `tool_io` | a framework's own file tools over a guarded folder: what a call reads and writes |
| `otel` | no framework: metrics and traces for OpenTelemetry |

A framework's module is named after its package. It holds what that framework alone needs, and no rule of its
own about what is stale.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import NoReturn


@contextmanager
def extra(name: str, *more: str) -> Iterator[None]:
    """
    Around an adapter's imports of its framework. `more`: packages to install beside the extra.

    The error stays what Python raises, so that a program can still try the import and go on without it.
    """
    try:
        yield
    except ImportError as error:
        kind, what = ImportError, f"the version of {error.name} that is installed does not fit: {error}"
        if isinstance(error, ModuleNotFoundError):
            kind, what = ModuleNotFoundError, f"{error.name} is not installed"
        wanted = " ".join([f"'noclobber[{name}]'", *more])
        raise kind(
            f"This adapter needs the extra {name!r}, and {what}. Install it with: pip install {wanted}",
            name=error.name,
        ) from error


_OWN = 'read and write in your tool by a turn: docs/frameworks/no-framework.md, "Tools of your own"'
_GONE = {
    "crewai": {"guarded_tools": f"take file_tools, or {_OWN}", "guard_tool": _OWN},
    "google_adk": {"GuardedFileToolset": f"take GuardedFilesPlugin and its environment, or {_OWN}"},
    "langchain": {
        "guarded_tools": "take guarded_file_tools of noclobber.adapters.langchain_community, or "
        f"GuardedBackend of noclobber.adapters.deepagents, or {_OWN}",
        "GuardMiddleware": _OWN,
    },
    "openai_agents": {"guard_tool": _OWN},
    "pydantic_ai": {
        "GuardedToolset": f"take GuardedWorkspace, or {_OWN}",
        "GuardedTools": _OWN,
        "GuardedCalls": _OWN,
    },
}
"""What is no longer here, and what to do instead."""


def gone(module: str) -> Callable[[str], NoReturn]:
    """Return the `__getattr__` of an adapter: a name that is gone is an error that says what to use."""

    def missing(name: str) -> NoReturn:
        if (instead := _GONE[module.rpartition(".")[2]].get(name)) is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        raise ImportError(f"{module}.{name} is gone. Instead, {instead}.", name=module)

    return missing
