"""
What an agent saw, kept between the processes of its hooks.

Each agent (host, session, subagent) has a folder in the user's runtime folder, with one small file for each
file that the agent saw, named by the hash of its path. So a call costs the same whether ten files were seen
or ten thousand. Records are written under the folder's mutex, so hooks of parallel tool calls do not
overwrite each other's records.

The runtime folder is `$XDG_RUNTIME_DIR/noclobber`, or else `noclobber-<uid>` in the temporary folder; if that
is another user's, `runtime` in the user's own state (`core/own_state`). It must
be a real folder that this user owns and nobody else can open. Otherwise it is not used and writes are
refused: a program that can change the record of what an agent saw could let any write through.

The end of a session removes its folders. Those of a session that was not used for two weeks are removed when
another one starts. A session that is resumed after that, or whose memory could not be written, has
*amnesia*: it must read a file before it writes it. If even that cannot be noted in the runtime folder, a mark
in the project's state folder says it. What is noted of a session as a whole is in `session_notes`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.core.json_text import parse, spell
from noclobber.core.project import LOST_FOLDER, STATE_FOLDER
from noclobber.core.switches import runtime_folder as runtime_folder
from noclobber.disk import hashing, mutex, small_file
from noclobber.errors import ABSENT, UNKNOWN, HookFailedError

if TYPE_CHECKING:
    from noclobber.core.clock import Clock
    from noclobber.guard.snapshot import Rebaseline, TurnContext

FORGET_AFTER_S = 14 * 86400.0
PATIENCE_S = 5.0
AMNESIA = "amnesia"
AMNESIA_BIT = 0o1000  # Of a session's folder: it means the same, and needs no inode.


def open_runtime() -> int:
    """Open the runtime folder, and create it if needed; `HookFailedError` if others can use it."""
    path = runtime_folder()
    try:
        if not os.path.isdir(above := os.path.dirname(path)):
            os.makedirs(above, 0o700, exist_ok=True)
        descriptor = small_file.open_folder(path, make=True)
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from error
    status = os.fstat(descriptor)
    if not small_file.is_private(status):
        os.close(descriptor)
        why = "another user owns it" if status.st_uid != os.geteuid() else "other users may open it"
        raise _unusable(path, why)
    return descriptor


def _unusable(path: str, why: str) -> HookFailedError:
    return HookFailedError(
        path,
        f"noclobber keeps a record of what each session has read in this folder, and cannot use it: {why}. "
        "Until that is fixed every write is refused, because none can be checked. Ask the user to remove the "
        "folder, or to make themselves its owner and set its mode to 0700.",
    )


_NO_RECORD = object()


class SessionMemory:
    """
    What one agent saw. Use as a context manager: inside, no other hook of that agent runs.

    A snapshot that `recall()` returns knows what was seen under the one name and path that were asked for.
    """

    holds_bytes = True

    def __init__(
        self,
        host: str,
        session_id: str,
        agent_id: str,
        *,
        root: str = "/",
        turn_id: str | None = None,
        rebaseline: Rebaseline = "on-read",
        parent_agent_id: str | None = None,
    ) -> None:
        """`parent_agent_id`: an agent whose knowledge counts for files that this one has not seen itself."""
        self._root, self._agent_id, self._rebaseline = root, agent_id, rebaseline
        self._session = f"{host}.{short(session_id)}."
        self._name = f"{self._session}{short(agent_id)}" + (f".{short(turn_id)}" if turn_id else "")
        parent = None if parent_agent_id is None else short(parent_agent_id)
        self._parent = None if parent is None else f"{self._session}{parent}"
        self._runtime_fd = open_runtime()
        try:
            self._fd = small_file.open_folder(self._name, self._runtime_fd, make=True)
        except OSError as error:
            os.close(self._runtime_fd)
            raise _unusable(f"{runtime_folder()}/{self._name}", error.strerror or str(error)) from error

    @property
    def folder_fd(self) -> int:
        """The agent's folder, for what is kept beside the records."""
        return self._fd

    def __enter__(self) -> SessionMemory:
        try:
            held = mutex.hold(self._fd, patience_s=PATIENCE_S)
        except OSError:
            held = True  # No flock on this filesystem. A record that two hooks damage means: read again.
        if not held:
            self._close()  # A program that runs its hooks in threads goes on.
            raise HookFailedError(
                "", "Another hook of this session is still running after 5 seconds. Try again in a moment."
            )
        return self

    def __exit__(self, *_: object) -> None:
        try:
            mutex.release(self._fd)
        except OSError:
            pass
        self._close()

    def _close(self) -> None:
        os.close(self._fd)
        os.close(self._runtime_fd)

    # -- records ------------------------------------------------------------------------------------

    def recall(self, name: str, path: str) -> tuple[TurnContext, dict[str, Any]]:
        """Return a snapshot that knows what was seen under a name and a path, and the path's notes."""
        from noclobber.guard.snapshot import TurnContext  # Here: not every event asks what was seen.

        snapshot = TurnContext(
            self._root, turn_id="hook", agent_id=self._agent_id, rebaseline=self._rebaseline
        )
        leads_to = self._read_name(name)
        noted: dict[str, Any] = {}
        for known in {path, name, path if leads_to is None else leads_to[1]}:
            record = self._read("f", known)
            if record is not None:
                snapshot.unpack({"files": {known: record["seen"]}, "name": None})
                noted = record["noted"] if known == path else noted
            elif self._parent is not None:
                inherited = self._of_parent(known)
                if inherited is not None:
                    snapshot.unpack({"files": {known: inherited}, "name": None})
        if leads_to is not None:
            snapshot.unpack({"files": {}, "name": leads_to})
        return snapshot, noted

    def notes_of(self, path: str) -> dict[str, Any]:
        """Nothing: a hook carries out no call itself."""
        return {}

    def keep(self, snapshot: TurnContext, name: str, path: str, noted: dict[str, Any]) -> None:
        """Store what a snapshot knows now. If that fails, the agent has amnesia from then on."""
        packed = snapshot.pack(name, path)
        try:
            for known, seen in packed["files"].items():
                kept = noted if known == path else (self._read("f", known) or {"noted": {}})["noted"]
                self._write("f", known, {"path": known, "seen": seen, "noted": kept})
            if path not in packed["files"]:
                self._write("f", path, {"path": path, "seen": [None, None, None, None], "noted": noted})
            if packed["name"] is not None:
                self._write("n", name, packed["name"])
        except OSError as error:
            self.lose()
            raise HookFailedError(
                f"{runtime_folder()}/{self._name}",
                f"The record of what this session has read could not be written ({error.strerror}). Make "
                "the folder writable or free some space, then read the file again.",
            ) from error

    def _read(self, kind: str, key: str) -> dict[str, Any] | None:
        """Return the record of a path. A record that cannot be read counts as an unknown baseline."""
        try:
            value = self._value(kind, key)
            if value is _NO_RECORD:
                return None
            if value["path"] != key or not _is_sound(value["seen"]) or not _are_notes(value["noted"]):
                raise ValueError("not a record")
            record: dict[str, Any] = value
            return record
        except (OSError, ValueError, KeyError, TypeError):
            return {"path": key, "seen": [None, UNKNOWN, None, None], "noted": {}}

    def _read_name(self, name: str) -> list[Any] | None:
        try:
            value = self._value("n", name)
        except (OSError, ValueError):
            return None  # Then the path alone counts.
        if isinstance(value, list) and len(value) == 3 and value[0] == name and isinstance(value[1], str):
            return value
        return None

    def _of_parent(self, path: str) -> Any:
        """Return what the parent knows of a file. Whoever it is that asks, the stricter answer is right."""
        record = self._in_parent(lambda: self._read("f", path))
        return None if record is None else record["seen"]

    def _in_parent(self, look: Callable[[], Any]) -> Any:
        """Look at the parent's records instead of the agent's own; None if there are none."""
        if self._parent is None:
            return None
        try:
            parent_fd = small_file.open_folder(self._parent, self._runtime_fd)
        except OSError:
            return None
        own_fd, self._fd = self._fd, parent_fd
        try:
            return look()
        finally:
            self._fd = own_fd
            os.close(parent_fd)

    def pending_paths(self) -> list[str]:
        """Return the paths of calls that were let through and never reported back."""
        found = []
        for name in os.listdir(self._fd):
            if name.startswith("f"):
                try:
                    record = self._parsed(name)
                    if record["noted"].get("pending"):
                        found.append(str(record["path"]))
                except (OSError, ValueError, KeyError, TypeError, AttributeError):
                    continue  # Damaged: then the file must be read again anyway.
        return found

    def _value(self, kind: str, key: str) -> Any:
        try:
            return self._parsed(kind + _long(key))
        except FileNotFoundError:
            return _NO_RECORD

    def _parsed(self, name: str) -> Any:
        return parse(small_file.read(name, self._fd).decode("utf-8", "surrogatepass"))

    def _write(self, kind: str, key: str, value: Any) -> None:
        data = spell(value).encode("utf-8", "surrogatepass")
        # Readers hold the mutex too. A kill in the middle leaves a damaged record, which means read again.
        small_file.write_over(kind + _long(key), data, self._fd)

    def known_files(self, most: int | None = None) -> list[tuple[str, str, float]]:
        """
        Return the files that this agent knows, the latest first: path, last version, when it was noted.

        The version is what the next command is checked against: a hash, `ABSENT`, or `UNKNOWN`.
        """
        dated = []
        with os.scandir(self._fd) as entries:
            for entry in entries:
                if entry.name.startswith("f"):
                    dated.append((entry.stat(follow_symlinks=False).st_mtime, entry.name))
        found = []
        for noted_at_s, name in sorted(dated, reverse=True)[:most]:
            try:
                record = self._parsed(name)
                path, (_, last, _, trouble) = record["path"], record["seen"]
                last = (trouble[5] if trouble and len(trouble) > 5 else None) or last
            except (OSError, ValueError, KeyError, TypeError, IndexError):
                continue  # Damaged: then the file must be read again anyway.
            if isinstance(path, str) and isinstance(last, str):
                found.append((path, last, noted_at_s))
        return found

    def paths(self) -> list[str]:
        """Return the files of which anything is known, the latest first; those of the parent come last."""
        found = [path for path, _, _ in self.known_files()]
        return found + [path for path, _, _ in self._in_parent(self.known_files) or ()]

    def note_call(self, key: str, value: Any) -> None:
        """Note something about a call that is under way, for the event after it."""
        self._write("c", key, value)

    def pop_call(self, key: str) -> Any:
        """Return what was noted about a call, and forget it; None if there is nothing."""
        try:
            value = self._value("c", key)
        except (OSError, ValueError):
            value = None
        if value is _NO_RECORD:
            return None
        try:
            os.unlink("c" + _long(key), dir_fd=self._fd)
        except OSError:
            pass
        return value

    # -- bytes ----------------------------------------------------------------------------------------

    def hold(self, path: str, sha256: str, data: bytes) -> None:
        """Hold the bytes of a version for a while, if that is possible."""
        from noclobber.hook import held_bytes

        held_bytes.hold(self._fd, path, sha256, data)

    def held(self, sha256: str | None) -> bytes | None:
        """Return the bytes of a version that are still held, None if they are not."""
        from noclobber.hook import held_bytes

        return held_bytes.held(self._fd, sha256)

    # -- amnesia --------------------------------------------------------------------------------------

    @property
    def is_lost(self) -> bool:
        """True if something that the agent saw may be missing here."""
        try:
            os.stat(AMNESIA, dir_fd=self._fd)
            return True
        except FileNotFoundError:
            is_marked = os.fstat(self._fd).st_mode & AMNESIA_BIT != 0
            return is_marked or os.path.lexists(_lost_mark(self._root, self._session))

    @property
    def is_empty(self) -> bool:
        """True if nothing was ever noted."""
        with os.scandir(self._fd) as entries:
            return next(iter(entries), None) is None

    def lose(self) -> None:
        """Note that something is missing. The mark is a folder: a full disk may still have room for one."""
        try:
            os.mkdir(AMNESIA, 0o700, dir_fd=self._fd)
        except FileExistsError:
            pass
        except OSError:
            os.fchmod(self._fd, 0o700 | AMNESIA_BIT)


