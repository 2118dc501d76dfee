"""What `noclobber watch` draws, in every size."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noclobber.cli.terminal import cells_wide
from noclobber.cli.watch_screen import screen
from noclobber.view.live import Cursor, Live
from tests.rigs.commands import Terminal
from tests.view.ledgers import HOSTILE, ledger_of, refused, written
from tests.view.scene import busy_project


def told_of(root: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What a live view tells of a project, and its events."""
    live = Live(str(root), with_doctor=False)
    live.start()
    try:
        live.look_at_state()
        told = live.news(Cursor(), 0.0)
    finally:
        live.stop()
    return told, told.pop("events")["newest_first"]


@pytest.mark.parametrize(("columns", "rows"), [(50, 12), (80, 24), (200, 60), (40, 8), (20, 4), (1, 1)])
def test_the_newest_event_is_shown_and_the_screen_is_filled_exactly(
    tmp_path: Path, columns: int, rows: int
) -> None:
    """N-view, finding U11: at 50 x 12 and at 200 x 60 as at 80 x 24; nothing is wider than the screen."""
    root = (tmp_path / "shop").resolve()
    with busy_project(root):
        lines = screen(*told_of(root), columns, rows, 0.0)
    assert len(lines) == max(rows, 4)
    assert all(cells_wide(line) <= max(columns, 20) for line in lines)
    if columns >= 50:
        text = "\n".join(lines)
        assert "shop" in lines[0]
        newest = next(line for line in lines if " conflict " in line)  # The newest event.
        assert "builder-1" in newest
        assert "src/app.py" in newest
        assert "needs a person" in text
        assert "at work now" in text
        assert "locks" in text
        assert "hottest files" in text
        assert lines[-1].strip().endswith("Ctrl-C ends")


def test_a_large_screen_has_everything_that_the_page_has(tmp_path: Path) -> None:
    """N-view: the same content as `noclobber view`; lists side by side."""
    root = (tmp_path / "shop").resolve()
    with busy_project(root):
        text = "\n".join(screen(*told_of(root), 200, 60, 60.0))
    assert "a version of plan.md is kept" in text
    assert "sed -i s/^-/*/ docs/plan.md" in text
    assert "release  builder-1  live  29 min left" in text
    assert "reviewer codex 9b1c77d0" in text
    assert "over the version of builder-1 (claude-code 4f2a91c3)" in text
    assert "3 writes  1 merge  2 conflicts" in text


def test_many_events_fill_the_space_with_the_newest(root: Path) -> None:
    """N-view, finding U11: what is cut off is the oldest."""
    ledger = ledger_of(root)
    for number in range(200):
        ledger.append(written(f"file-{number}.md", "ABSENT", "1"))
    told, events = told_of(root)
    lines = screen(told, events, 100, 40, 0.0)
    first = next(at for at, line in enumerate(lines) if "file-199.md" in line and " write " in line)
    assert all(" write " in line for line in lines[first:-1])
    assert first < 25


@settings(deadline=None, max_examples=50)
@given(columns=st.integers(1, 240), rows=st.integers(1, 80))
def test_hostile_text_never_leaves_its_line(columns: int, rows: int) -> None:
    """N-view, bad input: names with escape sequences and of any length, in any size of terminal."""
    event: dict[str, Any] = {"time": "2027-01-01T10:00:00Z", "group": "write", "text": f"{HOSTILE} 漢字" * 20}
    event |= {"file": HOSTILE, "over": "", "who": {"agent": HOSTILE}}
    hot = {"file": HOSTILE, "write": 1, "merge": 0, "conflict": 1, "refused": 0, "race": 0}
    told = {
        "project": {"name": HOSTILE, "root": "/p"},
        "hottest": [hot] * 40,
        "feed_troubles": [HOSTILE * 50] * 50,
        "at_work": [
            {"agent": HOSTILE, "host": "h", "session": "s", "doing": "writing", "file": HOSTILE, "since": "x"}
        ]
        * 30,
    }
    lines = screen(told, [event] * 100, columns, rows, 0.0)
    assert len(lines) == max(rows, 4)
    assert all(line.isprintable() and cells_wide(line) <= max(columns, 20) for line in lines)


def test_on_a_terminal_it_is_live_and_leaves_the_screen_as_it_was(root: Path) -> None:
    """N-view: an event is drawn when it is recorded; Ctrl-C ends with 0 and the cursor is back."""
    ledger = ledger_of(root)
    ledger.append(written("first.md", "ABSENT", "1"))
    with Terminal("watch", "--interval", "0.05", cwd=root, rows=12, columns=50) as terminal:
        terminal.read_until("first.md")
        ledger.append(refused("second.md", "0", "1"))
        terminal.read_until("second.md")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.read_all().endswith("\x1b[?25h")
        assert terminal.process.returncode == 0
