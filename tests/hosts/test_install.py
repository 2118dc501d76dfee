"""`noclobber install`: into somebody else's configuration, and out again without a trace."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noclobber.cli import main as command_line
from noclobber.errors import AccessDeniedError
from noclobber.hosts import HOSTS, install, json_edit
from noclobber.hosts.hook_entries import find_hosts, hook_file, is_ours
from noclobber.hosts.json_edit import BadConfigurationError
from tests.rigs.commands import run
from tests.rigs.hooks import HookRig

WITH_COMMENTS = """\
{
    // my own settings, in my own order
    "permissions": { "allow": ["Bash(ls)"] }, // keep this
    "hooks": {
        "PreToolUse": [
            { "matcher": "Bash", "hooks": [{ "type": "command", "command": "true" }] }, /* mine */
        ],
    },
    "z": 1,
}
"""
CONFIGURATIONS = {
    "nothing": None,
    "empty object": "{}\n",
    "comments and trailing commas": WITH_COMMENTS,
    "one line": '{"permissions": {"allow": []}, "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "x"}]}]}}',
    "tabs": '{\n\t"a": [\n\t\t1\n\t]\n}',
    "crlf": '{\r\n  "a": 1\r\n}\r\n',
    "byte-order mark": '\ufeff{\n  "a": 1\n}\n',
    "comment at the end": '{\n  "a": 1 // last\n  // really\n}\n',
    "empty hooks": '{\n  "hooks": {},\n  "a": 1\n}\n',
    "only empty hooks": '{"hooks": { }}',
    "an empty list": '{\n  "hooks": {\n    "Stop": [],\n    "PreToolUse": [ ],\n    "preToolUse": [\n    ]\n  }\n}\n',
    "empty file": "",
    "white space": "\n \n",
    "braces alone": "{}",
    "braces and a blank": "{ }\n",
    "braces and lines": "{\n\n}",
    "braces and a comment": "{\n  // nothing yet\n}\n",
    "braces and a comment behind": "{ /* nothing */ } // yet\n",
    "only a version": '{"version": 1}\n',
    "another version": '{"version": 2}\n',
}
JSON_HOSTS = [host for host in HOSTS if host not in ("cline", "opencode")]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nobody's own configuration is touched."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("CODEX_HOME", raising=False)
    return folder


def put(place_: Any, text: str | None) -> None:
    os.makedirs(os.path.dirname(place_.path), exist_ok=True)
    if text is not None:
        with open(place_.path, "w", encoding="utf-8", newline="") as file:
            file.write(text)


def get(place_: Any) -> Any:
    if not os.path.exists(place_.path):
        return None
    with open(place_.path, encoding="utf-8", newline="") as file:
        return file.read()


@pytest.mark.parametrize("host", JSON_HOSTS)
@pytest.mark.parametrize("kind", CONFIGURATIONS)
def test_what_is_installed_and_taken_out_again_leaves_the_file_as_it_was(
    root: Path, host: str, kind: str
) -> None:
    """N-install: everything else stays byte for byte; installing twice changes nothing."""
    where = hook_file(host, "project", str(root))
    before = CONFIGURATIONS[kind]
    put(where, before)

    assert install.carry_out(where).is_needed
    once = get(where)
    assert not install.carry_out(where).is_needed
    assert get(where) == once

    value = json_edit.parse(once).value
    ours = [group for groups in value["hooks"].values() for group in groups if is_ours(group)]
    assert len(ours) == len(where.entries)
    if before is not None and before.strip():
        kept = json_edit.parse(before).value
        for key in set(kept) - {"hooks"}:
            assert value[key] == kept[key]
        for event, groups in kept.get("hooks", {}).items():
            assert value["hooks"][event][: len(groups)] == groups

    install.carry_out(where, uninstall=True)
    left = get(where)
    assert left == before


@pytest.mark.parametrize("host", JSON_HOSTS)
@pytest.mark.parametrize("kind", CONFIGURATIONS)
def test_an_upgrade_in_between_forgets_nothing(root: Path, host: str, kind: str) -> None:
    """finding H13: what was there before the first installation is known after the second."""
    where = hook_file(host, "project", str(root))
    before = CONFIGURATIONS[kind]
    put(where, before)
    install.carry_out(hook_file(host, "project", str(root), portable=True))
    install.carry_out(where)
    install.carry_out(where, uninstall=True)
    assert get(where) == before


@pytest.mark.parametrize("host", HOSTS)
def test_folders_that_were_made_go_and_folders_that_were_there_stay(root: Path, host: str) -> None:
    """finding H13: also an empty one, and one that something else came into meanwhile."""
    where = hook_file(host, "project", str(root))
    install.carry_out(where)
    install.carry_out(where, uninstall=True)
    assert os.listdir(root) == []

    os.makedirs(os.path.dirname(where.path))
    install.carry_out(where)
    install.carry_out(where, uninstall=True)
    assert os.listdir(os.path.dirname(where.path)) == []
    os.removedirs(os.path.dirname(where.path))
    root.mkdir(exist_ok=True)

    install.carry_out(where)
    Path(os.path.dirname(where.path), "mine").write_text("")
    install.carry_out(where, uninstall=True)
    assert os.listdir(os.path.dirname(where.path)) == ["mine"]


@pytest.mark.parametrize("host", JSON_HOSTS)
@pytest.mark.parametrize("kind", ["nothing", "empty file", "braces alone", "empty hooks"])
def test_what_the_user_wrote_after_the_installation_stays(root: Path, host: str, kind: str) -> None:
    """finding H13: the file is the user's from the moment that they write into it."""
    where = hook_file(host, "project", str(root))
    put(where, CONFIGURATIONS[kind])
    install.carry_out(where)
    text = get(where)
    put(where, json_edit.add_member(text, json_edit.parse(text), "mine", [1]))
    install.carry_out(where, uninstall=True)
    assert json_edit.parse(get(where)).value["mine"] == [1]
    assert "noclobber" not in get(where)


