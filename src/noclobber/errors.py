"""
Every error this library raises on purpose, each with a stable code.

Two families:

- `StaleFileError` becomes one of two exact objects, `to_agent()` and `to_controller()`. Nothing is ever
  added to either; anything more is told beside them.
- Every other refusal becomes one object, `to_refusal()`, with the keys `error_type`, `file_path`,
  `message`, `resolution`, `details`.

`resolution` tells a program what to do next without reading the message:

| resolution | meaning |
|---|---|
| `RE_READ_REQUIRED` | read the whole file, take the changes into account, write again |
| `READ_FIRST` | read the file, or the rest of it, then write |
| `RETRY_LATER` | nothing is wrong with the request; somebody else is using the file right now |
| `CHANGE_REQUEST` | this request can never succeed; make another one |
| `ASK_A_PERSON` | somebody must look at the machine: permissions, disk space, a damaged record |
"""

from __future__ import annotations

import errno
from typing import Any

# Used in place of a hash when there are no bytes to hash.
ABSENT = "ABSENT"  # A baseline: the agent looked, and there was no file.
UNKNOWN = "UNKNOWN"  # A baseline: there was some version, and nobody can say which.
DELETED = "DELETED"  # The path is gone.
NOT_A_FILE = "NOT_A_FILE"  # A directory, a device, a socket or a broken link is there now.
UNREADABLE = "UNREADABLE"  # Something is there and cannot be read. Never treated as absent.

STALE_MESSAGE = "File modified by another actor. Re-read required."
STALE_HINT = "Perform a new 'read_file' to see the latest changes before attempting to write again."


class NoclobberError(Exception):
    """Base of every error that noclobber raises on purpose."""

    code = "NOCLOBBER_ERROR"
    resolution = "ASK_A_PERSON"
    beside = ""
    """What a coding agent is told beside the refusal's object, never inside it: who, what, what to do."""
    has_landed = False
    """True if a command's changes have landed all the same, and only what comes afterwards has failed."""


class StaleFileError(NoclobberError):
    """The file changed after the turn read it, so the write was refused."""

    code = "STALE_FILE"  # On the wire: controllers branch on it. Never rename.
    resolution = "RE_READ_REQUIRED"
    not_merged: str | None = None
    """With `on_stale = "merge"`: why it was not merged. Goes beside the two objects, never into them."""
    written_by: str | None = None
    """Who wrote what is there: "the agent b at …", or "an outsider, at …". Beside the two objects as well."""
    merged: bytes | None = None
    """What a merge makes of it, if whoever carries the write out cannot be given other content."""
    others: tuple[StaleFileError, ...] = ()
    """The other stale files of the same call, which landed as little."""

    def __init__(self, path: str, expected: str, actual: str) -> None:
        super().__init__(path, expected, actual)  # All of them, so that it pickles.
        self.path, self.expected, self.actual = path, expected, actual

    def __str__(self) -> str:
        missing = f"{self.target_missing} " if self.target_missing else ""
        hashes = f"(expected {self.expected[:12]}, found {self.actual[:12]})"
        return f"{self.path}: {missing}{STALE_MESSAGE} {hashes}"

    @property
    def target_missing(self) -> str:
        """What is said beside the objects, never inside them, if the file is gone; otherwise empty."""
        return "Target missing: it was deleted." if self.actual == DELETED else ""

    def to_controller(self) -> dict[str, str]:
        """Return the 011 object, machine to machine. Exactly these keys."""
        return {
            "error_type": self.code,
            "file_path": self.path,
            "expected_hash": self.expected,
            "actual_hash": self.actual,
            "resolution": self.resolution,
        }

    def to_agent(self) -> dict[str, Any]:
        """Return the 009 object, the tool result that a model reads. Exactly these keys."""
        return {
            "error_type": self.code,
            "message": STALE_MESSAGE,
            "details": {
                "path": self.path,
                "baseline_hash": self.expected,
                "current_disk_hash": self.actual,
            },
            "recovery_hint": STALE_HINT,
        }


