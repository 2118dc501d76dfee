"""
Operating-system errors in the words of the server that this one replaces.

Clients and prompts have come to rely on texts such as `ENOENT: no such file or directory, open '/a'`: the
error's name, what it means, which call failed, and on what.
"""

from __future__ import annotations

import errno
import os

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

# Where that server has other words than the C library.
_MEANINGS = {
    errno.EBUSY: "resource busy or locked",
    errno.EEXIST: "file already exists",
    errno.EIO: "i/o error",
    errno.EISDIR: "illegal operation on a directory",
    errno.ELOOP: "too many symbolic links encountered",
    errno.ENAMETOOLONG: "name too long",
    errno.ENFILE: "file table overflow",
    errno.ENOMEM: "not enough memory",
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


class RewordedError(Exception):
    """A refusal in the replaced server's words: `text` for the model, `refusal` for programs."""

    def __init__(self, text: str, refusal: RefusalError) -> None:
        super().__init__(text)
        self.text, self.refusal = text, refusal


def os_error(code: int | None, call: str, *paths: str) -> RewordedError:
    """Return the error for a system call that failed, on a path or from one path to another."""
    code = code or errno.EIO
    name = errno.errorcode.get(code, "UNKNOWN")
    meaning = _MEANINGS.get(code) or os.strerror(code).lower()
    on = " -> ".join(f"'{path}'" for path in paths)
    text = f"{name}: {meaning}, {call}{' ' if on else ''}{on}"
    kind = _KINDS.get(code, StorageError)
    return RewordedError(text, kind(paths[0] if paths else "", text))


class reference_wording:  # noqa: N801 - it reads as a word: `with reference_wording(path):`
    """Raise refusals inside the block that the replaced server has, too, in its words."""

    __slots__ = ("_call", "_path")

    def __init__(self, path: str, call: str = "open") -> None:
        self._path, self._call = path, call

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        path, call = self._path, self._call
        if isinstance(error, MissingFileError):
            raise os_error(errno.ENOENT, call, path) from None
        if isinstance(error, AccessDeniedError):
            raise os_error(errno.EACCES, call, path) from None
        if isinstance(error, NotAFileError) and os.path.isdir(path):
            reported = ("read",) if call in ("open", "stat") else (call, path)
            raise os_error(errno.EISDIR, *reported) from None


def outside_roots(text: str, path: str) -> RewordedError:
    """Return the error for a path that leads out of the roots."""
    return RewordedError(text, OutsideWorkspaceError(path.replace("\0", "\\0"), text))


def bad_request(text: str, path: str = "") -> RewordedError:
    """Return the error for a request that cannot succeed unless it is changed."""
    return RewordedError(text, BadRequestError(path, text))


def destination_exists(path: str) -> RewordedError:
    """Return the error for a move to a name that is taken."""
    text = f"Destination already exists: {path}"
    return RewordedError(text, FileExistsAlreadyError(path, text))
