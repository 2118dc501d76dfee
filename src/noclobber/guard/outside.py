"""
A call that somebody else carries out: a host (hooks), or an integrator's executor (`pre_tool_use` and so on).

There is nothing to commit, so three functions are called around it:

| function | what is done |
|---|---|
| `before` | claim every file, look, ask the policies; refuse, or note what must come out of it |
| `after` | as noted: the new baseline; if not, a race: told, on record, and the baseline unknown |
| `failed` | end the claim; if the file changed all the same, that goes on record |

Each may be called twice for one call; the second time changes nothing. Several calls of one agent may be
under way at once: what they leave is foreseen together. `formatted` says what a formatter may do afterwards.

A read by somebody else (ruling 22): if the file had the same hash before and after, that is what was seen,
however it was shown. If not, or if nobody looked before, what was shown is compared with what is there now.
If that does not tell either, the agent saw an unknown version, and must read again before it writes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from noclobber.core.actions import CREATE, EDIT, MOVE, READ, WRITE, Action, CallResult
from noclobber.core.project import KEPT_FOLDER, STATE_FOLDER
from noclobber.core.values import WHOLE, Coverage
from noclobber.disk import hashing, paths
from noclobber.disk.reading import look_at
from noclobber.errors import (
    ABSENT,
    DELETED,
    UNKNOWN,
    AccessDeniedError,
    NoclobberError,
    NotAFileError,
    StaleFileError,
)
from noclobber.guard import claims
from noclobber.guard.change_set import ChangeSet
from noclobber.guard.judge import call_key, note_refusal, pop_note, refusal_by_fence, refusal_of
from noclobber.guard.looked import (
    LookedAt,
    forget_repeated,
    is_as_foreseen,
    noted_merge,
    noted_outcome,
    seen_after,
)
from noclobber.guard.outcome import UNKNOWN_OUTCOME, Outcome, foresee, outcome_of
from noclobber.guard.stale_change import OwnWrite

if TYPE_CHECKING:
    from noclobber.core.values import MergedWrite, ToolCall
    from noclobber.disk.reading import FileState
    from noclobber.guard.approval import Watch, WatchedFile
    from noclobber.guard.change_set import FileChange
    from noclobber.guard.facts import Facts
    from noclobber.guard.host_versions import HostVersion
    from noclobber.guard.judge import JudgedTurn
    from noclobber.guard.memory import Notes
    from noclobber.guard.overwritten import Overwritten

LOOKS, LOOK_NAP_S = 8, 0.025  # How often, and how far apart, to look at a file that is being written.
MIDDLE_S = 1.0  # After that long without a change nobody is in the middle of writing it.
LATE_S = 2.0  # How much later than it landed a guarded write that passed over our claim may be on record.
MOST_TOGETHER = 32  # Versions that the calls of one message may leave between them.


class Outside:
    """One call that a host or an integrator's executor carries out."""

    def __init__(
        self,
        turn: JudgedTurn,
        call: ToolCall,
        actions: Sequence[Action],
        delivery: str = "",
        *,
        can_rewrite: bool = False,
    ) -> None:
        """`can_rewrite`: whoever carries the call out can be given other content than was sent."""
        self.turn, self.call, self.actions = turn, call, actions
        self.key = call_key(call, actions)
        self.delivery, self._can_rewrite = delivery, can_rewrite
        self.watch: Watch | None = None
        """After `before`: what to look at until the host has written."""
        self.versions: tuple[HostVersion, ...] = ()
        """After `before`: what to keep once the host has its answer, where nobody looks on."""
        self.content: bytes | None = None
        """After `before`: what must be written instead of what was sent, because it was merged."""
        self.merges: list[tuple[str, MergedWrite]] = []
        """After `after`: the files that were merged, and what of."""
        self.looked: list[LookedAt] = []
        """After `after`: what the call was about."""

    def before(self) -> NoclobberError | None:
        """Judge the call; return the refusal, None to let it through."""
        writes = [action for action in self.actions if action.kind != READ]
        with self.turn.memory:
            targets: list[LookedAt] = []
            try:
                for action in self.actions:
                    if action.kind == READ:
                        self._before_read(action)
                if writes:
                    self._before_writes(writes, targets)
            except NoclobberError as error:
                if writes:
                    note_refusal(self.turn, self._wanted(targets), error)
                    self._keep_seen(error)
                return error
        return None

    def after(self, result: CallResult) -> NoclobberError | None:
        """Take note of a call that was carried out; return what the agent has to be told, if anything."""
        told: NoclobberError | None = None
        with self.turn.memory:
            for action in self.actions:
                looked = self._look(action, self._name(action.path), settles_others=False)
                self.looked.append(looked)
                if action.kind == READ:
                    self._was_read(looked, result)
                elif action.kind == CREATE:
                    self._settle_destination(looked)
                else:
                    told = self._was_written(looked, result) or told
        return told

    def failed(self, error: BaseException | None = None) -> None:
        """Take note of a call that failed."""
        with self.turn.memory:
            for action in self.actions:
                looked = self._look(action, self._name(action.path))
                if action.kind == READ:
                    self._was_not_read(looked, error)
                elif action.kind == CREATE:
                    self._settle_destination(looked)
                else:
                    self._was_not_written(looked, error)

    def settle(self, paths_of: Sequence[str]) -> None:
        """Settle calls that never reported back, because the agent's turn is over."""
        with self.turn.memory:
            for path in paths_of:
                looked = self._look(Action(READ, path), path)
                looked.keep(self.turn)

    # -- before ----------------------------------------------------------------------------------------

    def _before_writes(self, writes: Sequence[Action], targets: list[LookedAt]) -> None:
        """Claim, look at and judge every file before any is written; note what must come out of it."""
        turn = self.turn
        names = [self._name(action.path) for action in writes]
        if broken := turn.ledger_trouble():
            raise broken
        claimed: list[str] = []
        try:
            for path in sorted({_where(turn, name) for name in names}):
                claims.acquire(turn.root, path, turn.owner, self.key, clock=turn.clock)
                claimed.append(path)
            for action, name in zip(writes, names, strict=True):
                targets.append(self._look(action, name))
                self._admit(targets[-1])
            forget_repeated(targets)
            for target in targets:
                self._note_rewrite(target)
                target.note_pending(turn, self.key)
            self._begin_watch(targets)
        except BaseException:
            for path in claimed:  # Nothing will be written, so nobody has to wait for it.
                claims.release(turn.root, path, turn.owner)
            raise

    def _note_rewrite(self, target: LookedAt) -> None:
        """
        Take note that other content is written than was sent.

        A call without a name is named by what it does. Afterwards a host may tell of the call as it was
        sent, or as it was carried out: the second name leads to the first.
        """
        if target.content is None:
            return
        self.content = target.content
        if not self.call.call_id:
            target.notes.setdefault("renamed", {})[call_key(self.call, (target.action,))] = self.key

    def _begin_watch(self, targets: list[LookedAt]) -> None:
        """Prepare the process that looks on while the host asks for permission and writes."""
        watched = self.turn.begin_watch(self.key)
        if watched is None:
            for target in targets:
                self._keep_later(target.path, target.state.content)
            return
        from noclobber.guard.approval import Watch, key_of

        mark, host_pid = watched
        files = []
        for target in targets:
            own = (target.outcome.sha256, *target.outcome.others, *target.notes.get("together", ()))
            known = tuple(sha256 for sha256 in own if sha256 is not None)
            files.append(self._watched_file(target, known))
        self.watch = Watch(self.turn.root, key_of(self.turn.owner, self.key), mark, host_pid, tuple(files))

    def _watched_file(self, target: LookedAt, own: tuple[str, ...]) -> WatchedFile:
        """Name a file to look at, with what to keep of it: what the call replaces, and a merge's base."""
        from noclobber.guard.approval import WatchedFile

        turn = self.turn
        if not self._has_versions(target.path):
            return WatchedFile(target.path, target.state.sha256, own, content=target.state.content)
        merged = None if target.change is None else target.change.merged
        base = None if merged is None else turn.memory.held(merged.base_sha256)
        versions = tuple(data for data in (target.state.content, base) if data is not None)
        return WatchedFile(
            target.path, target.state.sha256, own, turn.options, versions, target.state.content
        )

    def _has_versions(self, path: str) -> bool:
        """True if versions of a host's file may be kept. An undo writes nothing outside, so it needs none."""
        return self.turn.options.versions == "on" and path.startswith(f"{self.turn.root.rstrip('/')}/")

    def _keep_seen(self, error: NoclobberError) -> None:
        """Have what the agent saw kept: its write was refused, and somebody may want to know what changed."""
        if self.turn.confined_to is None and isinstance(error, StaleFileError):
            self._keep_later(error.path, self.turn.memory.held(error.expected))

    def _keep_later(self, path: str, data: bytes | None) -> None:
        turn = self.turn
        if data is None or turn.confined_to is not None or not self._has_versions(path):
            return
        from noclobber.guard.host_versions import HostVersion

        self.versions = (*self.versions, HostVersion(turn.root, turn.options, path, data))

    def _before_read(self, action: Action) -> None:
        looked = self._look(action, self._name(action.path))
        if (refusal := refusal_of(self._gather(looked).facts)) is not None:
            raise refusal
        looked.notes.setdefault("reading", {})[self.key] = looked.state.sha256
        looked.keep(self.turn)

    def _admit(self, looked: LookedAt) -> None:
        looked.change = self._gather(looked)
        if self._follow_formatter(looked, looked.change.facts.expected):
            looked.change = self._gather(looked)
        facts = looked.change.facts
        self._judge_or_merge(looked, facts)
        looked.outcome = foresee(looked.action, self._content_before(looked), facts.path)
        self._foresee_together(looked)

    def _judge_or_merge(self, looked: LookedAt, facts: Facts) -> None:
        """Raise the refusal of a change, unless it is stale and goes ahead merged."""
        refusal = refusal_of(facts, self.turn.fence)
        if refusal is None:
            return
        if not self._merges(looked, refusal):
            raise refusal
        if (refusal := refusal_by_fence(facts.path, self.turn.fence)) is not None:
            raise refusal

    def _merges(self, looked: LookedAt, error: NoclobberError) -> bool:
        """True if a stale write goes ahead because nothing is lost by it."""
        if self.turn.options.on_stale != "merge" or not isinstance(error, StaleFileError):
            return False
        from noclobber.guard.merging import merge_for_host  # Here: few projects merge.

        return merge_for_host(self.turn, looked, error, can_rewrite=self._can_rewrite)

    def _follow_formatter(self, looked: LookedAt, expected: str | None) -> bool:
        """Take what a formatter made of the agent's own last write for the agent's own version."""
        wrote, state = looked.notes.get("wrote"), looked.state
        if not wrote or wrote[0] != expected or state.sha256 == expected or not hashing.is_hash(state.sha256):
            return False
        own = OwnWrite(self.turn.owner, wrote[1], wrote[1])
        if not self._is_formatters_work(state, expected, own):
            if not self._look_until(looked, lambda: self._is_formatters_work(looked.state, expected, own)):
                return False
            state = looked.state
        seen = looked.snapshot.coverage_for(looked.name, looked.path) or WHOLE
        looked.snapshot.wrote(looked.name, looked.path, state.sha256, None, seen)
        # The moment stays: what comes within seconds of this look, and not of the write, is somebody's.
        looked.notes["wrote"] = [state.sha256, wrote[1]]
        self._note_formatted(looked)
        return True

    def _look_until(self, looked: LookedAt, is_so: Callable[[], bool]) -> bool:
        """
        Look at a file again while it changes: a formatter may be in the middle of its write.

        Hosts run the user's hooks and ours at the same time. A file that has not changed for a while is not
        waited for, so only what looks like a race costs this time.
        """
        clock = self.turn.clock
        for _ in range(LOOKS):
            if self.turn.confined_to is not None or clock.now_s() - looked.state.changed_at_s > MIDDLE_S:
                return False
            clock.sleep(LOOK_NAP_S)
            before, looked.state = looked.state, self._look_at(looked.name)
            if looked.state.sha256 != before.sha256 and is_so():
                return True
        return False

    def _is_formatters_work(self, state: FileState, made: str | None, own: OwnWrite) -> bool:
        if self.turn.confined_to is not None:
            return False  # A program's own executor: nobody formats behind its back without being told.
        from noclobber.guard.formatted import is_formatters_work

        turn = self.turn
        return is_formatters_work(turn.memory, turn.options, turn.root, state, made, own)

    def _note_formatted(self, looked: LookedAt) -> None:
        looked.notes["formatted"] = looked.state.sha256
        self.turn.memory.hold(looked.path, looked.state.sha256, looked.state.content or b"")

    def _foresee_together(self, looked: LookedAt) -> None:
        """
        Foresee what this call leaves if others of the same message land before it.

        Hosts ask about each edit of a message before they carry out the first. Each was foreseen from the
        same bytes, so without this the second one that lands would look like a stranger's.
        """
        notes, memory = looked.notes, self.turn.memory
        others = [pending for key, pending in notes.get("pending", {}).items() if key != self.key]
        if not others:
            return
        bases = [*notes.get("together", ()), *(pending[1] for pending in others)]
        together = [*bases, looked.outcome.sha256]
        for base in dict.fromkeys(bases):
            data = memory.held(base)
            outcome = UNKNOWN_OUTCOME if data is None else foresee(looked.action, data, looked.path)
            if outcome.data is not None and outcome.sha256 is not None:
                memory.hold(looked.path, outcome.sha256, outcome.data)
                together.append(outcome.sha256)
            elif data is None:  # Not held any more: what comes out of it is anybody's guess.
                together.append(None)
        notes["together"] = list(dict.fromkeys(together))[-MOST_TOGETHER:]

    def _wanted(self, looked: Sequence[LookedAt]) -> ChangeSet:
        """Return what was judged so far as a change set."""
        judged = [each.change for each in looked if each.change is not None]
        return ChangeSet(self.call, judged, delivery=self.delivery)

    def _gather(self, looked: LookedAt) -> FileChange:
        from noclobber.guard.facts import (
            gather,
        )  # Here: the event after a call needs neither facts nor rules.

        turn = self.turn
        return gather(
            looked.action,
            looked.snapshot,
            looked.name,
            looked.path,
            options=turn.options,
            actual=looked.state.sha256,
            write_scope=turn.write_scope,
            is_memory_lost=turn.memory.is_lost,
            by_us=False,
        )

    def _content_before(self, looked: LookedAt) -> bytes | None:
        """Return what a change is made from; None if that is too large to hold, or is no file."""
        state = looked.state
        if looked.action.kind == WRITE and looked.notes.get("formatted") == state.sha256 and state.content:
            # It will be replaced unread. Should the store have lost it, here it is again.
            self.turn.memory.hold(looked.path, state.sha256, state.content)
        if looked.action.moved_from is not None:
            state = self._look_at(self._name(looked.action.moved_from))
        return b"" if state.sha256 == DELETED and looked.action.moved_from is None else state.content

    # -- after -----------------------------------------------------------------------------------------

    def _was_read(self, looked: LookedAt, result: CallResult) -> None:
        from noclobber.guard.shown import asked_part, exact_part, says_missing, seen_part

        snapshot, notes, state = looked.snapshot, looked.notes, looked.state
        before = pop_note(notes, "reading", self.key)
        if self.delivery:
            if notes.get("read") == self.delivery:
                return  # The same event, delivered again; the file may be another one by now.
            notes["read"] = self.delivery
        if state.sha256 == DELETED:
            # Read, and gone by now: what was known of it stays. Seen to be missing, or removed: absent.
            is_told = looked.action.is_removal or says_missing(result.shown.text, looked.action.path)
            if before == DELETED or is_told:
                snapshot.observe_absent(looked.name, looked.path)
        elif looked.action.is_removal:
            pass  # It is there: not removed, or made anew by somebody. Nothing of it was shown.
        elif not hashing.is_hash(state.sha256):
            snapshot.observe_error(looked.name, looked.path, state.sha256)
        elif looked.action.is_certain or self._may_begin_with(looked):
            if before == state.sha256:
                seen: Coverage | None = asked_part(state, looked.action)
            elif self.turn.confined_to is not None and not result.shown.is_mixed:
                seen = exact_part(state, looked.action, result)
            else:  # Hosts show files in ways of their own, and do not ask before they read. So do commands.
                seen = seen_part(state, looked.action, result, self.turn.clock.now_s())
            if seen is not None and not self._is_read(seen):
                pass  # What was not shown was not read.
            elif seen is not None:
                content = state.content if seen.is_whole and self.turn.confined_to is not None else None
                snapshot.observe(looked.name, looked.path, state.sha256, content, seen)
                if state.content is not None:
                    self.turn.memory.hold(looked.path, state.sha256, state.content)
                if snapshot.expected_for(looked.name, looked.path) == state.sha256 and seen.is_whole:
                    notes.pop("wrote", None)
                    notes.pop("formatted", None)
            elif looked.action.is_certain and snapshot.expected_for(looked.name, looked.path) != state.sha256:
                # What the agent was shown is not what is there now, and nobody can say what it was.
                snapshot.saw_unknown(looked.name, looked.path)
        looked.keep(self.turn)

    def _is_read(self, seen: Coverage) -> bool:
        """
        False if nothing of a file was shown, where a baseline stands for a read.

        Elsewhere such a baseline makes later writes stricter: whoever changes the file is noticed.
        """
        turn = self.turn
        is_strict = turn.confined_to is not None or turn.options.unread == "deny" or turn.memory.is_lost
        return seen.is_whole or bool(seen.ranges) or not is_strict

    def _may_begin_with(self, looked: LookedAt) -> bool:
        """
        True if a read that is not certain may give a first baseline: that only makes later writes stricter.

        It never refreshes one, and never stands for the read that `unread = "deny"` asks for.
        """
        turn = self.turn
        if turn.options.unread == "deny" or turn.memory.is_lost:
            return False
        return looked.snapshot.last_for(looked.name, looked.path) is None

    def _was_not_read(self, looked: LookedAt, error: BaseException | None) -> None:
        before = pop_note(looked.notes, "reading", self.key)
        if looked.state.sha256 == DELETED and before in (None, DELETED):
            looked.snapshot.observe_absent(looked.name, looked.path)
        elif error is not None:
            code = getattr(error, "code", type(error).__name__)
            looked.snapshot.observe_error(looked.name, looked.path, code)
        looked.keep(self.turn)

    def _was_written(self, looked: LookedAt, result: CallResult) -> NoclobberError | None:
        notes, action = looked.notes, looked.action
        key = self._name_before(notes)
        pending = pop_note(notes, "pending", key)
        done = f"{self.key}:{self.delivery}"
        try:
            if notes.get("done") == done:
                return None  # The same event, delivered again.
            notes["done"] = done
            if key in notes.get("settled", ()):
                notes["settled"].remove(key)
                return None  # It was found to have landed before, and is on record.
            asked_at_s = self.turn.clock.now_s()
            if pending is not None:
                before, outcome, asked_at_s = pending[0], noted_outcome(pending), pending[3]
                baseline = looked.snapshot.last_for(looked.name, looked.path)
                if baseline is not None and baseline in notes.get("together", ()):
                    before = baseline  # Another call of the same message has landed before this one.
            else:  # Nobody asked before, or the note is gone: what the call itself says is left to go by.
                before = looked.snapshot.last_for(looked.name, looked.path) or ABSENT
                outcome = foresee(action, None) if action.change is None else UNKNOWN_OUTCOME
            if outcome == UNKNOWN_OUTCOME:
                if result.content is not None:
                    outcome = outcome_of(result.content)
                elif result.sha256 is not None:
                    outcome = Outcome(result.sha256, None)
            return self._compare(looked, key, before, outcome, asked_at_s)
        finally:
            self._end_claim(looked)
            looked.keep(self.turn)

    def _name_before(self, notes: Notes) -> str:
        """Return the name that this call had when it was judged, and forget that it got another one."""
        renamed = notes.pop("renamed", {})
        key: str = renamed.get(self.key, self.key)
        if others := {new: old for new, old in renamed.items() if old != key}:
            notes["renamed"] = others
        return key

    def _end_claim(self, looked: LookedAt) -> None:
        """End the agent's claim on a file, unless another call of its is still about to write it."""
        if not looked.notes.get("pending"):
            looked.notes.pop("together", None)
            claims.release(self.turn.root, looked.path, self.turn.owner)

    def _compare(
        self, looked: LookedAt, key: str, before: str, outcome: Outcome, asked_at_s: float
    ) -> NoclobberError | None:
        turn, found = self.turn, looked.state.sha256
        together = looked.notes.get("together", ())
        is_gone = outcome.sha256 == ABSENT and found == DELETED
        is_own = is_gone or is_as_foreseen(looked.state, outcome) or found in together

        # The event comes right after the write. Since the host asked, a person may have thought about it.
        own = OwnWrite(turn.owner, turn.clock.now_s(), asked_at_s)

        def is_known() -> bool:
            return is_as_foreseen(looked.state, outcome) or self._is_formatters_work(
                looked.state, outcome.sha256, own
            )

        is_formatted = not is_own and outcome.sha256 is not None and is_known()
        if (
            not is_own
            and not is_formatted
            and outcome.sha256 is not None
            and self._look_until(looked, is_known)
        ):
            found = looked.state.sha256
            is_own = is_as_foreseen(looked.state, outcome)
            is_formatted = not is_own
        lost = self._overwritten(looked, key, before, outcome)
        merged = noted_merge(looked.notes, key)
        if merged is not None and found == merged.ours_sha256 and not is_own:
            from noclobber.guard.merging import keep_theirs

            # The host wrote what the model sent, and not what it was given instead.
            lost = keep_theirs(turn, looked.path, merged, key) or lost
            if lost is not None:
                self._landed(looked, before, found, lost=lost)
                return lost.told(looked.path)
        if not is_own and not looked.action.is_certain and found == before:
            return None  # The call may have been about something else.
        with claims.InOrder(looked.path):
            is_overtaken = is_own and self._is_overtaken(looked.path, asked_at_s, before)
            if not is_overtaken and (is_own or is_formatted):
                seen = seen_after(looked) if looked.action.kind == EDIT else WHOLE
                written = outcome.sha256 if is_formatted else None
                after = ABSENT if is_gone else found
                self._landed(looked, before, after, seen, written=written, lost=lost, merged=merged)
                if is_formatted:
                    self._note_formatted(looked)
                return None if lost is None else lost.told(looked.path)
            looked.snapshot.saw_unknown(looked.name, looked.path)
            before = ABSENT if before == DELETED else before
            if outcome.sha256 is None or None in together:
                # Nothing was foreseen, so nothing is proven either: it must be read.
                turn.recorder.landed(self.call, looked.path, before, found, turn.outside_level)
                return None
            looked.snapshot.refused(looked.name, looked.path, None, UNKNOWN)
            self._record_race(looked.path, before, outcome.sha256, found, lost)
        return StaleFileError(looked.path, before if is_overtaken else outcome.sha256, found)

    def _is_overtaken(self, path: str, asked_at_s: float, seen: str) -> bool:
        """
        True if another agent has written meanwhile: then equal bytes do not say whose they are.

        Two that count from three both write four, and one of the two is not counted (E1). Others wait for a
        claim for a while only; and the one that took it over may tell of its write later than we do.
        """
        from noclobber.ledger.last_writer import is_written_by_others  # Here: not needed before a call.

        turn, call = self.turn, self.call
        me = f"{call.host or ''}/{call.session_id or ''}/{call.agent_id or ''}"
        deadline_s = turn.clock.monotonic_s() + LATE_S
        while True:
            found = is_written_by_others(turn.root, path, me, asked_at_s, seen)
            if found is None:
                return not claims.is_held(turn.root, path, turn.owner)
            is_late = turn.clock.monotonic_s() >= deadline_s
            if found or is_late or not claims.is_passed(turn.root, path, turn.owner):
                return found
            turn.clock.sleep(LOOK_NAP_S)

    def _record_race(
        self, path: str, before: str, expected: str, found: str, lost: Overwritten | None
    ) -> None:
        kept, overwritten = ((), None) if lost is None else (lost.kept, lost.sha256)
        level = self.turn.outside_level
        self.turn.recorder.race(
            self.call, path, before, expected, found, level, kept=kept, overwritten=overwritten
        )

    def _overwritten(self, looked: LookedAt, key: str, before: str, outcome: Outcome) -> Overwritten | None:
        """End the watch of a call that was carried out; keep what somebody saved and it wrote over."""
        turn = self.turn
        turn.end_watch(key)  # First: from now on no more copies are made.
        if turn.confined_to is not None or not _has_copies(turn.root):
            return None
        from noclobber.guard.overwritten import keep_overwritten

        was, made = turn.memory.held(before), turn.memory.held(outcome.sha256)
        return keep_overwritten(
            turn.root, turn.owner, key, looked.action, looked.state, outcome, was=was, made=made
        )

    def _drop_copies(self, looked: LookedAt, key: str) -> None:
        """End the watch of a call that wrote nothing: what somebody saved meanwhile is there."""
        turn = self.turn
        turn.end_watch(key)
        if turn.confined_to is None and _has_copies(turn.root):
            from noclobber.guard.approval import key_of
            from noclobber.guard.overwritten import copies_of, drop

            drop(copies_of(turn.root, key_of(turn.owner, key), looked.path))

    def _was_not_written(self, looked: LookedAt, error: BaseException | None) -> None:
        key = self._name_before(looked.notes)
        pending = pop_note(looked.notes, "pending", key)
        merged = noted_merge(looked.notes, key)
        if pending is not None:
            before, after, found = pending[0], pending[1], looked.state.sha256
            if after == ABSENT and found == DELETED:
                self._landed(looked, before, after)
            elif found != before and is_as_foreseen(looked.state, noted_outcome(pending)):
                self._landed(looked, before, found, merged=merged)
            elif (found != before and found not in looked.notes.get("together", ())) or error is not None:
                failure = error or _FailedCallError()
                self.turn.recorder.failed(self.call, looked.path, failure)
        elif error is not None:
            self.turn.recorder.failed(self.call, looked.path, error)
        self._drop_copies(looked, key)
        self._end_claim(looked)
        looked.keep(self.turn)

    def _settle_destination(self, looked: LookedAt) -> None:
        """A move's destination has no outcome of its own; what was noted and claimed for it ends."""
        pop_note(looked.notes, "pending", self.key)
        self._end_claim(looked)
        looked.keep(self.turn)

    def _landed(
        self,
        looked: LookedAt,
        before: str,
        after: str,
        seen: Coverage = WHOLE,
        *,
        written: str | None = None,
        lost: Overwritten | None = None,
        merged: MergedWrite | None = None,
    ) -> None:
        turn = self.turn
        kept = self._keep_formatted(looked, before, after) if turn.confined_to is None else []
        coverage = looked.snapshot.coverage_for(looked.name, looked.path)
        if after == ABSENT:
            looked.snapshot.removed(looked.name, looked.path)
        else:
            content = looked.state.content if turn.confined_to is not None else None
            looked.snapshot.wrote(looked.name, looked.path, after, content, seen)
        before = ABSENT if before == DELETED else before
        destination = None
        if looked.action.kind == MOVE:
            [goal] = [self._name(action.path) for action in self.actions if action.kind == CREATE]
            moved = self._look_at(goal)
            after, destination = moved.sha256, moved.path
            if coverage is not None and after == before:  # Seen there, so known here.
                snapshot, notes = turn.memory.recall(goal, moved.path)
                snapshot.wrote(goal, moved.path, after, None, coverage)
                turn.memory.keep(snapshot, goal, moved.path, notes)
        if lost is not None:
            self._record_race(looked.path, before, written or after, after, lost)
            return
        turn.recorder.landed(
            self.call,
            looked.path,
            before,
            after,
            turn.outside_level,
            destination=destination,
            kept=kept,
            written=written,
            merged=merged,
        )
        if merged is not None:
            self.merges.append((looked.path, merged))

    def _keep_formatted(self, looked: LookedAt, before: str, after: str) -> list[str]:
        """Note an own version; keep what a formatter left if it was replaced without having been read."""
        notes, memory = looked.notes, self.turn.memory
        was_formatted = notes.pop("formatted", None) == before
        if after == ABSENT:
            notes.pop("wrote", None)
        else:
            notes["wrote"] = [after, self.turn.clock.now_s()]
            if looked.state.content is not None:
                memory.hold(looked.path, after, looked.state.content)
        if not was_formatted:
            return []
        if looked.action.kind == EDIT:
            notes["formatted"] = after  # The rest of it is still what the agent has not read.
            return []
        data = memory.held(before)
        if data is None:
            return []
        from noclobber.disk.commit.kept import keep_bytes

        return [keep_bytes(self.turn.root, looked.path, data, self.key)]

    # -- what is known ---------------------------------------------------------------------------------

    def _name(self, path: str) -> str:
        return paths.lexical(self.turn.folder, path)

    def _look_at(self, name: str) -> FileState:
        return look_at(name, self.turn.confined_to, keep=True, clock=self.turn.clock)

    def _look(self, action: Action, name: str, *, settles_others: bool = True) -> LookedAt:
        """
        Look at a file, and recall what the agent knows of it.

        `settles_others`: a call that was let through and never reported back (a patch through the shell, a
        host that was killed) has either happened by now or it has not, and the disk tells which.
        """
        state = self._look_at(name)
        snapshot, notes = self.turn.memory.recall(name, state.path)
        looked = LookedAt(action, name, state, snapshot, notes)
        others = [key for key in notes.get("pending", ()) if key != self.key] if settles_others else ()
        for key in others:
            before, after, _, since_s = notes["pending"][key][:4]
            if state.sha256 == before and self.turn.clock.now_s() < since_s + self.turn.parallel_s:
                continue  # One of several calls of a message, and still to come.
            pending, merged = pop_note(notes, "pending", key), noted_merge(notes, key)
            as_write = LookedAt(action._replace(kind=WRITE), name, state, snapshot, notes)
            if after == ABSENT and state.sha256 == DELETED:
                self._landed(as_write, before, ABSENT)
                self._drop_copies(as_write, key)
            elif state.sha256 != before and (
                is_as_foreseen(state, noted_outcome(pending)) or state.sha256 in notes.get("together", ())
            ):
                lost = self._overwritten(as_write, key, before, noted_outcome(pending))
                self._landed(as_write, before, state.sha256, lost=lost, merged=merged)
                notes["settled"] = [*notes.get("settled", ()), key][-MOST_TOGETHER:]
            else:
                self._drop_copies(as_write, key)
        return looked


class _FailedCallError(Exception):
    """The host says that its tool failed."""


def _has_copies(root: str) -> bool:
    """True if a watch may have made copies: a look into a folder, before anything is loaded for it."""
    try:
        return any(name.startswith(".watch-") for name in os.listdir(f"{root}/{STATE_FOLDER}/{KEPT_FOLDER}"))
    except OSError:
        return False


def _where(turn: JudgedTurn, name: str) -> str:
    """Return the canonical path of a name; the name itself if a folder on its way is none any more."""
    try:
        return paths.locate(name, turn.confined_to)
    except (NotAFileError, AccessDeniedError):
        return name  # If the agent knows a file under that name, then that is what changed.
