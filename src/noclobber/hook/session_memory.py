"""
What an agent saw, kept between the processes of its hooks.

Each agent (host, session, subagent) has a folder in the user's runtime folder, with one small file for each
file that the agent saw, named by the hash of its path. So a call costs the same whether ten files were seen
or ten thousand. Records are written under the folder's mutex, so hooks of parallel tool calls do not
overwrite each other's records.

The runtime folder is `$XDG_RUNTIME_DIR/noclobber`, or else `noclobber-<uid>` in the temporary folder. It must
be a real folder that this user owns and nobody else can open. Otherwise it is not used and writes are
refused: a program that can change the record of what an agent saw could let any write through.

The end of a session removes its folders. Those of a session that was not used for two weeks are removed when
another one starts. A session that is resumed after that, or whose memory could not be written, has
*amnesia*: it must read a file before it writes it. If even that cannot be noted in the runtime folder, a mark
in the project's state folder says it. The first event of a session also records which project it belongs to.
"""

from __future__ import annotations

import os

from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.core.light.json_text import parse, spell
from noclobber.core.project import LOST_FOLDER, STATE_FOLDER
from noclobber.core.switches import runtime_folder as runtime_folder
from noclobber.disk import hashing, mutex
from noclobber.errors import ABSENT, UNKNOWN, HookFailedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from noclobber.core.clock import Clock
    from noclobber.guard.snapshot import Rebaseline, TurnContext

FORGET_AFTER_S = 14 * 86400.0
PATIENCE_S = 5.0
AMNESIA = "amnesia"
AMNESIA_BIT = 0o1000  # Of a session's folder: it means the same, and needs no inode.
PROJECT = "project"
COMMAND = "command"
WATCH = "watch"
WATCH_END_S = 5.0
DELEGATED = "delegated"
LEVEL = "level"
SHELL_FILE = "shell-file"  # Which file the session's shells read first.
BACKGROUND = "background"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
MOST_BYTES = 1 << 20


def open_runtime() -> int:
    """Open the runtime folder, and create it if needed; `HookFailedError` if others can use it."""
    path = runtime_folder()
    try:
        try:
            descriptor = os.open(path, _FOLDER)
        except FileNotFoundError:
            try:
                os.mkdir(path, 0o700)
            except FileExistsError:
                pass
            descriptor = os.open(path, _FOLDER)
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from error
    status = os.fstat(descriptor)
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
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
        self._session = f"{host}.{_short(session_id)}."
        self._name = f"{self._session}{_short(agent_id)}" + (f".{_short(turn_id)}" if turn_id else "")
        parent = None if parent_agent_id is None else _short(parent_agent_id)
        self._parent = None if parent is None else f"{self._session}{parent}"
        self._runtime_fd = open_runtime()
        try:
            self._fd = self._open()
        except OSError as error:
            os.close(self._runtime_fd)
            raise _unusable(f"{runtime_folder()}/{self._name}", error.strerror or str(error)) from error

    def _open(self) -> int:
        try:
            return os.open(self._name, _FOLDER, dir_fd=self._runtime_fd)
        except FileNotFoundError:
            pass
        try:
            os.mkdir(self._name, 0o700, dir_fd=self._runtime_fd)
        except FileExistsError:
            pass
        return os.open(self._name, _FOLDER, dir_fd=self._runtime_fd)

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
        try:
            parent_fd = os.open(self._parent or "", _FOLDER, dir_fd=self._runtime_fd)
        except OSError:
            return None
        own_fd, self._fd = self._fd, parent_fd
        try:
            record = self._read("f", path)
        finally:
            self._fd = own_fd
            os.close(parent_fd)
        return None if record is None else record["seen"]

    def pending_paths(self) -> list[str]:
        """Return the paths of calls that were let through and never reported back."""
        found = []
        for name in os.listdir(self._fd):
            if name.startswith("f"):
                try:
                    descriptor = os.open(name, _READ, dir_fd=self._fd)
                    try:
                        record = parse(os.read(descriptor, MOST_BYTES).decode("utf-8", "surrogatepass"))
                    finally:
                        os.close(descriptor)
                    if record["noted"].get("pending"):
                        found.append(str(record["path"]))
                except (OSError, ValueError, KeyError, TypeError, AttributeError):
                    continue  # Damaged: then the file must be read again anyway.
        return found

    def _value(self, kind: str, key: str) -> Any:
        try:
            descriptor = os.open(kind + _long(key), _READ, dir_fd=self._fd)
        except FileNotFoundError:
            return _NO_RECORD
        try:
            return parse(os.read(descriptor, MOST_BYTES).decode("utf-8", "surrogatepass"))
        finally:
            os.close(descriptor)

    def _write(self, kind: str, key: str, value: Any) -> None:
        data = spell(value).encode("utf-8", "surrogatepass")
        # In place: after a rename over a file ext4 flushes it at once, which takes most of a millisecond.
        # Readers hold the mutex too. A kill in the middle leaves a damaged record, which means read again.
        descriptor = os.open(kind + _long(key), _WRITE, 0o600, dir_fd=self._fd)
        try:
            if os.write(descriptor, data) != len(data):
                raise OSError(28, "the disk is full")
            os.ftruncate(descriptor, len(data))
        finally:
            os.close(descriptor)

    def known_files(self, most: int) -> list[tuple[str, str, float]]:
        """Return the files that this agent has seen, the latest first: path, baseline, when it was noted."""
        dated = []
        with os.scandir(self._fd) as entries:
            for entry in entries:
                if entry.name.startswith("f"):
                    dated.append((entry.stat(follow_symlinks=False).st_mtime, entry.name))
        found = []
        for noted_at_s, name in sorted(dated, reverse=True)[:most]:
            try:
                descriptor = os.open(name, _READ, dir_fd=self._fd)
                try:
                    record = parse(os.read(descriptor, MOST_BYTES).decode("utf-8", "surrogatepass"))
                finally:
                    os.close(descriptor)
                path, baseline = record["path"], record["seen"][1]
            except (OSError, ValueError, KeyError, TypeError, IndexError):
                continue  # Damaged: then the file must be read again anyway.
            if isinstance(path, str) and isinstance(baseline, str) and baseline != UNKNOWN:
                found.append((path, baseline, noted_at_s))
        return found

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
    mark = _lost_mark(root, f"{host}.{_short(session_id)}.")
    os.makedirs(os.path.dirname(mark), 0o700, exist_ok=True)
    try:
        os.mkdir(mark, 0o700)
    except FileExistsError:
        pass


