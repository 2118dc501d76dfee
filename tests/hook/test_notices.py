"""Told before it hurts, in hooks: what others changed, at the start of a turn and after a call, once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from noclobber import Workspace
from noclobber.disk import reading
from noclobber.hook import guidance, notices
from tests.rigs.hooks import HookRig


def told(answer: dict[str, Any]) -> str:
    """Return what an answer adds to the model's context."""
    added: str = answer.get("hookSpecificOutput", {}).get("additionalContext", "")
    return added


def prompt(rig: HookRig) -> str:
    """The user says something; return what the model is told beside it."""
    return told(rig.call("claude-code", rig.event("UserPromptSubmit", prompt="go on"), "note")[0])


@pytest.fixture
def other(root: Path) -> Path:
    path = root / "other.txt"
    path.write_text("quiet\n")
    return path


def test_a_change_is_told_at_the_start_of_a_turn_once(rig: HookRig, file: Path) -> None:
    """N-notice: which file, by whom, and a short diff; and no second time."""
    rig.read(file)
    assert prompt(rig) == ""
    file.write_text("hello\nworld\nmore\n")

    text = prompt(rig)

    assert text.startswith(
        "noclobber: since you read it, this file was changed:\n- a.txt, by an outsider, at 20"
    )
    assert text.endswith("@@ from line 3 @@\n+more\nRead it again before you write to it.")
    assert prompt(rig) == ""


def test_a_change_is_told_after_the_next_call_and_the_next_change_again(
    rig: HookRig, file: Path, other: Path
) -> None:
    """N-notice: beside the result of a call about another file."""
    rig.read(file)
    file.write_text("HELLO\nworld\n")

    assert "-hello\n+HELLO" in told(rig.read(other))
    assert told(rig.read(other)) == ""
    file.write_text("HELLO\nWORLD\n")
    assert "+WORLD" in told(rig.write(other, "mine\n"))


def test_a_notice_is_no_read(rig: HookRig, file: Path, other: Path) -> None:
    """009-FR-004: the write is checked against what the agent read, and not against what it was told."""
    rig.read(file)
    file.write_text("HELLO\nworld\n")
    assert told(rig.read(other))

    answer = rig.write(file, "mine\n")

    assert answer["hookSpecificOutput"]["permissionDecision"] == "deny"


def test_what_the_agent_does_itself_is_no_news(rig: HookRig, file: Path, other: Path) -> None:
    """N-notice: its own writes, a file that it reads again, a changed date, and what was never read."""
    (rig.root / "strange.txt").write_text("nobody read this\n")
    rig.read(file)
    assert told(rig.edit(file, "hello", "HELLO")) == ""
    os.utime(file)
    (rig.root / "strange.txt").write_text("nor this\n")
    assert told(rig.read(other)) == ""
    file.write_text("theirs\n")
    assert told(rig.read(file)) == ""
    assert prompt(rig) == ""


def test_another_call_of_the_same_message_is_no_news(rig: HookRig, file: Path, other: Path) -> None:
    """N-notice: an edit has landed, its event is still to come, and a call beside it ends first."""
    rig.read(file)
    given = {"file_path": str(file), "old_string": "hello", "new_string": "HELLO"}
    rig.ask("Edit", given, tool_use_id="c1")
    file.write_text("HELLO\nworld\n")

    assert told(rig.read(other)) == ""
    assert told(rig.told("Edit", given, tool_use_id="c1")) == ""
    file.write_text("HELLO\nworld\ntheirs\n")
    assert "+theirs" in told(rig.read(other))


def test_what_a_formatter_made_of_an_own_write_is_no_news(rig: HookRig, root: Path, other: Path) -> None:
    """N-notice, finding H6: layout alone."""
    file = root / "a.py"
    file.write_text("x = 0\n")
    rig.read(file)
    rig.write(file, "x=1\n")
    file.write_text("x = 1\n")

    assert told(rig.read(other)) == ""


@pytest.mark.parametrize(("value", "has_diff"), [("names", False), ("diff", True)])
def test_the_option_says_how_much_is_told(rig: HookRig, file: Path, value: str, has_diff: bool) -> None:
    """N-notice: names only, or a diff too."""
    (rig.root / "noclobber.toml").write_text(f'notices = "{value}"\n')
    rig.read(file)
    file.write_text("HELLO\nworld\n")

    text = prompt(rig)

    assert "- a.txt, by an outsider" in text
    assert ("+HELLO" in text) == has_diff


