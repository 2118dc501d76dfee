"""A user who has looked at a project's options, and lets those count that weaken the guard (ruling 34)."""

from __future__ import annotations

from pathlib import Path

from noclobber.core import trust


def trusted_options(root: Path, text: str) -> None:
    """Give a project options that weaken the guard, in a folder that its user trusts."""
    (root / "noclobber.toml").write_text(text)
    trust.trust(str(root), trust.weakening(str(root)))
