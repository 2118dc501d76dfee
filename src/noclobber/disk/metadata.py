"""
Owner, mode, extended attributes and ACL of a file: taken from the old version, given to the new one.

On Linux an ACL is an extended attribute, so copying those copies it. What cannot be carried over
makes the commit refuse: a file that silently gets another owner is damaged, too.

Three attributes are not carried over, because they certify the old content, and the kernel drops
them on a write too: file capabilities and the two integrity signatures.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from typing import NamedTuple

from noclobber.errors import MetadataNotKeptError

CERTIFY_CONTENT = ("security.capability", "security.ima", "security.evm")
NO_XATTRS = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
MACOS_COPYFILE_METADATA = 0b111  # COPYFILE_ACL | COPYFILE_STAT | COPYFILE_XATTR


class Metadata(NamedTuple):
    """What a replacement must keep. Two are equal if nothing has to be carried over again."""

    mode: int
    uid: int
    gid: int
    xattrs: tuple[tuple[str, bytes], ...]


def of(descriptor: int, status: os.stat_result | None = None) -> Metadata:
    """Read what must be kept from an open file."""
    status = status or os.fstat(descriptor)
    return Metadata(stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, _xattrs(descriptor))


def _xattrs(descriptor: int) -> tuple[tuple[str, bytes], ...]:
    if sys.platform == "darwin":
        return ()  # Carried over by fcopyfile, below.
    try:
        names = os.listxattr(descriptor)
    except OSError as error:
        if error.errno in NO_XATTRS:
            return ()
        raise
    if not names:
        return ()
    found = []
    for name in names:
        if name in CERTIFY_CONTENT:
            continue
        try:
            found.append((name, os.getxattr(descriptor, name)))
        except OSError as error:
            if error.errno != errno.ENODATA:  # Removed between the list and the look: then it is gone.
                raise
    return tuple(sorted(found))


def give(
    descriptor: int,
    wanted: Metadata,
    *,
    path: str,
    source: int | None = None,
    status: os.stat_result | None = None,
    is_bare: bool = False,
) -> None:
    """
    Make an open file of ours look like `wanted`; MetadataNotKeptError if it cannot be done.

    `is_bare`: it is known to have no attributes yet.
    """
    status = status or os.fstat(descriptor)
    mode: int | None = stat.S_IMODE(status.st_mode)
    try:
        if (status.st_uid, status.st_gid) != (wanted.uid, wanted.gid):
            os.fchown(descriptor, wanted.uid, wanted.gid)
            mode = None  # chown clears set-user-id bits, so the mode must be set after it.
        if sys.platform == "darwin" and source is not None:
            _copy_macos_metadata(source, descriptor)
        elif sys.platform != "darwin" and (wanted.xattrs or not is_bare):
            _set_xattrs(descriptor, wanted.xattrs)
        if mode != wanted.mode or wanted.xattrs:
            os.fchmod(descriptor, wanted.mode)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise
        raise MetadataNotKeptError(
            path,
            f"its owner (uid {wanted.uid}, gid {wanted.gid}), ACL or attributes cannot be given to the new"
            f" version ({os.strerror(error.errno or 0)}), so nothing was replaced. Run as the file's owner,"
            " or have the owner take the file over.",
            owner_uid=wanted.uid,
            owner_gid=wanted.gid,
        ) from error


def inherit_group(new_fd: int, folder_fd: int) -> None:
    """Give a file staged elsewhere the group that a set-group-id folder gives its files."""
    folder = os.fstat(folder_fd)
    if folder.st_mode & stat.S_ISGID and os.fstat(new_fd).st_gid != folder.st_gid:
        os.fchown(new_fd, -1, folder.st_gid)


def _set_xattrs(descriptor: int, wanted: tuple[tuple[str, bytes], ...]) -> None:
    have = dict(_xattrs(descriptor))
    for name, value in wanted:
        # A security label is often inherited already, and setting it again needs privileges.
        if have.pop(name, None) != value:
            os.setxattr(descriptor, name, value)
    for name in have:
        if not name.startswith("security."):
            os.removexattr(descriptor, name)


def _copy_macos_metadata(source: int, destination: int) -> None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.fcopyfile(source, destination, None, ctypes.c_uint32(MACOS_COPYFILE_METADATA)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
