"""
What a forked child must not inherit from a commit that was under way in another thread.

The child has copies of the parent's descriptors. Kept open, its copy of a staged file would count as
a writer and keep every later lease on that file away, and its copy of a folder would keep the mutex
if the parent died. The child's copies of locks may be held by a thread that does not exist there.

So descriptors are tracked, and the child closes them. Between the system call that makes one and the line
that tracks it another thread may fork (Python lets others run during a system call), and the child would
keep a descriptor that nobody has tracked. So a fork waits until no thread is inside an `undivided()` block.

An import is the same kind of thing. Python has a lock for each module that is being loaded; in the child the
thread that holds it does not exist, and whoever imports that module there waits for ever. So what is loaded
at the first call is loaded in a `loading()` block, and a fork waits for it longer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

# Not `functools`, which is slow to import.
from functools import partial
from threading import get_ident
from time import monotonic

# Nobody waits longer than this: a disk may hang, and at-fork hooks of other libraries take locks, too.
PATIENCE_S = 1.0
LOADING_PATIENCE_S = 20.0  # Modules come from a disk as well, and a child that is forked too early hangs.
NAP_S = 0.00005
MOST_DESCRIPTORS = 1024  # More than a hook ever has open.

_tracked: set[int] = set()
_undivided: dict[int, float] = {}  # Threads, and until when forks wait. Single steps are atomic between them.
_forking: list[float] = []  # Until when each thread that forks may keep others waiting.


class undivided:  # noqa: N801 - it reads as a word: `with forks.undivided():`
    """From a descriptor's making to its being tracked, or from its being untracked to its end."""

    __slots__ = ("_is_outermost", "_thread")

    def __enter__(self) -> None:
        self._thread = thread = get_ident()
        # A signal handler may open a file while its thread does. The block ends with the outer one.
        self._is_outermost = thread not in _undivided
        if self._is_outermost:
            self._announce(thread)

    def _announce(self, thread: int) -> None:
        _enter(thread, PATIENCE_S)

    def __exit__(self, *exc: object) -> None:
        if self._is_outermost:
            _undivided.pop(self._thread, None)


class loading(undivided):  # noqa: N801 - the same
    """Around imports that are made when something is used for the first time."""

    __slots__ = ()

    def _announce(self, thread: int) -> None:
        _enter(thread, LOADING_PATIENCE_S)


def _enter(thread: int, patience_s: float) -> None:
    # Announce first, then look; a fork does the same. So one of the two sees the other.
    _undivided[thread] = monotonic() + patience_s
    if _forking:
        try:
            _give_way(thread, patience_s)
        except BaseException:  # Left there, the next block of this thread would not count as one.
            _undivided.pop(thread, None)
            raise


def _give_way(thread: int, patience_s: float) -> None:
    while _forking:
        if monotonic() > max(_forking, default=0.0):
            _forking.clear()  # An interrupt in an at-fork hook has left it there.
            return
        _undivided.pop(thread, None)
        time.sleep(NAP_S)
        _undivided[thread] = monotonic() + patience_s


def open_tracked(name: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
    """Open a file; children close their copy."""
    with undivided():
        return track(os.open(name, flags, mode, dir_fd=dir_fd))


def track(descriptor: int) -> int:
    """Have children close this descriptor; return it. In an `undivided()` block, with what made it."""
    _tracked.add(descriptor)
    return descriptor


def close(descriptor: int) -> None:
    """Close a tracked descriptor."""
    with undivided():
        # Untracked first: closed and reused in between, a child would close a file of somebody else.
        _tracked.discard(descriptor)
        os.close(descriptor)


def beside(work: Callable[[], None], kept_fd: int | None = None) -> bool:
    """
    Do something in a process of its own. Returns at once, in the parent only; False if there is none.

    The process leaves everything of the host's: a host waits for the end of our output, and may end its whole
    group. And what is the caller's: a lock would be held until the process ends. Only `kept_fd` is left open.
    """
    try:
        if os.fork():
            return True
    except OSError:
        return False
    try:
        first = MOST_DESCRIPTORS if kept_fd is None else kept_fd
        os.closerange(0, first)
        os.closerange(first + 1, MOST_DESCRIPTORS)
        for _ in range(3):
            os.open(os.devnull, os.O_RDWR)
        os.setsid()
        os.chdir("/")
        work()
    except BaseException:  # noqa: S110 - nobody is there to be told
        pass
    finally:
        os._exit(0)


def _before() -> None:
    _forking.append(monotonic() + PATIENCE_S)
    while _is_anybody_in_between():
        time.sleep(NAP_S)
        _forking[-1:] = [monotonic() + PATIENCE_S]  # Who enters goes on waiting for as long as we do.


def _is_anybody_in_between() -> bool:
    """Not our own thread: a signal handler may fork in the middle of a block, and would wait for itself."""
    others = _undivided.copy()
    others.pop(get_ident(), None)
    now_s = monotonic()
    return any(until_s > now_s for until_s in others.values())


def _in_child() -> None:
    _undivided.clear()
    _forking.clear()
    while _tracked:
        try:
            while _tracked:
                _close_inherited(_tracked.pop())
        except BaseException:  # noqa: S112 - Python drops a Ctrl-C that comes in a hook; the rest must go, too.
            continue


def _close_inherited(descriptor: int) -> None:
    try:
        os.close(descriptor)
    except OSError:
        pass


# The one in the parent is no Python function. A Ctrl-C that came during the fork comes out in the first of
# those that runs after it, and Python drops what a hook raises. It removes one: other threads may fork, too.
_END_OF_ONE = partial(_forking.__delitem__, slice(-1, None))
os.register_at_fork(before=_before, after_in_parent=_END_OF_ONE, after_in_child=_in_child)
