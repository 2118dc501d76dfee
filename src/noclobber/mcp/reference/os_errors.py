"""
Operating-system errors in the words of the server that this one replaces.

Clients and prompts have come to rely on texts such as `ENOENT: no such file or directory, open '/a'`: the
error's name, what it means, which call failed, and on what.
"""

from __future__ import annotations

import errno

from noclobber.errors import (
    AccessDeniedError,
    BadRequestError,
    FileExistsAlreadyError,
    MissingFileError,
    NotAFileError,
    OutsideWorkspaceError,
    RefusalError,
    StorageError,
)

_MEANINGS = {
    errno.E2BIG: "argument list too long",
    errno.EACCES: "permission denied",
    errno.EBUSY: "resource busy or locked",
    errno.EEXIST: "file already exists",
    errno.EINVAL: "invalid argument",
    errno.EIO: "i/o error",
    errno.EISDIR: "illegal operation on a directory",
    errno.ELOOP: "too many symbolic links encountered",
    errno.EMFILE: "too many open files",
    errno.ENAMETOOLONG: "name too long",
    errno.ENFILE: "file table overflow",
    errno.ENODEV: "no such device",
    errno.ENOENT: "no such file or directory",
    errno.ENOMEM: "not enough memory",
    errno.ENOSPC: "no space left on device",
    errno.ENOTDIR: "not a directory",
    errno.ENOTEMPTY: "directory not empty",
    errno.ENXIO: "no such device or address",
    errno.EPERM: "operation not permitted",
    errno.EROFS: "read-only file system",
    errno.ETXTBSY: "text file is busy",
    errno.EXDEV: "cross-device link not permitted",
}

_KINDS: dict[int, type[RefusalError]] = {
    errno.EACCES: AccessDeniedError,
    errno.EPERM: AccessDeniedError,
    errno.EEXIST: FileExistsAlreadyError,
    errno.EISDIR: NotAFileError,
    errno.ENOENT: MissingFileError,
    errno.ENOTDIR: NotAFileError,
    errno.EINVAL: BadRequestError,
    errno.ENAMETOOLONG: BadRequestError,
    errno.ELOOP: BadRequestError,
}


class PlainError(Exception):
    """A refusal whose text is not ours: `text` for the model, `refusal` for programs."""

    def __init__(self, text: str, refusal: RefusalError) -> None:
        super().__init__(text)
        self.text, self.refusal = text, refusal


def failed(code: int | None, call: str, *paths: str) -> PlainError:
    """Return the error for a system call that failed, on a path or from one path to another."""
    code = code or errno.EIO
    name = errno.errorcode.get(code, "UNKNOWN")
    meaning = _MEANINGS.get(code, "unknown error")
    on = " -> ".join(f"'{path}'" for path in paths)
    text = f"{name}: {meaning}, {call}{' ' if on else ''}{on}"
    kind = _KINDS.get(code, StorageError)
    return PlainError(text, kind(paths[0] if paths else "", text))


def outside(text: str, path: str) -> PlainError:
    """Return the error for a path that leads out of the roots."""
    return PlainError(text, OutsideWorkspaceError(path.replace("\0", "\\0"), text))


def bad_request(text: str, path: str = "") -> PlainError:
    """Return the error for a request that can never succeed as it stands."""
    return PlainError(text, BadRequestError(path, text))


def exists(path: str) -> PlainError:
    """Return the error for a move onto something."""
    text = f"Destination already exists: {path}"
    return PlainError(text, FileExistsAlreadyError(path, text))
