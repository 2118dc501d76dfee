"""
The protocol over standard input and output: lines in, lines out, without a thread in between.

The SDK's own transport uses a thread for every line and two for every answer, which costs more than a
guarded write does. Here the event loop itself waits until the descriptor can be read. Writing does not block
the loop either: what the pipe accepts at once is written at once, and a thread writes the rest. (Otherwise a
client that sends much before it reads would wait for us while we wait for it.)

While serving, descriptor 0 is empty and descriptor 1 is stderr, so code that prints or reads by accident
does not disturb the protocol.

JSON allows lines that the SDK drops without an answer, so that a client would wait for ever. They are
repaired: lone surrogates become replacement characters, and a request that has the wrong shape or is nested
too deeply is reduced to its id, which is answered with an error.
"""

from __future__ import annotations

import json
import os
import re
import select
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
from mcp_types import jsonrpc_message_adapter

from noclobber.mcp.surrogates import replace_lone_surrogates

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

READ_BYTES = 1 << 16
UNREADABLE_METHOD = "noclobber/unreadable"

_ID = re.compile(r'"id"\s*:\s*("(?:[^"\\]|\\.){0,200}"|-?\d{1,18})')


@contextmanager
def protocol_streams() -> Iterator[tuple[LineReader, TextWriter]]:
    """Use standard input and output for the protocol alone, until the end of the block."""
    in_fd, out_fd = os.dup(0), os.dup(1)
    empty_fd = os.open(os.devnull, os.O_RDONLY)
    try:
        os.dup2(empty_fd, 0)
        os.dup2(2, 1)
        out = TextWriter(out_fd)
        try:
            yield LineReader(in_fd), out
        finally:
            out.close()
    finally:
        os.dup2(in_fd, 0)
        os.dup2(out_fd, 1)
        for descriptor in (in_fd, out_fd, empty_fd):
            os.close(descriptor)


class LineReader:
    """The lines that arrive, as the SDK iterates over them."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    async def __aiter__(self) -> AsyncIterator[str]:
        pieces: list[bytes] = []
        while chunk := await self._read():
            *ended, rest = chunk.split(b"\n")
            for line in ended:
                pieces.append(line)
                yield repaired(b"".join(pieces).decode("utf-8", "replace"))
                pieces.clear()
            if rest:
                pieces.append(rest)

    async def _read(self) -> bytes:
        try:
            await anyio.wait_readable(self._descriptor)
        except OSError:
            # A regular file or some terminals: the loop cannot wait for them.
            return await anyio.to_thread.run_sync(
                os.read, self._descriptor, READ_BYTES, abandon_on_cancel=True
            )
        try:
            return os.read(self._descriptor, READ_BYTES)
        except ConnectionResetError:
            return b""


class TextWriter:
    """Writes the answers, as the SDK writes them."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._writable = select.poll()
        self._writable.register(descriptor, select.POLLOUT)
        mode = os.fstat(descriptor).st_mode
        self._is_pipe = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
        if self._is_pipe:  # Not for a terminal: the shell shares it, and would get the flag as well.
            os.set_blocking(descriptor, False)

    async def write(self, text: str) -> None:
        """Write all of it."""
        rest = memoryview(text.encode("utf-8", "replace"))
        if self._is_pipe:
            rest = self._write_some(rest)
        if rest:
            await anyio.to_thread.run_sync(self._write_all, rest)

    async def flush(self) -> None:
        """Do nothing: nothing is buffered."""

    def close(self) -> None:
        """Make the descriptor blocking again."""
        os.set_blocking(self._descriptor, True)

    def _write_some(self, rest: memoryview) -> memoryview:
        try:
            return rest[os.write(self._descriptor, rest) :]
        except BlockingIOError:
            return rest

    def _write_all(self, rest: memoryview) -> None:
        while rest:
            self._writable.poll()
            rest = self._write_some(rest)


def repaired(line: str) -> str:
    """Return a line that the SDK answers, whatever was wrong with it."""
    if _is_message(line):
        return line
    try:
        value = json.loads(line)
    except RecursionError:
        found = _ID.search(line)
        return _unreadable(found[1]) if found else line
    except ValueError:
        return line  # Not JSON, so there is no id to answer to.
    whole = replace_lone_surrogates(json.dumps(value, ensure_ascii=False))
    if _is_message(whole):
        return whole
    if not isinstance(value, dict) or type(value.get("id")) not in (int, str):
        return line
    return _unreadable(json.dumps(value["id"]))


def _is_message(line: str) -> bool:
    try:
        jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        return False
    return True


def _unreadable(request_id: str) -> str:
    """Return a request for an unknown method, which is answered with an error."""
    return f'{{"jsonrpc": "2.0", "id": {request_id}, "method": "{UNREADABLE_METHOD}"}}'
