"""
Which filesystem is a folder on, and what is known about that kind?

Nothing is promised because of a name: `doctor` tries every primitive for real. But two things cannot be
tried from one machine: whether a mutex excludes other machines, and whether inode numbers stay what
they are. For these the name decides, and what is not known to be good is taken for bad.
"""

from __future__ import annotations

import os
import sys

# Inode numbers identify a folder here for as long as it exists.
KEEPS_INODES = frozenset(
    ("ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs", "zfs", "f2fs", "bcachefs", "ramfs", "apfs", "hfs")
)

NETWORK = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "gfs2", "ocfs2", "lustre", "glusterfs",
     "afpfs", "webdav", "virtiofs", "vboxsf", "prl_fs")
)  # fmt: skip


def filesystem_type(folder: str) -> str:
    """Return the kernel's word for the filesystem below a folder, or `unknown`."""
    try:
        return _type_linux(os.path.realpath(folder)) if sys.platform == "linux" else _type_macos(folder)
    except (OSError, ValueError, IndexError, AttributeError):
        return "unknown"


def keeps_inodes(folder: str) -> bool:
    """True where a folder's inode number is known to be its own for life."""
    return filesystem_type(folder) in KEEPS_INODES


def _type_linux(folder: str) -> str:
    # By mount point and not by device number: btrfs subvolumes report devices that no mount has.
    longest, kind = "", "unknown"
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            left, _, right = line.partition(" - ")
            point = _unescape(left.split(" ")[4])
            inside = folder == point or folder.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(longest):  # >=: of two mounts on one point the later covers.
                longest, kind = point, right.split(" ")[0]
    return kind


def _unescape(point: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        point = point.replace(code, character)
    return point


def _type_macos(folder: str) -> str:
    import ctypes

    # struct statfs with 64-bit inodes: f_fstypename is 16 bytes at 72.
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(4096)
    call = getattr(libc, "statfs$INODE64", None) or libc.statfs
    if call(os.fsencode(folder), buffer):
        raise OSError(ctypes.get_errno(), "statfs failed")
    return buffer.raw[72:88].split(b"\0")[0].decode("ascii")
