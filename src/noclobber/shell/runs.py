"""
The folder of one guarded command: what it wrote, and what is known of it.

`<root>/.noclobber/run/<id>/`:

| name | |
|---|---|
| `upper/`, `work/` | the layers of the overlay: what the command wrote |
| `empty/` | what the command sees instead of `run/`; its ctime says when the command began |
| `git/` | the same for git folders outside of the root (`git_folders`) |
| `job.json` | the command, its folder and who ran it |
| `refused.json` | if nothing landed: why. Then the folder is kept for a while |
| `owed` | what will land in unchecked folders, until that is decided (`owed`) |
| `gone-…` | folders that are being removed from unchecked ones |

`<root>/.noclobber/run/landed/<digit>/<id>`: the same file, after it was decided: the checked part has landed.

A refusal carries a token that only this machine can make, and only for this very folder (`note_keys`). One
without it came with the project, in a clone or an archive: it is shown as that, and nothing of it is run.

A process that works in the folder holds its `flock`. So a folder that nobody holds, with no `refused.json` in
it, is what a killed process left; `tidy()` lands what it owes and removes it, together with what is too old.

Light to import: every guarded command loads it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from noclobber.core.project import OWED_FOLDER, STATE_FOLDER
from noclobber.disk import small_file
from noclobber.disk.removing import remove_all, remove_tree

if TYPE_CHECKING:
    from noclobber.core.values import Recovered

RUN_FOLDER = "run"
MARKER = "empty"  # Read-only in the view, so nobody touches it there.
ENVIRONMENT_RUN = "NOCLOBBER_RUN"
NEW_PREFIX = "new-"
NEW_S = 60.0
KEPT_DAYS = 7.0
MOST_KEPT = 50
TICK_S = 0.0002
LONGEST_TICK_S = 2.5  # Some filesystems count whole seconds, FAT two.
MOST_NOTED_BYTES = 1 << 20
_ID_SIGNS = frozenset("0123456789abcdef-")


class RunFolder:
    """One of them. Use `made()` or `found()`."""

    def __init__(self, root: str, run_id: str, lock_fd: int) -> None:
        self.root, self.run_id, self._lock_fd = root, run_id, lock_fd
        self.path = f"{folder_of(root)}/{run_id}"
        self.upper = f"{self.path}/upper"
        self.not_landed: list[str] = []
        """What of unchecked folders could not be landed, and why (`landing_unchecked`)."""
        self.not_kept = 0
        """Why what a refused command wrote could not be kept: the number of the error."""
        self.index_fd = -1
        """git's index as it was when the command began; -1: none."""
        self.owes = False
        """True if something was to land in unchecked folders, after everything else (`owed`)."""

    def close(self) -> None:
        """Let go of it."""
        for descriptor in (self._lock_fd, self.index_fd):
            if descriptor >= 0:
                os.close(descriptor)
        self._lock_fd = self.index_fd = -1

    def remove(self) -> None:
        """Remove it with all that is in it, and let go of it; one that owes something is left to `tidy()`."""
        if not (self.owes and os.path.lexists(owed_path(self.root, self.run_id))):
            _remove(self.root, self.run_id)
        self.close()

    def drop_work(self) -> None:
        """
        Remove what only the overlay needed, before the folder is kept.

        The kernel leaves a folder of mode 0 in it, at which `rm -r` of the whole project would fail.
        """
        remove_tree(f"{self.path}/work")
        remove_tree(f"{self.path}/git")

    # When the command began.

    def touch(self) -> int:
        """Touch the marker; return its ctime."""
        marker = f"{self.path}/{MARKER}"
        os.utime(marker)
        return os.stat(marker).st_ctime_ns

    def tick_after(self, first_ns: int) -> int:
        """
        Return a ctime that everything changed from now on reaches, and nothing from before `first_ns` does.

        The filesystem's clock must have moved between the two.
        """
        for _ in range(int(LONGEST_TICK_S / TICK_S)):
            now_ns = self.touch()
            if now_ns > first_ns:
                return now_ns
            time.sleep(TICK_S)
        return now_ns

    # What is known of it.

    def note(self, name: str, value: dict[str, Any]) -> None:
        """Write `job` or `refused`."""
        from noclobber.core.json_text import spell_for_any_reader  # Here: most commands need none.

        if name == "refused":
            from noclobber.disk.commit.note_keys import tokens

            value = {**value, "token": tokens(self._inode)[0].decode()}
        small_file.publish(f"{self.path}/{name}.json", spell_for_any_reader(value).encode())

    def noted(self, name: str) -> dict[str, Any] | None:
        """Read `job` or `refused`; None if there is none that can be read."""
        from noclobber.core.json_text import parse

        try:
            value = parse(small_file.read(f"{self.path}/{name}.json", most_bytes=MOST_NOTED_BYTES))
        except (OSError, ValueError):
            return None
        return value if isinstance(value, dict) else None

    def has_new_root_mode(self) -> bool:
        """True if the command changed the permissions of the root itself, which do not land."""
        modes = [stat.S_IMODE(os.stat(path).st_mode) for path in (self.upper, self.root)]
        return modes[0] != modes[1]

    @property
    def is_refused(self) -> bool:
        """True if its command was refused, and it is kept."""
        return os.path.lexists(f"{self.path}/refused.json")

    @property
    def is_ours(self) -> bool:
        """False for a refused command that has not run here."""
        from noclobber.disk.commit.note_keys import tokens  # Here: nearly no command asks.

        token = (self.noted("refused") or {}).get("token")
        return isinstance(token, str) and token.encode("utf-8", "replace") in tokens(self._inode)

    @property
    def _inode(self) -> int:
        return os.fstat(self._lock_fd).st_ino

    @property
    def changed_at_s(self) -> float:
        """When it was last changed."""
        return os.stat(self.path).st_mtime

    @property
    def age_s(self) -> float:
        """How long ago that was."""
        return max(0.0, time.time() - self.changed_at_s)


