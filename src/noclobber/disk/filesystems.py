"""
Which filesystem is a file or folder on, and what can be promised there?

`doctor` and every commit try the primitives for real. But some things cannot be tried from one machine:
whether a mutex excludes other machines, whether inode numbers stay what they are, and whether a lease sees
every writer. FUSE grants leases that do not see who writes on the other side. For these the kind decides,
and what is not known to be good is taken for bad.

`PROMISES` is the one table of levels: docs/levels.md has its rows, and `doctor` prints its words.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from noclobber.disk.c_library import LONG, function

if TYPE_CHECKING:
    from noclobber.core.values import Level

PROMISES: dict[Level, tuple[str, str, str]] = {
    "lease+exchange": (
        "Linux on ext2/3/4, xfs, btrfs, f2fs, bcachefs, zfs, tmpfs; own files. On overlay (containers): if"
        " this user may see what every process here has mapped",
        "lose nothing",
        "lose nothing. A crash leaves the old or the new version, and the next call finishes the job",
    ),
    "lease+inplace": (
        "the same, for a file with several hard links or one that is a mount point",
        "lose nothing",
        "lose nothing. A crash can leave a mixture until the next call undoes it",
    ),
    "exchange": (
        "macOS; files that belong to somebody else; FUSE and network filesystems that can exchange names and"
        " whose mutex reaches everybody; unknown ones that can exchange names; other overlays",
        "lose nothing; on other mounts and machines if the mutex reaches them, which `doctor` says",
        "bytes saved at the moment of the exchange are put back, or kept aside and reported. But a refused"
        " version is in view for a moment, and who reads it just then may save on top of it; and who has the"
        " file open or mapped and writes much later is not seen",
    ),
    "plain": (
        "FUSE, network and unknown filesystems that cannot exchange names, or whose mutex reaches one mount"
        " only",
        "lose nothing; on other mounts and machines if the mutex reaches them, which `doctor` says",
        "a file that is put in place between the final check and the rename is lost. Bytes that are written"
        " into the old file then or later are kept aside and reported, where the filesystem has hard links;"
        " else they are lost, too. Nobody sees half of a version",
    ),
    "section": (
        "a network or FUSE volume, with a coordinator on PostgreSQL",
        "lose nothing, on any machine",
        "what is put in place between the last look and the rename is lost. What is"
        " saved after a crash stays",
    ),
    "create": ("a new file", "exactly one creates it", "exactly one creates it"),
    "git": ("a branch or a tag that an undo moves back", "git refuses if it was moved", "the same"),
}
"""For each level: where it is given, what other guarded writers lose, what editors, shells and git lose."""

OTHER_SIDE = "what others save on another machine, or behind this mount, is seen only when the mount shows it"
"""What no level promises on FUSE and network filesystems."""

LAYERED = "overlay"

# Here a lease sees every process that has the file open for writing, or has it mapped.
LEASES_SEE_WRITERS = frozenset(("ext4", "xfs", "btrfs", "tmpfs", "ramfs", "f2fs", "zfs", "bcachefs"))

# From the kernel's linux/magic.h. ext2 and ext3 have ext4's number. What is not here is unknown.
_KINDS = {
    0xEF53: "ext4", 0x58465342: "xfs", 0x9123683E: "btrfs", 0x01021994: "tmpfs", 0x858458F6: "ramfs",
    0xF2F52010: "f2fs", 0x2FC12FC1: "zfs", 0xCA451A4E: "bcachefs", 0x794C7630: LAYERED,
    0x65735546: "fuse", 0x6969: "nfs", 0xFF534D42: "cifs", 0xFE534D42: "smb3", 0x517B: "smbfs",
    0x01021997: "9p", 0x00C36400: "ceph", 0x5346414F: "afs", 0x01161970: "gfs2", 0x7461636F: "ocfs2",
    0x0BD00BD0: "lustre", 0x786F4256: "vboxsf",
}  # fmt: skip

# Inode numbers identify a folder here for as long as it exists.
KEEPS_INODES = frozenset(
    ("ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs", "zfs", "f2fs", "bcachefs", "ramfs", "apfs", "hfs")
)

NETWORK = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "gfs2", "ocfs2", "lustre", "glusterfs",
     "afpfs", "webdav", "virtiofs", "vboxsf", "prl_fs")
)  # fmt: skip


# Mounts of object stores. There is no rename there: it is a copy and a deletion. So a file can be missing, or
# be there twice, and two writers that each replace it both succeed.
OBJECT_STORES = frozenset(
    ("s3fs", "rclone", "gcsfuse", "goofys", "geesefs", "mountpoint-s3", "mount-s3", "blobfuse", "blobfuse2",
     "ossfs", "cosfs", "obsfs", "riofs", "yas3fs", "swiftfs")
)  # fmt: skip
NO_RENAME = (
    "is a mount of an object store, where a rename is a copy and a deletion, so a version could be lost or"
    " missing for a while. Work on a local disk or an NFS volume, and copy the result"
)


def object_store(folder: str) -> str | None:
    """Return which object store a folder is mounted from; None if it is none, as far as can be told."""
    if sys.platform != "linux":
        return None
    try:
        kind, source = _mount_linux(os.path.realpath(folder))
    except (OSError, ValueError, IndexError):
        return None
    # The kind is `fuse.s3fs`, or `fuse` alone with the program's name as what is mounted (mountpoint-s3).
    for word in (kind.removeprefix("fuse."), source.partition(":")[0]):
        if word in OBJECT_STORES:
            return word
    return None


def filesystem_type(folder: str) -> str:
    """Return the kernel's word for the filesystem below a folder, or `unknown`."""
    try:
        return _type_linux(os.path.realpath(folder)) if sys.platform == "linux" else _type_macos(folder)
    except (OSError, ValueError, IndexError, AttributeError):
        return "unknown"


