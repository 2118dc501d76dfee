"""
Claims: a short notice that a file is about to be written by a program that is not us.

A hook checks a write and the host carries it out, a moment later and without our mutex. In between the file
is *claimed*: guarded writers (other sessions' hooks, the library, the MCP server) wait for the claim to
end, or refuse. A claim ends when the host has written (or failed to), and with the next event of its agent,
where the host carries out one call after the other. Some hosts say nothing of a call that failed or was
declined, and a permission dialogue may be open for minutes. So a claim holds up guarded writes for
`TAKE_OVER_S` only, and other hooks three times as long, as long as the file is what it was when it was
claimed: then whoever waits may write. If the host
writes all the same, later, that is a race like an outsider's: found, told and on record. If the file has
changed, the host is at work, and the claim holds for 30 seconds at most.

A claim is a small file in `.noclobber/claims/` of the folder nearest above the file that has a state
folder. Who looks for one asks every folder above the file, so workspaces inside workspaces see each other's
claims.

Calling sequence of a hook: `acquire()` before the check, `release()` after the call or a refusal. A
committer: `refuse_if_claimed()` inside its critical section (`fence` does), and `retrying()` around the
commit. Both sides under the mutex of the file's folder, and that is the point: either the commit is over
when the claim is made, and the hook's look sees its outcome, or the commit sees the claim.

On a volume that several machines share through a coordinator claims are rows on its server, with the same
meaning (`postgres/server_claims`): a file and a mutex say nothing to another machine. In checkouts of their
own, machines have files of their own, and claims stay files.

Not promised: an outsider has never heard of claims; what it does in between shows afterwards, when the hook
compares what is on the disk with what the call must have written.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.core.json_text import parse, spell
from noclobber.core.project import CLAIMS_FOLDER, COORDINATOR, STATE_FOLDER
from noclobber.disk import hashing, mutex, small_file
from noclobber.disk.paths import OPEN_FOLDER
from noclobber.errors import ClaimedError, FileBusyError, claimed_error
from noclobber.text.visible import plain

if TYPE_CHECKING:
    from noclobber.core.clock import Clock
    from noclobber.postgres.server_claims import ServerClaims


T = TypeVar("T")

LIFE_S = 30.0
# A host that need not ask anybody writes within hundredths of a second. Well below `wait_s`, or a guarded
# write after a declined call would give up before it may take over.
TAKE_OVER_S = 0.4
# A hook has more patience than a commit. On a busy machine a host may need longer than that from its check to
# its write; a second host that takes the claim over by then, and writes, is written over by the first.
HOOKS_WAIT_TIMES = 3
PATIENCE_S = 2.0
MUTEX_PATIENCE_S = 5.0
NAP_S = 0.01
MOST_BYTES = 1 << 16


class Claim(NamedTuple):
    """Who is about to write which file, and until when that is believed."""

    path: str
    owner: str
    """The agent: host, session and subagent."""
    call_id: str
    expires_s: float
    version: str = "?"
    """What the file's status was when it was claimed; `?`: not known."""
    file: str = ""
    """The claim's own file."""
    is_passed: bool = False
    """A guarded write did not wait for it any longer."""


def check(
    root: str,
    path: str,
    own_owner: str | None = None,
    clock: Clock = SYSTEM_CLOCK,
    *,
    held_up_s: float | None = None,
    passes: bool = False,
) -> Claim | None:
    """
    Return the live claim of somebody else on a canonical path, or None.

    A few microseconds where there is none: one failed look for each folder above the file. `held_up_s`: for
    how long a claim of which nothing came counts; `TAKE_OVER_S` if not given.
    """
    held_up_s = TAKE_OVER_S if held_up_s is None else held_up_s
    tail = f"/{STATE_FOLDER}/{CLAIMS_FOLDER}/{_name(path)}"
    for folder in _folders(root, path):
        if os.access(folder + tail, os.F_OK):  # Says no without the price of an exception.
            claim = _read(folder + tail, path)
            if claim is None or claim.owner == own_owner:
                continue
            if _is_in_the_way(claim, clock.now_s(), held_up_s):
                return claim
            if passes and not claim.is_passed and _is_live(claim, clock.now_s()):
                _mark_passed(claim)
    return None


