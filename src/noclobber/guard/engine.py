"""
Carries out a call: the half of the way of a write that commits.

    action → facts → policies (`judge.admit`) → commit (`disk`) → snapshot → ledger → result

One function a kind of action. Each takes the turn it works for, the call in whose name it works, and the
action; nothing is looked up. Check and commit are one step under the guard, so nobody can write in between.

Refusals are exceptions. Each refused write is on record once, and so is each that landed; `recording` says
what happens if the ledger fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noclobber.core.actions import CREATE, DELETE, EDIT, MOVE, READ, WRITE, Action
from noclobber.core.values import WHOLE, Coverage, Peeked, ReadResult, WriteResult
from noclobber.disk import signals
from noclobber.disk.commit.contents import WholeFile
from noclobber.disk.commit.flushing import UnflushedError
from noclobber.disk.commit.many import Change
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
from noclobber.guard.claims import retrying
from noclobber.guard.facts import gather
from noclobber.guard.judge import admit, look, note_refusal, settle_judged
from noclobber.guard.policies import stale
from noclobber.guard.stale_writes import Resolution

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeVar

    from noclobber.core.values import MergedWrite, ToolCall
    from noclobber.disk.file_guard import FileRead
    from noclobber.guard.catalogue import Catalogue
    from noclobber.guard.facts import Facts, Target
    from noclobber.guard.recording import Recorder
    from noclobber.guard.turn import Turn

    Result = TypeVar("Result")

STALE_TRIES = 24  # How often a stale write is resolved anew because the file has changed again.
EDIT_RACES = 32  # How often an edit of a file that nobody read starts over before it counts as stale.


# -- one function a kind of action -------------------------------------------------------------------------


@signals.whole
def read(turn: Turn, call: ToolCall, action: Action) -> ReadResult:
    """Read a file, or some of its lines, and take note of what was seen."""
    snapshot = turn.context
    facts = admit(turn, target_of(turn, action).facts)
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
    facts = admit(turn, target_of(turn, action).facts)
    try:
        facts, found = _fetch(turn, call, facts)
    except MissingFileError:
        return Peeked(facts.name, facts.path, ABSENT, None)
    return Peeked(facts.name, found.path, found.sha256, found.content)


@signals.whole
def write(turn: Turn, call: ToolCall, action: Action) -> WriteResult:
    """Replace a whole file, or create it."""

    def commit(targets: list[Target]) -> WriteResult:
        [target] = targets
        facts, data = admit(turn, target.facts), target.data
        assert data is not None
        done = turn.guard.write(
            facts.name,
            data,
            expected=facts.expected,
            at=facts.path,
            fence=turn.fence,
            mode=target.action.mode,
        )
        turn.context.wrote(facts.name, facts.path, done.sha256, data)
        return _recorded(turn, call, facts.path, done, target.merged)

    return _carry_out(turn, call, [action], commit)


@signals.whole
def edit(turn: Turn, call: ToolCall, action: Action) -> WriteResult:
    """Change a part of a file."""

    def commit(targets: list[Target]) -> WriteResult:
        [target] = targets
        facts = admit(turn, target.facts)
        assert action.change is not None
        for races_left in reversed(range(EDIT_RACES)):
            found = turn.guard.read(facts.path)
            _refuse_if_stale(turn, facts, actual=found.sha256)
            data = action.change.apply(found.content, facts.path)
            try:
                done = turn.guard.write(
                    facts.name, data, expected=found.sha256, at=facts.path, fence=turn.fence
                )
                break
            except UnflushedError:
                target.data = data  # It landed: what, is to be remembered.
                raise
            except StaleFileError:
                # It is not what we read a moment ago. An agent that had read nothing knows no better.
                if facts.expected is not None or not races_left:
                    raise
        turn.context.wrote(facts.name, facts.path, done.sha256, data, _seen_after_edit(turn, facts, data))
        return _recorded(turn, call, facts.path, done, target.merged)

    return _carry_out(turn, call, [action], commit)


@signals.whole
def write_many(turn: Turn, call: ToolCall, actions: Sequence[Action]) -> dict[str, WriteResult]:
    """Replace or create several files: all of them or none. Keys of the result are the paths as given."""

    def commit(targets: list[Target]) -> dict[str, WriteResult]:
        if len({target.facts.path for target in targets}) < len(targets):
            raise BadRequestError(
                "", "Two of the paths lead to one file; which content it should get is a guess."
            )
        admitted = [(target, admit(turn, target.facts)) for target in targets]
        changes = [
            Change(facts.name, target.data or b"", facts.expected, facts.path) for target, facts in admitted
        ]
        landed = list(zip(admitted, turn.guard.write_many(changes, fence=turn.fence), strict=True))
        for (target, facts), done in landed:  # All of them before the ledger can fail.
            turn.context.wrote(facts.name, facts.path, done.sha256, target.data)
        return {
            target.action.path: _recorded(turn, call, facts.path, done, target.merged)
            for (target, facts), done in landed
        }

    return _carry_out(turn, call, actions, commit)


@signals.whole
def write_and_delete(
    turn: Turn, call: ToolCall, actions: Sequence[Action], moved: Mapping[str, str]
) -> list[WriteResult]:
    """
    Replace, create and delete several files, all of them or none: every action says its expected hash.

    `moved`: which new file is which old one under another name. It keeps the old one's mode and attributes,
    and is on record as a move.
    """

    def commit(targets: list[Target]) -> list[WriteResult]:
        admitted = [(target, admit(turn, target.facts)) for target in targets]
        files = [
            WholeFile(facts.path, facts.expected or ABSENT, target.data, moved.get(facts.path))
            for target, facts in admitted
        ]
        landed = list(zip(admitted, turn.guard.write_and_delete(files, fence=turn.fence), strict=True))
        for (target, facts), done in landed:  # All of them before the ledger can fail.
            if target.data is None:
                turn.context.removed(facts.name, facts.path)
            else:
                turn.context.wrote(facts.name, facts.path, done.sha256, target.data)
        gone = {facts.path: done for (target, facts), done in landed if target.data is None}
        for (_, facts), done in landed:
            old = gone.get(moved.get(facts.path, ""))
            if facts.path in gone and facts.path in moved.values():
                continue  # On record with where it went.
            if old is None:
                _recorded(turn, call, facts.path, done)
                continue
            as_it_was = old._replace(sha256=old.previous_sha256)
            _recorded(turn, call, moved[facts.path], as_it_was, destination=facts.path)
            if done.sha256 != old.previous_sha256:  # Under its new name it was changed as well.
                changed = done._replace(previous_sha256=old.previous_sha256, recovered=())
                _recorded(turn, call, facts.path, changed)
        return [done for _, done in landed]

    return _carry_out(turn, call, actions, commit)


@signals.whole
def delete(turn: Turn, call: ToolCall, action: Action) -> WriteResult:
    """Delete a file."""

    def commit(targets: list[Target]) -> WriteResult:
        facts = admit(turn, targets[0].facts)
        done = turn.guard.delete(facts.name, expected=facts.expected, at=facts.path, fence=turn.fence)
        turn.context.removed(facts.name, facts.path)
        return _recorded(turn, call, facts.path, done)

    return _carry_out(turn, call, [action], commit)


@signals.whole
def move(turn: Turn, call: ToolCall, source: Action, destination: Action) -> WriteResult:
    """Move a file to a free name."""

    def commit(targets: list[Target]) -> WriteResult:
        snapshot = turn.context
        here, there = [admit(turn, target.facts) for target in targets]
        coverage = snapshot.coverage_for(here.name, here.path)
        kept = snapshot.baseline_bytes(here.name, here.path)
        done = turn.guard.move(
            here.name,
            there.name,
            expected=here.expected,
            at=(here.path, there.path),
            fence=turn.fence,
        )
        snapshot.removed(here.name, here.path)
        if coverage is not None:  # Seen there, so known here. A file that was moved unread stays unread.
            snapshot.wrote(there.name, there.path, done.sha256, kept, coverage)
        return _recorded(turn, call, here.path, done, destination=there.path)

    return _carry_out(turn, call, [source, destination], commit)


@signals.whole
def carry_out(
    turn: Turn, call: ToolCall, actions: Sequence[Action]
) -> ReadResult | WriteResult | dict[str, WriteResult]:
    """Carry out what a tool call asks for, by the kind of its actions."""
    kinds = [action.kind for action in actions]
    if not kinds:
        raise UnknownToolError("", f"{call.tool!r} touches no file; run it yourself.", tool=call.tool)
    match kinds:
        case [kind] if kind == READ:
            return read(turn, call, actions[0])
        case [kind] if kind == WRITE:
            return write(turn, call, actions[0])
        case [kind] if kind == EDIT:
            return edit(turn, call, actions[0])
        case [kind] if kind == DELETE:
            return delete(turn, call, actions[0])
        case [first, second] if (first, second) == (MOVE, CREATE):
            return move(turn, call, actions[0], actions[1])
    if set(kinds) == {WRITE}:
        return write_many(turn, call, actions)
    raise BadRequestError("", f"A call that does {', '.join(kinds)} cannot be carried out here.")


@signals.whole
def check(turn: Turn, call: ToolCall, actions: Sequence[Action]) -> None:
    """
    Raise the refusal that a call would meet now, and record it. Nothing is changed.

    For what is not a change of one workspace's files: folders, and moves from one workspace to another.
    """

    def ask(targets: list[Target]) -> None:
        for target in targets:
            turn.fence.check(admit(turn, target.facts).path)

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
        facts = admit(turn, facts._replace(path=found.path))
    if found.recovered and not turn.ledger_trouble():
        # A read does not fail for want of a record. The next write will, and says why.
        turn.recorder.recovered(call, found.recovered)
    return facts, found


def _carry_out(
    turn: Turn, call: ToolCall, actions: Sequence[Action], commit: Callable[[list[Target]], Result]
) -> Result:
    """Gather, commit, wait for claims; and put on record what was refused, or landed without a flush."""
    with turn.order.one_at_a_time([turn.context.name_of(action.path) for action in actions]):
        return _carry_out_alone(turn, call, actions, commit)


def _carry_out_alone(
    turn: Turn, call: ToolCall, actions: Sequence[Action], commit: Callable[[list[Target]], Result]
) -> Result:
    targets: list[Target] = []
    try:
        targets += [target_of(turn, action) for action in actions]
        try:
            for _ in range(STALE_TRIES):
                try:
                    return retrying(lambda: commit(targets), turn.options.wait_s, turn.clock)
                except StaleFileError as stale_write:
                    if not _resolve(turn, targets, stale_write):
                        raise
            return retrying(lambda: commit(targets), turn.options.wait_s, turn.clock)
        except (NotAFileError, AccessDeniedError, MissingFileError):
            for target in targets:  # If it is not what the agent saw, then that is the reason to give.
                _refuse_if_stale(turn, target.facts)
            raise
    except UnflushedError as error:
        _landed_unflushed(turn, call, targets, error.commits)
        raise
    except NoclobberError as error:
        if isinstance(error, StaleFileError):
            error.written_by = author_now(turn.root, error.path, turn.confined_to, turn.clock) or None
        note_refusal(turn, call, targets, error)
        raise


def target_of(turn: Turn, action: Action) -> Target:
    """Return the facts of one action. The disk is asked only where the path leads."""
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


def _resolve(turn: Turn, targets: Sequence[Target], error: StaleFileError) -> bool:
    """Ask what to do about a stale write; True if there is something to commit instead, for every file."""
    if not any(target.facts.path == error.path for target in targets):
        return False
    resolved = []
    for target in targets:  # Of several files the error names one. The others may be stale as well.
        facts = target.facts
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
        answer = turn.stale_writes.resolve(target, seen, current)
        if not isinstance(answer, Resolution):
            if answer is not None:
                error.not_merged = answer.reason
                error.add_note(f"It was not merged: {answer.reason}")
            return False
        resolved.append((target, answer))
    for target, resolution in resolved:
        target.facts = target.facts._replace(expected=resolution.made_for)
        target.merged = resolution.merged
        target.data = resolution.content if target.facts.kind == WRITE else None
    return bool(resolved)


def _landed_unflushed(
    turn: Turn, call: ToolCall, targets: Sequence[Target], commits: Sequence[WriteResult]
) -> None:
    """The caller hears that the disk did not flush it. But it landed, and is not a refusal."""
    done = list(zip(targets, commits, strict=False))  # A move is two targets and one commit.
    for target, commit in done:  # All of them before the ledger can fail.
        facts = target.facts
        if facts.kind in (DELETE, MOVE):
            turn.context.removed(facts.name, facts.path)
        else:
            data = target.data
            seen = _seen_after_edit(turn, facts, data or b"") if facts.kind == EDIT else WHOLE
            turn.context.wrote(facts.name, facts.path, commit.sha256, data, seen)
    for target, commit in done:
        destination = commit.path if target.facts.kind == MOVE else None
        _recorded(turn, call, target.facts.path, commit, target.merged, destination, flushed=False)


def _recorded(
    turn: Turn,
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


def _refuse_if_stale(turn: Turn, facts: Facts, actual: str | None = None) -> None:
    decision = stale(facts._replace(actual=look(turn, facts.path) if actual is None else actual))
    if not decision.allowed:
        raise decision.error from None


def _seen_after_edit(turn: Turn, facts: Facts, data: bytes) -> Coverage:
    """An agent that had not seen the whole file before an edit has not seen it afterwards, either."""
    coverage = turn.context.coverage_for(facts.name, facts.path)
    return WHOLE if coverage is not None and coverage.is_whole else _coverage(data, 0, 0)


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
