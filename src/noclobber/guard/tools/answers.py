"""
What a model is told: the text of a result, or the exact object of a refusal.

A refusal's object is the whole text, with nothing before or after it (ruling 3). What else there is to say
goes beside it, as texts of their own; an API without room for several parts leaves them out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from noclobber.core import wire
from noclobber.errors import NoclobberError, RefusalError, StaleFileError, StorageError
from noclobber.text.diff import abridged

if TYPE_CHECKING:
    from noclobber.core.values import WriteResult


class ToolAnswer(NamedTuple):
    """The answer to one tool call, before an API's or a framework's form is given to it."""

    text: str
    """What the model reads. For a refusal: its object as JSON, 009 for a stale write."""
    error: NoclobberError | None = None
    """The refusal, for the program."""
    beside: tuple[str, ...] = ()
    """What is told beside a refusal's object, never inside it."""

    @property
    def is_error(self) -> bool:
        """True for a refusal."""
        return self.error is not None

    @property
    def for_agent(self) -> dict[str, Any] | None:
        """The refusal's object for the model: 009 for a stale write. None for a success."""
        return None if self.error is None else wire.to_object(self.error, "agent")

    @property
    def for_controller(self) -> dict[str, Any] | None:
        """The refusal's object for a program: 011 for a stale write. None for a success."""
        return None if self.error is None else wire.to_object(self.error, "controller")


def told(text: str) -> ToolAnswer:
    """The answer to a call that succeeded."""
    return ToolAnswer(sendable(text))


def refused(error: NoclobberError | OSError) -> ToolAnswer:
    """The answer to a call that was refused. What the operating system said becomes a refusal, too."""
    if not isinstance(error, (StaleFileError, RefusalError)):
        error = StorageError("", f"The call failed: {error}. Nothing is known to have changed.")
    beside: list[str] = []
    if isinstance(error, StaleFileError):
        why = f"Not merged: {error.not_merged}" if error.not_merged else ""
        who = f"Written by {error.written_by}." if error.written_by else ""
        beside += [text for text in (error.target_missing, who, why) if text]
    if error.beside:
        beside.append(error.beside)
    return ToolAnswer(sendable(wire.to_json(error, "agent")), error, tuple(map(sendable, beside)))


def written(what: str, done: WriteResult) -> str:
    """The text for a write that landed; if it was merged, with what others had changed."""
    if done.merged is None:
        return what
    return (
        f"{what}\n\nThe file had changed since you read it, and your change was merged with what "
        f"{done.merged.by or 'others'} had changed. Both are in the file now.\n"
        f"{abridged(done.merged.changes)}"
    )


def sendable(text: str) -> str:
    """Return a text that UTF-8 can encode: each lone surrogate becomes U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