def test_hooks_of_a_version_that_remembered_nothing_are_replaced_and_removed(root: Path) -> None:
    """finding H13: then a file with nothing else in it goes, as it did."""
    where = hook_file("gemini", "project", str(root))
    old = [{"hooks": [{"type": "command", "command": "noclobber hook gemini note"}]}]
    for upgrade in (False, True):
        put(where, json.dumps({"hooks": {"AfterAgent": old}}))
        if upgrade:
            install.carry_out(where)
        install.carry_out(where, uninstall=True)
        assert get(where) == (None if not upgrade else "{}")


@pytest.mark.parametrize("host", JSON_HOSTS)
def test_an_older_installation_is_replaced_and_not_added_to(root: Path, host: str) -> None:
    """N-install: after an upgrade, or a move of the interpreter."""
    where = hook_file(host, "project", str(root))
    install.carry_out(hook_file(host, "project", str(root), portable=True)._replace(path=where.path))
    assert "noclobber hook" in get(where)

    install.carry_out(where)

    assert "noclobber hook" not in get(where)
    assert get(where).count(" note") == sum(" note" in json.dumps(entry.value) for entry in where.entries)


@pytest.mark.parametrize("others", ["", '"MINE": "1", '])
def test_the_prefix_of_an_older_installation_goes_and_a_users_own_stays(root: Path, others: str) -> None:
    """N-install: with ours in its settings Claude Code starts no MCP server."""
    file = root / ".claude" / "settings.local.json"
    file.parent.mkdir()
    old = json.dumps("/bin/sh -c 'noclobber_text=$3;exec x' noclobber")
    file.write_text(f'{{"env": {{{others}"CLAUDE_CODE_SHELL_PREFIX": {old}}}, "model": "x"}}')
    install.carry_out(hook_file("claude-code", "project", str(root)))
    written = json.loads(file.read_text())
    assert written.get("env", {}) == ({"MINE": "1"} if others else {})
    assert written["model"] == "x"

    file.write_text('{"env": {"CLAUDE_CODE_SHELL_PREFIX": "/my/wrapper"}}')
    install.carry_out(hook_file("claude-code", "project", str(root)))
    assert json.loads(file.read_text())["env"] == {"CLAUDE_CODE_SHELL_PREFIX": "/my/wrapper"}


