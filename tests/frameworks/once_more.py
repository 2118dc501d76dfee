"""
Which failed tests are run once more: those whose program was too slow, and none that counts.

`make frameworks` decides whether work lands, and it starts real programs. On a busy machine one of them may not be
ready in time, which says nothing about noclobber. Such a test is run once more, alone, and failing twice counts.

It is not the test that decides but how it failed, because nearly all of them look at somebody's file in the end.
An assertion that does not hold may be a lost update, and a race that loses work once in a hundred runs would not
do it again the second time. So what a test has counted counts at once, whatever it says: a verdict with `LOST`,
and a refusal with the wrong words just as well. What is forgiven is listed here: waiting that came to an end, and
a verdict that says so itself. Such a run has not come as far as counting; the second one does.
"""

from __future__ import annotations

import subprocess
import threading

import pytest


class TooLateError(Exception):
    """A program was too slow for what a scenario wants to see. Nothing was lost, and nothing is proven."""


_WAITED_IN_VAIN = (
    TooLateError,
    TimeoutError,
    ConnectionError,
    subprocess.TimeoutExpired,
    threading.BrokenBarrierError,
)


def is_late(error: BaseException) -> bool:
    """True if a test failed because somebody waited in vain, before it came to count anything."""
    if isinstance(error, AssertionError):
        return False  # Also one with a time-out for its cause: it has counted something.
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_late, error.exceptions))
    if isinstance(error, _WAITED_IN_VAIN):
        return True
    if isinstance(error, pytest.fail.Exception):  # Of pytest-timeout; others are assertions.
        return str(error).startswith("Timeout ")
    # The SDK of Claude says in a plain exception that a time-out was the cause.
    return error.__cause__ is not None and is_late(error.__cause__)