class RefusalError(NoclobberError):
    """A request that was refused for a reason other than staleness. Nothing was changed."""

    like_errno = errno.EIO  # For those that are an OSError as well.

    def __init__(self, path: str, message: str, **details: str | int | None) -> None:
        Exception.__init__(self, path, message)  # Not OSError's: it would take the path for an errno.
        self.path, self.message, self.details = path, message, details
        if issubclass(type(self), OSError):  # What callers of open() look at.
            for name, value in (("errno", self.like_errno), ("strerror", message), ("filename", path)):
                setattr(self, name, value)

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickle by attributes: the details are keyword arguments, which Exception.args forgets.
        return _rebuild_refusal, (type(self), self.path, self.message, self.details)

    def to_refusal(self) -> dict[str, Any]:
        """Return the object that every refusal has but two: a stale one and a lock's contention."""
        return {
            "error_type": self.code,
            "file_path": self.path,
            "message": self.message,
            "resolution": self.resolution,
            "details": dict(self.details),
        }


def _rebuild_refusal(
    kind: type[RefusalError], path: str, message: str, details: dict[str, str | int | None]
) -> RefusalError:
    return kind(path, message, **details)


class UnreadFileError(RefusalError):
    """`unread = "deny"`: the turn has not read the file it wants to change."""

    code = "UNREAD_FILE"
    resolution = "READ_FIRST"


class PartialReadError(RefusalError):
    """`partial = "deny"`: the turn has read only part of the file that it wants to replace."""

    code = "PARTIAL_READ"
    resolution = "READ_FIRST"


class NotAFileError(RefusalError):
    """The target is a directory, a FIFO, a socket, a device or a broken link."""

    code = "NOT_A_FILE"
    resolution = "CHANGE_REQUEST"


class BadPathError(RefusalError, ValueError):
    """The path cannot be the name of a file: it has a NUL in it, is not UTF-8, too long or empty."""

    code = "BAD_PATH"
    resolution = "CHANGE_REQUEST"


class OutsideWorkspaceError(RefusalError):
    """The path leads out of the workspace, or to noclobber's own files."""

    code = "OUTSIDE_WORKSPACE"
    resolution = "CHANGE_REQUEST"


class ReservedFileError(RefusalError):
    """A lock file or its ledger. Agents neither read nor write those (REQ-LOCK-010)."""

    code = "RESERVED_FILE"
    resolution = "CHANGE_REQUEST"


class OutsideScopeError(RefusalError):
    """The turn may write in certain folders only, and the path is in none of them (K-WRITE-1)."""

    code = "OUTSIDE_SCOPE"
    resolution = "CHANGE_REQUEST"


class FileBusyError(RefusalError):
    """Another program has the file open for writing, or is in the middle of a guarded write in its folder."""

    code = "FILE_BUSY"
    resolution = "RETRY_LATER"


class ClaimedError(FileBusyError):
    """Somebody else's claim is in the way of a commit. Leave the critical section, wait, and try again."""


def claimed_error(path: str, owner: str, left_s: float) -> ClaimedError:
    """Return the refusal for a file that somebody else has claimed."""
    return ClaimedError(
        path,
        "Another agent is writing this file right now. Wait a moment, read it again, and retry; "
        f"the claim ends in {max(1, round(left_s))} s at the latest.",
        holder=owner,
    )


class EditMismatchError(RefusalError):
    """An edit's old text was not found, was found more than once, or overlaps another edit."""

    code = "EDIT_MISMATCH"
    resolution = "RE_READ_REQUIRED"


class ResubmittedError(RefusalError):
    """`resubmitted = "deny"`: the bytes that were refused as stale came back unchanged after a re-read."""

    code = "STALE_RESUBMITTED"
    resolution = "RE_READ_REQUIRED"


class MissingFileError(RefusalError, FileNotFoundError):
    """There is no such file."""

    code = "FILE_NOT_FOUND"
    like_errno = errno.ENOENT
    resolution = "CHANGE_REQUEST"


class FileExistsAlreadyError(RefusalError, FileExistsError):
    """The destination of a move exists already."""

    code = "ALREADY_EXISTS"
    like_errno = errno.EEXIST
    resolution = "CHANGE_REQUEST"


class AccessDeniedError(RefusalError, PermissionError):
    """The operating system does not let this user read or write the file."""

    code = "ACCESS_DENIED"
    like_errno = errno.EACCES
    resolution = "ASK_A_PERSON"


class MetadataNotKeptError(RefusalError):
    """Owner, ACL or extended attributes could not be copied to the new version, so nothing was replaced."""

    code = "METADATA_NOT_KEPT"
    resolution = "ASK_A_PERSON"


class StorageError(RefusalError, OSError):
    """The disk is full, read-only or failing. The old content is still there."""

    code = "STORAGE_FAILED"
    resolution = "ASK_A_PERSON"


class TooManyFilesError(StorageError):
    """This process, or the machine, has too many files open to look at another one."""

    code = "TOO_MANY_OPEN_FILES"
    resolution = "RETRY_LATER"
    like_errno = errno.EMFILE


