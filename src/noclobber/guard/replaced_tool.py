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

from noclobber.core.actions import DELETE
from noclobber.core.values import BOM
from noclobber.disk.commit.flushing import UnflushedError
from noclobber.disk.file_guard import FileGuard
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
)
from noclobber.guard import engine
from noclobber.guard.change_set import ChangeSet
from noclobber.guard.claims import retrying
from noclobber.guard.judge import note_refusal
from noclobber.guard.outside import Outside
from noclobber.guard.who_commits import guard_class
from noclobber.text.encoding import encode_anyway

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noclobber.core.actions import Action, ContentChange
    from noclobber.core.values import ToolCall
    from noclobber.guard.change_set import FileChange
    from noclobber.guard.engine import WritingTurn
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
    change: FileChange

    def as_change(self) -> FileChange:
        """Return the change as the engine commits it: from what the plan was made from, to what was shown."""
        change = self.change
        change.facts = change.facts._replace(expected=self.expected)
        change.base, change.data, change.is_planned = self.expected, self.after, True
        return change

    @property
    def exists(self) -> bool:
        """True if there is a file now."""
        return self.expected != ABSENT


class ReplacedTool(Outside):
    """One call of a tool that we carry out in a host's place."""

    turn: WritingTurn

    def __init__(
        self, turn: WritingTurn, call: ToolCall, actions: Sequence[Action], delivery: str = ""
    ) -> None:
        super().__init__(turn, call, actions, delivery, can_rewrite=True)

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
                note_refusal(turn, self._wanted(looked), error)
                raise

    def commit(self, planned: Sequence[PlannedFile]) -> None:
        """Write and delete what was planned: all files or none."""
        turn = self.turn
        wanted = ChangeSet(self.call, [file.as_change() for file in planned], delivery=self.delivery)
        guard = turn.guard = _guard(turn, all(_is_inside(turn.root, file.path) for file in planned))
        with turn.memory:
            try:
                results = retrying(lambda: engine.land(turn, wanted), turn.options.wait_s, turn.clock)
            except UnflushedError:
                raise  # It landed, and is on record.
            except NoclobberError as error:
                note_refusal(turn, wanted, error)
                raise
            finally:
                kept = guard.sweep()
                guard.close()
            self.merges += [(done.path, done.merged) for done in results if done.merged is not None]
            if kept:
                turn.recorder.kept(self.call, kept)

    # -- plan --------------------------------------------------------------------------------------------

    def _judge(self, looked: LookedAt) -> None:
        looked.change = self._gather(looked)
        self._judge_or_merge(looked, looked.change.facts)

    def _planned(self, looked: LookedAt) -> PlannedFile:
        action, state = looked.action, looked.state
        found = state.sha256
        if found == NOT_A_FILE:
            raise NotAFileError(looked.path, f"Path is a directory, not a file: {looked.path}")
        if found != DELETED and not is_hash(found):
            raise AccessDeniedError(looked.path, "it cannot be read by this user. Check its permissions.")
        assert looked.change is not None
        return PlannedFile(
            action,
            looked.name,
            looked.path,
            ABSENT if found == DELETED else found,
            None if found == DELETED else self._content(looked.path, state.content),
            self._after(looked),
            looked.change,
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
            from noclobber.text.host_edits import EMPTY

            raise EditMismatchError(path, EMPTY)
        return _changed(action.change, before or b"", path)

    @staticmethod
    def _content(path: str, kept: bytes | None) -> bytes:
        if kept is not None:
            return kept
        with open(path, "rb") as file:  # Too large for a look to keep. The commit compares hashes anyway.
            return file.read()


def _changed(change: ContentChange, data: bytes, path: str) -> bytes:
    """Apply a change to text as the agent was shown it: without the byte-order mark, which stays."""
    made = change.apply(data.removeprefix(BOM), path)
    return BOM + made if data.startswith(BOM) else made


def _guard(turn: WritingTurn, is_inside: bool) -> FileGuard:
    """Return what commits in the project; for a file outside of the project, what works beside the file."""
    options = turn.options
    is_kept = is_inside and options.versions == "on"
    kind = guard_class(turn.root) if is_inside else FileGuard
    return kind(
        turn.root if is_inside else None,
        durable=options.durable,
        wait_s=options.wait_s,
        hard_links=options.hard_links == "write",
        busy=options.busy,
        clock=turn.clock,
        keeper=VersionKeeper(turn.root, options, turn.clock) if is_kept else None,
    )


def _is_inside(root: str, path: str) -> bool:
    return path.startswith(root.rstrip("/") + "/")
