"""A formatter after each edit, a stranger among them, and several edits of one file in one message."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from noclobber import Workspace
from noclobber.core import own_state
from noclobber.core import trust as trusting
from noclobber.core.clock import SystemClock
from noclobber.guard import formatted as formatted_by
from noclobber.ledger import last_writer
from tests.rigs.hooks import HookRig, is_denied, refusal
from tests.rigs.trusting import trusted_options

WORDS = ("one", "two", "three", "four", "five", "six")


def formatted(text: str) -> str:
    """What a formatter does: quotes, commas, blanks, line breaks."""
    text = text.replace("'", '"').replace("[ ", "[").replace(" ]", ",]")
    return re.sub(" *= *", " = ", text).replace("import os\n", "import os\n\n\n").replace("\n\n\n\n", "\n")


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


def test_layout_can_be_refused(rig: HookRig, root: Path, source: Path) -> None:
    """finding H6: `layout = "refuse"` goes by bytes alone."""
    (root / "noclobber.toml").write_text('layout = "refuse"')
    rig.write(source, "a = [1]\n")
    source.write_text("a = [1,]\n")

    assert is_denied(rig.edit(source, "1", "2"))


# -- what is not a formatter's ---------------------------------------------------------------------------

KINDS = {
    "an import line of agent B": ("a.py", "import os\nx = 1\n", "import os\nimport json\nx = 1\n"),
    "an import line that is gone": ("a.py", "import os\nx = 1\n", "x = 1\n"),
    "imports in another order": ("a.py", "import a\nimport b\n", "import b\nimport a\n"),
    "a Python dedent": ("a.py", "if a:\n    b()\n    c()\n", "if a:\n    b()\nc()\n"),
    "a comment": ("a.py", "x = 1\n", "x = 1\n# Keep this: the auditor needs it.\n"),
    "a number's sign": ("a.py", "x = -5\n", "x = 5\n"),
    "a number for a string": ("a.json", '{"port": "8080"}', '{"port": 8080}'),
    "true for 1": ("a.toml", "on = 1\n", "on = true\n"),
    "a comment in TOML": ("a.toml", "on = 1\n", "on = 1  # until May\n"),
    "a decimal comma": ("a.js", "f(1,5);\n", "f(15);\n"),
    "YAML nesting": ("a.yaml", "a:\n  b: 1\n  c: 2\n", "a:\n  b: 1\nc: 2\n"),
    "a YAML string": ("a.yaml", "port: '8080'\n", "port: 8080\n"),
    "a call that begins with require": ("a.js", "requireAdmin(req);\nf(req);\n", "f(req);\n"),
    "a use statement": ("a.rs", "use a::b;\nfn f() {}\n", "fn f() {}\n"),
    "a Markdown list": ("a.md", "- [ ] ship\n", "* [ ] ship\n"),
    "emphasis": ("a.md", "do *not* ship\n", "do not ship\n"),
    "a Makefile's tab": ("Makefile", "a:\n\tb\n", "a:\n    b\n"),
    "CSV": ("a.csv", "1,5;2\n", "1;5,2\n"),
    "plain text": ("a.txt", "a b\n", "ab\n"),
    "a quote": ("a.js", "x = 'a';\n", 'x = "a";\n'),
    "a return's end": ("a.js", "return x;\n", "return\nx;\n"),
    "a string's blanks": ("a.go", 'x := "a  b"\n', 'x := "a b"\n'),
    "an operator of two signs": ("a.c", "x = a - -b;\n", "x = a --b;\n"),
}


@pytest.mark.parametrize("moment", ["before our event", "after our event"])
@pytest.mark.parametrize("kind", KINDS)
def test_somebodys_change_is_not_taken_for_a_formatters(
    rig: HookRig, root: Path, kind: str, moment: str
) -> None:
    """Findings E2, G2, ruling 28: refused, and a whole-file write does not replace it."""
    name, mine, theirs = KINDS[kind]
    file = root / name
    given = {"file_path": str(file), "content": mine}
    assert rig.ask("Write", given, tool_use_id="w") == {}
    file.write_text(theirs if moment == "before our event" else mine)
    told = rig.told("Write", given, tool_use_id="w")
    file.write_text(theirs)

    assert bool(told) == (moment == "before our event")
    assert is_denied(rig.write(file, mine + mine))
    assert file.read_text() == theirs


@pytest.mark.parametrize(
    ("name", "mine", "theirs"),
    [
        ("a.py", "x=['a','b' ] #c\n", 'x = [\n    "a",\n    "b",\n]  # c\n'),
        ("a.json", '{"b":[1,2],"a":"x"}', '{\n  "b": [1, 2],\n  "a": "x"\n}\n'),
        ("a.toml", "[a]\nb=1 # c\n", "[a]\nb = 1 # c\n"),
        ("a.ts", "f( a,b );// c\nreturn `x ${y}`;\n", "f(a, b); // c\nreturn `x ${y}`;\n"),
        ("a.go", "func f(){\nreturn 1\n}\n", "func f() {\n\treturn 1\n}\n"),
        ("a.java", "int f(){return 1;}\n", "int f() {\n    return 1;\n}\n"),
    ],
)
def test_what_the_grammar_proves_to_be_layout_is_followed(
    rig: HookRig, root: Path, name: str, mine: str, theirs: str
) -> None:
    """Ruling 28: right after the agent's own write, and nobody else's is on record."""
    file = root / name
    rig.write(file, mine)
    file.write_text(theirs)

    assert rig.write(file, mine + "\n") == {}


def test_ruff_is_followed(rig: HookRig, source: Path) -> None:
    """Ruling 28: a real formatter, as a user's hook runs it."""
    rig.write(source, "def f( a,b ):\n  return [ a,\n b ] #c\n")
    subprocess.run([sys.executable, "-m", "ruff", "format", "-q", str(source)], check=True)
    assert "# c" in source.read_text()

    assert rig.edit(source, "return", "yield") == {}


