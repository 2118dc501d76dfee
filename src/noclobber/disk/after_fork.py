"""
What a forked child gets anew: locks that a thread of the parent may hold, and lists of the parent's files.

Apart from `forks`, which every reader of a file loads, because `weakref` is slow to import.
"""

from __future__ import annotations

import os
import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_renewed: weakref.WeakKeyDictionary[object, dict[str, Callable[[], object]]] = weakref.WeakKeyDictionary()


def renew(owner: object, attribute: str, make: Callable[[], object]) -> None:
    """Give the child a new lock, or list of descriptors, in place of one that means nothing there."""
    _renewed.setdefault(owner, {})[attribute] = make


def _in_child() -> None:
    for owner, attributes in list(_renewed.items()):
        for attribute, make in attributes.items():
            setattr(owner, attribute, make())


os.register_at_fork(after_in_child=_in_child)
