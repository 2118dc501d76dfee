"""
One blocking call on another thread, while this one goes on.

Hashing a large file leaves a core idle. A bare thread and a lock, because a `threading.Thread` takes
about as long to start as half a mebibyte takes to hash. (Not for flushing: tidying up meanwhile was tried,
and each waited for the other in the filesystem's journal.)
"""

from __future__ import annotations

import _thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Meanwhile:
    """Begins a call; `result()` waits for it, and returns or raises what it did."""

    __slots__ = ("_done", "_error", "_value")

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._done = _thread.allocate_lock()
        self._value: Any = None
        self._error: BaseException | None = None
        self._done.acquire()
        try:
            _thread.start_new_thread(self._work, (function, arguments))
        except RuntimeError:  # No more threads to be had: then here, and now.
            self._work(function, arguments)

    def _work(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        try:
            self._value = function(*arguments)
        except BaseException as error:
            self._error = error
        finally:
            self._done.release()

    def result(self) -> Any:
        """Wait for the call to end."""
        with self._done:  # Taken and given back, so that it can be asked again.
            pass
        if self._error is not None:
            raise self._error
        return self._value
