"""
What goes on record: one event for each refused write, one for each that landed.

`MUTATION_CONFLICT` is the research page's object, word for word. Other refused writes are
`MUTATION_REFUSED`, landed ones `MUTATION`. If another program's executor failed, that is `MUTATION_FAILED`;
if somebody else wrote the file while it ran, `MUTATION_RACE`. `COMMIT_RECOVERED` says how a commit ended
whose process had died; `VERSION_KEPT`, that somebody wrote to a version already replaced. Hashes and paths,
never content. Paths are relative to the workspace's root where they are inside it, and every event carries
the root's id (`ledger.root`). Events carry who asked; the ledger adds the time and the chain.

Calling sequence: `prepare()` before a commit, `landed()` or `refusal()` after it.

If the ledger fails: `prepare()` raises, and the write is refused, because a broken ledger must not let a
write through that leaves no trace. If a refusal cannot be recorded, the refusal still reaches the caller
and the failure travels with it: `error.ledger_error`, and a note in the traceback. After a commit there is
nothing left to refuse: `LedgerError` with `details["landed"]`, the hash that is on the disk.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from noclobber.core.project import STATE_FOLDER
from noclobber.errors import CoordinatorUnavailableError, LedgerError, NoclobberError, StaleFileError

if TYPE_CHECKING:
    from noclobber.core.values import MergedWrite, Recovered, ToolCall
    from noclobber.ledger.ledger import LedgerEntry
    from noclobber.ledger.observer import Observer
    from noclobber.ledger.protocol import LedgerWriter


LandedEvent = tuple[str, str, dict[str, Any]]


class Recorder:
    """
    Records what became of writes in one workspace, and then tells its observer, if it has one.

    Knows the root of the workspace and the ledger that events go to. Without a root, paths are absolute,
    there is no id, and no folder is made.
    """

    def __init__(self, root: str | None, ledger: LedgerWriter, observer: Observer | None = None) -> None:
        self.root, self.ledger = root, ledger
        self._tell: Callable[[dict[str, Any], LedgerEntry], None] | None = None
        self.began: Callable[[ToolCall], None] | None = None
        """Tells the observer that a call begins; None if it does not want to know."""
        if observer is not None:
            from noclobber.ledger.observer import tell, tells_beginnings  # Here: a hook has no observer.

            self._tell = lambda event, entry: tell(observer, event, entry)
            self.began = tells_beginnings(observer)
        self._workspace_id: str | None = None
        self._relative: Callable[[str, str], str] | None = None
        self._identity: tuple[ToolCall, dict[str, str]] | None = None
        """Who made the call that was last recorded."""

    def prepare(self, events: int = 1) -> bool:
        """
        Make sure that so many events can be recorded, or raise `LedgerError`.

        Makes the state folder if there is none; returns True if it did.
        """
        self._refuse_a_link()
        try:
            self.ledger.prepare(events)
            # A ledger on a server needs no folder. Claims and commands do.
            return not os.path.lexists(f"{self.root or ''}/{STATE_FOLDER}") and self._make_state_folder()
        except CoordinatorUnavailableError:
            raise  # No folder helps. Asking again takes as long again, and a host waits only so long.
        except LedgerError:
            is_new = self._make_state_folder()
        # Once more, also if the folder was there: another process may have made it between our two looks.
        self.ledger.prepare(events)
        return is_new

    def refusal(self, call: ToolCall, error: NoclobberError) -> None:
        """Record a refused write. Never raises: the refusal reaches the caller whatever the ledger does."""
        if isinstance(error, LedgerError):
            return  # A ledger that failed is not asked again: its own failure is the answer.
        if isinstance(error, StaleFileError):
            action = "MUTATION_CONFLICT"
            payload: dict[str, Any] = {
                "tool_name": call.tool,
                "target_file": self.named(error.path),
                "baseline_hash": _spelled(error.expected),
                "current_hash": _spelled(error.actual),
            }
        else:
            action = "MUTATION_REFUSED"
            # A path that is refused because it is not UTF-8 cannot be written as JSON as it is.
            path = str(getattr(error, "path", "")).encode("utf-8", "backslashreplace").decode()
            payload = {"tool_name": call.tool, "target_file": self.named(path)}
        try:
            self._make_state_folder()  # It may be the first event of a workspace.
            self._append(call, action, payload, {"status": "DENIED", "error_type": error.code})
        except LedgerError as failure:
            error.ledger_error = failure  # type: ignore[attr-defined]
            error.add_note(f"And the refusal is not on record: {failure}")

    def landed(
        self,
        call: ToolCall,
        path: str,
        before: str,
        after: str,
        level: str,
        *,
        destination: str | None = None,
        kept: Iterable[str] = (),
        not_kept: Iterable[str] = (),
        written: str | None = None,
        merged: MergedWrite | None = None,
        flushed: bool = True,
        together: list[LandedEvent] | None = None,
        more: Mapping[str, str] | None = None,
    ) -> None:
        """
        Record a write that is on the disk; with `together`, only gather it there.

        Where it moved the file to, which versions it kept, what of the metadata it did not keep, what it was
        merged from, what it was before a formatter changed it, and whether the disk was told to flush it.
        `more`: modes and folders, of what a command did.
        """
        payload: dict[str, Any] = {
            "tool_name": call.tool,
            "target_file": self.named(path),
            "before_hash": _spelled(before),
            "after_hash": _spelled(after),
            "level": level,
        }
        payload |= more or {}
        if call.modes is not None and path in call.modes and destination is None:
            payload["before_mode"] = f"{call.modes[path]:o}"
        if not flushed:
            payload["flushed"] = "no"
        if destination is not None:
            payload["destination"] = self.named(destination)
        if kept_names := [self.named(name) for name in kept]:
            payload["kept"] = kept_names
        if lost := list(not_kept):
            payload["not_kept"] = lost
        if written is not None:  # What the call left, if a formatter changed it since.
            payload["written_hash"] = _spelled(written)
        if call.undoes:
            payload["undoes"] = [_spelled(entry) for entry in call.undoes]
        if merged is not None:  # The fourth version, the result, is `after_hash`.
            payload["merged"] = {
                "base_hash": _spelled(merged.base_sha256),
                "theirs_hash": _spelled(merged.theirs_sha256),
                "ours_hash": _spelled(merged.ours_sha256),
            }
        if together is not None:
            together.append((path, after, self._event(call, "MUTATION", payload, {"status": "APPLIED"})))
            return
        try:
            self._append(call, "MUTATION", payload, {"status": "APPLIED"})
        except LedgerError as failure:
            raise _landed_unrecorded(path, after, failure) from failure

    def together(self, events: list[LandedEvent]) -> None:
        """Record what `landed()` has gathered: with one write, and all of it or nothing."""
        append_all = getattr(self.ledger, "append_all", None)
        for path, after, _ in events[:1]:
            try:
                if append_all is not None:
                    entries = append_all([event for _, _, event in events])
                else:
                    entries = [self.ledger.append(event) for _, _, event in events]
            except LedgerError as failure:
                raise _landed_unrecorded(path, after, failure) from failure
            if self._tell is not None:
                for (_, _, event), entry in zip(events, entries, strict=True):
                    self._tell(event, entry)

    def recovered(self, call: ToolCall, commits: Iterable[Recovered]) -> None:
        """Record how commits ended whose process died: it may never have recorded them itself."""
        for found in commits:
            payload: dict[str, Any] = {"target_file": self.named(found.path), "outcome": found.outcome}
            payload |= {"kept": self.named(found.kept)} if found.kept else {}
            self._append(call, "COMMIT_RECOVERED", payload, {"status": "RECOVERED"})

    def kept(self, call: ToolCall, paths: list[str]) -> None:
        """Record that somebody wrote to versions that had been replaced, and where their bytes are kept."""
        names = [self.named(path) for path in paths]
        self._append(call, "VERSION_KEPT", {"kept": names}, {"status": "KEPT_ASIDE"})

    def failed(self, call: ToolCall, path: str, error: BaseException) -> None:
        """Record that another program's executor failed after it was let through: it may have written."""
        payload = {"tool_name": call.tool, "target_file": self.named(path)}
        self._append(
            call, "MUTATION_FAILED", payload, {"status": "FAILED", "error_type": type(error).__name__}
        )

    def race(
        self,
        call: ToolCall,
        path: str,
        before: str,
        expected: str,
        found: str,
        level: str,
        *,
        kept: Iterable[str] = (),
        overwritten: str | None = None,
    ) -> None:
        """
        Record that somebody else wrote a file while another program's executor did.

        The file holds something else than it must, or it holds just that and somebody's version was
        overwritten: which one, and where it is kept.
        """
        payload: dict[str, Any] = {
            "tool_name": call.tool,
            "target_file": self.named(path),
            "before_hash": _spelled(before),
            "expected_hash": _spelled(expected),
            "current_hash": _spelled(found),
            "level": level,
        }
        if overwritten is not None:
            payload |= {
                "overwritten_hash": _spelled(overwritten),
                "kept": [self.named(name) for name in kept],
            }
        self._append(call, "MUTATION_RACE", payload, {"status": "RACED"})

    def named(self, path: str) -> str:
        """Return how a path is spelled on record."""
        if self.root is None:
            return path
        if self._relative is None:
            from noclobber.ledger.root import relative  # Here: a hook that only judges does not load it.

            self._relative = relative
        return self._relative(self.root, path)

    def _make_state_folder(self) -> bool:
        """Make the state folder if there is none; return True if there was none."""
        self._refuse_a_link()
        if self.root is None or os.path.lexists(f"{self.root}/{STATE_FOLDER}"):
            return False
        from noclobber.disk.commit import open_stores  # Once in the life of a workspace.
        from noclobber.lock.git_exclude import keep_out_of_git

        self._workspace_id = None
        try:
            open_stores.for_workspace(self.root).close()
        except OSError as error:
            raise LedgerError(
                f"{self.root}/{STATE_FOLDER}",
                f"this folder cannot be created ({error.strerror or error}), so no write can be recorded "
                "and nothing was written. Make the project's folder writable for this user.",
            ) from error
        try:
            keep_out_of_git(self.root)
        except OSError:
            pass  # A record that git sees is still a record.
        return True

    def _refuse_a_link(self) -> None:
        """Raise if the state folder is a link: our record would be written wherever it leads."""
        if self.root is not None and os.path.islink(f"{self.root}/{STATE_FOLDER}"):
            raise LedgerError(
                f"{self.root}/{STATE_FOLDER}",
                "this is a link, and noclobber keeps its record in a folder of its own. Remove the link.",
            )

    def _append(self, call: ToolCall, action: str, payload: dict[str, Any], result: dict[str, Any]) -> None:
        event = self._event(call, action, payload, result)
        entry = self.ledger.append(event)
        if self._tell is not None:
            self._tell(event, entry)

    def _event(
        self, call: ToolCall, action: str, payload: dict[str, Any], result: dict[str, Any]
    ) -> dict[str, Any]:
        known = self._identity  # Once: other threads record other calls.
        if known is None or known[0] is not call:  # A command has thousands of events.
            who = {
                "agent_id": call.agent_id,
                "session_id": call.session_id,
                "turn_id": call.turn_id,
                "call_id": call.call_id,
                "host": call.host,
                "intent_id": call.intent_id,
            }
            known = self._identity = call, {key: value for key, value in who.items() if value is not None}
        event: dict[str, Any] = {
            "action_type": action,
            "payload": payload,
            "result": result,
            "identity": known[1].copy(),
        }
        if self._workspace_id is None and self.root is not None:
            from noclobber.ledger.root import workspace_id

            self._workspace_id = workspace_id(self.root)
        if self._workspace_id is not None:
            event["workspace_id"] = self._workspace_id
        return event


def _landed_unrecorded(path: str, after: str, failure: LedgerError) -> LedgerError:
    told = f"The write landed, but it is not on record: {failure}"
    return LedgerError(path, told, landed=after, ledger=failure.path)


def _spelled(sha256_or_word: str) -> str:
    from noclobber.ledger.line import spell_hash  # Here: a hook that only judges does not load it.

    return spell_hash(sha256_or_word)