def lose_session(host: str, session_id: str, agent_id: str, find: Callable[[], str]) -> None:
    """
    Note that a session saw something that could not be remembered; an error if no place takes the mark.

    `find` names the project, whose state folder has the mark if the runtime folder cannot be used.
    """
    try:
        with SessionMemory(host, session_id, agent_id) as known:
            known.lose()
        return
    except (HookFailedError, OSError):
        pass
    root = find()
    from noclobber.disk.commit import open_stores  # Makes the state folder as it must be.

    open_stores.for_workspace(root).close()
    mark = _lost_mark(root, f"{host}.{short(session_id)}.")
    os.makedirs(os.path.dirname(mark), 0o700, exist_ok=True)
    try:
        os.mkdir(mark, 0o700)
    except FileExistsError:
        pass


def forget_lost_mark(root: str, host: str, session_id: str) -> None:
    """Remove a session's mark in its project, if there is one: the session is over."""
    try:
        os.rmdir(_lost_mark(root, f"{host}.{short(session_id)}."))
    except OSError:
        pass


def _lost_mark(root: str, session: str) -> str:
    return f"{root}/{STATE_FOLDER}/{LOST_FOLDER}/{session}lost"


# -- sessions ------------------------------------------------------------------------------------------


def end_session(host: str, session_id: str) -> None:
    """Forget what the agents of a session saw. If the session is resumed, they must read again."""
    with small_file.closing(open_runtime()) as runtime_fd:
        prefix = f"{host}.{short(session_id)}."
        for name in os.listdir(runtime_fd):
            if name.startswith(prefix):
                _remove(runtime_fd, name)