def refuse_if_claimed(
    root: str,
    path: str,
    own_owner: str | None = None,
    clock: Clock = SYSTEM_CLOCK,
    *,
    passes: bool = False,
) -> None:
    """
    Raise `ClaimedError` if somebody else has claimed a canonical path.

    `passes`: for a commit, in its section. A claim that it does not wait for any longer is marked: its host
    may write all the same, and tell of that before this commit is on record.
    """
    claim = check(root, path, own_owner, clock, passes=passes)
    if claim is not None:
        raise busy(claim, clock)


def refuse_if_any_claimed(
    root: str, paths: Sequence[str], own_owner: str | None = None, clock: Clock = SYSTEM_CLOCK
) -> None:
    """
    The same for many files of one folder, whose mutex is held: a claim is made under it, so none can come.

    One look at each folder above them, instead of one for each file.
    """
    if not paths:
        return
    made: set[str] = set()
    for folder in _folders(root, paths[0]):
        try:
            made.update(os.listdir(f"{folder}/{STATE_FOLDER}/{CLAIMS_FOLDER}"))
        except OSError:
            continue  # There are none; or nobody may look, as `check()` finds, too.
    for path in paths:
        if made and _name(path) in made:
            refuse_if_claimed(root, path, own_owner, clock, passes=True)


def retrying(attempt: Callable[[], T], wait_s: float, clock: Clock = SYSTEM_CLOCK) -> T:
    """Run a commit, again and again while a claim is in its way and patience lasts."""
    deadline_s = clock.monotonic_s() + wait_s
    while True:
        try:
            return attempt()
        except ClaimedError:
            if clock.monotonic_s() >= deadline_s:
                raise
        clock.sleep(NAP_S)


