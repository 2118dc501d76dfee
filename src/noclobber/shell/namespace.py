"""
A private view of a folder: an overlay on its own path, in a mount namespace that nobody else sees.

Everything that a process writes below the root goes to an upper layer. Every path stays what it was. The real
tree is the lower layer and is not touched; other processes see neither the overlay nor what is in it.

Inside, three things are not part of the overlay:

- `.noclobber/` is the real one, read-only: a command cannot edit the record of what it did. Its `run/` is
  empty there, or `grep -r` would find everything twice.
- What is mounted below the root stays mounted, and is not guarded.
- Everything outside of the root, but for git folders of work trees in it (`git_folders`) and, for users who
  are not root, settings of ssh (`ssh_files`).

`enter()` is called in a forked child, before it becomes the command. What fails here is `UnavailableError`:
no namespaces for this user (EPERM), too many of them (ENOSPC), a root that is itself on an overlay (EINVAL).

Loaded by every guarded command, so nothing slow is imported.
"""

from __future__ import annotations

import errno
import os
import sys

from noclobber.core.project import STATE_FOLDER
from noclobber.disk.c_library import LONG, function, get_errno
from noclobber.shell.git_folders import layers
from noclobber.shell.supervisor import Supervisor

CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_SLAVE = 1, 32, 4096, 16384, 1 << 19
# Flags of a mount that a namespace of our own may not take away; the numbers of statvfs are those of mount.
KEPT_FLAGS = os.ST_NOSUID | getattr(os, "ST_NODEV", 4) | getattr(os, "ST_NOEXEC", 8)
RELATIME, NOATIME, NODIRATIME = 1 << 21, 1 << 10, 1 << 11
ST_RELATIME = 4096
SOURCE = "noclobber"
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36
O_PATH = getattr(os, "O_PATH", 0)
_ESCAPED = frozenset(" \t\n\\")  # In the kernel's list of mounts.

_WHY = {
    errno.EPERM: "this user may not make namespaces here",
    errno.ENOSPC: "there are too many namespaces, or none are allowed",
    errno.EINVAL: "the kernel cannot put an overlay on this folder",
    errno.ENOSYS: "this kernel has no namespaces",
    errno.ENODEV: "this kernel has no overlay filesystem",
    errno.EACCES: "this user may not mount here",
}


_SETTINGS = (
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        b"1",
        "kernel.apparmor_restrict_unprivileged_userns is 1, as on Ubuntu: only programs with an AppArmor"
        " profile for it may make user namespaces (docs/shell.md)",
    ),
    (
        "/proc/sys/kernel/unprivileged_userns_clone",
        b"0",
        "kernel.unprivileged_userns_clone is 0: only root may make user namespaces (docs/shell.md)",
    ),
)


class UnavailableError(Exception):
    """There can be no private view of this folder here. The text says why."""


def library() -> None:
    """Fail with `UnavailableError` on a system that has no namespaces at all."""
    if not sys.platform.startswith("linux"):
        raise UnavailableError("only Linux has namespaces")


