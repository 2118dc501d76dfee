"""A formatter after each edit, a stranger among them, and several edits of one file in one message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from noclobber.core.clock import SystemClock
from tests.rigs.hooks import HookRig, is_denied, refusal

WORDS = ("one", "two", "three", "four", "five", "six")


def formatted(text: str) -> str:
    """What a formatter does: quotes, commas, blanks, line breaks, import lines."""
    text = text.replace("'", '"').replace("[ ", "[").replace(" ]", ",]").replace("=", " = ")
    return "import os\n" + text.replace("import os\n", "").replace("import sys\n", "import sys\n\n")


@pytest.fixture
def source(root: Path) -> Path:
    path = root / "a.py"
    path.write_text("import sys\nimport os\n" + "".join(f"{word}=['{word}' ]\n" for word in WORDS))
    return path


def edit(word: str) -> dict[str, Any]:
    return {"old_string": f'"{word}"', "new_string": f"'{word.upper()}' "}


@pytest.mark.parametrize("moment", ["before our event", "after our event"])
@pytest.mark.parametrize("host", ["claude-code", "qwen", "gemini", "codex"])
def test_six_edits_with_a_formatter_after_each_are_six_edits(
    rig: HookRig, source: Path, host: str, moment: str
) -> None:
    """finding H6: nothing is refused, nothing is warned about, and the record has six writes."""
    source.write_text(formatted(source.read_text()))
    names = ("BeforeTool", "AfterTool") if host == "gemini" else ("PreToolUse", "PostToolUse")
    tool = {"claude-code": "Edit", "qwen": "edit", "gemini": "replace"}.get(host, "apply_patch")
    for word in WORDS:
        old = next(line for line in source.read_text().splitlines() if line.startswith(word))
        new = f"{word}=['{word.upper()}' ]"
        given: dict[str, Any] = {"file_path": str(source), "old_string": old, "new_string": new}
        if host == "codex":
            lines = (
                "*** Begin Patch",
                f"*** Update File: {source}",
                "@@",
                f"-{old}",
                f"+{new}",
                "*** End Patch",
                "",
            )
            given = {"command": "\n".join(lines)}
        asked = rig.call(host, rig.tool(names[0], tool, given, tool_use_id=word), "check")[0]
        assert asked == {}, word
        source.write_text(source.read_text().replace(old, new))
        if moment == "before our event":
            source.write_text(formatted(source.read_text()))
        said = "Exit code: 0" if host == "codex" else {}
        assert (
            rig.call(host, rig.tool(names[1], tool, given, tool_use_id=word, tool_response=said), "note")[0]
            == {}
        )
        if moment == "after our event":
            source.write_text(formatted(source.read_text()))

    assert rig.kinds() == ["MUTATION"] * 6
    assert all(word.upper() in source.read_text() for word in WORDS)


@pytest.mark.parametrize("moment", ["before our event", "after our event"])
def test_a_stranger_between_edits_with_a_formatter_is_still_a_stranger(
    rig: HookRig, source: Path, moment: str
) -> None:
    """finding H6: one word of somebody's, among all that a formatter did, and the next edit is refused."""
    given = {"file_path": str(source), "old_string": "'one'", "new_string": "'ONE'"}
    rig.read(source)
    assert rig.ask("Edit", given, tool_use_id="e1") == {}
    made = source.read_text().replace("'one'", "'ONE'")
    theirs = formatted(made).replace("two", "twenty")
    source.write_text(theirs if moment == "before our event" else made)
    told = rig.told("Edit", given, tool_use_id="e1")
    source.write_text(theirs)

    assert bool(told) == (moment == "before our event")
    assert is_denied(rig.edit(source, '"four"', '"FOUR"'))
    assert source.read_text() == theirs
    rig.read(source)
    assert rig.edit(source, '"four"', '"FOUR"') == {}


def test_an_operator_is_no_layout(rig: HookRig, source: Path) -> None:
    """finding H6: `<` for `<=` is somebody's thought."""
    rig.write(source, "if a < b:\n    c()\n")
    source.write_text("if a <= b:\n    c()\n")

    assert is_denied(rig.edit(source, "c()", "d()"))


def test_a_version_that_was_read_and_formatted_since_is_stale(rig: HookRig, source: Path) -> None:
    """finding H6: the rule is about the agent's own writes; a plain read is as strict as ever."""
    rig.read(source)
    source.write_text(formatted(source.read_text()))

    assert is_denied(rig.edit(source, '"four"', '"FOUR"'))


