"""
Calls into the C library: what Python's own modules have no function for.

Arguments are checked by nobody: an int is passed as a C int, bytes as a pointer to them, None as NULL;
everything wider is made with `LONG` or `INT64`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

LONG, INT64 = ctypes.c_long, ctypes.c_int64

get_errno = ctypes.get_errno
"""Return the error of the last call of this thread."""

_library = ctypes.CDLL(None, use_errno=True)


def function(name: str) -> Callable[..., int] | None:
    """Return a function of the C library that returns an int; None if there is none of that name."""
    try:
        return _library[name]  # A new one each time: nobody else sets the types of its arguments.
    except AttributeError:
        return None
