"""
What the hooks of coding agents remember, read for people: which sessions know files of a workspace, and
as what.

Hooks keep a folder an agent in the user's runtime folder, and a small file in it for each file that the
agent saw (`hook.session_memory`). Sessions and agents are named there by a hash; who they are is found on
record, where the same ids stand in full. Reads only: no folder is made, no mutex taken, and a memory that
is not ours alone is not believed.
"""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING, Any, NamedTuple

from noclobber.core.clock import iso8601
from noclobber.disk import hashing
from noclobber.errors import UNKNOWN
from noclobber.hook.session_memory import runtime_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

RECORDS_LOOKED_AT = 2000  # Of one agent. One that saw more is shown with that many.
MAX_BYTES = 1 << 20
_LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Agent(NamedTuple):
    """One agent's memory: its host, the keys of its session and of itself, and where it lies."""

    host: str
    session_key: str
    agent_key: str
    folder: str


class Seen(NamedTuple):
    """What an agent knows of one file."""

    path: str
    sha256: str
    """A hash, `ABSENT`, or `UNKNOWN`."""
    time: str


def key_of(name: str) -> str:
    """Return how a session's or an agent's id is spelled in the name of a memory."""
    return hashing.of_bytes(name.encode("utf-8", "surrogatepass"))[:24]


def agents() -> Iterator[Agent]:
    """Yield the agents of sessions that have not ended."""
    home = runtime_folder()
    try:
        status = os.lstat(home)
        names = sorted(os.listdir(home))
    except OSError:
        return
    # As the hooks have it: what others may write says nothing about what an agent saw.
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        return
    for name in names:
        host, _, keys = name.partition(".")
        session_key, _, agent_key = keys.partition(".")
        if agent_key and os.path.isdir(f"{home}/{name}"):
            yield Agent(host, session_key, agent_key.partition(".")[0], f"{home}/{name}")


def seen_by(agent: Agent, path: str) -> Seen | None:
    """Return what an agent knows of one canonical path. One look, however many files it saw."""
    name = hashing.of_bytes(path.encode("utf-8", "surrogatepass"))[:40]
    found = _read(f"{agent.folder}/f{name}")
    return found if found is not None and found.path == path else None


def below(agent: Agent, root: str) -> list[Seen]:
    """Return what an agent knows of files below a root."""
    try:
        names = [name for name in os.listdir(agent.folder) if name.startswith("f") and "." not in name]
    except OSError:
        return []
    found = (_read(f"{agent.folder}/{name}") for name in names[:RECORDS_LOOKED_AT])
    home = root.rstrip("/") + "/"
    return [seen for seen in found if seen is not None and seen.path.startswith(home)]


def _read(file: str) -> Seen | None:
    try:
        descriptor = os.open(file, _LOOK)
        try:
            value = json.loads(os.read(descriptor, MAX_BYTES).decode("utf-8", "surrogatepass"))
            time = iso8601(os.fstat(descriptor).st_mtime)
        finally:
            os.close(descriptor)
        path, baseline = value["path"], value["seen"][1]
    except (OSError, ValueError, KeyError, TypeError, IndexError, RecursionError):
        return None
    if not isinstance(path, str) or not isinstance(baseline, str):
        return None  # Noted, but never seen.
    return Seen(path, baseline, time)


def rows(root: str, names: Iterable[str]) -> list[dict[str, Any]]:
    """Return one row for each agent that knows files of a workspace; `names` are ids that are on record."""
    known = {key_of(name): name for name in (*names, "main")}
    found = []
    for agent in agents():
        seen = below(agent, root)
        if seen:
            found.append(
                {
                    "host": agent.host,
                    "session_id": known.get(agent.session_key, f"#{agent.session_key[:8]}"),
                    "agent_id": known.get(agent.agent_key, f"#{agent.agent_key[:8]}"),
                    "file_count": len(seen),
                    "unknown_count": sum(one.sha256 == UNKNOWN for one in seen),
                    "last_event": max(one.time for one in seen),
                }
            )
    return found