def test_a_whole_write_over_what_a_formatter_left_keeps_it(rig: HookRig, root: Path, source: Path) -> None:
    """finding H6: if it was a person's layout after all, it is in `kept` and on record."""
    rig.write(source, "a = [1]\n")
    source.write_text("a = [\n    1,\n]\n")

    assert rig.write(source, "b = 2\n") == {}

    [_, second] = rig.ledger()
    [kept] = second["payload"]["kept"]
    assert (root / kept).read_text() == "a = [\n    1,\n]\n"


def test_after_a_read_of_what_the_formatter_left_nothing_has_to_be_kept(rig: HookRig, source: Path) -> None:
    """finding H6: then the agent replaces what it has seen."""
    rig.write(source, "a = [1]\n")
    source.write_text("a = [\n    1,\n]\n")
    rig.edit(source, "1", "2")
    rig.read(source)

    rig.write(source, "b = 2\n")

    assert [event["payload"].get("kept") for event in rig.ledger()] == [None, None, None]


@pytest.mark.parametrize(("options", "is_let_through"), [("", False), ('formatters = ["*.py"]', True)])
def test_a_formatter_that_changes_more_is_named_by_the_project(
    rig: HookRig, root: Path, source: Path, options: str, is_let_through: bool
) -> None:
    """finding H6: a header, added right after the agent's write."""
    (root / "noclobber.toml").write_text(options)
    rig.write(source, "a = 1\n")
    source.write_text("# Copyright\na = 1\n")

    assert (rig.edit(source, "a = 1", "a = 2") == {}) == is_let_through


def test_layout_can_be_refused(rig: HookRig, root: Path, source: Path) -> None:
    """finding H6: `layout = "refuse"` goes by bytes alone."""
    (root / "noclobber.toml").write_text('layout = "refuse"')
    rig.write(source, "a = [1]\n")
    source.write_text("a = [1,]\n")

    assert is_denied(rig.edit(source, "1", "2"))


