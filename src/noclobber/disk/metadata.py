"""
Owner, mode, extended attributes and ACL of a file: taken from the old version, given to the new one.

On Linux an ACL is an extended attribute, so copying those copies it. What cannot be carried over
makes the commit refuse: a file that silently gets another owner is damaged, too.

Two things are reported instead (`not_kept` of the write's result). The *owner*, in a project that a group
shares: a colleague's file, whose group may do all that its owner may, keeps its group and mode and becomes
the writer's, as with git and most editors. And *flags* (`chattr`) that the filesystem does not give to a file
with content. Immutable and append-only files cannot be replaced at all.

Three attributes are not carried over, because they certify the old content, and the kernel drops
them on a write too: file capabilities and the two integrity signatures.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
from typing import NamedTuple

from noclobber.errors import MetadataNotKeptError

CERTIFY_CONTENT = ("security.capability", "security.ima", "security.evm")
NO_XATTRS = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
ACL = "system.posix_acl_access"
GET_FLAGS, SET_FLAGS = 0x80086601, 0x40086602  # FS_IOC_GETFLAGS, FS_IOC_SETFLAGS
KEPT_FLAGS = 0x8000CC  # c (compress), S (sync), d (no dump), A (no atime), C (no copy on write).
PRIVILEGED = stat.S_ISUID | stat.S_ISGID
# COPYFILE_ACL | COPYFILE_XATTR. Not COPYFILE_STAT: it sets the time of the old version, and builds and
# editors would miss the change. Owner and mode are given as on Linux; flags (`chflags`) are not kept.
MACOS_COPYFILE_METADATA = 0b101


class Metadata(NamedTuple):
    """What a replacement must keep. Two are equal if nothing has to be carried over again."""

    mode: int
    uid: int
    gid: int
    xattrs: tuple[tuple[str, bytes], ...]
    flags: int = 0
    """What `chattr` has set, as far as it can be set on another file."""


def of(descriptor: int, status: os.stat_result | None = None) -> Metadata:
    """Read what must be kept from an open file."""
    status = status or os.fstat(descriptor)
    return Metadata(
        stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, _xattrs(descriptor), _flags(descriptor)
    )


def _flags(descriptor: int) -> int:
    if sys.platform != "linux":
        return 0
    answer = bytearray(8)  # Filled in place: a third of the time of a copy.
    try:
        fcntl.ioctl(descriptor, GET_FLAGS, answer)
    except OSError:
        return 0  # A filesystem without flags.
    return int.from_bytes(answer[:4], sys.byteorder) & KEPT_FLAGS


def _set_flags(descriptor: int, wanted: int) -> bool:
    """Give a file its flags; False if it cannot have them."""
    try:
        answer = fcntl.ioctl(descriptor, GET_FLAGS, bytes(8))
        flags = int.from_bytes(answer[:4], sys.byteorder) & ~KEPT_FLAGS | wanted
        fcntl.ioctl(descriptor, SET_FLAGS, flags.to_bytes(8, sys.byteorder))
    except OSError:
        return False
    return True


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
) -> tuple[str, ...]:
    """
    Make an open file of ours look like `wanted`; MetadataNotKeptError if it cannot be done.

    Returns what was not kept and need not be: `owner`, `flags`. `is_bare`: it is known to have no attributes
    yet.
    """
    not_kept: tuple[str, ...] = ()
    status = status or os.fstat(descriptor)
    mode: int | None = stat.S_IMODE(status.st_mode)
    try:
        if (status.st_uid, status.st_gid) != (wanted.uid, wanted.gid):
            if not _give_owner(descriptor, wanted):
                not_kept += ("owner",)
            mode = None  # chown clears set-user-id bits, so the mode must be set after it.
        if sys.platform == "darwin" and source is not None:
            _copy_macos_metadata(source, descriptor)
        elif sys.platform != "darwin" and (wanted.xattrs or not is_bare):
            _set_xattrs(descriptor, wanted.xattrs)
        if mode != wanted.mode or wanted.xattrs or sys.platform == "darwin":
            os.fchmod(descriptor, wanted.mode)
        if (wanted.flags or not is_bare) and _flags(descriptor) != wanted.flags:
            not_kept += () if _set_flags(descriptor, wanted.flags) else ("flags",)
        return not_kept
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


def _give_owner(descriptor: int, wanted: Metadata) -> bool:
    """Give a file its owner and group; False if only the group, because its members share it."""
    try:
        os.fchown(descriptor, wanted.uid, wanted.gid)
        return True
    except PermissionError:
        owner, group = wanted.mode >> 6 & 7, wanted.mode >> 3 & 7
        has_acl = any(name == ACL for name, _ in wanted.xattrs)  # Then the group's bits say something else.
        if owner & ~group or has_acl or wanted.mode & PRIVILEGED:
            raise  # The owner would lose access, or the file a privilege.
        os.fchown(descriptor, -1, wanted.gid)
        return False


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
