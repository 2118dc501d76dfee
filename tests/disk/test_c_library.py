"""Calls into the C library."""

from __future__ import annotations

import ctypes
import errno

from noclobber.disk import c_library


def test_calls_into_the_c_library_take_ints_bytes_and_addresses() -> None:
    """A function that is not there is None, and errors are told."""
    length, close = c_library.function("strlen"), c_library.function("close")
    assert length is not None
    assert close is not None
    assert length(b"four") == 4
    memory = ctypes.create_string_buffer(b"five5")
    assert length(c_library.LONG(ctypes.addressof(memory))) == 5
    assert close(-1) == -1
    assert c_library.get_errno() == errno.EBADF
    assert c_library.function("no_such_function_at_all") is None
