"""What the operating system said, as an error that a user can act on."""

from __future__ import annotations

import errno
import os

from noclobber.errors import (
    AccessDeniedError,
    BadPathError,
    FileBusyError,
    MissingFileError,
    NoclobberError,
    NotAFileError,
    StorageError,
)


def lookup_failed(error: OSError, path: str) -> Exception:
    """Return the error for a path that could not be looked up."""
    if isinstance(error, NoclobberError):
        return error
    code = error.errno
    if code == errno.ENOENT:
        return MissingFileError(path, "there is no such file.")
    if code == errno.ENOTDIR:
        return NotAFileError(path, "a part of this path is a file, not a folder.")
    if code == errno.ENAMETOOLONG:
        return BadPathError(f"{path[:80]}…", "the path or a part of it is too long for this filesystem.")
    if code == errno.ELOOP:
        return BadPathError(path, "too many links lead from one to another.")
    if code in (errno.EACCES, errno.EPERM):
        return AccessDeniedError(path, "the folder cannot be opened by this user; check its permissions.")
    if code == errno.ESTALE:
        return _replaced_elsewhere(path)
    return StorageError(path, f"it cannot be looked up ({os.strerror(code or 0)}); nothing was changed.")


def _replaced_elsewhere(path: str) -> FileBusyError:
    return FileBusyError(path, "it, or its folder, keeps being replaced on another machine; try again.")


def commit_failed(error: OSError, path: str) -> Exception:
    """Return the error for a read or a commit that failed."""
    if isinstance(error, NoclobberError):
        return error
    said = os.strerror(error.errno or 0)
    if error.errno in (errno.EACCES, errno.EPERM):
        return AccessDeniedError(
            path,
            f"the operating system refused ({said}); check the owner and mode of the file and its folder.",
        )
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageError(
            path, f"the disk is full ({said}); the old content is still there. Free some space and try again."
        )
    if error.errno == errno.ESTALE:
        return _replaced_elsewhere(path)
    return StorageError(
        path, f"the operating system reported an error ({said}); the old content is still there."
    )
