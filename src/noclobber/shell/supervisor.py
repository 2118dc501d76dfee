"""
Answer what the processes in a private view ask before some of their system calls go on.

A filter of the kernel's (seccomp, user notification) stops them in `rename`, `renameat` and `renameat2`: an
overlay cannot rename a folder of its lower layer (`folder_renames`). The process that waits for the command
prepares what the call needs, and lets it go on. It stops them where they remove a folder, too: an overlay
keeps no trace of that if somebody else has removed or moved the real one just before.

The process that answers is nobody's deputy. It acts for processes in the view's own namespaces, with its own
credentials: the namespaces are kept open from before the command began, so that no other can get their
numbers. A command may make namespaces of its own inside; there a folder is renamed as in any overlay (EXDEV).

A command of root's can leave its view by rights that it has anyway. Where it asks the kernel for that in
plain words (another mount namespace, an unmount of the project) it is noticed, and said.

Nothing but these calls is slower. Where there can be no such filter (another machine type, a sandbox that has
one already, a kernel on which no process may look into another) folders cannot be renamed, as in any overlay,
and everything else works.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any, NamedTuple

from noclobber.disk.c_library import LONG, function


class Machine(NamedTuple):
    """The numbers of a machine type: its AUDIT_ARCH, and of system calls. None: it has no such call."""

    architecture: int
    seccomp: int
    rename: int | None
    renameat: int
    renameat2: int
    rmdir: int | None
    unlinkat: int
    setns: int
    umount2: int


MACHINES = {
    "x86_64": Machine(0xC000003E, 317, 82, 264, 316, 84, 263, 308, 166),
    "aarch64": Machine(0xC00000B7, 277, None, 38, 276, None, 35, 268, 39),
}
PIDFD_GETFD = 438
SET_MODE_FILTER, NEW_LISTENER = 1, 1 << 3
LOAD, IF_EQUAL, RETURN = 0x20, 0x15, 0x06  # BPF: load a word, jump if, return.
ALLOW, NOTIFY = 0x7FFF0000, 0x7FC00000
NUMBER_AT, ARCHITECTURE_AT, THIRD_WORD_AT = 0, 4, 32
RECEIVE, SEND, IS_VALID = 0xC0502100, 0xC0182101, 0x40082102
NOTICE_BYTES = 80
GO_ON = 1
AT_FDCWD = -100
EXCHANGE = 2
AT_REMOVEDIR = 0x200
LONGEST_PATH = 4096
CLONE_NEWNS = 0x20000
MOST_WAYS = 20
SPACES = ("user", "mnt")
_WHO = (b"Uid:", b"Gid:", b"Groups:")


def _filter(machine: Machine, *, can_leave: bool) -> bytes:
    """Return the program: which system calls are asked about."""
    asked = [machine.rename, machine.renameat, machine.renameat2, machine.rmdir]
    if can_leave:
        asked += [machine.setns, machine.umount2]
    steps = [(LOAD, 0, 0, ARCHITECTURE_AT), (IF_EQUAL, 1, 0, machine.architecture), (RETURN, 0, 0, ALLOW)]
    steps.append((LOAD, 0, 0, NUMBER_AT))
    for number in asked:
        if number is not None:
            steps += [(IF_EQUAL, 0, 1, number), (RETURN, 0, 0, NOTIFY)]
    steps += [(IF_EQUAL, 0, 3, machine.unlinkat), (LOAD, 0, 0, THIRD_WORD_AT)]
    steps += [(IF_EQUAL, 0, 1, AT_REMOVEDIR), (RETURN, 0, 0, NOTIFY), (RETURN, 0, 0, ALLOW)]
    return b"".join(
        code.to_bytes(2, "little") + bytes([yes, no]) + value.to_bytes(4, "little")
        for code, yes, no, value in steps
    )


class Supervisor:
    """Made before the fork. The child installs the filter; our own process takes the listener and answers."""

    def __init__(self, root: str, run_folder: str) -> None:
        self._root, self._upper = root, f"{run_folder}/upper"
        self._machine = MACHINES.get(os.uname().machine)
        self._syscall = function("syscall")
        self._poll: Any = None
        self.listener_fd = -1
        self._own = b""
        self.space_fds: list[int] = []
        """The view's own namespaces, by `SPACES`."""
        self.replaced: set[str] = set()
        """Names of the real tree, below the root, that were renamed, or over which something was,
        and folders that were removed."""
        self.ways_out: list[str] = []
        """How the command asked to leave its view."""

    # In the child.

    def install(self) -> int:
        """Install the filter in this process; return the listener, or -1 if there can be none."""
        if self._machine is None or self._syscall is None:
            return -1
        program = _filter(self._machine, can_leave=os.geteuid() == 0)
        code = ctypes.create_string_buffer(program)
        header = (len(program) // 8).to_bytes(8, "little") + ctypes.addressof(code).to_bytes(8, "little")
        return self._syscall(LONG(self._machine.seccomp), LONG(SET_MODE_FILTER), LONG(NEW_LISTENER), header)

    # In our own process.

    def take(self, pid: int, listener: int) -> bool:
        """
        Take the child's listener, and the namespaces that it has made; False if this kernel does not let us.

        The child waits for the answer, so nothing of the command has run in there yet.
        """
        assert self._syscall is not None
        try:
            pid_fd = os.pidfd_open(pid)
        except OSError:
            return False
        try:
            self.listener_fd = self._syscall(LONG(PIDFD_GETFD), pid_fd, listener, 0)
            flags = os.O_RDONLY | os.O_CLOEXEC
            self.space_fds = [os.open(f"/proc/{pid}/ns/{name}", flags) for name in SPACES]
            self._own = _credentials("self")
        except OSError:
            return False
        finally:
            os.close(pid_fd)
        return self.listener_fd >= 0

    def leave_view(self) -> None:
        """Let go of the view: the last one to do so takes it down."""
        for descriptor in self.space_fds:
            os.close(descriptor)
        self.space_fds = []

    def close(self) -> None:
        """When the command is over."""
        self.leave_view()
        if self.listener_fd >= 0:
            os.close(self.listener_fd)
            self.listener_fd = -1

    def serve(self, wake_fd: int, timeout_s: float | None) -> None:
        """Answer until `wake_fd` can be read, or the time is over. With a timeout of 0, what is there now."""
        import select

        if self._poll is None:
            self._poll = select.poll()
            self._poll.register(wake_fd, select.POLLIN)
            if self.listener_fd >= 0:
                self._poll.register(self.listener_fd, select.POLLIN)
        while True:
            ready = dict(self._poll.poll(None if timeout_s is None else timeout_s * 1000))
            if ready.get(self.listener_fd, 0) & select.POLLIN:
                self._answer()
            elif self.listener_fd in ready:  # Nobody is left who could ask.
                self._poll.unregister(self.listener_fd)
            if not ready or wake_fd in ready:
                return

    def _answer(self) -> None:
        notice = bytearray(NOTICE_BYTES)
        if not self._control(RECEIVE, notice):
            return  # Whoever asked was killed.
        try:
            self._prepare(notice)
        except (OSError, ValueError):
            pass  # Then the call goes on as it would without us, and fails with its own error.
        self._control(SEND, bytes(notice[:8]) + bytes(12) + GO_ON.to_bytes(4, "little"))

    def _control(self, request: int, argument: bytes | bytearray) -> bool:
        import fcntl

        try:
            fcntl.ioctl(self.listener_fd, request, argument)
        except OSError:
            return False
        return True

    def _prepare(self, notice: bytearray) -> None:
        """Do what has to be done before a call goes on."""
        machine = self._machine
        assert machine is not None
        notice_id, pid = bytes(notice[:8]), int.from_bytes(notice[8:12], "little")
        number = int.from_bytes(notice[16:20], "little", signed=True)
        words = [int.from_bytes(notice[at : at + 8], "little") for at in range(32, 80, 8)]
        if number in (machine.setns, machine.umount2):
            self._note_way_out(pid, number, words)
            return
        if number in (machine.rename, machine.rmdir):
            folder_fd, address = AT_FDCWD, words[0]
        else:
            folder_fd, address = _signed(words[0]), words[1]
        path = _path(pid, folder_fd, address)
        is_ours = self._is_of_the_view(pid)
        if number in (machine.rmdir, machine.unlinkat):
            if not is_ours or not os.listdir(f"/proc/{pid}/root{path}"):  # Otherwise it fails.
                self._note_replaced(path, pid if is_ours else 0)
        elif number != machine.renameat2 or not words[4] & EXCHANGE:
            goal = (AT_FDCWD, words[1]) if number == machine.rename else (_signed(words[2]), words[3])
            self._note_replaced(_path(pid, *goal))
            self._note_replaced(path, pid if is_ours else 0)
            if is_ours:
                from noclobber.shell import folder_renames  # Here: most commands rename nothing.

                asked = folder_renames.FolderRename(pid, path, lambda: self._control(IS_VALID, notice_id))
                folder_renames.prepare(asked, self._root, self._upper, self.space_fds)

    def _is_of_the_view(self, pid: int) -> bool:
        """True for a process in the view's own namespaces that is who we are."""
        for name, descriptor in zip(SPACES, self.space_fds, strict=True):
            if not os.path.samestat(os.stat(f"/proc/{pid}/ns/{name}"), os.fstat(descriptor)):
                return False
        return _credentials(pid) == self._own

    def _note_way_out(self, pid: int, number: int, words: list[int]) -> None:
        """Note that a process is about to leave the view, if it is: the call may still fail."""
        assert self._machine is not None
        if number == self._machine.umount2:
            path = os.path.normpath(_path(pid, AT_FDCWD, words[0]))
            if f"{self._root}/".startswith(path.rstrip("/") + "/"):
                self._note_way(f"unmount {path}")
            return
        descriptor = _signed(words[0])
        link = os.readlink(f"/proc/{pid}/fd/{descriptor}")
        if link.startswith("mnt:"):
            other = os.stat(f"/proc/{pid}/fd/{descriptor}")
        elif "[pidfd]" in link and words[1] & CLONE_NEWNS:
            with open(f"/proc/{pid}/fdinfo/{descriptor}", "rb") as file:
                target = next(line for line in file if line.startswith(b"Pid:")).split()[1]
            other = os.stat(f"/proc/{int(target)}/ns/mnt")
        else:
            return
        if not os.path.samestat(other, os.fstat(self.space_fds[1])):
            self._note_way("enter another mount namespace")

    def _note_way(self, way: str) -> None:
        if way not in self.ways_out and len(self.ways_out) < MOST_WAYS:
            self.ways_out.append(way)

    def _note_replaced(self, path: str, pid: int = 0) -> None:
        """
        Note a name that is there. The upper layer does not tell what a file was renamed over.

        Nor, of a folder that is renamed and that others have moved away meanwhile, that it was there. `pid`:
        then the view of this process still shows it.
        """
        folder, name = os.path.split(path)
        real = f"{os.path.realpath(folder)}/{name}"
        if not real.startswith(f"{self._root}/"):
            return
        below = real[len(self._root) + 1 :]
        if os.path.lexists(real) or (pid and self._was_there(below, f"/proc/{pid}/root{path}")):
            self.replaced.add(below)

    def _was_there(self, below: str, in_view: str) -> bool:
        """True for what the view shows and the command has neither made nor moved there."""
        from noclobber.shell.origins import origin_of  # Here: most names that are renamed are there.

        upper = f"{self._upper}/{below}"
        if not os.path.lexists(in_view):
            return False
        # A folder with an origin was copied up in place; one that is moved is made anew (`folder_renames`).
        return not os.path.lexists(upper) or (os.path.isdir(upper) and origin_of(upper) is not None)


def _signed(word: int) -> int:
    """Return an argument of a system call that is an int."""
    return (word + (1 << 31)) % (1 << 32) - (1 << 31)


def _credentials(pid: int | str) -> bytes:
    """Return who a process is: its users and groups."""
    with open(f"/proc/{pid}/status", "rb") as file:
        return b"".join(line for line in file if line.startswith(_WHO))


def _path(pid: int, folder_fd: int, address: int) -> str:
    """Return the path that a process gives to a system call, made absolute."""
    name = _text_at(pid, address)
    if not name.startswith(b"/"):
        around = "cwd" if folder_fd == AT_FDCWD else f"fd/{folder_fd}"
        name = os.fsencode(os.readlink(f"/proc/{pid}/{around}")) + b"/" + name
    return os.fsdecode(name.rstrip(b"/"))


def _text_at(pid: int, address: int) -> bytes:
    """Return the text at an address in the memory of a process."""
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