class PrivateView:
    """What `enter()` needs, gathered before the fork."""

    def __init__(self, root: str, run_folder: str) -> None:
        self.root, self.run_folder = root, run_folder
        library()
        # Before the fork: the child loads nothing.
        self._functions = {name: function(name) for name in ("unshare", "mount", "prctl")}
        self.supervisor = Supervisor(root, run_folder)
        self.uid, self.gid = os.geteuid(), os.getegid()
        self._ssh_copies: list[tuple[str, bytes]] = []
        if self.uid:
            from noclobber.shell.ssh_files import copies  # Here: for ordinary users only.

            self._ssh_copies = copies()

    def prctl(self, option: int, value: int) -> None:
        """Set an attribute of this process."""
        self._call("prctl", option, LONG(value), LONG(0), LONG(0), LONG(0))

    def enter(self) -> None:
        """Make the view, and let this process see it. `UnavailableError` if that cannot be."""
        try:
            self._enter()
        except OSError as error:
            why = (self._why_forbidden() if self.uid else "") or _WHY.get(error.errno or 0, "")
            raise UnavailableError(f"{error.strerror}{f': {why}' if why else ''}") from None

    def _why_forbidden(self) -> str:
        """Return the system's setting that forbids it, if it is one."""
        for path, forbids, why in _SETTINGS:
            try:
                with open(path, "rb") as file:
                    if file.read(16).strip() == forbids:
                        return why
            except OSError:
                continue
        return ""

    def _enter(self) -> None:
        self._unshare()
        # Nothing that is mounted here shows outside; what is mounted outside still shows here.
        self._mount(None, "/", None, MS_REC | MS_SLAVE)
        root, state = self.root, f"{self.root}/{STATE_FOLDER}"
        through = [(state, os.open(state, O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW))]
        through += [(point, os.open(point, O_PATH)) for point in mounts_below(root)]
        for number, (path, content) in enumerate(self._ssh_copies):
            self._mount_copy(path, content, f"{self.run_folder}/ssh-{number}")
        for folder, layer in layers(self.run_folder):
            try:
                self._overlay(folder, layer)
            except OSError:
                os.unlink(f"{layer}/of")  # A refusal says what the command did there.
        self._overlay(root, self.run_folder)
        for point, descriptor in through:
            self._mount(f"/proc/self/fd/{descriptor}", point, None, MS_BIND | MS_REC)
        self._mount(f"{self.run_folder}/empty", f"{state}/run", None, MS_BIND)
        self._make_read_only(state)
        self._make_read_only(f"{state}/run")
        for _, descriptor in through:
            os.close(descriptor)

    def _mount_copy(self, path: str, content: bytes, copy: str) -> None:
        """Have a file belong to this user, in the view only (`ssh_files`)."""
        try:
            descriptor = os.open(copy, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, content)
            finally:
                os.close(descriptor)
            self._mount(copy, path, None, MS_BIND)
            self._make_read_only(path)
        except OSError:
            pass  # Then ssh says what it does not like. Everything else works.

    def _overlay(self, point: str, layer: str) -> None:
        """Mount an overlay on a folder."""
        # By descriptors: a name in the options may have commas, colons and backslashes.
        paths = [point, f"{layer}/upper", f"{layer}/work"]
        opened = [os.open(path, O_PATH | os.O_DIRECTORY) for path in paths]
        names = [f"/proc/self/fd/{descriptor}" for descriptor in opened]
        # Volatile: a command's `fsync()` flushes nothing, and neither does the end of the view, which would
        # flush the whole filesystem that the project is on. What lands is flushed by the commit.
        options = "lowerdir={},upperdir={},workdir={},userxattr,volatile".format(*names)
        try:
            self._mount(SOURCE, point, "overlay", 0, options)
        finally:
            for descriptor in opened:
                os.close(descriptor)

    def _unshare(self) -> None:
        if self.uid == 0:
            try:
                self._call("unshare", CLONE_NEWNS)
                return
            except PermissionError:
                pass  # Root in a container, without the right to mount. A namespace of its own has it.
        self._call("unshare", CLONE_NEWNS | CLONE_NEWUSER)
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{self.uid} {self.uid} 1"),
            ("gid_map", f"{self.gid} {self.gid} 1"),
        ):
            descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY)
            try:
                os.write(descriptor, text.encode())
            finally:
                os.close(descriptor)

    def _make_read_only(self, point: str) -> None:
        flags = os.statvfs(point).f_flag
        kept = flags & KEPT_FLAGS | flags & (NOATIME | NODIRATIME) | (RELATIME if flags & ST_RELATIME else 0)
        self._mount(None, point, None, MS_REMOUNT | MS_BIND | MS_RDONLY | kept)

    def _mount(
        self, source: str | None, point: str, kind: str | None, flags: int, data: str | None = None
    ) -> None:
        words = [None if word is None else os.fsencode(word) for word in (source, point, kind, data)]
        self._call("mount", words[0], words[1], words[2], LONG(flags), words[3])

    def _call(self, name: str, *args: object) -> None:
        called = self._functions[name]
        if called is None:
            raise OSError(errno.ENOSYS, f"{name}: {os.strerror(errno.ENOSYS)}")
        if called(*args) != 0:
            code = get_errno()
            raise OSError(code, f"{name}: {os.strerror(code)}")


def mounts_below(root: str) -> list[str]:
    """Return where something is mounted below a folder, the outer ones first."""
    below, listed = root.rstrip("/") + "/", _mount_list()
    if _ESCAPED.isdisjoint(below) and os.fsencode(below) not in listed:
        return []  # Half a millisecond less for every command.
    return [point for point, _ in _mounts(listed) if point.startswith(below)]


def is_inside(root: str) -> bool:
    """True if this process sees a folder through a private view already, by the innermost mount around it."""
    around = ("", "")
    for point, source in _mounts(_mount_list()):
        is_around = root == point or root.startswith(point.rstrip("/") + "/")
        if is_around and len(point) >= len(around[0]):
            around = (point, source)
    return around[1] == f"overlay {SOURCE}"


def _mount_list() -> bytes:
    """Return what the kernel says of the mounts of this process."""
    listed = b""
    try:
        descriptor = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
        try:
            while piece := os.read(descriptor, 1 << 16):
                listed += piece
        finally:
            os.close(descriptor)
    except OSError:
        return b""
    return listed


def _mounts(listed: bytes) -> list[tuple[str, str]]:
    """Return every mount of a list: where, and "type source"."""
    found = []
    for line in listed.splitlines():
        before, _, after = line.partition(b" - ")
        kind, source, *_ = after.split(b" ")
        found.append((os.fsdecode(_unescaped(before.split(b" ")[4])), os.fsdecode(kind + b" " + source)))
    return found


def _unescaped(name: bytes) -> bytes:
    r"""Return a name with `\040` and the like read: spaces, tabs, newlines and backslashes."""
    if b"\\" not in name:
        return name
    first, *rest = name.split(b"\\")
    return first + b"".join(bytes([int(part[:3], 8)]) + part[3:] for part in rest)
