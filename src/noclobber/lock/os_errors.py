"""
Turn what the operating system said about a lock into an error that names path, owner and remedy (X-003).
"""

from __future__ import annotations

import errno
import os

from noclobber.errors import AccessDeniedError, MissingFileError, NotAFileError, StorageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def explain(error: OSError, path: str, verb: str, directory: int | None = None, name: str = "") -> NoReturn:
    """
    Raise the error that this one is for the user of a lock. `name` in `directory`, where it was by name.
    """
    number = error.errno
    reason = error.strerror or str(error)
    if number == errno.ENOENT:
        raise MissingFileError(path, f"cannot {verb}: there is no such folder; create it first") from error
    if number in (errno.ENOTDIR, errno.ELOOP):
        raise NotAFileError(path, f"cannot {verb}: it is not a folder; a deliverable is one") from error
    if number in (errno.EACCES, errno.EPERM):
        owner = _owner(path, directory, name)
        raise AccessDeniedError(
            path,
            f"cannot {verb} ({reason}): it belongs to {owner}, and this process runs as uid {os.geteuid()}. "
            f"Ask {owner} to release or remove it, or give this user the rights (chown, chmod, setfacl). "
            "Until then it counts as locked",
            owner=owner,
        ) from error
    if number in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV) and verb == "link":
        raise StorageError(
            path, "this filesystem has no hard links, which locks are published with; "
            "keep deliverables on a local filesystem (noclobber doctor says more)"
        ) from error  # fmt: skip
    raise StorageError(
        path, f"cannot {verb} ({reason}); check the disk (noclobber doctor)", errno=number
    ) from error


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
