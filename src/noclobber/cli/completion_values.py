"""
Words that a shell may complete and that only this project knows: agents, sessions, versions, refused runs.

They come from ledgers and file names, so they are other people's text, and bash expands what it completes
with: an agent called `$(…)` would run a command. Only words of plain letters are offered.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from noclobber.core.project import find_project

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._@+-")
MOST_WORDS = 200
MOST_LETTERS = 100


def words(kind: str) -> list[str]:
    """Return what can be completed here; nothing if the project cannot be read."""
    try:
        found = KINDS_OF_WORDS[kind](find_project(os.getcwd()))
        return [word for word in dict.fromkeys(found) if _is_plain(word)][:MOST_WORDS]
    except Exception:  # Whatever is wrong, the next command will say it. A completion must not.
        return []


def _is_plain(word: str) -> bool:
    return 0 < len(word) <= MOST_LETTERS and _PLAIN.issuperset(word) and not word.startswith("-")


def _identities(root: str, name: str) -> Iterable[str]:
    from noclobber.view.workspace_state import last_events

    for event in reversed(last_events(root, [])):
        identity = event.get("identity")
        if isinstance(identity, dict) and isinstance(identity.get(name), str):
            yield identity[name]


def _calls(root: str) -> Iterable[str]:
    return _identities(root, "call_id")


def _versions(root: str) -> Iterable[str]:
    from noclobber.disk.versions import Versions

    with Versions(root, make=False) as versions:
        newest = sorted(versions, key=lambda each: each.kept_at_s, reverse=True)
        return [each.sha256[:12] for each in newest]


def _runs(root: str) -> Iterable[str]:
    from noclobber.shell import runs

    return reversed(runs.all_ids(root))


def _kept(root: str) -> Iterable[str]:
    from noclobber.guard import kept_versions

    return [os.path.basename(each.path).partition("~")[0] for each in kept_versions.listed(root)]


KINDS_OF_WORDS: dict[str, Callable[[str], Iterable[str]]] = {
    "agents": lambda root: _identities(root, "agent_id"),
    "sessions": lambda root: _identities(root, "session_id"),
    "turns": lambda root: _identities(root, "turn_id"),
    "calls": _calls,
    "versions": _versions,
    "runs": _runs,
    "kept": _kept,
}
