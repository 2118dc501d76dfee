"""
What a user passes to an adapter, as the turns that all adapters of that workspace share.

A backend and a middleware on one workspace must know what the other one read. So there is one `RunTurns` for
a workspace and a framework, and an adapter asks for it here. Two adapters that want different options for one
workspace are refused: which of the two rules would hold for a call is a guess.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Any

from noclobber.adapters.runs import RunTurns
from noclobber.core.options import options as checked_options
from noclobber.errors import BadRequestError
from noclobber.guard.workspace import Workspace

if TYPE_CHECKING:
    from typing import Unpack

    from noclobber.core.options import Options, OptionValues

_SHARED: weakref.WeakValueDictionary[tuple[str, str], RunTurns] = weakref.WeakValueDictionary()
_LOCK = threading.Lock()


def run_turns(given: Any, host: str, **options: Unpack[OptionValues]) -> RunTurns:
    """
    Return the turns for a workspace, which may be given as a path, a `Workspace` or an `aio.Workspace`.

    `host` is the framework's name, for the ledger. The options hold for the turns, as in `Workspace.turn()`.
    """
    if "tools" in options:
        raise BadRequestError(
            "",
            "Tools of your own are no longer checked from outside. Read and write in yours by a turn: "
            'docs/frameworks/no-framework.md, "Tools of your own".',
            parameter="tools",
        )
    workspace = _workspace(given)
    with _LOCK:
        wanted = checked_options(options, workspace.options)
        for (root, _), other in _SHARED.items():
            if root == workspace.root and not other.workspace.is_closed:
                _refuse_other_options(root, other, host, wanted)
        shared = _SHARED.get((workspace.root, host))
        if shared is None or shared.workspace.is_closed:
            shared = _SHARED[workspace.root, host] = RunTurns(workspace, host, **options)
        return shared


def _workspace(given: Any) -> Workspace:
    if isinstance(given, (str, os.PathLike)):
        if not os.path.isdir(given):
            raise BadRequestError(
                os.fspath(given), "There is no such folder. Create it, or pass the path of one that exists."
            )
        return Workspace(given)
    found = given if isinstance(given, Workspace) else getattr(given, "sync", None)
    if not isinstance(found, Workspace):
        raise BadRequestError(
            "", f"A workspace is a path or a noclobber.Workspace, not a {type(given).__name__}."
        )
    if not os.path.isdir(found.root):
        raise BadRequestError(found.root, "The workspace's folder does not exist. Create it first.")
    return found


def _refuse_other_options(root: str, other: RunTurns, host: str, wanted: Options) -> None:
    has = checked_options(other.options, other.workspace.options)
    different = [name for name in wanted._fields if getattr(has, name) != getattr(wanted, name)]
    if different:
        [name, *_] = different
        raise BadRequestError(
            root,
            f"Another adapter on this workspace ({other.host}) has {name}={getattr(has, name)!r}, and this "
            f"one ({host}) was given {getattr(wanted, name)!r}. Make one Workspace, and give it and the same "
            "options to both.",
            option=name,
        )
