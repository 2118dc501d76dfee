"""
Which folders can be the root of a private view.

Not the filesystem's root, not a home folder and none above it: too much that is not a project would be
inside, and a program's own state with it. Not a folder of another user's: nothing could be landed there.
"""

from __future__ import annotations

import os


def why_not(root: str) -> str | None:
    """Return why a folder cannot be the root of a private view; None if it can."""
    home = os.path.realpath(os.environ.get("HOME") or "/")
    if root != "/" and home != "/" and (home == root or home.startswith(f"{root}/")):
        return "a home folder, or one above it, is not a project"
    return why_no_record(root)


def why_no_record(root: str) -> str | None:
    """Return why nothing that happens in a folder can be recorded there; None if it can."""
    if root == "/":
        return "the filesystem's root is not a project"
    try:
        root.encode()
    except UnicodeEncodeError:
        return "its name is not UTF-8, so no record can name it"
    try:
        status = os.stat(root)
    except OSError as error:
        return f"the root cannot be read ({error.strerror})"
    if status.st_uid not in (os.geteuid(), 0) and os.geteuid() != 0:
        return "the root belongs to another user"
    if not os.access(root, os.W_OK | os.X_OK):
        return "this user may not write in the root"
    return None