def test_off_means_that_nothing_is_told_and_nothing_is_noted(rig: HookRig, file: Path) -> None:
    """N-notice: and so it costs nothing."""
    (rig.root / "noclobber.toml").write_text('notices = "off"\n')
    rig.read(file)
    file.write_text("HELLO\nworld\n")

    assert prompt(rig) == ""
    assert not list(rig.runtime.rglob(notices.LIST_NAME))


def test_who_changed_it_is_told_where_the_ledger_knows(rig: HookRig, root: Path, file: Path) -> None:
    """ruling 21, N-who: agent, host, session; deleted; created."""
    rig.read(file)
    HookRig(root, rig.runtime, session="0123456789abcdef").write(file, "theirs\n")
    assert "- a.txt, by the agent main (claude-code session 01234567) at 20" in prompt(rig)

    with Workspace(root) as workspace, workspace.turn(agent_id="builder-1") as turn:
        turn.write_file(file, "a program's\n")
    assert "- a.txt, by the agent builder-1 at 20" in prompt(rig)

    file.unlink()
    assert "- a.txt (deleted)" in prompt(rig)


def test_an_own_command_is_named_as_the_likely_cause(rig: HookRig, file: Path) -> None:
    """N-who: a `sed -i` of the agent's own is no outsider."""
    rig.read(file)
    file.write_text("HELLO\nworld\n")
    ran = rig.tool(
        "PostToolUse",
        "Bash",
        {"command": "sed -i s/hello/HELLO/ a.txt; cat x"},
        tool_response={},
        duration_ms=9,
    )
    answer = rig.call("claude-code", ran, "note")[0]

    assert "- a.txt, by your own command, it seems" in (told(answer) or prompt(rig))


def test_a_notice_is_short_whatever_changed(rig: HookRig, root: Path) -> None:
    """N-notice: bounded in files, lines and letters; names in one line."""
    files = [root / f"{number:02}\nx{'y' * 150}.txt" for number in range(12)]
    for file in files:
        file.write_text("".join(f"line {number}\n" for number in range(200)))
        rig.read(file)
    for file in files:
        file.write_text("z" * 5000 + "\n" + "new\n" * 400)

    text = prompt(rig)

    assert "- and 8 more" in text or text.count("\n") < 60
    assert len(text) < guidance.MOST_NOTICE_LETTERS + 100
    assert "\nx" not in text


def test_only_what_looks_changed_is_read(
    rig: HookRig, root: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-notice: a stat a file, of the files that were touched last."""
    many = [root / f"{number}.txt" for number in range(notices.MOST_WATCHED + 10)]
    for path in many:
        path.write_text("x\n")
        rig.read(path)
    looks: list[str] = []

    def counted(path: str, *rest: Any, **more: Any) -> reading.FileState:
        looks.append(path)
        return reading.look_at(path, *rest, **more)

    monkeypatch.setattr(notices, "look_at", counted)
    assert prompt(rig) == ""
    assert looks == []
    many[0].write_text("forgotten\n")
    many[-1].write_text("changed\n")
    assert f"- {many[-1].name}, by" in prompt(rig)
    assert looks == [str(many[-1])]


@pytest.mark.parametrize("content", [b"", b"\0\0\0", b"nonsense", b"/x\0", b"\xff\0\xff\0\xff\0" * 9])
def test_a_damaged_list_costs_a_notice_and_nothing_else(rig: HookRig, file: Path, content: bytes) -> None:
    """N-notice, N-hook: whatever the list holds."""
    rig.read(file)
    [kept] = rig.runtime.rglob(notices.LIST_NAME)
    kept.write_bytes(content)

    prompt(rig)
    assert rig.read(file) == {}
    file.write_text("HELLO\nworld\n")
    assert "+HELLO" in prompt(rig)


def test_a_notice_that_cannot_be_made_holds_nothing_up(
    rig: HookRig, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-hook: the call is answered, and the failure is in the log."""
    rig.read(file)
    file.write_text("HELLO\nworld\n")
    monkeypatch.setattr(guidance, "changes", lambda *_, **__: 1 / 0)

    assert prompt(rig) == ""
    assert "ZeroDivisionError" in (rig.runtime / "noclobber" / "hook.log").read_text()
