"""A link that appears during a commit: not an answer, but a reason to begin again."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from noclobber.errors import FileBusyError, NoclobberError

if TYPE_CHECKING:
    from collections.abc import Callable

Result = TypeVar("Result")

MOST_TRIES = 50


class LinkAppearedError(NoclobberError):
    """
    A link stands where a file was resolved to, or leads elsewhere. Not an answer: the commit starts over.

    It may have been put there by somebody, or be back where another commit had displaced it for a
    moment. Either way it is to be written through, if what it leads to is what was expected.
    """


def retry_while_links_appear(commit: Callable[[], Result], path: str) -> Result:
    """Run a commit again for as long as links appear at its path."""
    for _ in range(MOST_TRIES):
        try:
            return commit()
        except LinkAppearedError:
            continue
    raise FileBusyError(path, "it is being replaced by links all the time; try again later.")
