"""
Named moments inside a commit, so that tests can act exactly there.

A race that needs luck is not a test. Every dangerous moment calls `reached("name")`; it costs one
comparison. A test installs an observer that saves the file as another program would, or kills the
process, at exactly that moment.
"""

from __future__ import annotations

from collections.abc import Callable

observer: Callable[[str], None] | None = None


def reached(step: str) -> None:
    """Tell the observer, if there is one."""
    if observer is not None:
        observer(step)