def environment_of(run_id: str, base: Mapping[str, str]) -> dict[str, str]:
    """
    Return the environment of a command.

    `git status` would write its index, to save time later; here that would be a change to land.
    """
    return {"GIT_OPTIONAL_LOCKS": "0", **base, ENVIRONMENT_RUN: run_id}


def folder_of(root: str) -> str:
    """Return where the folders of a project's commands are."""
    return f"{root}/{STATE_FOLDER}/{RUN_FOLDER}"


def owed_path(root: str, run_id: str) -> str:
    """
    Return where it is noted that the checked part of a command has landed, and what is still to land.

    A commit makes it there. It takes the mutex of the folder, and makes a note for it that stays; so not in a
    folder of its own for each command, and not in one for all.
    """
    return f"{root}/{STATE_FOLDER}/{OWED_FOLDER}/{run_id[-1]}/{run_id}"


def made(root: str) -> RunFolder:
    """Make a folder for a new command. The state folder is there."""
    above = folder_of(root)
    run_id = f"{int(time.time()):08x}-{os.getpid():x}-{os.urandom(3).hex()}"
    # Under another name until it is held: one that nobody holds is removed by the next command.
    path = f"{above}/{NEW_PREFIX}{run_id}"
    try:
        os.close(_opened(root))
    except FileNotFoundError:
        _make_above(root)
        os.close(_opened(root))
    os.mkdir(path, 0o700)
    lock_fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    for name in ("upper", "work", "empty"):
        os.mkdir(f"{path}/{name}", 0o700)
    os.chmod(f"{path}/upper", stat.S_IMODE(os.stat(root).st_mode))  # Inside, it is the root's own mode.
    made = RunFolder(root, run_id, lock_fd)
    os.rename(path, made.path)
    try:
        made.index_fd = os.open(f"{root}/.git/index", small_file.READ)
    except OSError:
        pass
    return made


def _make_above(root: str) -> None:
    """Make the folder of runs, once in the life of a project."""
    from noclobber.disk.apart import make_folder_apart

    state_fd = small_file.open_folder(f"{root}/{STATE_FOLDER}")
    try:
        # Apart: every command makes some folders here, and a file for each that it writes.
        make_folder_apart(RUN_FOLDER, 0o700, state_fd)
    except FileExistsError:
        pass  # Another command was as quick.
    finally:
        os.close(state_fd)


def found(root: str, run_id: str) -> RunFolder | None:
    """Return the folder of a command, held; None if there is none, or somebody works in it."""
    if not run_id or not _ID_SIGNS.issuperset(run_id):
        return None
    try:
        with small_file.closing(_opened(root)) as above_fd:
            lock_fd = small_file.open_folder(run_id, above_fd)
    except OSError:
        return None
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock_fd)
        return None
    return RunFolder(root, run_id, lock_fd)


