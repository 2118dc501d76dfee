"""
A warning before the first write: on this volume guarded writes do not exclude those of other machines.

`doctor` says it as well, but who asks a doctor before anything hurts? So what sets a project up says it.
"""

from __future__ import annotations

import os

from noclobber.disk.filesystems import filesystem_type
from noclobber.disk.reach import reach_of
from noclobber.ledger.chosen import is_on_server


def warning(root: str) -> str:
    """Return what is not promised to guarded writers in a folder; "" if all is well, or it cannot be told."""
    try:
        if is_on_server() or reach_of(root) != "mount":
            return ""
    except OSError:
        return ""  # Such as a read-only mount, where nobody writes.
    return (
        f"{os.path.realpath(root)} is on {filesystem_type(root)}, which keeps locks to this mount: guarded"
        " writers on other mounts and machines may lose updates to each other. Use one mount only, or set"
        " NOCLOBBER_COORDINATOR (docs/several-machines.md)."
    )