def forget_old(clock: Clock = SYSTEM_CLOCK) -> None:
    """Remove records that were not used for two weeks: the host was killed, or sends no end event."""
    with small_file.closing(open_runtime()) as runtime_fd:
        sessions: dict[str, list[str]] = {}
        for name in os.listdir(runtime_fd):
            if name.count(".") >= 2 and not name.startswith("hook.log"):
                host, session_id, _ = name.split(".", 2)
                sessions.setdefault(f"{host}.{session_id}", []).append(name)
        since_s = clock.now_s() - FORGET_AFTER_S
        for names in sessions.values():
            # All of a session, or nothing: its first event may be older than what its last one has noted.
            if not any(_is_used(runtime_fd, name, since_s) for name in names):
                for name in names:
                    _remove(runtime_fd, name)


def _is_used(runtime_fd: int, name: str, since_s: float) -> bool:
    """True if something was noted here lately. A record is changed in place, so its folder does not tell."""
    try:
        if os.stat(name, dir_fd=runtime_fd, follow_symlinks=False).st_mtime >= since_s:
            return True
        folder_fd = small_file.open_folder(name, runtime_fd)
    except OSError:
        return False  # Not a folder; or another hook has just removed it.
    try:
        with os.scandir(folder_fd) as entries:
            return any(entry.stat(follow_symlinks=False).st_mtime >= since_s for entry in entries)
    except OSError:
        return True  # Somebody is at work in it.
    finally:
        os.close(folder_fd)


