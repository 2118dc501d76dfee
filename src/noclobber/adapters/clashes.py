"""Two tools with one name: a model could not say which it means, so it is an error before the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noclobber.errors import BadRequestError

if TYPE_CHECKING:
    from collections.abc import Iterable


def refuse_clashes(ours: Iterable[str], theirs: Iterable[str], remedy: str) -> None:
    """Raise if a guarded tool has the name of one of the user's own. `remedy` says what to change."""
    if both := sorted(set(ours) & set(theirs)):
        raise BadRequestError(
            "", f"A tool of your own is named {both[0]!r}, as a guarded one is. {remedy}", tool=both[0]
        )