def test_fail_open_switches_are_closed_where_a_write_waits(root: Path) -> None:
    """N-install: `onFailure` for Claude Code, `failClosed` for Cursor; reads stay open."""
    for host, event, switch in (
        ("claude-code", "PreToolUse", ("onFailure", "block")),
        ("cursor", "preToolUse", ("failClosed", True)),
    ):
        for entry in hook_file(host, "project", str(root)).entries:
            hooks = entry.value.get("hooks", [entry.value])
            if "if" in hooks[0]:  # Only reads of lock files: no write waits for it.
                assert (entry.value["matcher"], hooks[0]["if"]) == ("Read", "Read(//**/.lock*)")
                assert switch[0] not in hooks[0]
                continue
            if entry.value.get("matcher") in ("Bash", "Shell"):  # Commands that only look come this way, too.
                assert switch[0] not in hooks[0]
                continue
            assert [hook.get(switch[0]) for hook in hooks] == [switch[1] if entry.event == event else None]
            if entry.event == event:
                assert not re.search(entry.value["matcher"], "Read")


def test_the_plugin_of_opencode_is_made_and_taken_away(root: Path) -> None:
    """N-install: a file of our own; somebody else's in its place is left alone."""
    where = hook_file("opencode", "project", str(root))
    install.carry_out(where)
    assert not install.carry_out(where).is_needed
    if shutil.which("node"):
        checked = subprocess.run(["node", "--check", where.path], capture_output=True, text=True)
        assert checked.returncode == 0 or "import statement" in checked.stderr, checked.stderr
    install.carry_out(where, uninstall=True)
    assert get(where) is None

    put(where, "// mine\n")
    with pytest.raises(Exception, match="Move it away"):
        install.carry_out(where)
    assert not install.carry_out(where, uninstall=True).is_needed
    assert get(where) == "// mine\n"


@pytest.mark.skipif(not shutil.which("node"), reason="the plugin runs in node")
def test_the_plugin_throws_what_the_hook_refuses(rig: HookRig, root: Path) -> None:
    """HOSTS, opencode: throwing refuses, and the message is the object, word for word."""
    where = hook_file("opencode", "project", str(root))
    install.carry_out(where)
    file = root / "a.txt"
    file.write_text("hello\n")
    module = os.path.splitext(where.path)[0] + ".mjs"
    shutil.copy(where.path, module)
    program = f"""
        import {{ Noclobber }} from {json.dumps(module)}
        import {{ writeFileSync }} from "node:fs"
        const plugin = await Noclobber({{ directory: {json.dumps(str(root))}, worktree: {json.dumps(str(root))} }})
        await plugin.config({{ lsp: true }})  // Then opencode's own tools stay, and are only looked at.
        const call = (tool, callID) => ({{ tool, sessionID: "s", callID }})
        const display = {{ text: "hello", lineStart: 1, lineEnd: 1, totalLines: 1, truncated: false }}
        const args = {{ filePath: {json.dumps(str(file))} }}
        await plugin["tool.execute.before"](call("read", "1"), {{ args }})
        await plugin["tool.execute.after"]({{ ...call("read", "1"), args }}, {{ output: "", metadata: {{ display }} }})
        await plugin["tool.execute.before"](call("write", "2"), {{ args: {{ ...args, content: "mine\\n" }} }})
        writeFileSync(args.filePath, "mine\\n")
        await plugin["tool.execute.after"]({{ ...call("write", "2"), args: {{ ...args, content: "mine\\n" }} }}, {{ output: "" }})
        writeFileSync(args.filePath, "theirs\\n")
        try {{
          await plugin["tool.execute.before"](call("write", "3"), {{ args: {{ ...args, content: "again\\n" }} }})
          console.log("let through")
        }} catch (error) {{ console.log(error.message) }}
    """
    done = subprocess.run(
        ["node", "--input-type=module", "-e", program],
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(rig.runtime)},
        timeout=60,
    )
    assert done.stderr == ""
    assert json.loads(done.stdout.splitlines()[0])["error_type"] == "STALE_FILE"
    assert rig.kinds() == ["MUTATION", "MUTATION_CONFLICT"]


