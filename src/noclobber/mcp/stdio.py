"""
The protocol over standard input and output: messages in, messages out, without a thread or a task in between.

The SDK's own transport uses a thread for every line and two for every answer, and a task with a queue on each
side, which together cost more than a guarded write does. Here the SDK gets the two streams themselves. The
event loop watches the descriptor all the time, and a message is parsed when the SDK takes it. An answer that
the pipe accepts at once is written at once, by the call that made it; a thread writes the rest. (Otherwise a
client that sends much before it reads would wait for us while we wait for it.)

While serving, descriptor 0 is empty and descriptor 1 is stderr, so code that prints or reads by accident
does not disturb the protocol.

JSON allows lines that the SDK drops without an answer, so that a client would wait for ever. They are
repaired: lone surrogates become replacement characters, and a request that has the wrong shape or is nested
too deeply is reduced to its id, which is answered with an error.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import select
import stat
from collections import deque
from contextlib import contextmanager
from contextvars import copy_context
from typing import TYPE_CHECKING, Self

import anyio
import anyio.to_thread
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest, jsonrpc_message_adapter

from noclobber.guard.tools.answers import sendable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mcp_types import JSONRPCMessage

READ_BYTES = 1 << 16
READ_AHEAD_BYTES = 1 << 20
"""Nothing more is read while so much waits: a client that is faster than the disk must wait as well."""
HANDSHAKE = "initialize"
UNREADABLE_METHOD = "noclobber/unreadable"

_ID = re.compile(r'"id"\s*:\s*("(?:[^"\\]|\\.){0,200}"|-?\d{1,18})')


@contextmanager
def protocol_streams() -> Iterator[tuple[MessageReader, MessageWriter]]:
    """Use standard input and output for the protocol alone, until the end of the block. Needs asyncio."""
    in_fd, out_fd = os.dup(0), os.dup(1)
    empty_fd = os.open(os.devnull, os.O_RDONLY)
    try:
        os.dup2(empty_fd, 0)
        os.dup2(2, 1)
        reader = MessageReader(in_fd)
        writer = MessageWriter(out_fd, when_gone=reader.end)
        try:
            yield reader, writer
        finally:
            reader.end()
            writer.close()
    finally:
        os.dup2(in_fd, 0)
        os.dup2(out_fd, 1)
        for descriptor in (in_fd, out_fd, empty_fd):
            os.close(descriptor)


class MessageReader:
    """The messages that arrive, as the SDK's dispatcher takes them from a transport."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lines: deque[bytes] = deque()
        self._pieces: list[bytes] = []
        """What came of a line that has not ended yet."""
        self._waiting_bytes = 0
        self._has_ended = False
        self._is_watched = False
        self._cannot_be_watched = False
        self._news: asyncio.Future[None] | None = None
        self.last_context = copy_context()
        """The SDK runs a handler in the context of its message. Ours all have the same one."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        while not self._lines:
            if self._has_ended:
                raise StopAsyncIteration
            await self._more()
        line = self._lines.popleft()
        self._waiting_bytes -= len(line)
        return received(line)

    async def begins_with_handshake(self) -> bool:
        """True if the first message is the older protocol's handshake. The message stays to be received."""
        while not self._lines:
            if self._has_ended:
                return False
            await self._more()
        first = received(self._lines[0])
        return (
            isinstance(first, SessionMessage)
            and isinstance(first.message, JSONRPCRequest)
            and first.message.method == HANDSHAKE
        )

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message."""
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            raise anyio.EndOfStream from None

    async def aclose(self) -> None:
        """Read no more."""
        self.end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Read no more; what waits for a message gets the end of the stream."""
        self._watch_no_more()
        self._has_ended = True
        self._tell()

    async def _more(self) -> None:
        """Return when something has come, or the end."""
        if not self._cannot_be_watched:
            self._watch()
        if self._cannot_be_watched:
            self._take(
                await anyio.to_thread.run_sync(os.read, self._descriptor, READ_BYTES, abandon_on_cancel=True)
            )
            return
        self._news = asyncio.get_running_loop().create_future()
        try:
            await self._news
        finally:
            self._news = None

    def _watch(self) -> None:
        if self._is_watched:
            return
        try:
            asyncio.get_running_loop().add_reader(self._descriptor, self._readable)
        except OSError:
            # A regular file or some terminals: the loop cannot wait for them.
            self._cannot_be_watched = True
        else:
            self._is_watched = True

    def _watch_no_more(self) -> None:
        if self._is_watched:
            self._is_watched = False
            asyncio.get_running_loop().remove_reader(self._descriptor)

    def _readable(self) -> None:
        try:
            chunk = os.read(self._descriptor, READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return  # Somebody else who has this pipe was faster.
        except OSError:
            chunk = b""
        self._take(chunk)
        if self._lines and self._waiting_bytes > READ_AHEAD_BYTES:
            self._watch_no_more()

    def _take(self, chunk: bytes) -> None:
        if not chunk:
            self.end()
            return
        *ended, rest = chunk.split(b"\n")
        for line in ended:
            self._pieces.append(line)
            whole = b"".join(self._pieces)
            self._pieces.clear()
            self._lines.append(whole)
            self._waiting_bytes += len(whole)
        if rest:
            self._pieces.append(rest)
        if ended:
            self._tell()

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)


class MessageWriter:
    """Writes answers, as the SDK's dispatcher gives them to a transport."""

    def __init__(self, descriptor: int, *, when_gone: Callable[[], None]) -> None:
        self._descriptor, self._when_gone = descriptor, when_gone
        self._writable = select.poll()
        self._writable.register(descriptor, select.POLLOUT)
        mode = os.fstat(descriptor).st_mode
        self._is_pipe = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
        if self._is_pipe:  # Not for a terminal: the shell shares it, and would get the flag as well.
            os.set_blocking(descriptor, False)
        self._in_thread = anyio.Lock()
        """Held while a thread writes, so that no other answer gets into the middle of that one."""

    async def send(self, item: SessionMessage, /) -> None:
        """Write one message, whole."""
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode("utf-8", "replace")
        rest = memoryview(line + b"\n")
        try:
            if self._is_pipe and not self._in_thread.locked():
                rest = self._write_some(rest)
            if rest:
                async with self._in_thread:
                    await anyio.to_thread.run_sync(self._write_all, rest)
        except OSError as error:
            self._when_gone()  # Nobody hears us any more, so there is nothing to wait for.
            raise anyio.BrokenResourceError from error

    async def aclose(self) -> None:
        """Do nothing: nothing is buffered."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

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


def received(line: bytes) -> SessionMessage | Exception:
    """Return the message that a line holds, repaired if need be, or why the SDK should drop it."""
    try:
        return SessionMessage(_message(line))
    except ValueError:
        pass
    try:
        return SessionMessage(_message(repaired(line.decode("utf-8", "replace"))))
    except ValueError as error:
        return error


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
    whole = sendable(json.dumps(value, ensure_ascii=False))
    if _is_message(whole):
        return whole
    if not isinstance(value, dict) or type(value.get("id")) not in (int, str):
        return line
    return _unreadable(json.dumps(value["id"]))


def _is_message(line: str) -> bool:
    try:
        _message(line)
    except ValueError:
        return False
    return True


def _message(line: bytes | str) -> JSONRPCMessage:
    return jsonrpc_message_adapter.validate_json(line, by_name=False)


def _unreadable(request_id: str) -> str:
    """Return a request for an unknown method, which is answered with an error."""
    return f'{{"jsonrpc": "2.0", "id": {request_id}, "method": "{UNREADABLE_METHOD}"}}'