def _remove(runtime_fd: int, name: str) -> None:
    """Remove the memory of one agent, or the note of a session's project."""
    try:
        folder_fd = small_file.open_folder(name, runtime_fd)
    except OSError:
        try:
            os.unlink(name, dir_fd=runtime_fd)
        except OSError:
            pass
        return
    try:
        for entry in os.listdir(folder_fd):
            if entry == AMNESIA:
                os.rmdir(entry, dir_fd=folder_fd)
            else:
                os.unlink(entry, dir_fd=folder_fd)
        os.rmdir(name, dir_fd=runtime_fd)
    except OSError:
        pass  # Another hook is using it; a later start removes it.
    finally:
        os.close(folder_fd)


def _is_sound(seen: Any) -> bool:
    """True if a record can be used. A damaged one must not count as "this file was never read"."""
    initial, baseline, coverage, trouble = seen
    return (
        _is_hash(initial)
        and _is_hash(baseline)
        and (coverage is None or _is_coverage(coverage))
        and (trouble is None or _is_trouble(trouble))
    )


def _is_coverage(value: Any) -> bool:
    if not isinstance(value, list) or len(value) != 2 or not isinstance(value[0], list):
        return False
    ranges, total = value
    return isinstance(total, int) and all(
        isinstance(each, list) and len(each) == 2 and all(isinstance(end, int) for end in each)
        for each in ranges
    )


def _is_trouble(value: Any) -> bool:
    if not isinstance(value, list) or len(value) not in (5, 6):  # Five, by a version before this one.
        return False
    conflict, error, newer, newer_seen, refused, *unseen = value
    return (
        isinstance(conflict, bool)
        and (error is None or isinstance(error, str))
        and _is_hash(newer)
        and all(map(_is_hash, unseen))
        and _is_coverage(newer_seen)
        and isinstance(refused, dict)
    )


def _is_hash(value: Any) -> bool:
    return value in (None, ABSENT, UNKNOWN) or (isinstance(value, str) and len(value) == 64)


def _are_notes(noted: Any) -> bool:
    """True if notes have the form that the judge writes: for each pending call, four values or more."""
    if not isinstance(noted, dict) or not all(
        isinstance(noted.get(kind, {}), dict) for kind in ("pending", "reading", "merged", "renamed")
    ):
        return False
    merges = noted.get("merged", {}).values()
    if not all(isinstance(each, list) and len(each) == 3 for each in merges):
        return False
    offered = noted.get("offered")
    if offered is not None and not (isinstance(offered, list) and len(offered) == 4):
        return False
    lists = (*noted.get("pending", {}).values(), *(noted.get(kind, []) for kind in ("together", "settled")))
    return all(isinstance(each, list) for each in lists) and all(
        len(each) >= 4 and isinstance(each[3], (int, float)) for each in noted.get("pending", {}).values()
    )


def short(text: str) -> str:
    """Return what stands for an id in names of files: ids may have any letters, and any length."""
    return hashing.of_bytes(text.encode("utf-8", "surrogatepass"))[:24]


def _long(text: str) -> str:
    return hashing.of_bytes(text.encode("utf-8", "surrogatepass"))[:40]
