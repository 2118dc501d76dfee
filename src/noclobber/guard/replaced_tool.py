"""
A host's file tool that we carry out ourselves, in two steps with the user's approval between them.

Some hosts let a plugin replace their file tools, and offer it their permission dialogue. Then check and write
are one step, as in the library: what somebody saves while the dialogue is open is never overwritten.

| step | what is done |
|---|---|
| `plan` | judge the call as before any other host's write; work out what it makes of each file |
| `commit` | write it, if every file is still what the plan was made from; else refuse as stale |

Nothing is claimed and nothing is noted between the two, so a call that is declined leaves nothing behind.
Both take the session's memory for themselves, and neither keeps it while a person decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from noclobber.core.actions import DELETE, EDIT
from noclobber.core.values import BOM, WHOLE, Coverage
from noclobber.disk.commit import many, remove
from noclobber.disk.commit.committer import Committer
from noclobber.disk.commit.contents import WholeFile
from noclobber.disk.commit.flushing import UnflushedError
from noclobber.disk.hashing import is_hash
from noclobber.disk.version_keeper import VersionKeeper
from noclobber.errors import (
    ABSENT,
    DELETED,
    NOT_A_FILE,
    AccessDeniedError,
    BadRequestError,
    EditMismatchError,
    MissingFileError,
    NoclobberError,
    NotAFileError,
    StaleFileError,
)
from noclobber.guard.claims import retrying
from noclobber.guard.judge import note_refusal
from noclobber.guard.outside import Outside
from noclobber.guard.policies import decide
from noclobber.guard.who_commits import guard_class, is_ordered_by_server
from noclobber.text.encoding import encode_anyway

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noclobber.core.actions import Action, ContentChange
    from noclobber.core.values import ToolCall, WriteResult
    from noclobber.disk.commit.section import Fence
    from noclobber.guard.facts import Target
    from noclobber.guard.judge import JudgedTurn
    from noclobber.guard.looked import LookedAt


class PlannedFile(NamedTuple):
    """What a call will make of one file."""

    action: Action
    name: str
    path: str
    """Canonical."""
    expected: str
    """The hash of what the plan was made from, or `ABSENT`."""
    before: bytes | None
    """None: there is no file, or it is too large to hold."""
    after: bytes | None
    """None: the file will be deleted."""
    target: Target

    @property
    def exists(self) -> bool:
        """True if there is a file now."""
        return self.expected != ABSENT


class ReplacedTool(Outside):
    """One call of a tool that we carry out in a host's place."""

    def __init__(
        self, turn: JudgedTurn, fence: Fence, call: ToolCall, actions: Sequence[Action], delivery: str = ""
    ) -> None:
        super().__init__(turn, call, actions, delivery, can_rewrite=True)
        self._fence = fence

    def plan(self) -> list[PlannedFile]:
        """Judge the call and work out what it writes; raise the refusal. Changes nothing."""
        turn = self.turn
        looked: list[LookedAt] = []
        with turn.memory:
            try:
                if broken := turn.ledger_trouble():
                    raise broken
                for action in self.actions:
                    looked.append(self._look(action, self._name(action.path)))
                    self._judge(looked[-1])
                planned = [self._planned(one) for one in looked]
                if len({file.path for file in planned}) < len(planned):
                    raise BadRequestError(
                        "", "The call changes one file twice. Send one change for each file."
                    )
                return planned
            except EditMismatchError:
                raise  # The host's own tool would fail in the same way. It is no refusal of ours.
            except NoclobberError as error:
                judged = [one.target for one in looked if one.target is not None]
                note_refusal(turn, self.call, judged, error, self.delivery)
                raise

    def commit(self, planned: Sequence[PlannedFile]) -> None:
        """Write what was planned: all files or none, and then what is to be deleted."""
        turn = self.turn
        with turn.memory:
            try:
                retrying(lambda: self._write(planned), turn.options.wait_s, turn.clock)
            except UnflushedError:
                raise  # It landed, and is on record.
            except NoclobberError as error:
                note_refusal(turn, self.call, [file.target for file in planned], error, self.delivery)
                raise

    # -- plan --------------------------------------------------------------------------------------------

    def _judge(self, looked: LookedAt) -> None:
        looked.target = self._gather(looked)
        decision = decide(looked.target.facts)
        if not decision.allowed and not self._merges(looked, decision.error):
            raise decision.error
        self.turn.fence.check(looked.path)

    def _planned(self, looked: LookedAt) -> PlannedFile:
        action, state = looked.action, looked.state
        found = state.sha256
        if found == NOT_A_FILE:
            raise NotAFileError(looked.path, f"Path is a directory, not a file: {looked.path}")
        if found != DELETED and not is_hash(found):
            raise AccessDeniedError(looked.path, "it cannot be read by this user. Check its permissions.")
        assert looked.target is not None
        return PlannedFile(
            action,
            looked.name,
            looked.path,
            ABSENT if found == DELETED else found,
            None if found == DELETED else self._content(looked.path, state.content),
            self._after(looked),
            looked.target,
        )

    def _after(self, looked: LookedAt) -> bytes | None:
        action, path = looked.action, looked.path
        is_there = looked.state.sha256 != DELETED
        before = self._content(path, looked.state.content) if is_there else None
        if action.kind == DELETE:
            if not is_there:
                raise MissingFileError(path, f"File {path} not found")
            return None
        if action.content is not None:
            content = action.content
            data = encode_anyway(content) if isinstance(content, str) else content
            # Text does not show a byte-order mark, so the agent did not mean to drop it.
            has_mark = before is not None and before.startswith(BOM) and not data.startswith(BOM)
            return BOM + data if has_mark else data
        if action.change is None:
            raise BadRequestError(path, "What this call makes of the file is not known.")
        if action.moved_from is not None:
            source = self._look_at(self._name(action.moved_from))
            if source.sha256 == DELETED:
                raise EditMismatchError(source.path, f"File {source.path} not found")
            return _changed(action.change, self._content(source.path, source.content), path)
        creates = getattr(action.change, "creates", False)
        if before is None and not creates:
            raise EditMismatchError(path, f"File {path} not found")
        if before is not None and creates:
            from noclobber.text.loose_edits import EMPTY

            raise EditMismatchError(path, EMPTY)
        return _changed(action.change, before or b"", path)

    @staticmethod
    def _content(path: str, kept: bytes | None) -> bytes:
        if kept is not None:
            return kept
        with open(path, "rb") as file:  # Too large for a look to keep. The commit compares hashes anyway.
            return file.read()

    # -- commit ------------------------------------------------------------------------------------------

    def _write(self, planned: Sequence[PlannedFile]) -> None:
        turn = self.turn
        if _is_inside(turn, planned) and is_ordered_by_server(turn.root):
            self._write_in_a_section(planned)
            return
        committer = _committer(turn, planned)
        written = [file for file in planned if file.after is not None]
        for file in planned:
            # Before anything is written, so that a deletion which cannot be does not leave half a patch.
            if file.after is None and (found := self._look_at(file.name).sha256) != file.expected:
                raise StaleFileError(file.path, file.expected, found)
        changes = [many.Change(file.name, file.after or b"", file.expected, file.path) for file in written]
        try:
            results = many.replace_many(committer, changes, fence=self._fence)
        except UnflushedError as error:
            self._put_down(list(zip(written, error.commits, strict=False)), is_flushed=False)
            raise
        self._put_down(list(zip(written, results, strict=True)))
        for file in planned:
            if file.after is None:
                done = remove.delete(committer, file.name, file.expected, at=file.path, fence=self._fence)
                self._put_down([(file, done)])
        kept = [where for _, where in committer.sweep()]
        if kept:
            turn.recorder.kept(self.call, kept)

    def _write_in_a_section(self, planned: Sequence[PlannedFile]) -> None:
        """On a volume that machines share the server orders all of it, deletions included."""
        turn, options = self.turn, self.turn.options
        guard = guard_class(turn.root)(
            turn.root,
            wait_s=options.wait_s,
            clock=turn.clock,
            keeper=VersionKeeper(turn.root, options, turn.clock) if options.versions == "on" else None,
        )
        try:
            files = [WholeFile(file.path, file.expected, file.after) for file in planned]
            results = guard.write_and_delete(files, fence=self._fence)
        finally:
            guard.close()
        self._put_down(list(zip(planned, results, strict=True)))

    def _put_down(self, done: list[tuple[PlannedFile, WriteResult]], *, is_flushed: bool = True) -> None:
        turn = self.turn
        for file, result in done:  # All of them before the ledger can fail.
            snapshot, notes = turn.memory.recall(file.name, file.path)
            coverage = snapshot.coverage_for(file.name, file.path)
            if file.after is None:
                snapshot.removed(file.name, file.path)
            else:
                # An agent that edits a file of which it saw a part, or nothing, knows no more afterwards.
                knew_all = file.action.kind != EDIT or not file.exists or (coverage and coverage.is_whole)
                seen = WHOLE if knew_all else Coverage((), file.after.count(b"\n") + 1)
                snapshot.wrote(file.name, file.path, result.sha256, None, seen)
                turn.memory.hold(file.path, result.sha256, file.after)  # The base of a later merge.
            turn.memory.keep(snapshot, file.name, file.path, notes)
        for file, result in done:
            turn.recorder.landed(
                self.call,
                file.path,
                result.previous_sha256,
                result.sha256,
                result.level,
                kept=result.kept,
                flushed=is_flushed,
                merged=file.target.merged,
            )
            if file.target.merged is not None:
                self.merges.append((file.path, file.target.merged))
            turn.recorder.recovered(self.call, result.recovered)


def _changed(change: ContentChange, data: bytes, path: str) -> bytes:
    """Apply a change to text as the agent was shown it: without the byte-order mark, which stays."""
    made = change.apply(data.removeprefix(BOM), path)
    return BOM + made if data.startswith(BOM) else made


def _committer(turn: JudgedTurn, planned: Sequence[PlannedFile]) -> Committer:
    """Return the project's committer; for a file outside of the project, one that works beside the file."""
    options = turn.options
    is_inside = _is_inside(turn, planned)
    is_kept = is_inside and options.versions == "on"
    return Committer(
        turn.root if is_inside else None,
        durable=options.durable,
        wait_s=options.wait_s,
        hard_links=options.hard_links == "write",
        busy=options.busy,
        clock=turn.clock,
        keeper=VersionKeeper(turn.root, options, turn.clock) if is_kept else None,
    )


def _is_inside(turn: JudgedTurn, planned: Sequence[PlannedFile]) -> bool:
    return all(file.path.startswith(turn.root.rstrip("/") + "/") for file in planned)
