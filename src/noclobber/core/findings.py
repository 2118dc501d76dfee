"""What `doctor` reports: one thing that was tried or looked at, in the same shape whoever looked."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """One thing that was looked at."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""
    """What to do about it, or what is not promised here. Empty if there is nothing to say."""