def forget_lost_mark(root: str, host: str, session_id: str) -> None:
    """Remove a session's mark in its project, if there is one: the session is over."""
    try:
        os.rmdir(_lost_mark(root, f"{host}.{_short(session_id)}."))
    except OSError:
        pass


def _lost_mark(root: str, session: str) -> str:
    return f"{root}/{STATE_FOLDER}/{LOST_FOLDER}/{session}lost"


# -- sessions ------------------------------------------------------------------------------------------


def settle_project(host: str, session_id: str, find: Callable[[], str]) -> str:
    """
    Return the project of a session: what its first event found, for as long as that folder exists.

    A later `cd`, a nested repository or a submodule must not change the rules that apply to the agent.
    """
    runtime_fd = open_runtime()
    try:
        name = f"{host}.{_short(session_id)}.{PROJECT}"
        while True:
            settled = _settled(runtime_fd, name)
            if settled is None:
                found = find()
                if not _settle(runtime_fd, name, found):
                    continue  # Another first event was faster, and what it found counts.
                settled = found
            return settled
    finally:
        os.close(runtime_fd)


def _settled(runtime_fd: int, name: str) -> str | None:
    """Return the project that was settled; None if there is none, or none that exists any more."""
    settled = _noted_project(runtime_fd, name)
    if settled is None or _is_folder(settled):
        return settled
    # The project is gone, so the session gets another one. Under the mutex, with another look: between ours
    # and the removal somebody else may have settled the next one, which must not be removed.
    try:
        held = mutex.hold(runtime_fd, patience_s=PATIENCE_S)
    except OSError:
        held = True  # No flock on this filesystem.
    if not held:
        raise HookFailedError("", "Another hook is still settling its project after 5 seconds. Try again.")
    try:
        settled = _noted_project(runtime_fd, name)
        if settled is None or _is_folder(settled):
            return settled
        _unlink(runtime_fd, name)
        return None
    finally:
        mutex.release(runtime_fd)


def _noted_project(runtime_fd: int, name: str) -> str | None:
    try:
        descriptor = os.open(name, _READ, dir_fd=runtime_fd)
    except FileNotFoundError:
        return None
    try:
        return os.fsdecode(os.read(descriptor, MOST_BYTES))
    finally:
        os.close(descriptor)


def _is_folder(settled: str) -> bool:
    return settled.startswith("/") and os.path.isdir(settled)


def _settle(runtime_fd: int, name: str, found: str) -> bool:
    """Publish what an event found; False if that must be tried again."""
    staged = stage(runtime_fd, name, os.fsencode(found))
    try:
        # `link` is atomic and fails if the name exists, so parallel first events agree on one project.
        os.link(staged, name, src_dir_fd=runtime_fd, dst_dir_fd=runtime_fd)
        return True
    except (FileExistsError, FileNotFoundError):
        return False  # Not found: the end of the session has just removed all that it had, this as well.
    finally:
        _unlink(runtime_fd, staged)


