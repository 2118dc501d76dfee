"""
Standard input and output as the protocol's wire: lines in, lines out, and no thread between.

The SDK's own transport asks a thread for every line and two for every answer, which costs more than a
guarded write does. Here the loop itself waits until the descriptor can be read. Writing never blocks the
loop either: as much goes out as the pipe takes at once, and a thread sees to the rest. (A client that
sends much before it reads would otherwise wait for us while we wait for it.)

While serving, descriptor 0 is empty and descriptor 1 is stderr, so nothing that prints or reads
by accident disturbs the wire.

Lines that JSON allows and the SDK drops without an answer, so that a client would wait for ever, are
mended: lone surrogates become replacement characters, and of a request that has the wrong shape or is
nested too deeply only the id is left, which gets an error for an answer.
"""

from __future__ import annotations

import json
import os
import re
import select
import stat
from contextlib import contextmanager

import anyio
import anyio.to_thread
from mcp_types import jsonrpc_message_adapter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

READ_BYTES = 1 << 16
UNREADABLE_METHOD = "noclobber/unreadable"

_ID = re.compile(r'"id"\s*:\s*("(?:[^"\\]|\\.){0,200}"|-?\d{1,18})')


@contextmanager
def wire() -> Iterator[tuple[LinesIn, TextOut]]:
    """Take standard input and output for the protocol, and give them back at the end."""
    wire_in, wire_out = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        out = TextOut(wire_out)
        try:
            yield LinesIn(wire_in), out
        finally:
            out.close()
    finally:
        os.dup2(wire_in, 0)
        os.dup2(wire_out, 1)
        for descriptor in (wire_in, wire_out, nothing):
            os.close(descriptor)


class LinesIn:
    """The lines that arrive, as the SDK iterates over them."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    async def __aiter__(self) -> AsyncIterator[str]:
        pieces: list[bytes] = []
        while chunk := await self._read():
            *ended, rest = chunk.split(b"\n")
            for line in ended:
                pieces.append(line)
                yield mended(b"".join(pieces).decode("utf-8", "replace"))
                pieces.clear()
            if rest:
                pieces.append(rest)

    async def _read(self) -> bytes:
        try:
            await anyio.wait_readable(self._descriptor)
        except OSError:
            # A regular file or a terminal of some kind, which cannot be waited for.
            return await anyio.to_thread.run_sync(
                os.read, self._descriptor, READ_BYTES, abandon_on_cancel=True
            )
        try:
            return os.read(self._descriptor, READ_BYTES)
        except ConnectionResetError:
            return b""


class TextOut:
    """Where the answers go, as the SDK writes them."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._room = select.poll()
        self._room.register(descriptor, select.POLLOUT)
        mode = os.fstat(descriptor).st_mode
        self._is_pipe = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
        if self._is_pipe:  # Not a terminal: the flag would be the shell's as well.
            os.set_blocking(descriptor, False)

    async def write(self, text: str) -> None:
        """Write all of it."""
        rest = memoryview(text.encode("utf-8", "replace"))
        if self._is_pipe:
            rest = self._write_some(rest)
        if rest:
            await anyio.to_thread.run_sync(self._write_all, rest)

    async def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """Leave the descriptor as it was found."""
        os.set_blocking(self._descriptor, True)

    def _write_some(self, rest: memoryview) -> memoryview:
        try:
            return rest[os.write(self._descriptor, rest) :]
        except BlockingIOError:
            return rest

    def _write_all(self, rest: memoryview) -> None:
        while rest:
            self._room.poll()
            rest = self._write_some(rest)


def mended(line: str) -> str:
    """Return a line that the SDK answers, whatever is wrong with it."""
    if _is_message(line):
        return line
    try:
        value = json.loads(line)
    except RecursionError:
        found = _ID.search(line)
        return _unreadable(found[1]) if found else line
    except ValueError:
        return line  # Not JSON: there is nobody to answer.
    whole = (
        json.dumps(value, ensure_ascii=False).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    )
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
    """A request that no server knows, so that it is answered with an error."""
    return f'{{"jsonrpc": "2.0", "id": {request_id}, "method": "{UNREADABLE_METHOD}"}}'
