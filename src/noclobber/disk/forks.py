"""
What a forked child must not inherit from a commit that was under way in another thread.

The child has copies of the parent's descriptors. Kept open, its copy of a staged file would count as
a writer and keep every later lease on that file away, and its copy of a folder would keep the mutex
if the parent died. The child's copies of locks may be held by a thread that does not exist there.
"""

from __future__ import annotations

import os
import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_tracked: set[int] = set()
_renewed: weakref.WeakKeyDictionary[object, dict[str, Callable[[], object]]] = weakref.WeakKeyDictionary()


def track(descriptor: int) -> int:
    """Have children close this descriptor; return it."""
    _tracked.add(descriptor)
    return descriptor


def close(descriptor: int) -> None:
    """Close a tracked descriptor."""
    _tracked.discard(descriptor)  # First: closed and reused in between, a child would close a stranger's.
    os.close(descriptor)


def on_fork_in_child(owner: object, attribute: str, make: Callable[[], object]) -> None:
    """Give the child a new lock, or list of descriptors, in place of one that means nothing there."""
    _renewed.setdefault(owner, {})[attribute] = make


def _in_child() -> None:
    for descriptor in tuple(_tracked):
        try:
            os.close(descriptor)
        except OSError:
            pass  # The parent was between discard and close.
    _tracked.clear()
    for owner, attributes in list(_renewed.items()):
        for attribute, make in attributes.items():
            setattr(owner, attribute, make())


os.register_at_fork(after_in_child=_in_child)