class BadRequestError(RefusalError, ValueError):
    """A parameter or an option is missing, unknown, or has the wrong type or value."""

    code = "BAD_REQUEST"
    resolution = "CHANGE_REQUEST"


class ConfigError(RefusalError, ValueError):
    """The project's options file is wrong, so it is unknown which rules apply."""

    code = "BAD_CONFIG"
    resolution = "ASK_A_PERSON"


class UnknownToolError(RefusalError):
    """The tool catalogue has no such tool, so it is unknown what it would write."""

    code = "UNKNOWN_TOOL"
    resolution = "CHANGE_REQUEST"


class GaveUpError(RefusalError):
    """The controller has used up its attempts. `__cause__` is the last refusal."""

    code = "GAVE_UP"
    resolution = "RETRY_LATER"


class CannotUndoError(RefusalError):
    """Taking a write back would lose somebody's change, or its bytes are not kept. Nothing was touched."""

    code = "CANNOT_UNDO"
    resolution = "CHANGE_REQUEST"


class CannotCommitError(RefusalError):
    """git's commit of one agent's changes would take others' along, or cannot be made. Nothing changed."""

    code = "CANNOT_COMMIT"
    resolution = "CHANGE_REQUEST"


class ShellUnavailableError(RefusalError):
    """There is no guarded shell in this place, so the command was not run."""

    code = "SHELL_UNAVAILABLE"
    resolution = "CHANGE_REQUEST"


class OthersWorkError(RefusalError):
    """A git command would take others' uncommitted changes away, or sweep them up into a commit."""

    code = "OTHERS_WORK"
    resolution = "CHANGE_REQUEST"


class TurnClosedError(RefusalError):
    """The turn has ended or the workspace is closed, so it is no longer known what the agent has read."""

    code = "TURN_CLOSED"
    resolution = "CHANGE_REQUEST"


class BaselineNotRetainedError(RefusalError):
    """The bytes that were read were too large to keep, so no diff can be made."""

    code = "BASELINE_NOT_RETAINED"
    resolution = "RE_READ_REQUIRED"


class LedgerError(RefusalError):
    """The ledger cannot be written or read."""

    code = "LEDGER_FAILED"
    resolution = "ASK_A_PERSON"


class BrokenChainError(LedgerError):
    """A line of the ledger was altered, removed or inserted."""

    code = "LEDGER_BROKEN"


class LockContention(RefusalError):  # noqa: N818 - the name that orchestrators know
    """Somebody else holds the deliverable, so the lock was not taken, or the write not made."""

    code = "LOCK_CONTENTION"
    resolution = "RETRY_LATER"

    def to_report(self) -> dict[str, Any]:
        """Return the report that goes to the orchestrator (REQ-LOCK-007). Exactly these keys."""
        return {
            "error_type": self.code,
            "deliverable_id": self.details.get("deliverable_id"),
            "holder": self.details.get("holder"),
            "lease_remaining_s": self.details.get("lease_remaining_s"),
            "contention_time": self.details.get("contention_time"),
        }

    def to_refusal(self) -> dict[str, Any]:
        """The same report: contention has one object, wherever it is told."""
        return self.to_report()


class LockLost(RefusalError):  # noqa: N818 - a fact about a lock, as its counterpart
    """This holder's lock is no longer its own: taken over, deleted, released or never held."""

    code = "LOCK_LOST"
    resolution = "CHANGE_REQUEST"


class CoordinatorUnavailableError(LedgerError):
    """
    The server that several machines share does not answer, so nobody can decide. Nothing was changed.

    The ledger is there, too: a refusal for this reason is not on record, and nobody asks for that in vain.
    """

    code = "COORDINATOR_UNAVAILABLE"
    resolution = "RETRY_LATER"


class BadEventError(LedgerError, ValueError):
    """The ledger cannot record this event: not JSON, too large, nested too deeply. Nothing was written."""

    code = "LEDGER_BAD_EVENT"
    resolution = "CHANGE_REQUEST"


class OverwroteError(RefusalError):
    """A coding agent's tool wrote over what somebody had saved after the check. Their version was kept."""

    code = "MUTATION_RACE"
    overwritten: bytes | None = None
    """What they had saved, if it is at hand."""


class HookFailedError(RefusalError):
    """A hook could not check a write: its input, its memory or its own code failed. Nothing was written."""

    code = "HOOK_FAILED"
    resolution = "ASK_A_PERSON"
