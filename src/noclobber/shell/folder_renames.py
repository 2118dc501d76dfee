"""
Renaming a folder inside a private view.

An overlay cannot rename a folder that is in its lower layer: `rename()` fails with EXDEV. `mv` copes, by
copying; `git mv`, `os.rename()` and most build tools do not. So a helper process in the view is asked about
every `rename()`, by a filter that the kernel has for that (seccomp, user notification). It lets each of
them go on. Before it does, it makes a folder that is still in the lower layer one of the upper layer, if
that is what is to be renamed: everything in it is moved into a new folder, which takes its place. That
costs what `mv` would cost.

The filter is for the three system calls that rename, and nothing else is slower. The helper's own renames
carry a sign in bits that the kernel ignores, and are let through. Where there can be no such filter
(another machine type, a sandbox that has one already) folders cannot be renamed, as in any overlay, and
everything else works.
"""

from __future__ import annotations

import errno
import os
import stat
import sys

from noclobber.core.project import BESIDE_PREFIX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Machine = tuple[int, int, tuple[int | None, int, int]]

# Machine: AUDIT_ARCH, the number of seccomp, and of rename (not everywhere), renameat, renameat2.
MACHINES: dict[str, Machine] = {
    "x86_64": (0xC000003E, 317, (82, 264, 316)),
    "aarch64": (0xC00000B7, 277, (None, 38, 276)),
}
SET_MODE_FILTER, NEW_LISTENER = 1, 1 << 3
LOAD, IF_EQUAL, RETURN = 0x20, 0x15, 0x06  # BPF: load a word, jump if equal, return.
ALLOW, NOTIFY = 0x7FFF0000, 0x7FC00000
ARGUMENTS_AT = 16
OUR_SIGN = 0x6E6F636C  # In the upper half of renameat2's flags.
RECEIVE, SEND = 0xC0502100, 0xC0182101
NOTICE_BYTES, ANSWER_BYTES = 80, 24
GO_ON = 1
AT_FDCWD = -100
EXCHANGE = 2
LONGEST_PATH = 4096


def _filter(machine: Machine) -> bytes:
    """Return the program: which system calls are asked about."""
    architecture, _, (rename, renameat, renameat2) = machine
    steps = [
        (LOAD, 0, 0, 4),
        (IF_EQUAL, 0, 6, architecture),
        (LOAD, 0, 0, 0),
        (IF_EQUAL, 5, 0, rename if rename is not None else renameat),
        (IF_EQUAL, 4, 0, renameat),
        (IF_EQUAL, 0, 2, renameat2),
        (LOAD, 0, 0, ARGUMENTS_AT + 8 * 4 + 4),
        (IF_EQUAL, 0, 1, OUR_SIGN),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, NOTIFY),
    ]
    return b"".join(
        code.to_bytes(2, "little") + bytes([yes, no]) + value.to_bytes(4, "little")
        for code, yes, no, value in steps
    )


