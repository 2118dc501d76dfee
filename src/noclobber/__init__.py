"""
Keep files safe when several AI agents and people write to them at the same time.

No agent overwrites what it has not seen, no two agents work in one deliverable at once, and every
refusal is on record. Start with `Workspace`; README.md has lines that work when pasted.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if sys.platform not in ("linux", "darwin"):
    raise ImportError(
        f"noclobber runs on Linux and macOS; this is {sys.platform}. "
        "Its promise rests on what those two kernels offer."
    )

from noclobber.disk import forks as _forks  # Before the first name is used: see `__getattr__`.

__version__ = "0.1.0"

if TYPE_CHECKING:  # What type checkers and editors see; a test keeps it the same as the table below.
    from noclobber.core.values import Coverage as Coverage
    from noclobber.core.values import Decision as Decision
    from noclobber.core.values import Edit as Edit
    from noclobber.core.values import Observation as Observation
    from noclobber.core.values import ReadResult as ReadResult
    from noclobber.core.values import ToolCall as ToolCall
    from noclobber.core.values import WriteResult as WriteResult
    from noclobber.core.wire import parse_stale as parse_stale
    from noclobber.core.wire import schema as schema
    from noclobber.core.wire import to_json as to_json
    from noclobber.disk.commit.rows import Change as Change
    from noclobber.disk.file_guard import FileRead as FileRead
    from noclobber.errors import AccessDeniedError as AccessDeniedError
    from noclobber.errors import BadEventError as BadEventError
    from noclobber.errors import BadPathError as BadPathError
    from noclobber.errors import BadRequestError as BadRequestError
    from noclobber.errors import BaselineNotRetainedError as BaselineNotRetainedError
    from noclobber.errors import BrokenChainError as BrokenChainError
    from noclobber.errors import CannotCommitError as CannotCommitError
    from noclobber.errors import CannotUndoError as CannotUndoError
    from noclobber.errors import ConfigError as ConfigError
    from noclobber.errors import EditMismatchError as EditMismatchError
    from noclobber.errors import FileBusyError as FileBusyError
    from noclobber.errors import FileExistsAlreadyError as FileExistsAlreadyError
    from noclobber.errors import GaveUpError as GaveUpError
    from noclobber.errors import HookFailedError as HookFailedError
    from noclobber.errors import LedgerError as LedgerError
    from noclobber.errors import LockContention as LockContention
    from noclobber.errors import LockLost as LockLost
    from noclobber.errors import MetadataNotKeptError as MetadataNotKeptError
    from noclobber.errors import MissingFileError as MissingFileError
    from noclobber.errors import NoclobberError as NoclobberError
    from noclobber.errors import NotAFileError as NotAFileError
    from noclobber.errors import OthersWorkError as OthersWorkError
    from noclobber.errors import OutsideScopeError as OutsideScopeError
    from noclobber.errors import OutsideWorkspaceError as OutsideWorkspaceError
    from noclobber.errors import OverwroteError as OverwroteError
    from noclobber.errors import PartialReadError as PartialReadError
    from noclobber.errors import RefusalError as RefusalError
    from noclobber.errors import ReservedFileError as ReservedFileError
    from noclobber.errors import ResubmittedError as ResubmittedError
    from noclobber.errors import ShellUnavailableError as ShellUnavailableError
    from noclobber.errors import StaleFileError as StaleFileError
    from noclobber.errors import StorageError as StorageError
    from noclobber.errors import TooManyFilesError as TooManyFilesError
    from noclobber.errors import TurnClosedError as TurnClosedError
    from noclobber.errors import UnknownToolError as UnknownToolError
    from noclobber.errors import UnreadFileError as UnreadFileError
    from noclobber.guard.catalogue import Catalogue as Catalogue
    from noclobber.guard.catalogue import Tool as Tool
    from noclobber.guard.commands import CommandResult as CommandResult
    from noclobber.guard.commands import CommandStop as CommandStop
    from noclobber.guard.controller import AgentController as AgentController
    from noclobber.guard.controller import Attempt as Attempt
    from noclobber.guard.controller import Transition as Transition
    from noclobber.guard.direct import OptimisticGuard as OptimisticGuard
    from noclobber.guard.direct import replace_if_unchanged as replace_if_unchanged
    from noclobber.guard.hook_engine import HookEngine as HookEngine
    from noclobber.guard.snapshot import TurnContext as TurnContext
    from noclobber.guard.turn import Turn as Turn
    from noclobber.guard.workspace import Workspace as Workspace
    from noclobber.ledger import AgentTraceLedger as AgentTraceLedger
    from noclobber.ledger import LedgerEntry as LedgerEntry
    from noclobber.ledger import VerifyReport as VerifyReport
    from noclobber.ledger.observer import LoggingObserver as LoggingObserver
    from noclobber.ledger.observer import Observer as Observer
    from noclobber.ledger.protocol import Ledger as Ledger
    from noclobber.lock.backend import LockStatus as LockStatus
    from noclobber.lock.lock import DeliverableLock as DeliverableLock

# Public name -> the module that has it. Loaded on first use: a hook is a process per tool call, and
# most calls need few of these.
_HOMES = {
    "AccessDeniedError": "errors",
    "AgentController": "guard.controller",
    "AgentTraceLedger": "ledger",
    "Attempt": "guard.controller",
    "BadEventError": "errors",
    "BadPathError": "errors",
    "BadRequestError": "errors",
    "BaselineNotRetainedError": "errors",
    "BrokenChainError": "errors",
    "Catalogue": "guard.catalogue",
    "Change": "disk.commit.rows",
    "ConfigError": "errors",
    "Coverage": "core.values",
    "Decision": "core.values",
    "DeliverableLock": "lock.lock",
    "Edit": "core.values",
    "EditMismatchError": "errors",
    "FileBusyError": "errors",
    "FileExistsAlreadyError": "errors",
    "FileRead": "disk.file_guard",
    "CannotCommitError": "errors",
    "CannotUndoError": "errors",
    "CommandResult": "guard.commands",
    "CommandStop": "guard.commands",
    "ShellUnavailableError": "errors",
    "GaveUpError": "errors",
    "HookEngine": "guard.hook_engine",
    "HookFailedError": "errors",
    "Ledger": "ledger.protocol",
    "LedgerEntry": "ledger",
    "LedgerError": "errors",
    "LockContention": "errors",
    "LockLost": "errors",
    "LockStatus": "lock.backend",
    "LoggingObserver": "ledger.observer",
    "MetadataNotKeptError": "errors",
    "MissingFileError": "errors",
    "NoclobberError": "errors",
    "NotAFileError": "errors",
    "Observation": "core.values",
    "Observer": "ledger.observer",
    "OptimisticGuard": "guard.direct",
    "OthersWorkError": "errors",
    "OutsideScopeError": "errors",
    "OutsideWorkspaceError": "errors",
    "OverwroteError": "errors",
    "PartialReadError": "errors",
    "ReadResult": "core.values",
    "RefusalError": "errors",
    "ReservedFileError": "errors",
    "ResubmittedError": "errors",
    "StaleFileError": "errors",
    "StorageError": "errors",
    "TooManyFilesError": "errors",
    "Tool": "guard.catalogue",
    "ToolCall": "core.values",
    "Transition": "guard.controller",
    "Turn": "guard.turn",
    "TurnClosedError": "errors",
    "TurnContext": "guard.snapshot",
    "UnknownToolError": "errors",
    "UnreadFileError": "errors",
    "VerifyReport": "ledger",
    "Workspace": "guard.workspace",
    "WriteResult": "core.values",
    "parse_stale": "core.wire",
    "replace_if_unchanged": "guard.direct",
    "schema": "core.wire",
    "to_json": "core.wire",
}

# Whose names are classes that do something, and where the list is of what they load.
_LOADED_EARLY = {"ledger": "lock", "lock": "lock", "disk": "guard", "guard": "guard"}

__all__ = ["__version__", *sorted(_HOMES)]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'noclobber' has no attribute {name!r}")
    # A child that another thread forks in the middle of an import could never import that module. So a fork
    # waits for this one, and this one loads what calls would load later. (finding R9)
    with _forks.loading():
        from importlib import import_module

        value = getattr(import_module(f"noclobber.{home}"), name)
        folder = home.partition(".")[0]
        if folder in _LOADED_EARLY:
            import_module(f"noclobber.{_LOADED_EARLY[folder]}.loaded_early")
    globals()[name] = value  # The next access finds it without coming here.
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
