"""
Begin to write the bytes of many files that are about to land, on the other core.

A commit has the kernel write each new file before it gives the file its name (`disk/ordering`). To begin that
takes 50 µs a file, most of them in the kernel, and of a thousand files it was a third of their landing. So a
forked process begins it for all of them, while our own judges and hashes them.

It is a hint, and nothing depends on it: the commit asks for each file again, which is quick by then, and
waits for it. The process opens files of the upper layer by their names there. So it does not find what a
commit has taken already, and is never in the way of a lease.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

from noclobber.core.project import UNCHECKED
from noclobber.disk import ordering
from noclobber.disk.c_library import LONG, function
from noclobber.disk.reading import LOOK
from noclobber.shell.namespace import PR_SET_PDEATHSIG
from noclobber.shell.process import has_two_cores

FROM_FILES = 64  # Forking takes as long as they do.


class EarlyFlush:
    """Use as a context manager, around the landing."""

    def __init__(self, upper: str, unchecked: frozenset[str] = UNCHECKED) -> None:
        self._upper, self._unchecked, self._pid = upper, unchecked, 0

    def __enter__(self) -> EarlyFlush:
        if has_two_cores() and self._has_many():
            parent = os.getpid()
            self._pid = os.fork()
            if self._pid == 0:
                try:
                    self._flush(parent)
                finally:
                    os._exit(0)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = 0

    def _has_many(self) -> bool:
        return any(number >= FROM_FILES for number, _ in enumerate(_files(self._upper, self._unchecked), 1))

    def _flush(self, parent: int) -> None:
        """In the child. It ends with its parent, which has locks that it must not keep."""
        prctl = function("prctl")
        if prctl is None or prctl(PR_SET_PDEATHSIG, LONG(signal.SIGKILL), LONG(0), LONG(0), LONG(0)) != 0:
            return
        if os.getppid() != parent:
            return
        for path in _files(self._upper, self._unchecked):
            try:
                descriptor = os.open(path, LOOK)
            except OSError:
                continue  # The commit has it.
            ordering.start(descriptor)
            os.close(descriptor)


def _files(folder: str, unchecked: frozenset[str]) -> Iterator[str]:
    """Yield every file that is checked, and so flushed, when it lands."""
    folders = [folder]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                listed = list(entries)
        except OSError:
            continue
        for entry in listed:
            if entry.is_dir(follow_symlinks=False):
                folders += [] if entry.name in unchecked else [entry.path]
            elif entry.is_file(follow_symlinks=False):
                yield entry.path
