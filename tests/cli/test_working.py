"""Long work shows that it goes on: at a terminal only."""

from __future__ import annotations

import io
import sys
import threading

import pytest

from noclobber.cli.working import Working


class Watched(io.StringIO):
    """A terminal that tells when something was shown."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal, self.shown = is_terminal, threading.Event()

    def isatty(self) -> bool:
        return self._is_terminal

    def flush(self) -> None:
        if self.getvalue():
            self.shown.set()


def test_a_line_says_what_goes_on_and_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """finding U11: on stderr, so that stdout is the answer; it never wraps."""
    screen = Watched(is_terminal=True)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("COLUMNS", "30")
    with Working("taking back what an agent wrote, and more words", quiet_s=0):
        assert screen.shown.wait(30)
    first = screen.getvalue().split("\r\x1b[K")[1]
    assert first.startswith("taking back")
    assert len(first) < 30
    assert screen.getvalue().endswith("\r\x1b[K")


def test_the_share_that_is_done_is_told_and_stays_on_a_narrow_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    """finding U11: what gives way in a narrow terminal are the words, not the numbers."""
    screen = Watched(is_terminal=True)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("COLUMNS", "23")
    work = Working("removing old versions", quiet_s=0)
    work.share(3, 12)
    with work:
        assert screen.shown.wait(30)
    first = screen.getvalue().split("\r\x1b[K")[1]
    assert first == "removing o … 25 %, 0 s"


def test_a_pipe_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """finding U11: no thread is started, either."""
    screen = Watched(is_terminal=False)
    monkeypatch.setattr(sys, "stderr", screen)
    before = threading.active_count()
    with Working("something", quiet_s=0):
        assert threading.active_count() == before
    assert screen.getvalue() == ""
