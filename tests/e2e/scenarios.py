"""The table of scenarios: what happens to one agent in one project. Every host is run through all of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tests.e2e.calls import Edit, Read, Shell, Write
from tests.e2e.story import LANDED, REFUSED, Stage, Story

FIRST = "hello\nworld\n"
THEIRS = "hello\nworld\na person's line\n"


def save_keeping_its_date(file: Path, content: str) -> None:
    """Save as `rsync -t`, `git` on a coarse clock or a careless tool does: with the old date."""
    dates = file.stat()
    file.write_text(content)
    os.utime(file, ns=(dates.st_atime_ns, dates.st_mtime_ns))


def stale_edit(stage: Stage) -> Story:
    """009-FR-004, 009-FR-006: their line survives, and the model gets the object."""
    file = stage.file(FIRST)
    yield Read(file)
    file.write_text(THEIRS)
    told = yield Edit(file, "hello", "HELLO")
    stage.assert_refused(told, file, FIRST, THEIRS)
    assert file.read_text() == THEIRS
    stage.assert_record(file, REFUSED)


def stale_write(stage: Stage) -> Story:
    """009-FR-005: nor does a whole-file write land; the host goes by dates, if at all, and we go by content."""
    file = stage.file(FIRST)
    yield Read(file)
    save_keeping_its_date(file, THEIRS)
    told = yield Write(file, "mine\n")
    stage.assert_refused(told, file, FIRST, THEIRS)
    assert file.read_text() == THEIRS
    stage.assert_record(file, REFUSED)


def recover(stage: Stage) -> Story:
    """009-FR-007, 011-SC-004: one event for the conflict; after a new read the same edit lands, and a write."""
    file = stage.file(FIRST)
    yield Read(file)
    file.write_text(THEIRS)
    told = yield Edit(file, "hello", "HELLO")
    stage.assert_refused(told, file, FIRST, THEIRS)
    assert "a person's line" in (yield Read(file))
    stage.assert_landed((yield Edit(file, "hello", "HELLO")))
    assert file.read_text() == THEIRS.replace("hello", "HELLO")
    stage.assert_landed((yield Write(file, "mine\n")))
    assert file.read_text() == "mine\n"
    stage.assert_record(file, REFUSED, LANDED, LANDED)


def plain_work(stage: Stage) -> Story:
    """009-SC-002, ruling 10: read, edit, edit, write, shell, and nothing is refused or warned about."""
    file = stage.file(FIRST)
    shown = yield Read(file)
    assert "hello" in shown
    stage.assert_landed((yield Edit(file, "hello", "HELLO")))
    stage.assert_landed((yield Edit(file, "world", "WORLD")))
    assert "HELLO" in (yield Shell(f"cat {file}"))
    stage.assert_landed((yield Write(file, "all mine\n")))
    stage.assert_landed((yield Edit(file, "all mine", "ALL MINE")))
    assert file.read_text() == "ALL MINE\n"
    stage.assert_record(file, LANDED, LANDED, LANDED, LANDED)


def new_file(stage: Stage) -> Story:
    """009-SC-002: a file that the agent made needs no read before it is edited."""
    file = stage.path()
    stage.assert_landed((yield Write(file, "n1\nn2\n")))
    stage.assert_landed((yield Edit(file, "n1", "N1")))
    assert file.read_text() == "N1\nn2\n"
    stage.assert_record(file, LANDED, LANDED)


SCENARIOS: dict[str, Callable[[Stage], Story]] = {
    scenario.__name__: scenario for scenario in (stale_edit, stale_write, recover, plain_work, new_file)
}
