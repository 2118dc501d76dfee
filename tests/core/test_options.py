"""Options: what is accepted, and how a mistake is explained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from noclobber.core.options import DEFAULTS, options
from noclobber.errors import BadRequestError


def test_the_defaults_are_the_seeds() -> None:
    """Rulings 2, 7, 11 and 14."""
    assert (DEFAULTS.rebaseline, DEFAULTS.unread, DEFAULTS.partial, DEFAULTS.scope) == (
        "on-read",
        "allow",
        "allow",
        "turn",
    )
    assert (DEFAULTS.retained_file_bytes, DEFAULTS.retained_turn_bytes) == (1 << 20, 64 << 20)


@pytest.mark.parametrize(
    "good",
    [
        {"rebaseline": "after-conflict"},
        {"unread": "deny", "partial": "deny"},
        {"scope": "session"},
        {"durable": True, "wait_s": 0},
        {"retained_file_bytes": 0},
        {"write_scope": None},
        {"write_scope": []},
    ],
)
def test_good_options_are_taken(good: dict[str, Any]) -> None:
    """Rulings 2, 7, 11, 14: each has its option."""
    changed = options(good)._asdict()
    for name, value in good.items():
        assert changed[name] == value or changed[name] == tuple(value)


def test_folders_may_be_paths() -> None:
    """K-WRITE-1."""
    assert options({"write_scope": [Path("docs"), "src"]}).write_scope == ("docs", "src")


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"unraed": "deny"}, "Did you mean 'unread'?"),
        ({"colour": "red"}, "There are: rebaseline"),
        ({"unread": "maybe"}, "'allow', 'deny'"),
        ({"rebaseline": None}, "'on-read', 'after-conflict'"),
        ({"scope": ["docs"]}, "'turn', 'session'"),
        ({"durable": 1}, "True or False"),
        ({"wait_s": -1}, "0 to 3600"),
        ({"wait_s": float("nan")}, "0 to 3600"),
        ({"wait_s": True}, "0 to 3600"),
        ({"retained_file_bytes": -1}, "0 or more"),
        ({"retained_turn_bytes": 1.5}, "0 or more"),
        ({"write_scope": "docs"}, "a list of folders"),
        ({"write_scope": [""]}, "a list of folders"),
        ({"write_scope": [1]}, "a list of folders"),
        ({"write_scope": 7}, "a list of folders"),
    ],
)
def test_bad_options_are_explained(bad: dict[str, Any], said: str) -> None:
    """N-codes: errors that say what was meant."""
    with pytest.raises(BadRequestError, match=said.replace("?", r"\?")):
        options(bad)
