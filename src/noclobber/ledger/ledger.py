"""
AgentTraceLedger: append an event, read events, verify the chain.

One `write` appends one line, under a kernel mutex on the ledger file itself, so that appenders
in any number of threads and processes never interleave and the chain always verifies. When `append`
returns, the event is in the file, once; when it raises `LedgerError`, it is not. (One exception, and the
error says so: with `durable=True` a line may be written whose flush to the disk failed.)

The descriptor stays open. As long as the file is the one we know and ends where our last line ended, the
last line need not be read again.

Notices are events that the ledger writes about itself, in the same write as the event whose append found
the reason, and before it:

- `LEDGER_TORN_TAIL`: a crash had torn the last line; its bytes are in a file beside the ledger.
- `LEDGER_CUT`: this process had seen a longer chain. Somebody deleted, replaced or shortened the file.

Not promised: the chain has no key, so whoever can write the file can write a new chain. A head that was
saved elsewhere shows that (`verify(head=…)`), and a cut tail, which nothing inside the file can show. Where
`flock` reaches one mount only, appenders of two take turns by a lease (`disk.lease_file`): one that was
stopped for longer can take the place of another; `verify` finds it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from fcntl import LOCK_UN, flock
from itertools import islice
from threading import get_ident
from typing import TYPE_CHECKING, Any, NamedTuple

from noclobber.core.clock import SYSTEM_CLOCK, iso8601
from noclobber.disk import mutex, signals
from noclobber.disk.small_file import closing
from noclobber.errors import LedgerError
from noclobber.ledger.line import START, Link, encode, seal
from noclobber.ledger.open_file import EVENT_BYTES, FOR_READING, Handle, failure, open_ledger
from noclobber.ledger.reader import Lines, backwards
from noclobber.ledger.tail import list_set_aside, read_tail, set_aside

if TYPE_CHECKING:
    from noclobber.core.clock import Clock


class LedgerEntry(NamedTuple):
    """An event that is now on record."""

    seq: int
    time: str
    hash: str
    """The head of the chain at that moment, `sha256:<hex>`."""
    prev_hash: str
    set_aside: str | None = None
    """Where the torn end of the ledger was put, if this append found one."""


class VerifyReport(NamedTuple):
    """A chain that is whole. One that is not raises `BrokenChainError`."""

    path: str
    event_count: int
    head: str
    """Save it elsewhere: `verify(head=…)` then shows a tail that was cut off."""
    size_bytes: int
    torn_bytes: int = 0
    """Unfinished bytes at the end: a crash tore the last line. The next append sets them aside."""
    set_aside: tuple[str, ...] = ()
    """Torn ends of earlier crashes, beside the ledger."""
    saved_head_line: int | None = None
    """The line of the head that was asked for."""


class AgentTraceLedger:
    """A chained record in one file. Any number of these, in any process, may share it."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock: Clock = SYSTEM_CLOCK,
        durable: bool = False,
        patience_s: float = mutex.DEFAULT_PATIENCE_S,
        _handle: Handle | None = None,
    ) -> None:
        """Name a ledger. Nothing is opened or created before `prepare` or `append`; no folder ever is."""
        self.path = os.path.abspath(os.fspath(path))
        self._clock, self._durable, self._patience_s = clock, durable, patience_s
        self._handle = _handle or Handle(self.path, clock, patience_s)

    @signals.whole
    def prepare(self, events: int = 1) -> None:
        """
        Open the file, or create it, and raise the `LedgerError` that an append would meet now.

        For whoever must know, before a change, that it can be recorded afterwards. Nothing is written and
        nothing stays locked. Room for so many events is set aside, where the filesystem can do that;
        elsewhere a disk that fills up in between is met by the append.
        """
        self._own_handle().prepare(events)

    def append(self, event: Mapping[str, Any]) -> LedgerEntry:
        """Record one event: all of it, once, after everything recorded before."""
        return self.append_spelled(encode(self.path, event))

    def append_all(self, events: Iterable[Mapping[str, Any]]) -> list[LedgerEntry]:
        """Record several events, one after the other in the chain: all of them, or none."""
        bodies = [encode(self.path, event) for event in events]
        return self._append_spelled(bodies) if bodies else []

    def append_spelled(self, body: bytes) -> LedgerEntry:
        """`append()` for an event that is JSON already: its members, without the braces around them."""
        return self._append_spelled([body])[0]

    @signals.whole
    def _append_spelled(self, bodies: list[bytes]) -> list[LedgerEntry]:
        handle = self._own_handle()
        # `with`, not acquire() with a deadline: an interrupt right after that call would leave the lock
        # taken for ever. The thread that has it waits for other processes only, and that has a deadline.
        with handle.lock:
            handle.thread = get_ident()
            try:
                entries = self._append(handle, bodies)
                if self._durable:
                    self._flush(handle)
                return entries
            except OSError as error:
                raise failure(self.path, "write to", error) from error
            finally:
                handle.thread = -1

    def events(self) -> Iterator[dict[str, Any]]:
        """
        Yield every event in order. A line that is not an entry raises `BrokenChainError`.

        Hashes are not checked here; `verify` does that. A torn last line is left out.
        """
        from noclobber.ledger.verify import read_events

        descriptor = self._open_for_reading()
        if descriptor is None:
            return
        try:
            yield from read_events(descriptor, self.path)
        except OSError as error:
            raise failure(self.path, "read", error) from error
        finally:
            os.close(descriptor)

    def follow(self) -> Lines:
        """Return the lines as they are, good or bad, for somebody who looks; then what is appended."""
        return Lines(self.path)

    def last_lines(self, count: int) -> list[bytes]:
        """Return up to `count` lines from the end, byte for byte, without reading the rest."""
        descriptor = self._open_for_reading()
        if descriptor is None:
            return []
        try:
            lines = (line for line in backwards(descriptor) if line is not None)
            return list(islice(lines, count))[::-1]
        except OSError as error:
            raise failure(self.path, "read", error) from error
        finally:
            os.close(descriptor)

    def verify(
        self, *, head: str | None = None, progress: Callable[[int, int, int], None] | None = None
    ) -> VerifyReport:
        """
        Check every line's hash, its link to the line before, its number and its JSON.

        Raises `BrokenChainError` that names the first broken line (`details["line"]`, `["reason"]`, and how
        far the chain is whole: `["event_count"]`, `["head"]`). With `head`, the chain must also contain that
        entry: a head that was saved elsewhere shows whether the tail was cut. Lines that are appended
        meanwhile are not checked. `progress(done_bytes, size_bytes, event_count)` is called now and then. A
        ledger that nobody has written to yet is an empty chain.
        """
        from noclobber.ledger.verify import audit, parse_head

        saved_head = parse_head(head)
        descriptor = self._open_for_reading()
        try:
            # A line that is just being written looks torn. Under the mutex nobody is writing. If we cannot
            # get the mutex, because an appender is stopped, its line is reported as torn.
            size = 0
            if descriptor is not None:
                mutex.hold(descriptor, patience_s=min(1.0, self._patience_s), clock=self._clock)
                try:
                    size = os.fstat(descriptor).st_size
                finally:
                    mutex.release(descriptor)
            found = audit(descriptor, size, self.path, saved_head, progress)
        except OSError as error:
            raise failure(self.path, "read", error) from error
        finally:
            if descriptor is not None:
                os.close(descriptor)
        return VerifyReport(
            path=self.path,
            event_count=found.event_count,
            head=f"sha256:{found.head.decode()}",
            size_bytes=size,
            torn_bytes=found.torn_bytes,
            set_aside=list_set_aside(self.path),
            saved_head_line=found.saved_head_line,
        )

    @property
    def head(self) -> str:
        """The hash of the last entry, or `GENESIS` if there is none."""
        descriptor = self._open_for_reading()
        if descriptor is None:
            return f"sha256:{START.hex.decode()}"
        try:
            tail = read_tail(descriptor, os.fstat(descriptor).st_size, self.path)
        except OSError as error:
            raise failure(self.path, "read", error) from error
        finally:
            os.close(descriptor)
        return f"sha256:{tail.link.hex.decode()}"

    @signals.whole
    def close(self) -> None:
        """Close the descriptor. The next append opens it again."""
        handle = self._own_handle()
        with handle.lock:
            handle.close()

    def __enter__(self) -> AgentTraceLedger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)  # Absent if __init__ refused its arguments.
        if handle is not None and handle.pid == os.getpid():
            handle.close()

    # Appending

    def _own_handle(self) -> Handle:
        """Return what this process, and not its parent, has open."""
        self._handle = self._handle.owned()
        return self._handle

    def _append(self, handle: Handle, bodies: list[bytes]) -> list[LedgerEntry]:
        try:
            size = handle.hold()
            time = iso8601(self._clock.now_s())
            before, end, opening, aside = handle.link or START, size, b"", None
            if size != handle.size:  # Another process appended, or this is our first append.
                before, end, opening, aside = self._join(handle, size, time)
            lines, entries = [opening] if opening else [], []
            for body in bodies:
                line, after = seal(body, before, time)
                lines.append(line)
                entries.append(
                    LedgerEntry(
                        after.seq,
                        time,
                        f"sha256:{after.hex.decode()}",
                        f"sha256:{before.hex.decode()}",
                        aside,
                    )
                )
                before, aside = after, None
            text = lines[0] if len(lines) == 1 else b"".join(lines)
            with suppress(OSError):  # For the next: that of a lock's release is not prepared.
                handle.make_room(end, len(text) + EVENT_BYTES)
            _write_all_or_nothing(handle.descriptor, text, end)
            handle.size, handle.link = end + len(text), before
            return entries
        finally:
            # In every case: to release what is not held does nothing. Not through mutex.release(): an
            # interrupt can come on the way into a Python function, and the mutex would stay ours.
            if handle.is_alone:
                handle.let_others_in()
            if handle.descriptor >= 0:
                flock(handle.descriptor, LOCK_UN)

    def _join(self, handle: Handle, size: int, time: str) -> tuple[Link, int, bytes, str | None]:
        """
        Find the last entry. Return it, where complete lines end, what must be written before the next line,
        and where a torn end was put.
        """
        tail = read_tail(handle.descriptor, size, self.path)
        link, opening, aside = tail.link, b"\n" if tail.lacks_newline else b"", None
        if tail.end < size:
            aside = set_aside(handle.descriptor, self.path, tail, size)
            notice, link = seal(_torn_notice(self.path, aside, size - tail.end), link, time)
            opening += notice
        seen = handle.link or START
        if tail.link.seq < seen.seq:
            notice, link = seal(_cut_notice(self.path, seen, tail.link), link, time)
            opening += notice
        return link, tail.end, opening, aside

    def _flush(self, handle: Handle) -> None:
        try:
            os.fsync(handle.descriptor)
            if handle.is_new:  # The name must survive as well, and we may have made it.
                with closing(
                    os.open(os.path.dirname(self.path), os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
                ) as folder:
                    os.fsync(folder)
                handle.is_new = False
        except OSError as error:
            raise LedgerError(
                self.path,
                f"the event was written but may not survive a power cut: {error.strerror}. Check the disk",
                recorded="yes",
            ) from error

    # Opening, and what goes wrong

    def _open_for_reading(self) -> int | None:
        try:
            return open_ledger(self.path, FOR_READING)[0]
        except LedgerError as error:
            if isinstance(error.__cause__, FileNotFoundError) and os.path.isdir(os.path.dirname(self.path)):
                return None
            raise


def _write_all_or_nothing(descriptor: int, data: bytes, end: int) -> None:
    """Append at `end`, or leave the file as long as it was."""
    written = 0
    try:
        written = os.write(descriptor, data)
        while written < len(data):  # A disk that fills up takes a part. Writing the rest tells why.
            count = os.write(descriptor, data[written:])
            if count == 0:
                raise OSError(errno.EIO, "the disk accepts no more bytes")
            written += count
    except BaseException:
        if written < len(data):
            os.ftruncate(descriptor, end)  # If even this fails, the next append finds a torn tail.
        raise


def _torn_notice(path: str, copy_path: str, torn_bytes: int) -> bytes:
    return encode(
        path,
        {
            "action_type": "LEDGER_TORN_TAIL",
            "payload": {"torn_bytes": torn_bytes, "set_aside": os.path.basename(copy_path)},
            "result": {"status": "SET_ASIDE"},
        },
    )


def _cut_notice(path: str, seen: Link, found: Link) -> bytes:
    return encode(
        path,
        {
            "action_type": "LEDGER_CUT",
            "payload": {
                "seen_head": f"sha256:{seen.hex.decode()}",
                "seen_count": seen.seq,
                "found_head": f"sha256:{found.hex.decode()}",
                "found_count": found.seq,
            },
            "result": {"status": "REPORTED"},
        },
    )
