"""What needs a person."""

from __future__ import annotations

from pathlib import Path

from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.core.findings import Finding
from noclobber.view import attention
from tests.view.ledgers import HOSTILE
from tests.view.scene import busy_project


def test_findings_kept_versions_and_refused_commands_wait_for_a_person(tmp_path: Path) -> None:
    """N-view: broken hooks first; what is fine does not wait, and a kept version is named once."""
    root = (tmp_path / "shop").resolve()
    findings = [
        Finding("hooks of codex", False, "dead path", "noclobber install codex"),
        Finding("level", True, "lease+exchange"),
        Finding("kept file", False, "the same as below"),
        Finding(HOSTILE, False, HOSTILE * 100, HOSTILE),
    ]
    with busy_project(root):
        items = attention.found_in(str(root), findings, SYSTEM_CLOCK.now_s())
        later = attention.found_in(str(root), findings, SYSTEM_CLOCK.now_s() + 5)
    assert later == items, (
        "by the passing of time alone nothing moves: somebody may be about to press a button"
    )
    assert [item.kind for item in items] == ["finding", "finding", "run", "kept"] or [
        item.kind for item in items
    ] == ["finding", "finding", "kept", "run"]
    assert items[0].detail == "dead path → noclobber install codex"
    assert all(text.isprintable() for item in items for text in (item.title, item.detail))
    assert {item.kind: item.actions for item in items} == {
        "finding": (),
        "run": ("retry", "drop"),
        "kept": ("restore", "drop"),
    }


def test_a_large_or_unreadable_version_is_said_instead_of_shown(root: Path) -> None:
    """N-view, bad input: bytes are bounded, a link is not followed, and a diff is cut."""
    (root / "large").write_bytes(b"x" * (attention.MOST_DIFFED_BYTES + 1))
    (root / "link").symlink_to("/etc/passwd")
    assert attention.read_bounded(str(root / "large")) is None
    assert attention.read_bounded(str(root / "link")) is None
    assert attention.read_bounded(str(root / "none")) is None
    long = attention.diff_text(b"", b"line\n" * 100_000, "/a")
    assert len(long) < attention.MOST_DIFF_LETTERS + 100
