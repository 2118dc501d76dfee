"""
Says at a terminal that something takes long, for how long already, and how much of it is done as far as that
is known: on stderr, and only there.

`terminal.Progress` shows a bar where the end is known from the start. Nothing is printed in the first moment,
so that a quick command stays quiet.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

from noclobber.cli.clean_output import controls
from noclobber.cli.terminal import columns_wide, is_terminal
from noclobber.core.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from noclobber.core.clock import Clock

QUIET_S = 0.7
EVERY_S = 1.0
_CLEAR = "\r\x1b[K"


class Working:
    """A line such as `taking back writes … 40 %, 12 s`, which is removed at the end."""

    def __init__(self, what: str, *, quiet_s: float = QUIET_S, clock: Clock = SYSTEM_CLOCK) -> None:
        self._what, self._quiet_s, self._clock = what, quiet_s, clock
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_shown = False
        self._share = ""

    def __enter__(self) -> Working:
        if is_terminal(sys.stderr):
            self._thread = threading.Thread(target=self._show, name="noclobber-working", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            if self._is_shown:
                print(_CLEAR, end="", file=controls(sys.stderr), flush=True)

    def share(self, done: int, total: int) -> None:
        """So much is done."""
        self._share = f"{100 * done // max(total, 1)} %, "

    def _show(self) -> None:
        began_s = self._clock.monotonic_s()
        wait_s = self._quiet_s
        while not self._ended.wait(wait_s):
            wait_s = EVERY_S
            self._is_shown = True
            beside = f" … {self._share}{self._clock.monotonic_s() - began_s:.0f} s"
            line = self._what[: max(0, columns_wide() - 1 - len(beside))] + beside
            try:
                print(f"{_CLEAR}{line}", end="", file=controls(sys.stderr), flush=True)
            except (OSError, ValueError):
                return