def keeps_inodes(folder: str) -> bool:
    """True where a folder's inode number is known to be its own for life."""
    return filesystem_type(folder) in KEEPS_INODES


def sees_writers(kind: str) -> bool:
    """True where a lease sees every process that has the file open for writing. Unknown kinds: False."""
    return kind == LAYERED or kind in LEASES_SEE_WRITERS


def is_remote(kind: str) -> bool:
    """True where others can write without this kernel: on another machine, or behind a FUSE mount."""
    return kind in NETWORK or kind.startswith("fuse")


_fstatfs, _statx = function("fstatfs"), function("statx")
# `struct statfs` begins with f_type, a long; both it and `struct statx` have 256 bytes at most.
_WORDS: Any = LONG * 32
has_seen_network = False  # So that nobody else pays for a question about every lease.


def kind_of(descriptor: int) -> str:
    """
    Return the kind of filesystem that an open file is on, or `unknown`.

    Asked of the file, not of its folder: a single file can be a mount of its own. Asked each time, at 2 µs:
    device numbers of FUSE and network mounts are given to other mounts after an unmount.
    """
    global has_seen_network
    if sys.platform != "linux":
        return "unknown"
    assert _fstatfs is not None
    words = _WORDS()
    number = 0 if _fstatfs(descriptor, words) else words[0] & 0xFFFFFFFF
    kind = _KINDS.get(number, "unknown")
    has_seen_network = has_seen_network or kind in NETWORK
    return kind


FORCE_SYNC, EMPTY_PATH, STATX_BASIC = 0x2000, 0x1000, 0x7FF


def forget_cached(descriptor: int) -> None:
    """
    Look afresh at an open file on FUSE or a network: drop its cached pages, and ask for its size.

    Otherwise a save on the other side is not seen for as long as this mount trusts its caches.
    """
    if sys.platform != "linux":
        return
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    ask_anew(descriptor)


def ask_anew(descriptor: int) -> None:
    """Ask for the state of an open file or folder on a network: the other side, and not our cache."""
    if _statx is not None:
        _statx(descriptor, b"", FORCE_SYNC | EMPTY_PATH, STATX_BASIC, _WORDS())


def refresh(folder: str) -> None:
    """Ask the file server, and not our cache, whether a folder has changed."""
    if sys.platform != "linux":
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        ask_anew(descriptor)
    finally:
        os.close(descriptor)


def _type_linux(folder: str) -> str:
    return _mount_linux(folder)[0]


def _mount_linux(folder: str) -> tuple[str, str]:
    """Return the kind of the mount that a folder is on, and what is mounted."""
    # By mount point and not by device number: btrfs subvolumes report devices that no mount has.
    longest, kind, source = "", "unknown", ""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            left, _, right = line.partition(" - ")
            point = _unescape(left.split(" ")[4])
            inside = folder == point or folder.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(longest):  # >=: of two mounts on one point the later covers.
                longest, (kind, source) = point, right.split(" ")[:2]
    return kind, source


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
