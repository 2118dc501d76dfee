"""
A disk that remembers every write and every flush, so that a power cut can be made at any moment afterwards.

One file, served to the kernel over FUSE by a process of its own; a loop device on top of it is the disk. Each
write goes to a log with its bytes, each flush as a record of its own. A cut at record `n` is then an image of
the disk: all that was written before the last flush, and of what came after it a random choice. A real disk
with a volatile cache promises no more than that.

Only the standard library: the kernel's FUSE protocol is spoken here directly (`struct fuse_in_header` and its
kind in linux/fuse.h), of which a file without a folder needs nine requests.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import random
import signal
import struct
import subprocess
import sys
from typing import NamedTuple

FORGET, GETATTR, SETATTR, OPEN, READ, WRITE, STATFS, RELEASE, FSYNC = 2, 3, 4, 14, 15, 16, 17, 18, 20
FLUSH, INIT, INTERRUPT, DESTROY, BATCH_FORGET = 25, 26, 36, 38, 42
ASYNC_READ, BIG_WRITES, MAX_PAGES = 1, 1 << 5, 1 << 22
MOST_BYTES = 1 << 20  # In one request.
SECTOR_BYTES = 4096  # What a disk writes whole or not at all.
POSITION_BYTES = 8

_REQUEST = struct.Struct("<IIQQIIII")
_RECORD = struct.Struct("<QQ")  # Offset and length; a flush is FLUSHED with length 0.
FLUSHED = (1 << 64) - 1


class Paths(NamedTuple):
    """The files of one disk, below a folder on a filesystem in memory."""

    image: str
    log: str
    position: str
    mount: str

    @classmethod
    def below(cls, folder: str) -> Paths:
        """Name them."""
        return cls(*(f"{folder}/{name}" for name in ("image", "log", "position", "disk")))


class RecordingDisk:
    """Answers the kernel's requests for the one file."""

    def __init__(self, paths: Paths, size: int) -> None:
        self._size = size
        self._paths = paths
        self._image_fd = os.open(paths.image, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(self._image_fd, size)
        self._log = open(paths.log, "wb", buffering=0)  # noqa: SIM115
        with open(paths.position, "wb") as file:
            file.write(bytes(POSITION_BYTES))
        with open(paths.position, "r+b") as file:
            self._position = mmap.mmap(file.fileno(), POSITION_BYTES)
        self._count = 0

    def mount(self) -> int:
        """Make the file appear; return the descriptor on which the kernel asks."""
        with open(self._paths.mount, "wb"):
            pass
        kernel_fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={kernel_fd},rootmode=100600,user_id=0,group_id=0,max_read={MOST_BYTES}"
        libc = ctypes.CDLL(None, use_errno=True)
        point = os.fsencode(self._paths.mount)
        if libc.mount(b"noclobber-power", point, b"fuse", 0, options.encode()) != 0:
            raise OSError(ctypes.get_errno(), "cannot mount a FUSE file")
        return kernel_fd

    def serve(self, kernel_fd: int) -> None:
        """Answer until it is unmounted."""
        while True:
            try:
                request = os.read(kernel_fd, MOST_BYTES + 8192)
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                    continue
                return  # ENODEV: unmounted.
            _, code, unique, *_ = _REQUEST.unpack_from(request)
            if code in (FORGET, BATCH_FORGET, INTERRUPT):
                continue
            failure, answer = 0, b""
            try:
                answer = self._answer(code, request[_REQUEST.size :])
            except OSError as error:
                failure = -(error.errno or errno.EIO)
            try:
                os.write(kernel_fd, struct.pack("<IiQ", 16 + len(answer), failure, unique) + answer)
            except OSError:
                pass  # The asker is gone.
            if code == DESTROY:
                return

    def _answer(self, code: int, body: bytes) -> bytes:
        if code == READ:
            offset, size = struct.unpack_from("<QI", body, 8)
            return os.pread(self._image_fd, size, offset)
        if code == WRITE:
            offset, size = struct.unpack_from("<QI", body, 8)
            data = body[40 : 40 + size]
            os.pwrite(self._image_fd, data, offset)
            self._note(_RECORD.pack(offset, size) + data)
            return struct.pack("<II", size, 0)
        if code == FSYNC:
            self._note(_RECORD.pack(FLUSHED, 0))
            return b""
        if code == INIT:
            _, minor, ahead = struct.unpack_from("<III", body)
            flags = ASYNC_READ | BIG_WRITES | MAX_PAGES
            head = struct.pack("<IIIIHHII", 7, min(minor, 31), ahead, flags, 64, 48, MOST_BYTES, 1)
            return (head + struct.pack("<H", MOST_BYTES // 4096)).ljust(64, b"\0")
        if code in (GETATTR, SETATTR):
            times = (0, 0, 0, 0, 0, 0)
            attributes = (1, self._size, self._size // 512, *times, 0o100600, 1, 0, 0, 0, 4096, 0)
            return struct.pack("<QII", 3600, 0, 0) + struct.pack("<QQQQQQIIIIIIIIII", *attributes)
        if code == OPEN:
            return struct.pack("<QII", 1, 0, 0)
        if code == STATFS:
            return bytes(80)
        if code in (RELEASE, FLUSH, DESTROY):
            return b""
        raise OSError(errno.ENOSYS, "not served")

    def _note(self, record: bytes) -> None:
        self._log.write(record)
        self._count += 1
        self._position[:] = self._count.to_bytes(POSITION_BYTES, "little")


class Record(NamedTuple):
    """One write, or a flush if `length` is 0; where its bytes are in the log."""

    offset: int
    length: int
    at: int


def read_log(path: str) -> list[Record]:
    """Return what the disk was asked to do, in order."""
    records, at = [], 0
    with open(path, "rb") as file:
        while head := file.read(_RECORD.size):
            offset, length = _RECORD.unpack(head)
            at += _RECORD.size
            records.append(Record(offset, length, at))
            at += length
            file.seek(at)
    return records


def _is_write(record: Record) -> bool:
    return record.offset != FLUSHED


class Cutter:
    """Makes the image of a disk after a cut; cuts are asked for in rising order."""

    def __init__(self, log: str, stable: str, size: int) -> None:
        self._records = read_log(log)
        self._log_fd = os.open(log, os.O_RDONLY)
        self._stable, self._stable_fd = stable, os.open(stable, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(self._stable_fd, size)
        self._done = 0
        self.count = len(self._records)

    def cut(self, at: int, image: str, chance: random.Random) -> tuple[int, int]:
        """Write the image of a cut after record `at`; return how many sectors were unflushed, and lost."""
        flushed = max(
            (n + 1 for n in range(self._done, at) if not self._records[n].length), default=self._done
        )
        for record in filter(_is_write, self._records[self._done : flushed]):
            os.pwrite(self._stable_fd, os.pread(self._log_fd, record.length, record.at), record.offset)
        self._done = flushed
        subprocess.run(["cp", "--sparse=always", self._stable, image], check=True)
        keep = chance.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        unflushed = lost = 0
        image_fd = os.open(image, os.O_RDWR)
        try:
            for record in filter(_is_write, self._records[flushed:at]):
                for part in range(0, record.length, SECTOR_BYTES):
                    unflushed += 1
                    if chance.random() >= keep:
                        lost += 1
                        continue
                    length = min(SECTOR_BYTES, record.length - part)
                    os.pwrite(
                        image_fd, os.pread(self._log_fd, length, record.at + part), record.offset + part
                    )
        finally:
            os.close(image_fd)
        return unflushed, lost

    def close(self) -> None:
        """Close what is open."""
        os.close(self._log_fd)
        os.close(self._stable_fd)


def main() -> None:
    """Serve a disk: `python -m torture.power_disk FOLDER SIZE`; says "ready" when it can be used."""
    folder, size = sys.argv[1], int(sys.argv[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    disk = RecordingDisk(Paths.below(folder), size)
    kernel_fd = disk.mount()
    print("ready", flush=True)
    disk.serve(kernel_fd)


if __name__ == "__main__":
    main()
