"""
Versions of files that hosts write (ruling 19): what a call replaced, what its agent had seen, what it left.

A host does the writing, so there is no commit that could put aside what it displaces. But the check before
the call has the bytes, because it hashes them. They are put away by a process of its own, so no host waits:

| when | what | who |
|---|---|---|
| the call has written | what it replaced, what it was merged from, what it left | `approval`, when it ends |
| a write was refused as stale | what the agent had seen | one that is forked when the host has its answer |
| nobody looks on (a patch in a command) | what may be replaced | the same |
| we have written (`hook.writing`) | what was written | the hook, when the host has its answer |

The event after a call waits until `approval` has ended, because of its copies. So what is on record can be
taken back. Not kept: files outside the project, because an undo writes nothing there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from noclobber.disk import forks

if TYPE_CHECKING:
    from noclobber.core.options import Options


class HostVersion(NamedTuple):
    """The bytes of one version of a file, and the project whose rules say whether they are kept."""

    root: str
    options: Options
    path: str
    data: bytes


def is_kept(root: str, options: Options, path: str) -> bool:
    """True if versions of a host's file may be kept; names and sizes are asked about later."""
    return options.versions == "on" and path.startswith(f"{root.rstrip('/')}/")


def keep(versions: Iterable[HostVersion]) -> None:
    """Keep versions of one project, as far as its rules say so. Never raises."""
    from noclobber.core.clock import SYSTEM_CLOCK
    from noclobber.disk.version_keeper import VersionKeeper

    keeper: VersionKeeper | None = None
    for version in versions:
        if keeper is None:
            keeper = VersionKeeper(version.root, version.options, SYSTEM_CLOCK)
        keeper.keep(version.path, version.data)
    if keeper is not None:
        keeper.tidy(is_alone=False)
        keeper.close()


def keep_beside(versions: Sequence[HostVersion]) -> None:
    """Keep versions in a process of its own. Returns at once, in the parent only; never raises."""
    forks.beside(lambda: keep(versions))
