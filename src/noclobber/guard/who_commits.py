"""
Who commits in a workspace: this machine's kernel, or on a shared volume a coordinator's server.

The one place that chooses, for the library, the MCP server, guarded commands and tools that are replaced.
"""

from __future__ import annotations

from noclobber.disk.file_guard import FileGuard
from noclobber.ledger.chosen import is_on_server


def guard_class(root: str) -> type[FileGuard]:
    """Return the guard for a workspace with this root."""
    if not is_ordered_by_server(root):
        return FileGuard
    from noclobber.postgres.section_guard import SectionGuard  # Here: few have a server.

    return SectionGuard


def is_ordered_by_server(root: str) -> bool:
    """True if a server orders the writes here: a coordinator is set, and machines share the volume."""
    if not is_on_server():
        return False
    from noclobber.postgres import shared_volume

    return shared_volume.is_shared_volume(root)


def why_no_view(root: str) -> str | None:
    """Return why what a command did to a tree could not land as one; None if it can."""
    if is_ordered_by_server(root):
        return "machines share this volume through a coordinator, which orders files and not trees"
    return None


def why_no_command(root: str, text: str) -> str | None:
    """
    Return why a command must not run in the real tree of a workspace; None if it may.

    Where a server orders the writes, a command that writes by itself is not ordered with anybody, and what it
    overwrites is lost without a word. One that only reads may run.
    """
    if not is_ordered_by_server(root):
        return None
    from noclobber.shell.read_only import is_read_only

    if is_read_only(text, cwd=root):
        return None
    return (
        "machines share this volume through a coordinator, and what a command writes is not ordered by it. "
        "Write with guarded tools, or run the command in a checkout on a local disk"
    )