@pytest.mark.skipif(not shutil.which("node"), reason="the plugin runs in node")
def test_the_plugins_own_tools_write_after_the_question_and_not_if_it_is_declined(
    rig: HookRig, root: Path
) -> None:
    """finding H4: what a person saves while the question is open stays."""
    where = hook_file("opencode", "project", str(root))
    install.carry_out(where)
    for name in ("a.txt", "b.txt", "c.txt"):
        (root / name).write_text("hello\n")
    module = os.path.splitext(where.path)[0] + ".mjs"
    shutil.copy(where.path, module)
    program = f"""
        import {{ Noclobber }} from {json.dumps(module)}
        import {{ readFileSync, writeFileSync }} from "node:fs"
        const [directory, worktree] = [{json.dumps(str(root))}, {json.dumps(str(root))}]
        const plugin = await Noclobber({{ directory, worktree }})
        await plugin.config({{}})
        const write = async (name, ask) => {{
          const asked = []
          const context = {{ directory, worktree, sessionID: "s", callID: name }}
          context.ask = async (question) => (asked.push([question.permission, ...question.patterns]), ask())
          const done = await plugin.tool.write
            .execute({{ filePath: name, content: "mine\\n" }}, context)
            .then((result) => result.output, (error) => error.message)
          return [asked, done, readFileSync(`${{directory}}/${{name}}`, "utf8")]
        }}
        const said = [
          await write("a.txt", () => {{}}),
          await write("b.txt", () => writeFileSync(`${{directory}}/b.txt`, "theirs\\n")),
          await write("c.txt", () => {{ throw new Error("declined") }}),
        ]
        console.log(JSON.stringify(said))
    """
    done = subprocess.run(
        ["node", "--input-type=module", "-e", program],
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(rig.runtime)},
        timeout=60,
    )
    assert done.stderr == ""
    agreed, saved, declined = json.loads(done.stdout)
    assert agreed == [[["edit", "a.txt"]], "Wrote file successfully.", "mine\n"]
    assert saved[0] == [["edit", "b.txt"]]
    assert json.loads(saved[1].splitlines()[0])["error_type"] == "STALE_FILE"
    assert saved[2] == "theirs\n"
    assert declined == [[["edit", "c.txt"]], "declined", "hello\n"]
    assert rig.kinds() == ["MUTATION", "MUTATION_CONFLICT"]


# -- configurations that cannot be changed ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{"a": 1', 1),
        ("{\n  a: 1\n}", 2),
        ("{\n\n  /* open\n}", 3),
        ('{"a": 1} x', 1),
        ("[1]", 1),
        ("[" * 5000, 1),
        ('{"hooks": []}', 1),
    ],
)
def test_what_is_not_valid_is_left_alone_and_the_line_is_named(root: Path, text: str, line: int) -> None:
    """N-install, N-input: a configuration that is not valid JSON."""
    where = hook_file("claude-code", "project", str(root))
    put(where, text)

    with pytest.raises(BadConfigurationError) as refused:
        install.carry_out(where)

    assert refused.value.path == where.path
    if text != '{"hooks": []}':
        assert f"line {line}" in str(refused.value)
    assert get(where) == text