def stage(runtime_fd: int, name: str, data: bytes) -> str:
    """
    Write a file of the runtime folder beside its name; return what it is called until it gets that name.

    Not called by the process: hooks of an agent framework run in threads of one. Of two first events of a
    session the second emptied the file that the first had written, and the first removed it before the
    second could publish it.
    """
    staged = f"{name}.{os.urandom(8).hex()}"
    descriptor = os.open(staged, _WRITE | os.O_EXCL, 0o600, dir_fd=runtime_fd)
    try:
        if os.write(descriptor, data) != len(data):  # Half a path may be another folder's.
            raise OSError(28, "the disk is full")
    except OSError:
        _unlink(runtime_fd, staged)
        raise
    finally:
        os.close(descriptor)
    return staged


def _unlink(runtime_fd: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=runtime_fd)
    except FileNotFoundError:
        pass


def make_mark(host: str, session_id: str, agent_id: str, key: str) -> str | None:
    """Make the mark of a call that is watched; return its path, None if it cannot be made."""
    path = _mark(host, session_id, agent_id) + _short(key)
    try:
        os.close(os.open(path, _WRITE, 0o600))
    except OSError:
        return None
    return path


def remove_mark(host: str, session_id: str, agent_id: str, key: str) -> None:
    """Remove the mark of a call: nobody has to look on any more. Who looked on has made all copies then."""
    _end_watch(_mark(host, session_id, agent_id) + _short(key))


def remove_marks(host: str, session_id: str, agent_id: str) -> bool:
    """Remove the marks of all calls of an agent; False if there was none."""
    folder, _, prefix = _mark(host, session_id, agent_id).rpartition("/")
    names = [name for name in os.listdir(folder) if name.startswith(prefix)]
    for name in names:
        _end_watch(f"{folder}/{name}")
    return bool(names)


def _end_watch(mark: str) -> None:
    """
    Remove a mark, and wait for the end of the process that has a lock on it.

    It is told by the folder, has its last look, and ends. Without the wait its copy of what somebody saved a
    moment before the host wrote could come after the call is judged, and nobody would find it.
    """
    try:
        descriptor = os.open(mark, _READ)
    except OSError:
        return
    try:
        os.unlink(mark)
        mutex.hold(descriptor, patience_s=WATCH_END_S)
    except OSError:
        pass
    finally:
        os.close(descriptor)


def _mark(host: str, session_id: str, agent_id: str) -> str:
    return f"{runtime_folder()}/{host}.{_short(session_id)}.{WATCH}.{_short(agent_id)}."


def note_delegation(host: str, session_id: str, *, is_start: bool) -> None:
    """
    Note that a subagent starts, or that it has ended, in a host that does not name them.

    One letter each, appended, so that events at the same time do not overwrite each other.
    """
    runtime_fd = open_runtime()
    try:
        flags = _WRITE | os.O_APPEND
        descriptor = os.open(f"{host}.{_short(session_id)}.{DELEGATED}", flags, 0o600, dir_fd=runtime_fd)
        try:
            os.write(descriptor, b"+" if is_start else b"-")
        finally:
            os.close(descriptor)
    finally:
        os.close(runtime_fd)


def delegated_agent(host: str, session_id: str) -> str | None:
    """Return a name for the subagent that is at work now, None if it is the main agent."""
    runtime_fd = open_runtime()
    try:
        descriptor = os.open(f"{host}.{_short(session_id)}.{DELEGATED}", _READ, dir_fd=runtime_fd)
    except FileNotFoundError:
        return None
    finally:
        os.close(runtime_fd)
    try:
        letters = os.read(descriptor, MOST_BYTES)
    finally:
        os.close(descriptor)
    running = started = 0
    for letter in letters:
        is_start = letter == ord("+")
        started += is_start
        running = running + 1 if is_start else max(0, running - 1)
    return f"subagent-{started}" if running else None


def end_delegation(host: str, session_id: str) -> None:
    """Forget what was delegated: the turn of the main agent is over, so no subagent is at work."""
    try:
        os.unlink(f"{runtime_folder()}/{host}.{_short(session_id)}.{DELEGATED}")
    except OSError:
        pass