class RenameHelper:
    """Made before the fork. `begin()` is called in the view, and forks the helper."""

    def __init__(self, libc: Any, root: str, run_folder: str) -> None:
        import ctypes

        self._ctypes, self._libc = ctypes, libc
        self._root, self._upper = root, f"{run_folder}/upper"
        self._machine = MACHINES.get(os.uname().machine)
        self._lower_fd = self._upper_fd = self._listener = -1
        self.life_fd, self._our_life_fd = os.pipe()  # Its other end is closed when our process is gone.

    def open_layers(self) -> None:
        """Before the overlay hides them."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        self._lower_fd, self._upper_fd = os.open(self._root, flags), os.open(self._upper, flags)

    def close(self) -> None:
        """In our own process, when the command is over."""
        os.close(self.life_fd)
        os.close(self._our_life_fd)

    def begin(self) -> int:
        """Install the filter in this process, and fork the helper; return its pid, or 0 if there is none."""
        os.close(self._our_life_fd)
        if self._machine is None:
            return 0
        ctypes, program = self._ctypes, _filter(self._machine)
        code = ctypes.create_string_buffer(program, len(program))
        header = ctypes.create_string_buffer(16)
        header[0:2] = (len(program) // 8).to_bytes(2, "little")
        header[8:16] = ctypes.addressof(code).to_bytes(8, "little")
        self._listener = self._libc.syscall(
            ctypes.c_long(self._machine[1]),
            ctypes.c_ulong(SET_MODE_FILTER),
            ctypes.c_ulong(NEW_LISTENER),
            header,
        )
        if self._listener < 0:
            return 0
        pid = os.fork()
        if pid == 0:
            try:
                self._leave_alone()
                self._serve()
            finally:
                os._exit(0)
        os.close(self._listener)
        return pid

    # In the helper.

    def _leave_alone(self) -> None:
        """Keep nothing open that somebody waits for, and take no signals that are for the command."""
        import _signal  # type: ignore[import-not-found]  # `signal` loads `enum`.

        # A module that is imported for the first time is written down compiled, by a rename: the helper would
        # wait for its own answer.
        sys.dont_write_bytecode = True
        for number in ("SIGINT", "SIGQUIT", "SIGHUP", "SIGTERM", "SIGTSTP", "SIGTTIN", "SIGTTOU"):
            _signal.signal(getattr(_signal, number), _signal.SIG_IGN)
        needed = {self._listener, self._lower_fd, self._upper_fd, self.life_fd}
        nothing_fd = os.open(os.devnull, os.O_RDWR)
        for standard_fd in (0, 1, 2):
            os.dup2(nothing_fd, standard_fd)
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2 and int(name) not in needed:
                try:
                    os.close(int(name))
                except OSError:
                    pass  # The one of the list itself.

    def _serve(self) -> None:
        import fcntl
        import select

        notice = bytearray(NOTICE_BYTES)
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        poll.register(self.life_fd, 0)  # POLLHUP: the process that runs the command was killed.
        while True:
            if any(descriptor == self.life_fd for descriptor, _ in poll.poll()):
                return
            notice[:] = bytes(NOTICE_BYTES)  # The kernel wants it empty.
            try:
                fcntl.ioctl(self._listener, RECEIVE, notice, True)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.ENOENT):
                    continue  # Whoever asked was killed.
                return
            try:
                self._prepare(notice)
            except OSError:
                pass  # Then the rename fails as it would without us, with its own error.
            answer = bytes(notice[:8]) + bytes(8) + bytes(4) + GO_ON.to_bytes(4, "little")
            try:
                fcntl.ioctl(self._listener, SEND, answer)
            except OSError:
                continue

    def _prepare(self, notice: bytearray) -> None:
        """If a folder of the lower layer is about to be renamed, make it one of the upper layer."""
        assert self._machine is not None
        pid = int.from_bytes(notice[8:12], "little")
        number = int.from_bytes(notice[16:20], "little", signed=True)
        words = [int.from_bytes(notice[at : at + 8], "little") for at in range(32, 80, 8)]
        rename, _, renameat2 = self._machine[2]
        if number == rename:
            folder_fd, address = AT_FDCWD, words[0]
        else:
            folder_fd, address = (words[0] + (1 << 31)) % (1 << 32) - (1 << 31), words[1]  # An int, signed.
        if number == renameat2 and words[4] & EXCHANGE:
            return
        name = self._text_at(pid, address)
        if not name.startswith(b"/"):
            around = "cwd" if folder_fd == AT_FDCWD else f"fd/{folder_fd}"
            name = os.fsencode(os.readlink(f"/proc/{pid}/{around}")) + b"/" + name
        path = os.fsdecode(name.rstrip(b"/"))
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            return
        path = f"{os.path.realpath(os.path.dirname(path))}/{os.path.basename(path)}"
        if path.startswith(f"{self._root}/") and self._is_in_lower(path[len(self._root) + 1 :]):
            self._bring_up(path)

    def _text_at(self, pid: int, address: int) -> bytes:
        memory_fd = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            text = b""
            while b"\0" not in text and len(text) < LONGEST_PATH:
                # Up to the end of a page: the next one may not be there.
                piece = os.pread(memory_fd, 4096 - (address + len(text)) % 4096, address + len(text))
                if not piece:
                    break
                text += piece
            return text.partition(b"\0")[0]
        finally:
            os.close(memory_fd)

    def _is_in_lower(self, path: str) -> bool:
        """False if a folder is in the upper layer only. In doubt True, which costs time and does no harm."""
        from noclobber.shell.changes import is_opaque

        try:
            if not stat.S_ISDIR(os.stat(path, dir_fd=self._lower_fd, follow_symlinks=False).st_mode):
                return False
        except OSError:
            return False
        parts = path.split("/")
        for count in range(1, len(parts) + 1):
            if is_opaque(f"/proc/self/fd/{self._upper_fd}/{'/'.join(parts[:count])}"):
                return False
        return True

    def _bring_up(self, path: str) -> None:
        """Move everything in a folder to a new one, and put that in its place."""
        status = os.lstat(path)
        new = f"{os.path.dirname(path)}/{BESIDE_PREFIX}moving-{os.urandom(6).hex()}"
        os.mkdir(new, 0o700)
        self._move_entries(path, new)
        os.rmdir(path)
        self._rename(new, path)
        self._give(path, status)

    def _move_entries(self, folder: str, new: str) -> None:
        for name in os.listdir(folder):
            source, goal = f"{folder}/{name}", f"{new}/{name}"
            status = os.lstat(source)
            if stat.S_ISDIR(status.st_mode):
                os.mkdir(goal, 0o700)
                self._move_entries(source, goal)
                os.rmdir(source)
                self._give(goal, status)
            else:
                self._rename(source, goal)

    def _give(self, path: str, status: os.stat_result) -> None:
        os.chmod(path, stat.S_IMODE(status.st_mode))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    def _rename(self, source: str, goal: str) -> None:
        assert self._machine is not None
        ctypes = self._ctypes
        done = self._libc.syscall(
            ctypes.c_long(self._machine[2][2]),
            ctypes.c_long(AT_FDCWD),
            os.fsencode(source),
            ctypes.c_long(AT_FDCWD),
            os.fsencode(goal),
            ctypes.c_ulong(OUR_SIGN << 32),
        )
        if done != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), source)
