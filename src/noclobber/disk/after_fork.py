"""
What a forked child gets anew: locks that a thread of the parent may hold, and lists of the parent's files.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from weakref import ref

_renewed: dict[int, tuple[ref[object], dict[str, Callable[[], object]]]] = {}
"""By the identity of the owner, who is forgotten when it is gone."""


def renew(owner: object, attribute: str, make: Callable[[], object]) -> None:
    """Give the child a new lock, or list of descriptors, in place of one that means nothing there."""
    number = id(owner)
    known = _renewed.get(number)
    if known is None:
        known = _renewed[number] = (ref(owner, lambda gone: _renewed.pop(number, None)), {})
    known[1][attribute] = make


def _in_child() -> None:
    for found, attributes in list(_renewed.values()):
        owner = found()
        if owner is not None:
            for attribute, make in attributes.items():
                setattr(owner, attribute, make())


os.register_at_fork(after_in_child=_in_child)