def all_ids(root: str) -> list[str]:
    """Return the ids of all folders, the oldest first."""
    return sorted(name for name in _names(root) if _ID_SIGNS.issuperset(name))


def _opened(root: str) -> int:
    """
    Return a descriptor of the folder of runs. OSError if it is none of ours.

    It may have come with a repository: a link there would have us make, look at and remove somebody else's
    folders. In one that others may write to, anything can become a link at any moment.
    """
    with small_file.closing(small_file.open_folder(f"{root}/{STATE_FOLDER}")) as state_fd:
        above_fd = small_file.open_folder(RUN_FOLDER, state_fd)
    status = os.fstat(above_fd)
    # Root works in the projects of others, too.
    if status.st_mode & 0o022 or status.st_uid not in (os.geteuid(), os.stat(root).st_uid):
        os.close(above_fd)
        raise PermissionError(errno.EPERM, "others may write to it; remove it", folder_of(root))
    return above_fd


def _names(root: str) -> list[str]:
    try:
        with small_file.closing(_opened(root)) as above_fd:
            return os.listdir(above_fd)
    except OSError:
        return []


def _remove(root: str, name: str) -> None:
    """Remove one of them with all that is in it."""
    with small_file.closing(_opened(root)) as above_fd:
        try:
            remove_all(above_fd, name)
        except FileNotFoundError:
            pass


def tidy(root: str, *, kept_days: float = KEPT_DAYS) -> list[Recovered]:
    """
    Remove what killed processes left, and refused commands that are too old or too many.

    A landing that was cut off is finished or taken back first. What became of its files is returned.
    """
    recovered: list[Recovered] = []
    names = _names(root)
    for name in names:
        if name.startswith(NEW_PREFIX):
            _remove_if_old(root, name)
    ids = sorted(name for name in names if _ID_SIGNS.issuperset(name))
    refused = 0
    for run_id in reversed(ids):
        folder = found(root, run_id)
        if folder is None:
            continue
        try:
            refused += folder.is_refused
            is_kept = folder.is_refused and refused <= MOST_KEPT and folder.age_s < kept_days * 86400
            if not is_kept:
                from noclobber.shell.git_locks import release_left  # Here: nearly no command finds one.

                end_strays(folder)
                if not folder.is_refused:
                    recovered += _finish_landing(folder)
                    is_paid = _pay(folder)
                    release_left(root, folder.path)  # Only now: a git that came before would see half of it.
                    if not is_paid and folder.age_s < kept_days * 86400:
                        continue
                _remove(root, run_id)
        except OSError:
            pass  # Another process is at it, or it is not ours; then the next call tries again.
        finally:
            folder.close()
    return recovered


def _finish_landing(folder: RunFolder) -> list[Recovered]:
    """Finish or take back the landing of a process that was killed."""
    from noclobber.disk.file_guard import FileGuard  # Here: nearly no command finds such a folder.
    from noclobber.errors import NoclobberError

    guard = FileGuard(folder.root)
    try:
        recovered = guard.committer.recover_all()
    except NoclobberError as error:
        raise OSError(str(error)) from error
    finally:
        guard.close()
    return recovered


def _pay(folder: RunFolder) -> bool:
    """Land what a killed process owes to unchecked folders; False if that is not possible now."""
    if not os.path.lexists(owed_path(folder.root, folder.run_id)):
        return True
    from noclobber.shell.owed import pay  # Here: nearly no command finds such a folder.

    return pay(folder)


def _remove_if_old(root: str, name: str) -> None:
    """Remove what a process left that was killed while it made a folder."""
    try:
        if time.time() - os.lstat(f"{folder_of(root)}/{name}").st_mtime > NEW_S:
            _remove(root, name)
    except OSError:
        pass


def end_strays(folder: RunFolder) -> None:
    """
    End processes that a killed command has left in its private view.

    Known by their environment. The number of a namespace is given to another one at once.
    """
    sign = f"{ENVIRONMENT_RUN}={folder.run_id}\0".encode()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                is_stray = sign in file.read()
            if is_stray:
                os.kill(int(name), 9)
        except OSError:
            continue
