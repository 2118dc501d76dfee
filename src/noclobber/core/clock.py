"""Time as an argument: whoever waits or dates takes a clock, so that tests never sleep."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What the library asks of time."""

    def now_s(self) -> float:
        """Seconds since the epoch; for dates, and for leases that other processes judge."""

    def monotonic_s(self) -> float:
        """Seconds that never run backwards; for deadlines within one process."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class SystemClock:
    """The real one."""

    now_s = staticmethod(time.time)
    monotonic_s = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)


SYSTEM_CLOCK: Clock = SystemClock()


class Patience:
    """A bounded wait in growing naps, shared by everything that one operation waits for."""

    __slots__ = ("_clock", "_deadline_s", "_nap_s")

    def __init__(self, wait_s: float, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._deadline_s = clock.monotonic_s() + wait_s
        self._nap_s = 0.0001

    def nap(self) -> bool:
        """Sleep a little and return True, or return False because the time is up."""
        if self._clock.monotonic_s() >= self._deadline_s:
            return False
        self._clock.sleep(self._nap_s)
        self._nap_s = min(self._nap_s * 1.5, 0.01)
        return True


_last_second: tuple[int | None, str] = (None, "")


def iso8601(epoch_s: float) -> str:
    """Return a UTC timestamp with microseconds, as every record here spells it."""
    global _last_second
    whole_s = int(epoch_s // 1)
    second, text = _last_second  # One tuple: a thread that changes it in between changes both or none.
    if second != whole_s:  # Spelling the second is most of the work, and records come in bursts.
        try:
            text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole_s))
        except (OSError, OverflowError, ValueError):  # A file's date can be set to what no calendar has.
            text = "9999-12-31T23:59:59"
        _last_second = whole_s, text
    return f"{text}.{int((epoch_s - whole_s) * 1_000_000):06d}Z"
