"""
Calls into the C library, without `ctypes`.

`import ctypes` defines some fifty classes and loads four modules: two milliseconds, as much as everything
else that a small command needs. What is done here takes only the part that is written in C. Arguments are
checked by nobody: an int is passed as a C int, bytes as a pointer to them, None as NULL; everything wider is
made with `LONG` or `INT64`.
"""

from __future__ import annotations

import _ctypes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    _c: Any
_c = _ctypes


class LONG(_c._SimpleCData):  # type: ignore[misc]
    """A C long: flags of 64 bits, lengths, numbers of system calls."""

    _type_ = "l"


class INT64(_c._SimpleCData):  # type: ignore[misc]
    """A C long long: offsets in files, on every machine."""

    _type_ = "q"


class _Int(_c._SimpleCData):  # type: ignore[misc]
    _type_ = "i"


class _Char(_c._SimpleCData):  # type: ignore[misc]
    _type_ = "c"


class _Call(_c.CFuncPtr):  # type: ignore[misc]
    _flags_ = _c.FUNCFLAG_CDECL | _c.FUNCFLAG_USE_ERRNO
    _restype_ = _Int


get_errno = _c.get_errno
"""Return the error of the last call of this thread."""


def function(name: str) -> Callable[..., int] | None:
    """Return a function of the C library that returns an int; None if there is none of that name."""
    try:
        address = _c.dlsym(_c.dlopen(None, _c.RTLD_LOCAL), name)
    except OSError:
        return None
    return _Call(address)


def address_of(buffer: Any) -> int:
    """Return where a writable buffer is. It must outlive the use of the address."""
    kind: Any = _Char * len(buffer)  # type: ignore[operator]
    return int(_c.addressof(kind.from_buffer(buffer)))


class PlacedBytes:
    """Bytes that the kernel finds by their address, for as long as this object lives."""

    def __init__(self, content: bytes) -> None:
        kind: Any = _Char * len(content)  # type: ignore[operator]
        self._array = kind(*content)
        self.address: int = _c.addressof(self._array)