def note_command(host: str, session_id: str, start_s: float, end_s: float) -> None:
    """Note when a session's last shell command ran. Never raises: it only makes a refusal's text better."""
    try:
        runtime_fd = open_runtime()
        try:
            name = f"{host}.{_short(session_id)}.{COMMAND}"
            descriptor = os.open(name, _WRITE | os.O_TRUNC, 0o600, dir_fd=runtime_fd)
            try:
                os.write(descriptor, spell([start_s, end_s]).encode())
            finally:
                os.close(descriptor)
        finally:
            os.close(runtime_fd)
    except (OSError, HookFailedError):
        pass


def last_command(host: str, session_id: str) -> tuple[float, float] | None:
    """Return when a session's last shell command began and ended, None if that is not known."""
    try:
        runtime_fd = open_runtime()
        try:
            descriptor = os.open(f"{host}.{_short(session_id)}.{COMMAND}", _READ, dir_fd=runtime_fd)
            try:
                start_s, end_s = parse(os.read(descriptor, MOST_BYTES))
            finally:
                os.close(descriptor)
        finally:
            os.close(runtime_fd)
        return float(start_s), float(end_s)
    except (OSError, ValueError, TypeError, HookFailedError):
        return None


def note_level(host: str, session_id: str, level: str) -> None:
    """Note which level shell commands get in a session. Never raises: then it is found out again."""
    try:
        with open(f"{runtime_folder()}/{host}.{_short(session_id)}.{LEVEL}", "w") as file:
            file.write(level)
    except OSError:
        pass


def noted_level(host: str, session_id: str) -> str | None:
    """Return which level shell commands get in a session, None if nobody has found out."""
    try:
        with open(f"{runtime_folder()}/{host}.{_short(session_id)}.{LEVEL}") as file:
            return file.read(32) or None
    except OSError:
        return None


def note_shell_file(host: str, session_id: str, path: str) -> None:
    """Note the file that the session's shells read first. Never raises: then commands are watched."""
    try:
        with open(f"{runtime_folder()}/{host}.{_short(session_id)}.{SHELL_FILE}", "w") as file:
            file.write(path)
    except (OSError, ValueError):
        pass


def noted_shell_file(host: str, session_id: str) -> str | None:
    """Return the file that the session's shells read first, None if there is none."""
    try:
        with open(f"{runtime_folder()}/{host}.{_short(session_id)}.{SHELL_FILE}") as file:
            return file.read(4096) or None
    except (OSError, ValueError):
        return None


def note_background(host: str, session_id: str) -> bool:
    """Note that a session was told about commands in the background; True if it was not told before."""
    try:
        runtime_fd = open_runtime()
        try:
            name = f"{host}.{_short(session_id)}.{BACKGROUND}"
            # Of two commands that start together one makes it, so it is told once.
            os.close(os.open(name, _WRITE | os.O_EXCL, 0o600, dir_fd=runtime_fd))
        finally:
            os.close(runtime_fd)
        return True
    except (OSError, HookFailedError):
        return False


def end_session(host: str, session_id: str) -> None:
    """Forget what the agents of a session saw. If the session is resumed, they must read again."""
    runtime_fd = open_runtime()
    try:
        prefix = f"{host}.{_short(session_id)}."
        for name in os.listdir(runtime_fd):
            if name.startswith(prefix):
                _remove(runtime_fd, name)
    finally:
        os.close(runtime_fd)


def forget_old(clock: Clock = SYSTEM_CLOCK) -> None:
    """Remove records that were not used for two weeks: the host was killed, or sends no end event."""
    runtime_fd = open_runtime()
    try:
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
    finally:
        os.close(runtime_fd)


def _is_used(runtime_fd: int, name: str, since_s: float) -> bool:
    """True if something was noted here lately. A record is changed in place, so its folder does not tell."""
    try:
        if os.stat(name, dir_fd=runtime_fd, follow_symlinks=False).st_mtime >= since_s:
            return True
        folder_fd = os.open(name, _FOLDER, dir_fd=runtime_fd)
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
        folder_fd = os.open(name, _FOLDER, dir_fd=runtime_fd)
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
    if not isinstance(value, list) or len(value) != 5:
        return False
    conflict, error, newer, newer_seen, refused = value
    return (
        isinstance(conflict, bool)
        and (error is None or isinstance(error, str))
        and _is_hash(newer)
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
    lists = (*noted.get("pending", {}).values(), *(noted.get(kind, []) for kind in ("together", "settled")))
    return all(isinstance(each, list) for each in lists) and all(
        len(each) >= 4 and isinstance(each[3], (int, float)) for each in noted.get("pending", {}).values()
    )


def _short(text: str) -> str:
    return hashing.of_bytes(text.encode("utf-8", "surrogatepass"))[:24]


def _long(text: str) -> str:
    return hashing.of_bytes(text.encode("utf-8", "surrogatepass"))[:40]
