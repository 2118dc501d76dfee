"""
The user's own state: what no folder that came from elsewhere can bring with it.

It is in `$XDG_STATE_HOME/noclobber`, or `~/.local/state/noclobber`. A list there is a folder, and an entry
is a file that is named by a hash of what it says: nothing is parsed to find one, two processes may add
entries at once, and a name that was not made from the text says nothing. What belongs to another user, or can
be changed by one, is not believed.
"""

from __future__ import annotations

import os
import stat
from hashlib import blake2b

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
MOST_BYTES = 1 << 20


def own_folder() -> str:
    """Return the folder of this user's state. Nothing is created."""
    base = os.environ.get("XDG_STATE_HOME", "")
    return f"{base if base.startswith('/') else os.path.expanduser('~/.local/state')}/noclobber"


def has(kind: str, key: bytes) -> bool:
    """True if this user's list has an entry; `OSError` if that cannot be found out."""
    return _read(f"{own_folder()}/{kind}", name_of(key)) is not None


def add(kind: str, key: bytes, shown: bytes) -> None:
    """Put an entry on a list; `shown` is what `listed()` gives of it."""
    folder = f"{own_folder()}/{kind}"
    os.makedirs(folder, 0o700, exist_ok=True)
    name = name_of(key)
    draft = f"{folder}/.{name}.{os.urandom(6).hex()}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(shown)
        os.rename(draft, f"{folder}/{name}")
    except BaseException:
        os.unlink(draft)
        raise


def listed(kind: str) -> list[tuple[str, bytes]]:
    """Return the entries of a list: the name of each, for `remove()`, and what it shows."""
    folder = f"{own_folder()}/{kind}"
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    except PermissionError:
        if _may_be_own(folder):
            raise
        return []  # The environment is another user's (`sudo -E`), and so is that list.
    found = [(name, _read(folder, name)) for name in names if not name.startswith(".")]
    return [(name, shown) for name, shown in found if shown is not None]


def remove(kind: str, name: str) -> None:
    """Take an entry from a list, by its name."""
    try:
        os.unlink(f"{own_folder()}/{kind}/{name}")
    except FileNotFoundError:
        pass


def name_of(key: bytes) -> str:
    """Return the name of an entry."""
    return blake2b(key, digest_size=20).hexdigest()


def _read(folder: str, name: str) -> bytes | None:
    """Return what an entry says; None if there is none that is this user's alone."""
    try:
        descriptor = os.open(f"{folder}/{name}", _READ)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    except OSError as error:
        if os.path.islink(f"{folder}/{name}"):
            return None  # Not made by us.
        raise error
    try:
        status = os.fstat(descriptor)
        is_own = all(map(_is_own, (status, os.stat(folder))))
        return os.read(descriptor, MOST_BYTES) if is_own and stat.S_ISREG(status.st_mode) else None
    finally:
        os.close(descriptor)


def _may_be_own(folder: str) -> bool:
    try:
        return os.stat(folder).st_uid == os.geteuid()
    except PermissionError:
        return False  # Whoever may not even look there has never put anything there.


def _is_own(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022