def acquire(
    root: str,
    path: str,
    owner: str,
    call_id: str,
    *,
    patience_s: float | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Claim:
    """Claim a canonical path; `FileBusyError` if somebody else's claim outlasts our patience."""
    patience_s = PATIENCE_S if patience_s is None else patience_s
    if (server := _server(root, path, clock)) is not None:
        found = server.take(
            path,
            owner,
            call_id,
            held_up_s=TAKE_OVER_S,
            waits_s=HOOKS_WAIT_TIMES * TAKE_OVER_S,
            life_s=LIFE_S,
            patience_s=patience_s,
        )
        if found.owner != owner:
            raise claimed_error(path, plain(found.owner), found.remaining_s)
        return Claim(path, owner, call_id, clock.now_s() + LIFE_S)
    deadline_s = clock.monotonic_s() + patience_s
    while True:
        other = _take(root, path, owner, call_id, clock)
        if other.owner == owner:
            return other
        if clock.monotonic_s() >= deadline_s:
            raise busy(other, clock)
        clock.sleep(NAP_S)


def busy(claim: Claim, clock: Clock = SYSTEM_CLOCK) -> ClaimedError:
    """Return the refusal for a file that somebody else has claimed."""
    return claimed_error(claim.path, plain(claim.owner), claim.expires_s - clock.now_s())


def is_held(root: str, path: str, owner: str) -> bool:
    """True if an agent's claim is still there: nobody has taken it over."""
    if (server := _server(root, path)) is not None:
        return any(row.path == path and row.owner == owner for row in server.live())
    return bool(_own(root, path, owner))


def is_passed(root: str, path: str, owner: str) -> bool:
    """True if a guarded write did not wait for an agent's claim any longer."""
    return any(claim.is_passed for claim in _own(root, path, owner))


def release(root: str, path: str, owner: str) -> bool:
    """End an own claim; False if there was none."""
    if (server := _server(root, path)) is not None:
        return server.release(path, owner)
    name, found = _name(path), False
    for folder in _folders(root, path):
        file = f"{folder}/{STATE_FOLDER}/{CLAIMS_FOLDER}/{name}"
        claim = _read(file, path)
        if claim is not None and claim.owner == owner:
            found = _remove(claim) or found
    return found


def release_all(root: str, owner: str) -> None:
    """End every claim of an agent below a root: its turn is over, so no call of its is under way."""
    for claim in _files(root):
        if claim.owner == owner:
            _remove(claim)
    if (server := _server(root, f"{root}/")) is not None:
        server.release_all(owner)


def live(root: str, *, clock: Clock = SYSTEM_CLOCK) -> list[Claim]:
    """Return the claims in a root's state folder or on its server, to be shown."""
    now_s = clock.now_s()
    found = [claim for claim in _files(root) if _is_live(claim, now_s)]
    if (server := _server(root, f"{root}/")) is not None:
        found += [Claim(row.path, row.owner, row.call_id, now_s + row.remaining_s) for row in server.live()]
    return found


class InOrder:
    """
    A `with` under the mutex of a file's folder, for two hosts that report on one file at the same moment.

    One that is busy for seconds is not waited for any longer: then what is inside is done all the same.
    """

    def __init__(self, path: str) -> None:
        self._path, self._mutex_fd = path, -1

    def __enter__(self) -> None:
        try:
            self._mutex_fd = os.open(os.path.dirname(self._path), OPEN_FOLDER)
            _hold(self._mutex_fd, self._path, SYSTEM_CLOCK)
        except (OSError, FileBusyError):
            pass

    def __exit__(self, *_: object) -> None:
        if self._mutex_fd >= 0:
            _let_go(self._mutex_fd)
            os.close(self._mutex_fd)


# -- inside -----------------------------------------------------------------------------------------


def _own(root: str, path: str, owner: str) -> list[Claim]:
    name = _name(path)
    found = (_read(f"{each}/{STATE_FOLDER}/{CLAIMS_FOLDER}/{name}", path) for each in _folders(root, path))
    return [claim for claim in found if claim is not None and claim.owner == owner]


def _server(root: str, path: str, clock: Clock = SYSTEM_CLOCK) -> ServerClaims | None:
    """Return where the claims of a volume are that machines share; None if they are files."""
    if not os.environ.get(COORDINATOR) or not path.startswith(f"{root.rstrip('/')}/"):
        return None
    from noclobber.postgres import coordinator, shared_volume  # Here: few hooks have a server to ask.

    return coordinator.claims(root, clock) if shared_volume.is_shared_volume(root) else None


def _files(root: str) -> list[Claim]:
    folder = f"{root}/{STATE_FOLDER}/{CLAIMS_FOLDER}"
    try:
        names = [] if os.path.islink(folder) else os.listdir(folder)
    except OSError:
        return []
    found = [_read(f"{folder}/{name}", "") for name in names]
    return [claim for claim in found if claim is not None]


def _take(root: str, path: str, owner: str, call_id: str, clock: Clock) -> Claim:
    """Make the claim, or return the one that is in the way."""
    folder = _place(root, path)
    claims = f"{folder}/{STATE_FOLDER}/{CLAIMS_FOLDER}"
    state_fd = os.open(f"{folder}/{STATE_FOLDER}", small_file.FOLDER)
    with small_file.closing(state_fd):
        # For a group that shares the project; never for everybody, whatever the umask is.
        os.close(small_file.open_own_folder(CLAIMS_FOLDER, state_fd, 0o775))
    mutex_fd = _open_mutex(path, claims)
    try:
        _hold(mutex_fd, path, clock)
        try:
            other = check(root, path, owner, clock, held_up_s=HOOKS_WAIT_TIMES * TAKE_OVER_S)
            if other is not None:
                return other
            expires_s = clock.now_s() + LIFE_S
            mine = Claim(path, owner, call_id, expires_s, _version(path), f"{claims}/{_name(path)}")
            try:
                _write(mine)
            except PermissionError:
                os.unlink(mine.file)  # Somebody else's, which does not count or has ended.
                _write(mine)
            return mine
        finally:
            _let_go(mutex_fd)
    finally:
        os.close(mutex_fd)


def _open_mutex(path: str, claims: str) -> int:
    """The folder of the file orders us with commits. If it is gone, the claims' own orders the hooks."""
    try:
        return os.open(os.path.dirname(path), OPEN_FOLDER)
    except OSError:
        return os.open(claims, OPEN_FOLDER)


def _hold(mutex_fd: int, path: str, clock: Clock) -> None:
    try:
        held = mutex.hold(mutex_fd, patience_s=MUTEX_PATIENCE_S, clock=clock)
    except OSError:
        return  # No flock here: then commits are not exclusive either.
    if not held:
        raise FileBusyError(
            path, "another process has been committing in this folder for seconds. Wait a moment and retry."
        )


def _let_go(mutex_fd: int) -> None:
    try:
        mutex.release(mutex_fd)
    except OSError:
        pass


def _place(root: str, path: str) -> str:
    """Return the folder in whose state folder a new claim goes: the nearest above the file, else the root."""
    for folder in _folders(root, path):
        if _is_believed(folder):
            return folder
    return root


def _is_believed(folder: str) -> bool:
    """
    True if what others have put into a folder's state folder counts.

    It does not if everybody may write there, or could have made the state folder in the first place, as in
    /tmp: then any user of the machine could keep others from writing, in words of their own (finding S30).
    """
    try:
        state = os.lstat(f"{folder}/{STATE_FOLDER}")
        if not stat.S_ISDIR(state.st_mode) or state.st_mode & stat.S_IWOTH:
            return False
        return state.st_uid in (os.geteuid(), 0) or not os.stat(folder).st_mode & stat.S_IWOTH
    except OSError:
        return False


def _folders(root: str, path: str) -> list[str]:
    """Every folder above a file, the nearest first, and the root if it is not one of them."""
    folders = []
    here = path
    while here := here.rpartition("/")[0]:
        folders.append(here)
    if root not in folders:
        folders.append(root)
    return folders


def _name(path: str) -> str:
    return hashing.of_bytes(path.encode("utf-8", "surrogateescape"))[:40]


def _is_live(claim: Claim, now_s: float) -> bool:
    # One that would last longer than any of ours lasts was written by a clock that ran ahead.
    return now_s < claim.expires_s <= now_s + 2 * LIFE_S


def _is_in_the_way(claim: Claim, now_s: float, held_up_s: float) -> bool:
    """True for a live claim, unless it is old enough and nothing has come of it so far."""
    if not _is_live(claim, now_s):
        return False
    if claim.version == "?" or now_s < claim.expires_s - LIFE_S + held_up_s:
        return True
    return _version(claim.path) != claim.version


def _version(path: str) -> str:
    """Return a file's status in a few words: another version has other words."""
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return ""
    return f"{status.st_ino}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"


def _read(file: str, path: str) -> Claim | None:
    try:
        descriptor = os.open(file, small_file.READ)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return None
        if status.st_uid != os.geteuid():
            is_open = os.lstat(os.path.dirname(file)).st_mode & stat.S_IWOTH
            if is_open or not _is_believed(file.rpartition(f"/{STATE_FOLDER}/")[0]):
                return None
        listed = parse(os.read(descriptor, MOST_BYTES))
        claimed, owner, call_id, expires_s, version, *passed = listed
        if not all(isinstance(text, str) for text in (claimed, owner, call_id, version)):
            raise ValueError("not a claim")
        if path and claimed != path:
            return None
        return Claim(claimed, owner, call_id, float(expires_s), version, file, bool(passed))
    except (ValueError, TypeError, OverflowError, OSError):
        # Half a claim is a claim, for as long as it may last.
        return Claim(path, "?", "?", os.fstat(descriptor).st_mtime + LIFE_S, file=file)
    finally:
        os.close(descriptor)


def _write(claim: Claim) -> None:
    # In place, under the mutex.
    noted = [*claim[:5], *([1] if claim.is_passed else [])]
    data = spell(noted).encode("utf-8", "backslashreplace")
    small_file.write_over(claim.file, data, mode=0o644)


def _mark_passed(claim: Claim) -> None:
    try:
        _write(claim._replace(is_passed=True))
    except OSError:
        pass  # Another user's. Its host is not told if both write the same before we are on record.


def _remove(claim: Claim) -> bool:
    """
    Remove a claim if it still is its owner's; False if somebody else has taken it over.

    Under the mutex, and read once more: between a look without it and the unlink another agent may take the
    claim over, and a third writer would not see theirs.
    """
    try:
        mutex_fd = _open_mutex(claim.path, os.path.dirname(claim.file))
        try:
            _hold(mutex_fd, claim.path, SYSTEM_CLOCK)
            try:
                now = _read(claim.file, claim.path)
                if now is None or now.owner != claim.owner:
                    return False
                os.unlink(claim.file)
            finally:
                _let_go(mutex_fd)
        finally:
            os.close(mutex_fd)
    except (OSError, FileBusyError):
        pass  # It stays, and ends by itself: nobody waits for it longer than it lasts.
    return True
