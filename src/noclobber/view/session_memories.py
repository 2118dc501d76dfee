"""
What the sessions of coding agents have seen, for `status` and `diff`.

Hooks keep one folder per agent in the user's runtime folder, with a small file for each file that the agent
saw (`hook.session_memory`). Its name holds only hashes of the session's and the agent's ids; the ledger has
the ids in full. This module only reads: it creates nothing, takes no mutex, and ignores a folder that others
may write.
"""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING, Any, NamedTuple

from noclobber.core.clock import iso8601
from noclobber.disk import hashing, small_file
from noclobber.errors import UNKNOWN
from noclobber.hook import held_bytes
from noclobber.hook.session_memory import runtime_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

RECORDS_LOOKED_AT = 2000  # Per agent; more files are not counted.


class HookAgent(NamedTuple):
    """One agent's memory: its host, the keys of its session and of itself, and its folder."""

    host: str
    session_key: str
    agent_key: str
    folder: str


class KnownFile(NamedTuple):
    """What an agent knows of one file."""

    path: str
    sha256: str
    """A hash, `ABSENT`, or `UNKNOWN`."""
    time: str


class LastRead(NamedTuple):
    """The file that an agent saw last."""

    agent: str
    host: str
    session: str
    path: str
    time: str


def key_of(name: str) -> str:
    """Return the key that stands for a session's or an agent's id in a folder's name."""
    return hashing.of_bytes(name.encode("utf-8", "surrogatepass"))[:24]


def agents() -> Iterator[HookAgent]:
    """Yield the agents of sessions that have not ended."""
    home = runtime_folder()
    try:
        status = os.lstat(home)
        names = sorted(os.listdir(home))
    except OSError:
        return
    # The same rule as in the hooks: what others may write proves nothing about what an agent saw.
    if not stat.S_ISDIR(status.st_mode) or not small_file.is_private(status):
        return
    for name in names:
        host, _, keys = name.partition(".")
        session_key, _, agent_key = keys.partition(".")
        if agent_key and os.path.isdir(f"{home}/{name}"):
            yield HookAgent(host, session_key, agent_key.partition(".")[0], f"{home}/{name}")


def seen_by(agent: HookAgent, path: str) -> KnownFile | None:
    """Return what an agent knows of one canonical path. Opens one file, however many it saw."""
    name = hashing.of_bytes(path.encode("utf-8", "surrogatepass"))[:40]
    found = _read(f"{agent.folder}/f{name}")
    return found if found is not None and found.path == path else None


def held_by(agent: HookAgent, sha256: str) -> bytes | None:
    """Return bytes with that hash, or that beginning of one, if an agent's memory holds them."""
    try:
        with small_file.closing(small_file.open_folder(agent.folder)) as folder_fd:
            data = held_bytes.held_like(folder_fd, sha256)
    except OSError:
        return None
    return data if data is not None and hashing.of_bytes(data).startswith(sha256) else None


def below(agent: HookAgent, root: str) -> list[KnownFile]:
    """Return what an agent knows of files below a root."""
    try:
        names = [name for name in os.listdir(agent.folder) if name.startswith("f") and "." not in name]
    except OSError:
        return []
    found = (_read(f"{agent.folder}/{name}") for name in names[:RECORDS_LOOKED_AT])
    home = root.rstrip("/") + "/"
    return [seen for seen in found if seen is not None and seen.path.startswith(home)]


def _read(file: str) -> KnownFile | None:
    try:
        time = iso8601(os.stat(file).st_mtime)
        value = json.loads(small_file.read(file).decode("utf-8", "surrogatepass"))
        path, baseline = value["path"], value["seen"][1]
    except (OSError, ValueError, KeyError, TypeError, IndexError, RecursionError):
        return None
    if not isinstance(path, str) or not isinstance(baseline, str):
        return None  # Named in a call, but never seen.
    return KnownFile(path, baseline, time)


def rows(root: str, names: Iterable[str]) -> list[dict[str, Any]]:
    """Return one row for each agent that knows files of a workspace; `names` are ids from the ledger."""
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


def last_reads(root: str, names: Iterable[str]) -> list[LastRead]:
    """Return what each agent of a workspace saw last; `names` are ids from the ledger."""
    known = {key_of(name): name for name in (*names, "main")}
    found = []
    for agent in agents():
        seen = below(agent, root)
        if seen:
            last = max(seen, key=lambda one: one.time)
            who, session = (known.get(key, f"#{key[:8]}") for key in (agent.agent_key, agent.session_key))
            found.append(LastRead(who, agent.host, session, last.path, last.time))
    return found
