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
    TooManyFilesError,
)

EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors that say something of the process or the machine, and nothing of what is at a path."""


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
    if code in EXHAUSTED:
        return exhausted(error, path)
    return StorageError(path, f"it cannot be looked up ({os.strerror(code or 0)}); nothing was changed.")


def exhausted(error: OSError, path: str) -> StorageError:
    """Return the error for a path that could not be looked at because something has run out."""
    if error.errno == errno.ENOMEM:
        return StorageError(path, "there is not enough memory; nothing was changed. Free some and try again.")
    if error.errno == errno.ENFILE:
        why = "all programs of this machine together have too many files open (fs.file-max)"
    else:
        why = "this process has too many files open (ulimit -n). Close some, or raise the limit"
    return TooManyFilesError(path, f"{why}; nothing was changed. Try again then.")


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
    if error.errno in EXHAUSTED:
        return exhausted(error, path)
    return StorageError(
        path, f"the operating system reported an error ({said}); the old content is still there."
    )