@pytest.mark.parametrize(("late_s", "is_followed"), [(9.0, True), (11.0, False), (3600.0, False)])
def test_layout_that_changes_later_is_somebodys(
    rig: HookRig, source: Path, late_s: float, is_followed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding E2, ruling 28: within 10 s of the agent's own write, whenever the next one comes."""
    with monkeypatch.context() as earlier:
        earlier.setattr(SystemClock, "now_s", lambda clock: time.time() - late_s)
        assert rig.write(source, "a = [1]\n") == {}
    source.write_text("a = [\n    1,\n]\n")
    monkeypatch.setattr(SystemClock, "now_s", lambda clock: time.time() + 3600)

    assert (rig.edit(source, "1", "2") == {}) == is_followed


def test_a_look_does_not_make_the_write_younger(
    rig: HookRig, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding E2: a formatter's version was followed late. What comes right after that is somebody's."""
    with monkeypatch.context() as earlier:
        earlier.setattr(SystemClock, "now_s", lambda clock: time.time() - 7)
        assert rig.write(source, "a = [1]\n") == {}
    source.write_text("a = [1,]\n")
    given = {"file_path": str(source), "old_string": "1", "new_string": "2"}
    assert rig.ask("Edit", given) == {}, "followed; and the user declines"
    monkeypatch.setattr(formatted_by, "RIGHT_AFTER_S", 5.0)
    source.write_text("a = [\n    1\n]\n")

    assert is_denied(rig.edit(source, "1", "2"))


def test_layout_that_another_agent_wrote_is_not_a_formatters(rig: HookRig, root: Path, source: Path) -> None:
    """Finding E2, ruling 28: its write is on record, so it is known whose it is."""
    rig.write(source, "a = [1]\n")
    with Workspace(root) as workspace, workspace.turn(agent_id="b") as other:
        other.read_file("a.py")
        other.write_file("a.py", "a = [\n    1,\n]\n")

    assert is_denied(rig.edit(source, "1", "2"))


def test_a_record_that_does_not_reach_back_proves_nothing(
    rig: HookRig, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ruling 28: only the end of a ledger is read, and all of that may be younger than the agent's write."""
    rig.write(source, "a = [1]\n")
    source.write_text("a = [1,]\n")
    monkeypatch.setattr(last_writer, "TAIL_BYTES", 100)

    assert is_denied(rig.edit(source, "1", "2"))


# -- a formatter that is named ---------------------------------------------------------------------------

HEADER = "import sys; sys.stdout.write('# Copyright\\n' + sys.stdin.read())"


@pytest.mark.parametrize(
    "trust", ["trusted", "not trusted", "by a list that others can write", "another folder"]
)
@pytest.mark.parametrize("theirs", ["# Copyright\na  b\n", "# Copyright\na  b\nand a word\n"])
def test_a_named_formatter_is_run_again_where_the_user_trusts_the_folder(
    rig: HookRig, root: Path, trust: str, theirs: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Rulings 28 and 34: exactly its bytes are followed, in any kind of file; elsewhere it is not even run."""
    ran = tmp_path / "ran"
    script = f"open({str(ran)!r}, 'w'); {HEADER}"
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(script)} {{file}}"
    (root / "noclobber.toml").write_text(f"formatters = [{json.dumps(command)}]\n")
    if trust != "not trusted":
        folder = root.parent if trust == "another folder" else root
        trusting.trust(str(folder), trusting.weakening(str(root)))
    if "others" in trust:
        for entry in Path(own_state.own_folder(), trusting.TRUSTED).iterdir():
            entry.chmod(0o666)
    file = root / "notes.txt"
    rig.write(file, "a  b\n")
    file.write_text(theirs)

    assert (rig.edit(file, "a", "c") == {}) == (trust == "trusted" and "word" not in theirs)
    assert ran.exists() == (trust == "trusted")


@pytest.mark.parametrize("is_trusted", [True, False])
@pytest.mark.parametrize("theirs", ["a  B\n", "a  B\nand a word\n"])
def test_a_formatter_that_the_host_runs_in_its_own_tool_is_run_again_on_a_copy(
    rig: HookRig, root: Path, is_trusted: bool, theirs: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """finding H6, rulings 28 and 34: opencode's plugin names it; what it left is the host's own write."""
    if is_trusted:
        trusting.trust(str(root), {})
    file = root / "notes.txt"
    file.write_text("a  b\n")
    args = {"filePath": str(file), "oldString": "b", "newString": "B   "}
    sent = {
        "input": {"tool": "edit", "sessionID": "s", "callID": "c", "args": args},
        "directory": str(root),
        "formatters": [["env", "A=b", "sed", "-i", "s/[[:blank:]]*$//", "{copy}"]],
    }
    assert rig.call("opencode", {**sent, "ev": "before", "output": {"args": args}}, "check")[0] == {}
    file.write_text(theirs)

    told = rig.call("opencode", {**sent, "ev": "after", "output": {"output": "done"}}, "note")[0]

    is_known = is_trusted and "word" not in theirs
    assert (told == {}) == is_known
    assert rig.kinds() == (["MUTATION"] if is_known else ["MUTATION_RACE"])
    assert file.read_text() == theirs
    assert not list(root.glob(".noclobber/formatting-*"))


@pytest.mark.parametrize("command", ["false {file}", "no-such-program {file}", "'{file}"])
def test_a_named_formatter_that_fails_proves_nothing(
    rig: HookRig, root: Path, command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ruling 28."""
    trusted_options(root, f"formatters = [{json.dumps(command)}]\n")
    file = root / "notes.txt"
    rig.write(file, "a\n")
    file.write_text("a \n")

    assert is_denied(rig.edit(file, "a", "c"))


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