@pytest.mark.parametrize("moment", ["after the call", "before the next"])
def test_a_formatter_that_is_met_in_the_middle_of_its_write_is_waited_for(
    rig: HookRig, source: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding H6: it empties the file first, and hosts run the user's hook and ours at the same time."""
    rig.read(source)
    given = {"file_path": str(source), "old_string": "'one'", "new_string": "'ONE'"}
    assert rig.ask("Edit", given, tool_use_id="e") == {}
    made = source.read_text().replace("'one'", "'ONE'")
    source.write_text(made)
    if moment == "before the next":
        assert rig.told("Edit", given, tool_use_id="e") == {}
    naps = []

    def nap(clock: SystemClock, seconds: float) -> None:
        naps.append(seconds)
        source.write_text(formatted(made) if len(naps) > 1 else formatted(made)[:20])

    monkeypatch.setattr(SystemClock, "sleep", nap)
    source.write_text("")

    if moment == "after the call":
        assert rig.told("Edit", given, tool_use_id="e") == {}
    assert rig.edit(source, '"four"', '"FOUR"') == {}
    assert rig.kinds() == ["MUTATION", "MUTATION"]
    assert len(naps) == 2


# -- several edits in one message -----------------------------------------------------------------------


@pytest.mark.parametrize("host", ["qwen", "gemini"])
@pytest.mark.parametrize("order", ["each", "both first"])
def test_the_edits_of_one_message_are_one_agents(rig: HookRig, source: Path, host: str, order: str) -> None:
    """finding H9: asked about all, carried out one by one, told one by one or all at the end."""
    names = ("BeforeTool", "AfterTool") if host == "gemini" else ("PreToolUse", "PostToolUse")
    tool = "replace" if host == "gemini" else "edit"
    calls = [
        {"file_path": str(source), "old_string": f"'{word}'", "new_string": f"'{word.upper()}'"}
        for word in WORDS[:3]
    ]
    for number, given in enumerate(calls):
        assert rig.call(host, rig.tool(names[0], tool, given, tool_use_id=f"e{number}"), "check")[0] == {}

    def carry_out(number: int) -> None:
        given = calls[number]
        source.write_text(source.read_text().replace(given["old_string"], given["new_string"]))

    def tell(number: int) -> None:
        payload = rig.tool(names[1], tool, calls[number], tool_use_id=f"e{number}", tool_response={})
        assert rig.call(host, payload, "note")[0] == {}

    if order == "each":
        for number in range(3):
            carry_out(number)
            tell(number)
    else:
        for number in range(3):
            carry_out(number)
        for number in range(3):
            tell(number)

    assert rig.kinds() == ["MUTATION"] * 3
    given = {"file_path": str(source), "old_string": "'four'", "new_string": "'FOUR'"}
    assert rig.call(host, rig.tool(names[0], tool, given, tool_use_id="next"), "check")[0] == {}


def test_a_stranger_among_the_edits_of_one_message_is_found(rig: HookRig, source: Path) -> None:
    """finding H9: what no order of the agent's own edits leaves is somebody else's."""
    for word in ("one", "two"):
        given = {"file_path": str(source), "old_string": f"'{word}'", "new_string": f"'{word.upper()}'"}
        rig.call("gemini", rig.tool("BeforeTool", "replace", given, tool_use_id=word), "check")
    source.write_text(source.read_text().replace("'one'", "'ONE'").replace("six", "sixty"))

    given = {"file_path": str(source), "old_string": "'one'", "new_string": "'ONE'"}
    told = rig.call("gemini", rig.tool("AfterTool", "replace", given, tool_use_id="one", tool_response={}))[0]

    assert refusal(told)["error_type"] == "STALE_FILE"
    assert rig.kinds() == ["MUTATION_RACE"]


def test_one_edit_of_a_message_that_fails_does_not_spoil_the_others(rig: HookRig, source: Path) -> None:
    """finding H9: one of two is declined, or does not fit."""
    names = ("one", "two")
    calls = {
        word: {"file_path": str(source), "old_string": f"'{word}'", "new_string": f"'{word.upper()}'"}
        for word in names
    }
    for word in names:
        rig.call("qwen", rig.tool("PreToolUse", "edit", calls[word], tool_use_id=word), "check")
    rig.call("qwen", rig.tool("PostToolUseFailure", "edit", calls["one"], tool_use_id="one"), "note")
    source.write_text(source.read_text().replace("'two'", "'TWO'"))

    done = rig.tool("PostToolUse", "edit", calls["two"], tool_use_id="two", tool_response={})
    assert rig.call("qwen", done, "note")[0] == {}
    assert rig.kinds() == ["MUTATION"]


def shell(rig: HookRig, command: str, path: Path, then: str) -> None:
    """The agent runs a command that leaves this text in a file."""
    given = {"command": command}
    number = rig.next_id()
    assert not is_denied(
        rig.call("claude-code", rig.tool("PreToolUse", "Bash", given, tool_use_id=number), "shell")[0]
    )
    path.write_text(then)
    told = rig.tool("PostToolUse", "Bash", given, tool_use_id=number, tool_response={"stdout": ""})
    assert rig.call("claude-code", told, "note")[0] == {}


COMMANDS = 'shell = "watched"\nformatters = ["ruff format", "prettier"]\n'


@pytest.mark.parametrize(
    ("command", "is_own"),
    [
        ("ruff format .", True),
        ("ruff format a.py", True),
        ("cd . && uv run ruff format", True),
        ("npx prettier --write .", True),
        ("/opt/node/bin/prettier -w a.py", True),
        ("ruff check --fix", False),
        ("make format", False),
        ("echo ruff format > log", False),
    ],
)
def test_what_a_named_formatter_did_in_the_agents_shell_is_the_agents_own(
    rig: HookRig, root: Path, source: Path, command: str, is_own: bool
) -> None:
    """finding H6, N-shell: also of a file that the agent had only read; other commands cost a read as ever."""
    (root / "noclobber.toml").write_text(COMMANDS)
    rig.read(source)
    shell(rig, command, source, formatted(source.read_text()))

    assert is_denied(rig.edit(source, '"four"', '"FOUR"')) != is_own
    assert "MUTATION_RACE" not in rig.kinds()


def test_a_stranger_while_a_named_formatter_runs_is_still_a_stranger(
    rig: HookRig, root: Path, source: Path
) -> None:
    """finding H6: a word of somebody's among what the formatter did, and the next edit is refused."""
    (root / "noclobber.toml").write_text(COMMANDS)
    rig.read(source)
    theirs = formatted(source.read_text()).replace("two", "twenty")
    shell(rig, "ruff format .", source, theirs)

    assert refusal(rig.edit(source, '"four"', '"FOUR"'))["error_type"] == "STALE_FILE"
    assert source.read_text() == theirs


@pytest.mark.parametrize("formatters", ['["ruff format"]', '["*.md"]'])
def test_a_named_formatter_of_the_users_is_followed_where_layout_is_refused(
    rig: HookRig, root: Path, source: Path, formatters: str
) -> None:
    """finding H6: the user says that one runs after each edit; a stranger's word is refused there as well."""
    (root / "noclobber.toml").write_text(f'layout = "refuse"\nformatters = {formatters}\n')
    rig.write(source, "a = [1]\n")
    source.write_text("a = [\n    1,\n]\n")
    is_named = formatters == '["ruff format"]'
    assert is_denied(rig.edit(source, "1", "2")) != is_named
    rig.read(source)
    rig.write(source, "b = [1]\n")
    source.write_text("b = [\n    1,\n    2,\n]\n")
    assert is_denied(rig.edit(source, "1", "3"))
