"""
Keep files safe when several AI agents and people write to them at the same time.

No agent overwrites what it has not seen, no two agents work in one deliverable at once, and every
refusal is on record. Start with `Workspace`; README.md has twenty lines that work when pasted.
"""

from __future__ import annotations

import sys

if sys.platform not in ("linux", "darwin"):
    raise ImportError(
        f"noclobber runs on Linux and macOS; this is {sys.platform}. "
        "Its promise rests on what those two kernels offer."
    )

__version__ = "0.1.0"

# Public name -> the module that has it. Loaded on first use: a hook is a process per tool call, and
# most calls need few of these.
_HOMES = {
    "AccessDeniedError": "errors",
    "BadEventError": "errors",
    "BadPathError": "errors",
    "BadRequestError": "errors",
    "BaselineNotRetainedError": "errors",
    "BrokenChainError": "errors",
    "EditMismatchError": "errors",
    "FileBusyError": "errors",
    "FileExistsAlreadyError": "errors",
    "GaveUpError": "errors",
    "HookFailedError": "errors",
    "LedgerError": "errors",
    "MetadataNotKeptError": "errors",
    "MissingFileError": "errors",
    "NoclobberError": "errors",
    "NotAFileError": "errors",
    "OutsideScopeError": "errors",
    "OutsideWorkspaceError": "errors",
    "PartialReadError": "errors",
    "RefusalError": "errors",
    "ReservedFileError": "errors",
    "ResubmittedError": "errors",
    "StaleFileError": "errors",
    "StorageError": "errors",
    "TurnClosedError": "errors",
    "UnknownToolError": "errors",
    "UnreadFileError": "errors",
    "AgentTraceLedger": "ledger",
    "LedgerEntry": "ledger",
    "VerifyReport": "ledger",
    "Coverage": "model",
    "Decision": "model",
    "Edit": "model",
    "Observation": "model",
    "ReadResult": "model",
    "ToolCall": "model",
    "WriteResult": "model",
    "Catalogue": "catalogue",
    "Tool": "catalogue",
    "AgentController": "controller",
    "Attempt": "controller",
    "Transition": "controller",
    "HookEngine": "engine",
    "Turn": "tools",
    "TurnContext": "turn",
    "parse_stale": "wire",
    "schema": "wire",
    "to_json": "wire",
    "Workspace": "workspace",
}

__all__ = ["__version__", *sorted(_HOMES)]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'noclobber' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"noclobber.{home}"), name)
    globals()[name] = value  # The next access finds it without coming here.
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
