"""
Which file a version was replaced at, by the ledger: for what a killed process left among its swap files.

Such a file's name has the version's hash and the file's own name, but no folder. Rules about which versions
are kept need the path. Looked up once in the life of a workspace, and only if something was left.
"""

from __future__ import annotations

import os
from collections.abc import Callable


def origin_in(root: str) -> Callable[[str, str], str | None]:
    """Return a function from (the beginning of) a file's name and a version's hash to its path, or None."""
    known: dict[str, list[str]] | None = None

    def origin(name: str, sha256: str) -> str | None:
        nonlocal known
        if known is None:
            from noclobber.guard.kept_versions import replaced  # Here: slow to load, and hardly ever needed.

            known = replaced(root)
        return next((path for path in known.get(sha256, ()) if os.path.basename(path).startswith(name)), None)

    return origin
