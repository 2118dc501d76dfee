"""A link that appears during a commit: not an answer, but a reason to begin again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from noclobber.errors import FileBusyError, NoclobberError

Result = TypeVar("Result")

MOST_TRIES = 50


class LinkAppearedError(NoclobberError):
    """
    There is a link where the path was resolved to a file, or a link on the way now leads elsewhere.

    Somebody may have put it there, or another commit had displaced it for a moment and it is back. Either
    way the commit starts over and writes to what the link leads to, if that is what was expected.
    """


def retry_while_links_appear(commit: Callable[[], Result], path: str) -> Result:
    """Run a commit again for as long as links appear at its path."""
    for _ in range(MOST_TRIES):
        try:
            return commit()
        except LinkAppearedError:
            continue
    raise FileBusyError(path, f"it was replaced by a link in each of {MOST_TRIES} attempts; try again later.")
