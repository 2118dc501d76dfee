"""
ToolIO: one call of a framework's own file tool, seen from below: the reads and writes that it makes.

Some frameworks have a seam below their file tools: a workspace, a file store, an environment. The tools stay
the framework's, and read and write through us. What such a tool reads is not always what its agent sees. An
edit tool reads a file, changes the text and writes it; a write tool may look at a file before it replaces it.
If each read moved the baseline, a stale edit would pass: the tool would have "seen" the other's change, the
agent would not.

So what a tool reads is held until the call is over:

| what the call did with a file | what the agent has seen afterwards |
|---|---|
| read it | what the result shows of it: all, some lines, or nothing that can be told |
| read it and wrote it | what was written; the read was the tool's own |
| failed, or was cancelled | what it had seen before |

A write is checked twice. It must replace what the *agent* last saw, and what the *tool* read in this call:
its new content was made from that. The second holds also if the agent has seen nothing of the file.

Refusals are kept in `refusal`: some tools make a sentence of any exception, and the model must get the
object.
"""

from __future__ import annotations

import functools
import os
import re
from functools import cached_property
from typing import TYPE_CHECKING

from noclobber.adapters.commands import run_async
from noclobber.aio import in_thread
from noclobber.core.actions import EDIT, READ, Action
from noclobber.core.values import WHOLE, Coverage
from noclobber.errors import (
    ABSENT,
    DELETED,
    UNKNOWN,
    BadRequestError,
    MissingFileError,
    NoclobberError,
    StaleFileError,
)
from noclobber.guard import engine
from noclobber.guard.change_set import ChangeSet
from noclobber.guard.judge import note_refusal, refuse_if_stale
from noclobber.guard.tools.definitions import as_replacement
from noclobber.text.lines import is_uniform, with_ending
from noclobber.text.merge import merge

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Concatenate, ParamSpec, TypeVar

    from noclobber.adapters.commands import Ran
    from noclobber.core.values import Peeked, ToolCall, WriteResult
    from noclobber.guard.turn import Turn

    P = ParamSpec("P")
    T = TypeVar("T")
    Path = str | os.PathLike[str]

MOST_HELD_BYTES = 8 << 20  # A search reads many files. Of those beyond this, no line counts as shown.
IN_A_THREAD_BYTES = 256 << 10
_NUMBERED = re.compile(r"^\s*(\d+)(?:\t|→|\| ?|: ?)(.*)$", re.MULTILINE)


def _noting(work: Callable[Concatenate[ToolIO, str, P], T]) -> Callable[Concatenate[ToolIO, Path, P], T]:
    """Around one operation on a path: it is a path, and what is refused is kept."""

    @functools.wraps(work)
    def run(io: ToolIO, path: Path, /, *args: P.args, **more: P.kwargs) -> T:
        try:
            if not isinstance(path, (str, os.PathLike)):
                raise BadRequestError(
                    "",
                    f"A path is a text, not a {type(path).__name__}. Send the path of one file.",
                    parameter="path",
                )
            return work(io, os.fspath(path), *args, **more)
        except NoclobberError as error:
            io.refusal = error
            raise

    return run