def test_a_read_only_configuration_is_left_alone(root: Path, is_root: bool) -> None:
    """N-install, N-input: whoever made it read-only meant it, although a rename would get round that."""
    where = hook_file("claude-code", "project", str(root))
    put(where, "{}\n")
    os.chmod(where.path, 0o444)
    program = (
        "import os, sys\n"
        "from noclobber.hook import doctor\nfrom noclobber.hosts import install as installing, json_edit as jsonedit\n"
        "from noclobber.hosts.hook_entries import hook_file\n"
        "import difflib, json, noclobber.disk.commit.change_set, noclobber.disk.commit.committer\n"
        "where = hook_file('claude-code', 'project', sys.argv[1])\n"
        "if os.geteuid() == 0: os.setuid(65534)\n"
        "try: installing.carry_out(where)\n"
        "except PermissionError as error: print(error.code, 'read-only' in str(error) or 'cannot be read' in str(error))\n"
    )
    os.chmod(root, 0o777)
    os.chmod(os.path.dirname(where.path), 0o777)
    done = subprocess.run(
        [sys.executable, "-c", program, str(root)], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "ACCESS_DENIED True\n", done.stderr
    assert get(where) == "{}\n"


def test_a_read_only_file_is_an_error_that_says_so(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same without another user."""
    where = hook_file("claude-code", "project", str(root))
    put(where, "{}\n")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(AccessDeniedError, match="read-only"):
        install.carry_out(where)


def test_installs_at_the_same_moment_lose_nothing(root: Path) -> None:
    """N-install, N-input: two installs at once, and the host saving its own settings in between."""
    where = hook_file("gemini", "project", str(root))
    put(where, '{\n  "a": 0\n}\n')
    hosts = [["install", "gemini"], ["install", "gemini", "--portable"]] * 3
    program = root.parent / "bin" / "noclobber"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m noclobber "$@"\n')
    program.chmod(0o755)
    codes = []

    def run(words: list[str]) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "noclobber", *words, "--root", str(root)],
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"},
        )
        codes.append((done.returncode, done.stderr))

    threads = [threading.Thread(target=run, args=(words,)) for words in hosts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [code for code, _ in codes] == [0] * 6, codes
    value = json.loads(get(where))
    assert value["a"] == 0
    ours = [group for groups in value["hooks"].values() for group in groups if is_ours(group)]
    assert len(ours) == len(where.entries)
    assert [name for name in os.listdir(os.path.dirname(where.path)) if name != "settings.json"] == []


def test_a_change_in_between_is_read_again_and_kept(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare and swap: what the host saved after we read is in the result."""
    where = hook_file("claude-code", "project", str(root))
    put(where, "{}\n")
    real = install.write
    seen: list[Any] = []

    def interrupted(change: Any) -> None:
        if not seen:
            put(where, '{\n  "saved": "by the host"\n}\n')
        seen.append(change)
        real(change)

    monkeypatch.setattr(install, "write", interrupted)
    install.carry_out(where)

    assert len(seen) == 2
    assert json.loads(get(where))["saved"] == "by the host"


# -- the command ----------------------------------------------------------------------------------------------


def test_the_command_shows_what_it_changes_and_a_dry_run_changes_nothing(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """N-install."""
    where = hook_file("gemini", "project", str(root))
    assert command_line(["install", "gemini", "--dry-run", "--diff", "--root", str(root)]) == 0
    assert "+++ " in capsys.readouterr().out
    assert get(where) is None

    assert command_line(["install", "gemini", "--diff", "--root", str(root)]) == 0
    assert f"+++ {where.path}" in capsys.readouterr().out
    assert command_line(["install", "gemini", "--root", str(root)]) == 0
    assert "is up to date" in capsys.readouterr().out
    assert command_line(["install", "gemini", "--uninstall", "--root", str(root)]) == 0
    assert get(where) is None


def test_alone_it_finds_the_hosts_of_this_project(
    root: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """N-install."""
    assert command_line(["install", "--root", str(root)]) == 1
    (root / ".claude").mkdir()
    (root / "GEMINI.md").write_text("")
    (home / ".codex").mkdir()
    assert find_hosts(str(root)) == ["claude-code", "codex", "gemini"]

    assert command_line(["install", "--root", str(root)]) == 0
    out = capsys.readouterr().out
    assert "claude-code: changed" in out
    assert "trust the hooks" in out
    assert (root / ".codex" / "hooks.json").exists()


def test_user_and_project_are_two_places(root: Path, home: Path) -> None:
    """N-install."""
    for host in HOSTS:
        assert hook_file(host, "user", str(root)).path.startswith(str(home))
        assert hook_file(host, "project", str(root)).path.startswith(str(root))


def test_a_project_that_does_not_exist_is_not_made(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A mistyped --root would leave a folder with hooks that protect nothing."""
    assert command_line(["install", "cursor", "--root", str(root / "typo")]) == 3
    assert "there is no such folder" in capsys.readouterr().err
    assert not (root / "typo").exists()


def test_an_unknown_host_is_an_error_that_names_the_known(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Errors say what to do next."""
    assert command_line(["install", "emacs", "--root", str(root)]) == 2
    assert "claude-code" in capsys.readouterr().err


# -- editing JSON ---------------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    value=st.dictionaries(st.text(max_size=4), VALUES, max_size=4),
    added=VALUES,
    indent=st.sampled_from([None, 1, 2, 4, "\t"]),
)
def test_adding_and_removing_a_member_gives_back_the_text(
    value: dict[str, Any], added: Any, indent: int | str | None
) -> None:
    """Byte for byte, for any object in any indentation."""
    text = json.dumps(value, indent=indent)
    key = "a key that is not there"
    more = json_edit.add_member(text, json_edit.parse(text), key, added)
    assert json.loads(more) == {**value, key: added}
    assert json_edit.parse(more).value == json.loads(more)
    assert json_edit.remove(more, json_edit.parse(more), key) == text


@settings(max_examples=100, deadline=None)
@given(values=st.lists(VALUES, min_size=1, max_size=5), data=st.data())
def test_removing_any_item_leaves_the_others(values: list[Any], data: st.DataObject) -> None:
    """First, last or in the middle."""
    text = json.dumps(values, indent=data.draw(st.sampled_from([None, 2])))
    at = data.draw(st.integers(0, len(values) - 1))
    assert json.loads(json_edit.remove(text, json_edit.parse(text), at)) == values[:at] + values[at + 1 :]


OWN_HOOKS = st.dictionaries(
    st.sampled_from(["Stop", "PreToolUse", "AfterAgent", "preToolUse", "Other"]),
    st.lists(st.just({"hooks": [{"type": "command", "command": "mine"}]}), max_size=2),
    max_size=3,
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    value=st.dictionaries(st.sampled_from(["a", "version", "z"]), VALUES, max_size=3),
    own=st.none() | OWN_HOOKS,
    indent=st.sampled_from([None, 2, "\t"]),
    end=st.sampled_from(["", "\n", " // end\n"]),
    host=st.sampled_from(JSON_HOSTS),
)
def test_any_configuration_is_given_back_as_it_was(
    root: Path, value: dict[str, Any], own: Any, indent: Any, end: str, host: str
) -> None:
    """N-install, finding H13: with and without hooks of the user's, full or empty."""
    text = json.dumps(value if own is None else {**value, "hooks": own}, indent=indent) + end
    where = hook_file(host, "project", str(root))
    put(where, text)
    install.carry_out(where)
    install.carry_out(where, uninstall=True)
    assert get(where) == text


def test_an_installation_says_in_three_lines_what_it_did(root: Path, tmp_path: Path) -> None:
    """N-cli: and in one what becomes of stale writes; every line is shown to who asks for it, and before."""
    home = {"HOME": str(tmp_path)}
    dry = run("install", "claude-code", "--dry-run", cwd=root, **home).out
    shown = run("install", "claude-code", "--dry-run", "--diff", cwd=root, **home).out
    said = run("install", "claude-code", cwd=root, **home).out
    taken_out = run("install", "claude-code", "--uninstall", "--diff", cwd=root, **home).out

    assert len(said.splitlines()) <= 5, said
    assert len(dry.splitlines()) <= 3, dry
    for summary in (dry, said):
        assert "lines added, 0 removed; --diff shows them" in summary
    assert shown.count("\n+") > 20
    assert taken_out.count("\n-") > 20
