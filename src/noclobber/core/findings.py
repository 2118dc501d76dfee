"""What `doctor` reports: one thing that was tried or looked at, in the same shape whoever looked."""

from __future__ import annotations

from typing import NamedTuple

from noclobber.errors import ConfigError, CoordinatorUnavailableError


class Finding(NamedTuple):
    """One thing that was looked at."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""
    """What to do about it, or what is not promised here. Empty if there is nothing to say."""


def remedy_of(error: Exception, otherwise: str = "check the permissions") -> str:
    """Return what to do about a check that failed itself. What a coordinator says names its own remedy."""
    if isinstance(error, (ConfigError, CoordinatorUnavailableError)):
        return "until then locks and guarded writes are refused"
    return otherwise
