"""
What a command prints, held within bounds: its beginning and its end, and how much is missing in between.

`communicate()` of the standard library keeps everything, so a command that prints without end fills the
memory of whoever runs it.
"""

from __future__ import annotations

import os
import select
import selectors
from typing import TYPE_CHECKING

from noclobber.core.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Callable
    from subprocess import Popen

    from noclobber.core.clock import Clock

MAX_OUTPUT_BYTES = 8 << 20
"""Of each stream."""
PIECE_BYTES = 1 << 16


class BoundedOutput:
    """The first and the last bytes of a stream."""

    def __init__(self, max_bytes: int) -> None:
        self._half_bytes = max_bytes // 2
        self._head, self._tail = bytearray(), bytearray()
        self._left_out_bytes = 0

    def add(self, piece: bytes) -> None:
        """Take note of what was printed next."""
        room = self._half_bytes - len(self._head)
        self._head += piece[:room]
        self._tail += piece[room:]
        if (
            excess := len(self._tail) - self._half_bytes
        ) > PIECE_BYTES:  # Not at each piece: it moves the rest.
            self._shorten(excess)

    def _shorten(self, excess_bytes: int) -> None:
        del self._tail[:excess_bytes]
        self._left_out_bytes += excess_bytes

    def whole(self) -> bytes:
        """Return what was printed, with a line in place of what is missing."""
        if (excess := len(self._tail) - self._half_bytes) > 0:
            self._shorten(excess)
        missing = b""
        if self._left_out_bytes:
            missing = f"\n[… {self._left_out_bytes} bytes are left out …]\n".encode()
        return b"".join((self._head, missing, self._tail))


def communicate(
    process: Popen[bytes],
    stdin: bytes,
    *,
    timeout_s: float | None,
    when_late: Callable[[], object],
    max_bytes: int = MAX_OUTPUT_BYTES,
    clock: Clock = SYSTEM_CLOCK,
) -> tuple[bytes, bytes]:
    """
    Give a process its input, and return what it printed on both streams, when it has ended.

    Its streams are pipes. When its time is over `when_late` is called, once, which must end it.
    """
    assert process.stdin
    assert process.stdout
    assert process.stderr
    out, err = BoundedOutput(max_bytes), BoundedOutput(max_bytes)
    ends_s = None if timeout_s is None else clock.monotonic_s() + timeout_s
    rest = memoryview(stdin)
    with selectors.DefaultSelector() as streams:
        streams.register(process.stdout, selectors.EVENT_READ, out)
        streams.register(process.stderr, selectors.EVENT_READ, err)
        streams.register(process.stdin, selectors.EVENT_WRITE)
        while streams.get_map():
            left_s = None if ends_s is None else max(0.0, ends_s - clock.monotonic_s())
            ready = streams.select(left_s)
            if not ready and left_s is not None:
                when_late()
                ends_s = None
            for key, _ in ready:
                if key.data is None:
                    rest = _written(key.fd, rest)
                    has_ended = not rest
                else:
                    piece = os.read(key.fd, PIECE_BYTES)
                    key.data.add(piece)
                    has_ended = not piece
                if has_ended:
                    streams.unregister(key.fileobj)
                    key.fileobj.close()  # type: ignore[union-attr]
    _wait(process, None if ends_s is None else max(0.0, ends_s - clock.monotonic_s()), when_late)
    return out.whole(), err.whole()


def _written(descriptor: int, rest: memoryview) -> memoryview:
    """Write what surely fits into a pipe that is ready; return what is left: nothing, if nobody reads it."""
    try:
        return rest[os.write(descriptor, rest[: select.PIPE_BUF]) :]
    except BrokenPipeError:
        return rest[:0]


def _wait(process: Popen[bytes], timeout_s: float | None, when_late: Callable[[], object]) -> None:
    """Wait for a process that has closed its streams."""
    from subprocess import TimeoutExpired

    try:
        process.wait(timeout_s)
    except TimeoutExpired:
        when_late()
        process.wait()