class ToolIO:
    """The reads and writes of one call. Made when the call begins; `over()` when its result is known."""

    def __init__(
        self, turn: Callable[[], Turn], tool: str, call_id: str | None = None, *, writes_text: bool = False
    ) -> None:
        """
        `turn` is asked when a file is touched: most tools of an agent touch none. `writes_text`: bytes that
        the tool writes are a model's text, encoded; others are written as they are.
        """
        self._begin, self.tool, self.call_id = turn, tool, call_id
        self._writes_text = writes_text
        self.refusal: NoclobberError | None = None
        """What was refused last in this call."""
        self._held: dict[str, Peeked] = {}
        self._held_bytes = 0

    @cached_property
    def turn(self) -> Turn:
        """The turn that the call belongs to."""
        return self._begin()

    def exists(self, path: str | os.PathLike[str]) -> bool:
        """True if there is a file. That there is none is held like a read."""
        try:
            self.read(path)
        except MissingFileError:
            return False
        return True

    async def run(
        self,
        command: str | Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Ran:
        """Run a command. What it changed lands, if it is what the agent saw, or is refused."""
        try:
            return await run_async(
                lambda: self.turn,
                command,
                environment=environment,
                timeout_s=timeout_s,
                call_id=self.call_id,
            )
        except NoclobberError as error:
            self.refusal = error
            raise

    def baseline(self, path: str | os.PathLike[str]) -> str | None:
        """Return what the agent last saw of a file: a hash, `ABSENT`, or None for nothing."""
        name = self.turn.context.name_of(path)
        return self.turn.context.expected_for(name, name)

    def over(self, shown: str | None = None) -> None:
        """The call succeeded, and `shown` is what the agent gets to read; None if it shows no file."""
        if len(self._held) > 1:
            shown = None  # A search. Which line is of which file is not told by its number.
        for held in self._held.values():
            self._saw(held, _shown_part(held.content, shown))
        self._held.clear()

    async def over_async(self, shown: str | None = None) -> None:
        """The same. What is compared in no time is not worth a thread."""
        if self._held_bytes + len(shown or "") < IN_A_THREAD_BYTES:
            self.over(shown)
        else:
            await in_thread(self.over, shown)

    def over_shown_whole(self) -> None:
        """The call succeeded, and whoever called has seen all of what it read."""
        for held in self._held.values():
            self._saw(held, WHOLE)
        self._held.clear()

    def _saw(self, held: Peeked, seen: Coverage) -> None:
        context = self.turn.context
        if held.sha256 == ABSENT:
            context.observe_absent(held.name, held.path)
        else:
            context.observe(held.name, held.path, held.sha256, held.content, seen)

    # -- one call of the guard each ------------------------------------------------------------------

    @_noting
    def read(self, path: str) -> bytes:
        """Return what a file holds; `MissingFileError` if there is none. The agent has not seen it yet."""
        peeked = engine.peek(self.turn, self._call(), Action(READ, path))
        first = self._held.get(peeked.name)
        if first is not None and first.sha256 != peeked.sha256:
            # The tool read two versions. Its result may show either, so its agent must read again.
            self._held.pop(peeked.name)
            self.turn.context.saw_unknown(peeked.name, peeked.path)
        elif first is None:
            content = peeked.content
            self._held_bytes += len(content or b"")
            if self._held_bytes > MOST_HELD_BYTES:
                content = None
            self._held[peeked.name] = peeked._replace(content=content)
        if peeked.content is None:
            raise MissingFileError(peeked.path, "There is no such file.")
        return peeked.content

    @_noting
    def write(self, path: str, content: str | bytes) -> WriteResult:
        """Replace or create a file, if it is what the agent saw and what this call read."""
        expected = None
        for_seen = self._made_for_seen(path, content)
        if for_seen is None:
            expected = self._expected(path)
            content = self._as_meant(path, content)
        else:
            content = for_seen
        with self.turn.called(self.call_id):
            done = self.turn.write_file(path, content, expected_hash=expected)
        self._held.pop(self.turn.context.name_of(path), None)
        return done

    @_noting
    def create(self, path: str, content: str | bytes) -> WriteResult:
        """Create a file; `StaleFileError` with `ABSENT` if somebody was faster."""
        self._expected(path)
        with self.turn.called(self.call_id):
            done = self.turn.write_file(path, content, expected_hash=ABSENT)
        self._held.pop(self.turn.context.name_of(path), None)
        return done

    @_noting
    def delete(self, path: str) -> WriteResult:
        """Delete a file, if it is what the agent saw."""
        expected = self._expected(path)
        with self.turn.called(self.call_id):
            done = self.turn.delete_file(path, expected_hash=expected)
        self._held.pop(self.turn.context.name_of(path), None)
        return done

    def _made_for_seen(self, path: str, content: str | bytes) -> str | bytes | None:
        """
        Return a stale write as a change of what the *agent* saw, for the guard to merge; None if it is none.

        An edit tool made its content from the current file. It is taken for a change of the version before,
        if that one, merged with what others did, gives exactly this content: an edit that hits another place
        in the current file does not pass.
        """
        held = self._held.get(self.turn.context.name_of(path))
        if self.turn.options.on_stale != "merge" or held is None or not held.content:
            return None
        seen = self.turn.baseline_bytes(path)
        if seen is None or self.baseline(path) in (None, ABSENT, UNKNOWN, held.sha256):
            return None
        made = self._as_meant(path, content)
        made = made.encode("utf-8", "surrogateescape") if isinstance(made, str) else made
        ours = merge(held.content, made, seen).content
        if ours is not None and merge(seen, ours, held.content).content == made:
            return ours
        is_whole = self.tool.lower().replace("_", "").endswith(("writefile", "accesswrite"))
        if not is_whole or (isinstance(content, bytes) and not self._writes_text):
            return None
        # Whatever the tool looked at before, the text is the agent's own.
        try:
            text = content if isinstance(content, str) else content.decode()
        except UnicodeDecodeError:
            return None
        return as_replacement(self.turn, path, text)

    def _as_meant(self, path: str, content: str | bytes) -> str | bytes:
        """Return what to write for a tool's text: with the bytes and line endings that it did not see."""
        if isinstance(content, bytes) and not self._writes_text:
            return content
        try:
            text = content if isinstance(content, str) else content.decode()
        except UnicodeDecodeError:
            return content
        held = self._held.get(self.turn.context.name_of(path))
        if held is None or not held.content:
            return as_replacement(self.turn, path, text)
        old = held.content
        try:
            old.decode()
        except UnicodeDecodeError:
            meant = bytes_of(old, text)
            if meant is None:
                raise BadRequestError(
                    path,
                    "This file is not UTF-8 text, and the change touches bytes that the tool has not read. "
                    "Nothing was written. Change a smaller part of it, without those characters.",
                ) from None
            return meant
        if b"\n" in old and is_uniform(old):  # The tool's new lines end in a bare newline.
            return with_ending(text.encode("utf-8", "surrogatepass"), b"\r\n").decode(
                "utf-8", "surrogatepass"
            )
        return text

    def _expected(self, path: str) -> str | None:
        """Return what the tool read, if the agent has read nothing; refuse if the two are not the same."""
        context = self.turn.context
        held = self._held.get(context.name_of(path))
        if held is None:
            return None
        baseline = context.last_for(held.name, held.path)
        if baseline is None:
            return held.sha256 if self.turn.options.unread != "deny" else None
        if baseline not in (held.sha256, UNKNOWN):
            # Refused here and not by the guard: were the file put back to what the agent saw, the guard
            # would let through what the tool made from the version in between.
            change = engine.change_of(self.turn, Action(EDIT, path))
            facts = change.facts._replace(path=held.path)
            try:
                refuse_if_stale(self.turn, facts, DELETED if held.sha256 == ABSENT else held.sha256)
            except StaleFileError as error:
                note_refusal(self.turn, ChangeSet(self._call(), [change]), error)
                raise
        return None

    def _call(self) -> ToolCall:
        return self.turn.tool_call(self.tool, call_id=self.call_id)


def _shown_part(content: bytes | None, shown: str | None) -> Coverage:
    """Return which lines of a file a tool's result shows."""
    if content is None:
        return Coverage((), 1)
    if content == b"":
        return WHOLE
    text = content.decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n")
    lines = text.removesuffix("\n").split("\n")
    if shown is None:
        return Coverage((), len(lines))
    given = shown.replace("\r\n", "\n")
    if "\n" + text.rstrip("\n") + "\n" in f"\n{given}\n":
        return WHOLE
    ranges: list[tuple[int, int]] = []
    for number, line in _NUMBERED.findall(given):
        at = int(number) - 1
        if at < len(lines) and lines[at] == line:
            if ranges and ranges[-1][1] == at:
                ranges[-1] = (ranges[-1][0], at + 1)
            else:
                ranges.append((at, at + 1))
    return Coverage((), len(lines)).plus(Coverage(tuple(ranges), len(lines)))


# A tool decodes a file with a mark (U+FFFD) for every byte that is not UTF-8, and writes its text. The marks
# would take the place of the bytes: a file in Latin-1 loses every umlaut by an edit of one comment. So what
# the edit left alone is taken from the old bytes, and only what it changed from the new text.

MARK = "\ufffd"


def bytes_of(old: bytes, text: str) -> bytes | None:
    """Return the content that a tool meant, given what it read. None if a mark is in what it changed."""
    before, ends = _decoded(old)
    start = len(os.path.commonprefix([before, text]))
    most = min(len(before), len(text)) - start
    end = len(os.path.commonprefix([before[::-1][:most], text[::-1][:most]]))
    changed = text[start : len(text) - end]
    if MARK in changed:
        return None
    first, last = ends[start], ends[len(before) - end]
    return old[:first] + changed.encode("utf-8", "surrogateescape") + old[last:]


def _decoded(data: bytes) -> tuple[str, list[int]]:
    """Return the text with marks, and where in the bytes each of its characters begins; the end, too."""
    text, ends = data.decode("utf-8", "replace"), [0]
    bad = _undecodable(data)
    at = 0
    for letter in text:
        at = bad.get(at) or at + len(letter.encode())
        ends.append(at)
    return text, ends


def _undecodable(data: bytes) -> dict[int, int]:
    """Return where each piece begins that is not UTF-8, and where it ends."""
    found: dict[int, int] = {}
    at = 0
    for line in data.split(
        b"\n"
    ):  # No character has this byte in it. By lines, or large files take for ever.
        done = 0
        while done < len(line):
            try:
                line[done:].decode()
                break
            except UnicodeDecodeError as error:
                found[at + done + error.start] = at + done + error.end
                done += error.end
        at += len(line) + 1
    return found
