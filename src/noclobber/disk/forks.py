"""
What a forked child must not inherit from a commit that was under way in another thread.

The child has copies of the parent's descriptors. Kept open, its copy of a staged file would count as
a writer and keep every later lease on that file away, and its copy of a folder would keep the mutex
if the parent died. The child's copies of locks may be held by a thread that does not exist there.

So descriptors are tracked, and the child closes them. Between the system call that makes one and the line
that tracks it another thread may fork (Python lets others run during a system call), and the child would
keep what nobody knew of. Hence `undivided`: a fork waits until no thread is in such a block.
"""

from __future__ import annotations

import os
import time
import weakref
from _thread import get_ident

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE_S = 1.0  # Nobody waits for ever: a disk may hang, and others' hooks take locks before a fork, too.
NAP_S = 0.00005

_tracked: set[int] = set()
_undivided: set[int] = set()  # Threads. Single steps of a set are atomic between them.
_forking: set[int] = set()
_renewed: weakref.WeakKeyDictionary[object, dict[str, Callable[[], object]]] = weakref.WeakKeyDictionary()


class _Undivided:
    """Between a descriptor and its being tracked: `with forks.undivided:`."""

    def __enter__(self) -> None:
        _begin(get_ident())

    def __exit__(self, *exc: object) -> None:
        _undivided.discard(get_ident())


undivided = _Undivided()


def _begin(thread: int) -> None:
    # Said first and looked then; a fork says first and looks then. So one of the two sees the other.
    _undivided.add(thread)
    if not _forking or thread in _forking:
        return
    deadline_s = time.monotonic() + PATIENCE_S
    while _forking and time.monotonic() < deadline_s:
        _undivided.discard(thread)
        time.sleep(NAP_S)
        _undivided.add(thread)


def open_tracked(name: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
    """Open a file; children close their copy."""
    _begin(thread := get_ident())
    try:
        return track(os.open(name, flags, mode, dir_fd=dir_fd))
    finally:
        _undivided.discard(thread)


def track(descriptor: int) -> int:
    """Have children close this descriptor; return it. In an `undivided` block, with what made it."""
    _tracked.add(descriptor)
    return descriptor


def close(descriptor: int) -> None:
    """Close a tracked descriptor."""
    _begin(thread := get_ident())
    try:
        # Untracked first: closed and reused in between, a child would close a stranger's.
        _tracked.discard(descriptor)
        os.close(descriptor)
    finally:
        _undivided.discard(thread)


def on_fork_in_child(owner: object, attribute: str, make: Callable[[], object]) -> None:
    """Give the child a new lock, or list of descriptors, in place of one that means nothing there."""
    _renewed.setdefault(owner, {})[attribute] = make


def _before() -> None:
    thread = get_ident()
    _forking.add(thread)
    deadline_s = time.monotonic() + PATIENCE_S
    # (A signal handler may fork in the middle of our own block. That one would wait for itself.)
    while _undivided - _forking and time.monotonic() < deadline_s:
        time.sleep(NAP_S)


def _in_parent() -> None:
    _forking.discard(get_ident())


def _in_child() -> None:
    _undivided.clear()
    _forking.clear()
    for descriptor in tuple(_tracked):
        try:
            os.close(descriptor)
        except OSError:
            pass
    _tracked.clear()
    for owner, attributes in list(_renewed.items()):
        for attribute, make in attributes.items():
            setattr(owner, attribute, make())


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
