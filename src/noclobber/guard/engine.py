"""
Carries out a change set: the half of the way of a write that commits.

    actions → change set → `judge.judge` → commit (`disk`) → snapshot → ledger → result

`change` is the one way to change files: one file or several, whole contents, edits, deletions and moves. It
takes the turn it works for, the call in whose name it works, and the actions; nothing is looked up. Check and
commit are one step under the guard, so nobody can write in between.

Refusals are exceptions. Each refused write is on record once, and so is each that landed; `recording` says
what happens if the ledger fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noclobber.core.actions import CREATE, DELETE, EDIT, MOVE, READ, WRITE, Action
from noclobber.core.values import WHOLE, Coverage, Peeked, ReadResult, WriteResult
from noclobber.disk import signals
from noclobber.disk.commit.flushing import UnflushedError
from noclobber.disk.commit.rows import Change
from noclobber.disk.hashing import is_hash
from noclobber.disk.reading import look_at
from noclobber.errors import (
    ABSENT,
    AccessDeniedError,
    BadPathError,
    BadRequestError,
    MissingFileError,
    NoclobberError,
    NotAFileError,
    OutsideWorkspaceError,
    RefusalError,
    StaleFileError,
    UnknownToolError,
)
from noclobber.guard.author import author, author_now
from noclobber.guard.change_set import ChangeSet
from noclobber.guard.claims import retrying
from noclobber.guard.facts import gather
from noclobber.guard.judge import admit_read, judge, note_refusal, refuse_if_stale, settle_judged
from noclobber.guard.merging import as_stale_change, merge_stale
from noclobber.guard.stale_change import Resolution

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Protocol, TypeVar

    from noclobber.core.values import MergedWrite, ToolCall
    from noclobber.disk.file_guard import FileGuard, FileRead
    from noclobber.guard.catalogue import Catalogue
    from noclobber.guard.change_set import FileChange
    from noclobber.guard.facts import Facts
    from noclobber.guard.fence import WriteFence
    from noclobber.guard.judge import JudgedTurn
    from noclobber.guard.recording import Recorder
    from noclobber.guard.turn import Turn

    Result = TypeVar("Result")

    class WritingTurn(JudgedTurn, Protocol):
        """A turn for which we write."""

        guard: FileGuard
        """What commits."""
        merges: list[WriteResult]
        """Writes that were stale and landed merged."""

        @property
        def fence(self) -> WriteFence:
            """Claims and locks."""


STALE_TRIES = 24  # How often a stale write is resolved anew because the file has changed again.
EDIT_RACES = 32  # How often an edit of a file that nobody read starts over before it counts as stale.

NOTHING_MOVED: Mapping[str, str] = {}


# -- reads and changes -------------------------------------------------------------------------------------


@signals.whole
def read(turn: Turn, call: ToolCall, action: Action) -> ReadResult:
    """Read a file, or some of its lines, and take note of what was seen."""
    snapshot = turn.context
    facts = admit_read(change_of(turn, action).facts)
    try:
        facts, found = _fetch(turn, call, facts)
    except MissingFileError:
        snapshot.observe_absent(facts.name, facts.path)
        raise
    except (BadPathError, OutsideWorkspaceError):
        raise
    except RefusalError as error:
        snapshot.observe_error(facts.name, facts.path, error.code)
        raise
    start, end = _span(found.content, action, facts.path)
    seen = _coverage(found.content, start, end)
    observation = snapshot.observe(facts.name, found.path, found.sha256, found.content, seen)
    part = found.content[start:end]  # The same object, not a copy, if it is the whole.
    return ReadResult(found.path, part, found.sha256, observation.id, seen)


@signals.whole
def peek(turn: Turn, call: ToolCall, action: Action) -> Peeked:
    """
    Read a file on behalf of a tool, not of the agent: the same rules, and no note of it.

    What becomes of it is the caller's to say. An agent framework's edit tool reads a file that its agent is
    not shown; if that counted as a read, a stale edit would pass.
    """
    facts = admit_read(change_of(turn, action).facts)
    try:
        facts, found = _fetch(turn, call, facts)
    except MissingFileError:
        return Peeked(facts.name, facts.path, ABSENT, None)
    return Peeked(facts.name, found.path, found.sha256, found.content)


@signals.whole
def change(
    turn: Turn, call: ToolCall, actions: Sequence[Action], *, moved: Mapping[str, str] = NOTHING_MOVED
) -> list[WriteResult]:
    """
    Carry out changes of files, all of them or none; a move is one result, of its destination.

    `moved`: which new file is which old one under another name, where both are among the actions, as undo has
    them. It keeps the old one's mode and attributes, and is on record as a move.
    """

    def commit(wanted: ChangeSet) -> list[WriteResult]:
        _refuse_overlap(wanted.changes)
        judge(turn, wanted).enforce()
        for each in wanted.changes:
            each.base = each.facts.expected
        return land(turn, wanted)

    return _carry_out(turn, call, actions, commit, moved)


def _refuse_overlap(changes: Sequence[FileChange]) -> None:
    """Refuse two changes of one path, and a new file that another one needs as its folder."""
    if len(changes) < 2:
        return
    if len({change.facts.path for change in changes}) < len(changes):
        if changes[0].facts.kind == MOVE:
            raise BadRequestError(changes[0].facts.path, "A file cannot be moved to its own name.")
        raise BadRequestError(
            "", "Two of the paths lead to one file; which content it should get is a guess."
        )
    written = {change.facts.path for change in changes if change.facts.kind != DELETE}
    for path in written:
        above = path.rpartition("/")[0]
        while above and above not in written:
            above = above.rpartition("/")[0]
        if above:
            raise BadRequestError(above, f"This cannot be a file and the folder of {path} as well.")


def land(turn: WritingTurn, wanted: ChangeSet) -> list[WriteResult]:
    """Commit changes that were judged, all of them or none; remember and record what landed."""
    changes = wanted.changes

    def note(done: Sequence[WriteResult], *, flushed: bool) -> list[WriteResult]:
        landed = list(zip(changes, done, strict=False))  # A move is two targets and one result.
        for change, result in landed:  # All of them before the ledger can fail.
            _remember(turn, change, result)
        return _record(turn, wanted, landed, flushed=flushed)

    try:
        results = _landed(turn, wanted)
    except UnflushedError as error:
        # The caller hears that the disk did not flush it. But it landed, and is not a refusal.
        note(error.commits, flushed=False)
        raise
    return note(results, flushed=True)


def _landed(turn: WritingTurn, wanted: ChangeSet) -> list[WriteResult]:
    """Commit, each change against its base; what the agent has not read against what is there now."""
    for races_left in reversed(range(EDIT_RACES)):
        for change in wanted.changes:
            if change.facts.kind == EDIT and not change.is_planned:
                _make_edit(turn, change)
        try:
            return _committed(turn, wanted)
        except StaleFileError as error:
            # It is not what we read a moment ago. An agent that had read nothing knows no better.
            raced = next((each for each in wanted.changes if each.facts.path == error.path), None)
            if raced is None or raced.facts.kind != EDIT or raced.facts.expected is not None:
                raise
            if not races_left:
                raise
    raise AssertionError  # The last race is raised.


def _make_edit(turn: WritingTurn, change: FileChange) -> None:
    """Work out what an edit makes of a file as it is now."""
    facts, edit = change.facts, change.action.change
    assert edit is not None
    found = turn.guard.read(facts.path)
    refuse_if_stale(turn, facts, actual=found.sha256)
    change.base, change.data = found.sha256, edit.apply(found.content, facts.path)


def _committed(turn: WritingTurn, wanted: ChangeSet) -> list[WriteResult]:
    """Make one commit of all changes."""
    changes = wanted.changes
    guard, fence = turn.guard, turn.fence
    kinds = {change.facts.kind for change in changes}
    first = changes[0].facts
    if MOVE in kinds:
        there = changes[1].facts
        changes[0].goal = there.name
        goal = (first.path, there.path)
        return [guard.move(first.name, there.name, expected=first.expected, at=goal, fence=fence)]
    if len(changes) == 1 and DELETE in kinds:
        return [guard.delete(first.name, expected=first.expected, at=first.path, fence=fence)]
    if len(changes) == 1:
        [change] = changes
        assert change.data is not None
        mode = change.action.mode
        return [
            guard.write(first.name, change.data, expected=change.base, at=first.path, fence=fence, mode=mode)
        ]
    rows = [
        Change(
            facts.name, change.data, change.base, facts.path, wanted.moved.get(facts.path), change.action.mode
        )
        for change in changes
        for facts in (change.facts,)
    ]
    turn.recorder.prepare(len(rows))
    return guard.commit(rows, fence=fence)


def _remember(turn: WritingTurn, change: FileChange, done: WriteResult) -> None:
    """Take note of what the agent knows of a file after its own change."""
    facts, memory = change.facts, turn.memory
    snapshot, notes = memory.recall(facts.name, facts.path)
    coverage = snapshot.coverage_for(facts.name, facts.path)
    if facts.kind in (DELETE, MOVE):
        kept = snapshot.baseline_bytes(facts.name, facts.path)
        left = snapshot.left_for(facts.name, facts.path)
        snapshot.removed(facts.name, facts.path)
        if facts.kind == MOVE and left is not None:
            snapshot.brought(change.goal, done.path, done.sha256)
        elif facts.kind == MOVE and coverage is not None:
            # Seen there, so known here. A file that was moved unread stays unread.
            snapshot.wrote(change.goal, done.path, done.sha256, kept, coverage)
    else:
        data, seen = change.data or b"", WHOLE
        if facts.kind == EDIT and change.base != ABSENT and not (coverage and coverage.is_whole):
            seen = _coverage(data, 0, 0)  # An agent that saw a part before its edit knows a part afterwards.
        snapshot.wrote(facts.name, facts.path, done.sha256, data, seen)
        memory.hold(facts.path, done.sha256, data)  # The base of a later merge.
    memory.keep(snapshot, facts.name, facts.path, notes)


def _record(
    turn: WritingTurn,
    wanted: ChangeSet,
    landed: Sequence[tuple[FileChange, WriteResult]],
    *,
    flushed: bool = True,
) -> list[WriteResult]:
    """Put on record what landed; return the results, with what each was merged from."""
    call, moved = wanted.call, wanted.moved
    gone = {change.facts.path: done for change, done in landed if change.facts.kind == DELETE}
    results = []
    for change, done in landed:
        path = change.facts.path
        old = gone.get(moved.get(path, ""))
        if path in gone and path in moved.values():
            results.append(done)  # On record with where it went.
        elif old is None:
            destination = done.path if change.facts.kind == MOVE else None
            results.append(_recorded(turn, call, path, done, change.merged, destination, flushed=flushed))
        else:
            as_it_was = old._replace(sha256=old.previous_sha256)
            _recorded(turn, call, moved[path], as_it_was, destination=path, flushed=flushed)
            if done.sha256 != old.previous_sha256:  # Under its new name it was changed as well.
                changed = done._replace(previous_sha256=old.previous_sha256, recovered=())
                _recorded(turn, call, path, changed, flushed=flushed)
            results.append(done)
    return results


@signals.whole
def carry_out(
    turn: Turn, call: ToolCall, actions: Sequence[Action]
) -> ReadResult | WriteResult | dict[str, WriteResult]:
    """Carry out what a tool call asks for, by the kind of its actions."""
    kinds = {action.kind for action in actions}
    if not kinds:
        raise UnknownToolError("", f"{call.tool!r} touches no file; run it yourself.", tool=call.tool)
    if kinds == {READ} and len(actions) == 1:
        return read(turn, call, actions[0])
    is_move = [action.kind for action in actions] == [MOVE, CREATE]
    if READ in kinds or (not is_move and kinds & {MOVE, CREATE}):
        raise BadRequestError("", f"A call that does {', '.join(sorted(kinds))} cannot be carried out here.")
    results = change(turn, call, actions)
    if len(results) == 1:
        return results[0]
    return {action.path: done for action, done in zip(actions, results, strict=True)}


@signals.whole
def check(turn: Turn, call: ToolCall, actions: Sequence[Action]) -> None:
    """
    Raise the refusal that a call would meet now, and record it. Nothing is changed.

    For what is not a change of one workspace's files: folders, and moves from one workspace to another.
    """

    def ask(wanted: ChangeSet) -> None:
        judge(turn, wanted, turn.fence).enforce()

    _carry_out(turn, call, actions, ask)


def understand(recorder: Recorder, catalogue: Catalogue, call: ToolCall) -> tuple[Action, ...]:
    """Return what a tool call does to files. What cannot be understood counts as a refused write."""
    try:
        return catalogue.actions(call)
    except RefusalError as error:
        if not catalogue.only_reads(call.tool):
            recorder.refusal(call, error)
        raise


# -- what they share ---------------------------------------------------------------------------------------


def _fetch(turn: Turn, call: ToolCall, facts: Facts) -> tuple[Facts, FileRead]:
    """Return what a file holds, and the facts of where it was found."""
    found = turn.guard.read(facts.name)
    if found.path != facts.path:  # A link was changed since we judged; judge what it led to.
        facts = admit_read(facts._replace(path=found.path))
    if found.recovered and not turn.ledger_trouble():
        # A read does not fail for want of a record. The next write will, and says why.
        turn.recorder.recovered(call, found.recovered)
    return facts, found


def _carry_out(
    turn: Turn,
    call: ToolCall,
    actions: Sequence[Action],
    commit: Callable[[ChangeSet], Result],
    moved: Mapping[str, str] = NOTHING_MOVED,
) -> Result:
    """Gather, commit, wait for claims; and put on record what was refused."""
    # One after the other: a call of the same turn that lands in between is not what this one was made from.
    with turn.order.one_at_a_time([turn.context.name_of(action.path) for action in actions]):
        return _carry_out_alone(turn, call, [turn.as_seen(action) for action in actions], commit, moved)


def _carry_out_alone(
    turn: Turn,
    call: ToolCall,
    actions: Sequence[Action],
    commit: Callable[[ChangeSet], Result],
    moved: Mapping[str, str],
) -> Result:
    changes: list[FileChange] = []
    wanted = ChangeSet(call, changes, moved)
    try:
        changes += [change_of(turn, action) for action in actions]
        try:
            for _ in range(STALE_TRIES):
                try:
                    return retrying(lambda: commit(wanted), turn.options.wait_s, turn.clock)
                except StaleFileError as stale_write:
                    if not _resolve(turn, changes, stale_write):
                        raise
            return retrying(lambda: commit(wanted), turn.options.wait_s, turn.clock)
        except (NotAFileError, AccessDeniedError, MissingFileError):
            for each in changes:  # If it is not what the agent saw, then that is the reason to give.
                refuse_if_stale(turn, each.facts)
            raise
    except UnflushedError:
        raise  # It has landed, and is on record.
    except NoclobberError as error:
        if isinstance(error, StaleFileError):
            error.written_by = author_now(turn.root, error.path, turn.confined_to, turn.clock) or None
        note_refusal(turn, wanted, error)
        raise


def change_of(turn: Turn, action: Action) -> FileChange:
    """Return one action as a change. The disk is asked only where the path leads."""
    name, actual = turn.context.name_of(action.path), None
    try:
        path = turn.guard.locate(action.path)
    except (NotAFileError, AccessDeniedError):
        # It leads nowhere now. If the agent knows a file under that name, that file is what changed;
        # if not, the guard will meet the same obstacle and say so.
        path, actual = name, None if action.kind == READ else turn.guard.digest(action.path)
    return gather(
        action,
        turn.context,
        name,
        path,
        options=turn.options,
        actual=actual,
        write_scope=turn.write_scope,
    )


def _resolve(turn: Turn, changes: Sequence[FileChange], error: StaleFileError) -> bool:
    """Ask what to do about a stale write; True if there is something to commit instead, for every file."""
    if not any(change.facts.path == error.path for change in changes):
        return False
    resolved = []
    for change in changes:  # Of several files the error names one. The others may be stale as well.
        facts = change.facts
        if facts.kind not in (WRITE, EDIT) or not is_hash(facts.expected or ""):
            if facts.path == error.path:
                return False
            continue
        current = look_at(facts.path, turn.confined_to, keep=True, clock=turn.clock)
        if current.sha256 == facts.expected and facts.path != error.path:
            continue
        if current.content is None:
            return False
        seen = turn.context.baseline_bytes(facts.name, facts.path)
        if seen is None and turn.options.on_stale == "merge":
            from noclobber.guard.past_bytes import seen_bytes  # Here: few turns let go of what they read.

            # The turn holds some megabytes. What it let go may be among the versions, or in git.
            seen = seen_bytes(turn.context, turn.root, facts.name, facts.path, facts.baseline)
        if seen is not None:  # Whoever overwrote it kept nothing; for `diff`, `undo` and `blame`.
            turn.guard.keep_version(facts.path, seen)
        answer = merge_stale(as_stale_change(change, seen, current))
        if not isinstance(answer, Resolution):
            if answer is not None:
                error.not_merged = answer.reason
                error.add_note(f"It was not merged: {answer.reason}")
            return False
        resolved.append((change, answer))
    for change, resolution in resolved:
        change.facts = change.facts._replace(expected=resolution.made_for)
        change.merged = resolution.merged
        change.data = resolution.content if change.facts.kind == WRITE else None
    return bool(resolved)


def _recorded(
    turn: WritingTurn,
    call: ToolCall,
    path: str,
    done: WriteResult,
    merged: MergedWrite | None = None,
    destination: str | None = None,
    *,
    flushed: bool = True,
) -> WriteResult:
    settle_judged(turn, call, path)
    recorder = turn.recorder
    recorder.landed(
        call,
        path,
        done.previous_sha256,
        done.sha256,
        done.level,
        destination=destination,
        kept=done.kept,
        not_kept=done.not_kept,
        merged=merged,
        flushed=flushed,
    )
    recorder.recovered(call, done.recovered)
    if merged is None:
        return done
    merged = merged._replace(by=author(turn.root, path, merged.theirs_sha256))
    turn.merges.append(done._replace(merged=merged))
    return turn.merges[-1]


def _span(content: bytes, action: Action, path: str) -> tuple[int, int]:
    from noclobber.text.lines import line_span

    first = 1 if action.first_line is None else action.first_line
    last = None if action.line_count is None else first + action.line_count - 1
    return line_span(content, first, last, path)


def _coverage(content: bytes, start: int, end: int) -> Coverage:
    """Return which lines the bytes from `start` to `end` are."""
    total = content.count(b"\n") + (content != b"" and not content.endswith(b"\n"))
    first = content.count(b"\n", 0, start)
    last = total if end == len(content) else first + content.count(b"\n", start, end)
    return Coverage(((first, last),) if start < end else (), total)
