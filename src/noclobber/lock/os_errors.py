"""
Turn what the operating system said about a lock into an error that names path, owner and remedy (X-003).
"""

from __future__ import annotations

import errno
import os
from typing import NoReturn

from noclobber.disk.system_errors import EXHAUSTED, exhausted
from noclobber.errors import AccessDeniedError, MissingFileError, NotAFileError, StorageError
from noclobber.lock.names import is_lock_file


def explain(error: OSError, path: str, verb: str, directory: int | None = None, name: str = "") -> NoReturn:
    """
    Raise the error that this one is for the user of a lock. `name` in `directory`, where it was by name.
    """
    number = error.errno
    if number == errno.ENOENT:
        raise MissingFileError(path, f"cannot {verb}: there is no such folder. Create it first") from error
    if number in (errno.ENOTDIR, errno.ELOOP):
        raise NotAFileError(
            path, f"cannot {verb}: this is not a folder. Only folders can be locked"
        ) from error
    if number in (errno.EACCES, errno.EPERM):
        owner = _owner(path, directory, name)
        raise AccessDeniedError(
            path, f"cannot {verb}: permission denied. {_remedy(path, owner)}", owner=owner
        ) from error
    if number in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV) and verb == LINK:
        raise StorageError(
            path, "this filesystem has no hard links, which locks are published with. "
            "Keep deliverables on a local filesystem (`noclobber doctor` says more)"
        ) from error  # fmt: skip
    if number == errno.EROFS:
        why = "the filesystem is mounted read-only. Mount it writable, or work on a copy elsewhere"
    elif number in (errno.ENOSPC, errno.EDQUOT):
        why = "the disk is full. Free some space, then try again"
    elif number in EXHAUSTED:
        raise exhausted(error, path) from error
    else:
        why = f"{error.strerror or error}. Check the disk (`noclobber doctor`)"
    raise StorageError(path, f"cannot {verb}: {why}", errno=number) from error


LINK = "publish the lock"


def _remedy(path: str, owner: str) -> str:
    us = f"this process runs as uid {os.geteuid()}"
    if is_lock_file(path):
        return (
            f"The lock file belongs to {owner}, and {us}. Ask {owner} to release the lock, "
            "or to give this user the rights (chown, chmod, setfacl). Until then the folder counts as locked"
        )
    return (
        f"The folder belongs to {owner}, and {us}. Ask {owner} to give this user the rights "
        "to read and write it (chown, chmod, setfacl), or run as another user"
    )


def _owner(path: str, directory: int | None, name: str) -> str:
    try:
        if directory is not None and name:
            try:
                uid = os.stat(name, dir_fd=directory, follow_symlinks=False).st_uid
            except FileNotFoundError:
                uid = os.fstat(directory).st_uid  # To be created or removed: the folder's rights decide.
        else:
            uid = os.stat(path).st_uid
    except OSError:
        return "another user"
    try:
        import pwd

        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except (ImportError, KeyError):
        return f"uid {uid}"
