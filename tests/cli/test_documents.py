"""One rule for every command: what `--json` prints, what errors look like, and that output fits the terminal."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from noclobber import StaleFileError, Workspace
from noclobber.cli import COMMANDS, main
from noclobber.cli.documents import document_schema
from noclobber.core.project import KEPT_FOLDER, state_folder
from tests.rigs.commands import Terminal
from tests.rigs.parsers import nodes
from tests.rigs.schemas import check

# They have no `--json`: they speak JSON always, to a host or a client.
SPEAK_JSON = {("hook",), ("mcp",)}
LEAVES = [
    *(node.path for node in nodes() if node.path and not node.subcommands and node.path not in SPEAK_JSON),
    *(("run", verb) for verb in ("list", "show", "diff", "rerun", "drop")),
]
TABLES = {("ledger", "show"), ("ledger", "tail"), ("versions", "list"), ("kept", "list"), ("lock", "list")}
# Commands with a server, that take long or run a program (test_run_document): tested elsewhere, and here
# only called wrongly.
ELSEWHERE = {
    ("demo",),
    ("view",),
    ("run",),
    ("lock", "run"),
    *(path for path in LEAVES if path[0] == "coordinator"),
}


class Screen(io.TextIOWrapper):
    """A stream in memory that says it is a terminal, or a pipe."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal

    def text(self) -> str:
        self.flush()
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue().decode()


class Called:
    """A command that was called in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *words: str, is_terminal: bool = False) -> None:
        out, err = Screen(is_terminal=is_terminal), Screen(is_terminal=is_terminal)
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", out)
            patched.setattr(sys, "stderr", err)
            patched.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"new\n")))
            self.code = main(list(words))
        self.out, self.err = out.text(), err.text()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A project in which every command has something to show."""
    folder = tmp_path_factory.mktemp("every")
    root = folder / "project"
    (root / "part").mkdir(parents=True)
    (root / "plan.md").write_text("one\n")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-C", str(root)]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "plan.md"], check=True)
    subprocess.run([*git, "commit", "-qm", "first"], check=True)
    with Workspace(root) as workspace, workspace.turn(agent_id="ana", session_id="4f2a91c3") as turn:
        seen = turn.read_file("plan.md")
        written = turn.write_file("plan.md", b"two\n")
        (root / "plan.md").write_text("theirs\n")
        with pytest.raises(StaleFileError):
            turn.write_file("plan.md", b"three\n")
        (root / "plan.md").write_text("two\n")
    kept = Path(state_folder(str(root))) / KEPT_FOLDER
    kept.mkdir(exist_ok=True)
    (kept / f"kept-0a1b2c3d-{seen.sha256}~plan.md").write_text("kept\n")
    return root, {"seen": seen.sha256, "written": written.sha256}


@pytest.fixture
def project(
    made: tuple[Path, dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, dict[str, str]]:
    """A copy of it, as the working folder, without the coding agents of whoever runs the tests."""
    root = tmp_path / "project"
    subprocess.run(["cp", "-a", made[0], root], check=True)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_AUTHOR_NAME", "a")
    monkeypatch.setenv("GIT_AUTHOR_EMAIL", "a@b.c")
    monkeypatch.setenv("GIT_COMMITTER_NAME", "a")
    monkeypatch.setenv("GIT_COMMITTER_EMAIL", "a@b.c")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.chdir(root)
    return root, made[1]


def words_for(path: tuple[str, ...], known: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A call of a command that succeeds, or answers no."""
    kept = "kept-0a1b"
    if path in {("lock", "renew"), ("lock", "release")}:
        folder = tempfile.mkdtemp(prefix="part-", dir=".")
        acquired = Called(monkeypatch, "lock", "acquire", folder, "--json", "--lease-only")
        return [*path, folder, "--id", json.loads(acquired.out)["lock_id"]]
    arguments: dict[tuple[str, ...], list[str]] = {
        ("diff",): ["plan.md"],
        ("watch",): ["--changes", "1"],
        ("blame",): ["plan.md"],
        ("hash",): ["plan.md"],
        ("start",): ["gemini"],
        ("write",): ["plan.md", "--expect", known["written"]],
        ("undo",): ["--agent", "ana"],
        ("commit",): ["--mine", "--agent", "ana", "-m", "mine"],
        ("install",): ["gemini"],
        ("completion",): ["bash"],
        ("doctor",): ["--no-repair"],
        ("lock", "acquire"): [tempfile.mkdtemp(prefix="part-", dir="."), "--lease-only"],
        ("versions", "show"): [known["seen"]],
        ("versions", "restore"): [known["seen"], "plan.md"],
        ("kept", "show"): [kept],
        ("kept", "restore"): [kept, "plan.md"],
        ("kept", "drop"): [kept],
        **{("lock", each): ["part"] for each in ("status", "recover", "retire")},
        **{("run", each): ["no-such-run"] for each in ("show", "diff", "rerun", "drop")},
    }
    return [*path, *arguments.get(path, [])]


def document(text: str) -> Any:
    """The one document that stdout has; fails if there is more, or less."""
    assert text.endswith("\n")
    value, end = json.JSONDecoder().raw_decode(text)
    assert text[end:].strip() == "", "more than one document"
    return value


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_json_is_one_document_that_fits_its_schema(
    path: tuple[str, ...], project: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding U10: on stdout, whatever the exit code; and every command's document has a schema."""
    jsonschema.Draft202012Validator.check_schema(document_schema(*path))
    if path in ELSEWHERE:
        return
    done = Called(monkeypatch, *words_for(path, project[1], monkeypatch), "--json")
    value = document(done.out)
    if done.code not in (0, 1):
        check(value)
    assert done.code in (0, 1), value
    jsonschema.validate(value, document_schema(*path))
    assert "\x1b" not in done.out


def test_the_first_look_is_a_document_too(
    project: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding U10."""
    jsonschema.validate(document(Called(monkeypatch, "--json").out), document_schema())


def test_every_schema_belongs_to_a_command() -> None:
    """finding U10: and a command without a document says so."""
    folder = Path(main.__code__.co_filename).parent / "schemas"
    names = {path.name.removesuffix(".schema.json") for path in folder.glob("*.schema.json")}
    assert names == {"-".join(path) for path in LEAVES} | {"first-look"}
    with pytest.raises(ValueError, match="has no JSON document"):
        document_schema("mcp")


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_an_error_is_one_object_on_stdout_with_its_exit_code(
    path: tuple[str, ...], project: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding U10: called wrongly, and in a folder that does not exist."""
    done = Called(monkeypatch, *path, "--nonsense", "--json")
    value = document(done.out)
    check(value)
    assert (done.code, value["error_type"], done.err) == (2, "BAD_REQUEST", "")

    plainly = Called(monkeypatch, *path, "--nonsense")
    assert (plainly.code, plainly.out) == (2, "")
    assert "nonsense" in plainly.err or "required" in plainly.err


@pytest.mark.parametrize("name", [*COMMANDS, "nonsense"])
def test_a_word_that_is_nearly_right_is_answered_with_the_right_one(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding U11: below the first level, too, and for options."""
    below = [node.path[-1] for node in nodes() if node.path[:1] == (name,) and len(node.path) == 2]
    for word in below:
        done = Called(monkeypatch, name, f"{word}x")
        assert done.code == 2
        assert f"Did you mean {word!r}?" in done.err
    if name in COMMANDS and not below and (name,) not in SPEAK_JSON and name not in ("run", "write"):
        assert "Did you mean --json?" in Called(monkeypatch, name, "x", "--jsno").err or name == "completion"
    done = Called(monkeypatch, f"{name}q")
    assert done.code == 2


DATA = {("blame",), ("ledger", "export"), ("completion",), ("versions", "show"), ("kept", "show")}


def too_wide(shown: Called, path: tuple[str, ...], columns: int) -> list[str]:
    """The lines that are wider than the terminal although they could be folded: no path or hash fills them."""
    if path in DATA:
        return []
    lines = _without_styles(shown.out + shown.err).replace("\r", "\n").splitlines()
    wide = [line for line in lines if len(line) > columns]
    return [line for line in wide if max(map(len, line.split())) <= columns // 2]


@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize("no_color", ["", "1"])
def test_every_command_suits_the_terminal(
    columns: int, no_color: str, project: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding U11: nothing is too wide, colours only where they are wanted, and none in a pipe."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("TERM", "xterm")
    for path in LEAVES:
        if path in ELSEWHERE or path in {("watch",), ("commit",)}:
            continue
        words = words_for(path, project[1], monkeypatch)
        shown = Called(monkeypatch, *words, is_terminal=True)
        assert "Traceback" not in shown.err, path
        if no_color:
            assert "\x1b" not in shown.out.replace("\r\x1b[K", ""), path
        assert too_wide(shown, path, columns) == [], path
        if path in TABLES or path == ("config", "show"):
            plain = _without_styles(shown.out).splitlines()
            body = plain[3:] if path == ("config", "show") else plain
            assert max(map(len, body), default=0) <= columns, (path, plain)
        assert "\x1b" not in Called(monkeypatch, *words).out, path


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_every_help_page_suits_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """finding U11: of every command and of the program, usage included; in a pipe no line is folded."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    for node in nodes():
        shown = Called(monkeypatch, *node.path, "--help", is_terminal=True)
        assert (shown.code, shown.err) == (0, ""), node.path
        lines = _without_styles(shown.out).splitlines()
        assert [line for line in lines if len(line) > columns] == [], node.path
    piped = Called(monkeypatch, "--help").out
    assert all(any(summary in line for line in piped.splitlines()) for _, summary in COMMANDS.values())


ENDS = {
    ("run", "--", "true"): 0,
    ("run", "--expect", f"plan.md={'0' * 64}", "--", "sh", "-c", "echo x >> plan.md"): 75,
    ("run", "--", "no-such-command"): 127,
    ("lock", "run", "part", "--", "true"): 0,
    ("lock", "run", "part", "--", "no-such-command"): 127,
    ("view", "--token-file", "plan.md"): 2,
    ("coordinator", "status"): 3,
    ("demo", "--seconds", "x"): 2,
    ("commit", "--mine", "--agent", "nobody", "-m", "x"): 1,
    ("watch", "--interval", "0"): 2,
}


@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize("words", ENDS, ids=" ".join)
def test_what_commands_with_programs_and_servers_say_suits_the_terminal(
    words: tuple[str, ...], columns: int, project: tuple[Path, dict[str, str]]
) -> None:
    """finding U11: those that the walk above leaves out, in processes of their own."""
    with Terminal(*words, cwd=project[0], columns=columns, NO_COLOR="1") as terminal:
        text = terminal.read_all()
        assert "Traceback" not in text
        assert "\x1b" not in text.replace("\r\x1b[K", "")
        said = [line for line in text.replace("\r", "\n").splitlines() if not line.startswith("{")]
        wide = [line for line in said if len(line) > columns and max(map(len, line.split())) <= columns // 2]
        assert wide == []
        assert terminal.process.returncode == ENDS[words]


def _without_styles(text: str) -> str:
    import re

    return re.sub(r"\x1b\[[\d;]*[mK]", "", text)


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_tables_fit_without_rich_as_well(
    columns: int, project: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding U11: columns give way down to their words, and then each row is a block."""
    monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    shown = Called(monkeypatch, "ledger", "show", is_terminal=True)
    assert shown.code == 0, shown.err
    assert max(map(len, shown.out.splitlines())) <= columns, shown.out
    assert ("SEQ" in shown.out) == (columns >= 80), shown.out
    piped = Called(monkeypatch, "ledger", "show")
    assert "  MUTATION_CONFLICT  STALE_FILE  ana 4f2a91c3  plan.md\n" in piped.out, piped.out


@pytest.mark.parametrize("is_rich", [True, False])
@pytest.mark.parametrize("columns", [40, 60, 80])
def test_no_word_of_a_table_is_cut_where_it_could_be_folded(
    columns: int, is_rich: bool, project: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding U11: at 40 columns a table of six columns was shreds of four letters; it is blocks then."""
    if not is_rich:
        monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    for command in (["ledger", "show"], ["status"]):
        shown = Called(monkeypatch, *command, is_terminal=True).out
        for word in ("STALE_FILE", "ana", "4f2a91c3", "plan.md", "outsider"):
            assert word in shown or (word, command[0]) == ("outsider", "ledger"), (word, shown)


def test_filters_that_match_nothing_say_so(
    project: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding U11: with the kind that was meant; and lock events are shown with --locks (finding U10)."""
    done = Called(monkeypatch, "ledger", "show", "--kind", "MUTATOIN")
    assert (done.code, done.out) == (0, "0 events\n")
    assert "Did you mean MUTATION?" in done.err
    assert "No event passes" in Called(monkeypatch, "ledger", "tail", "--agent", "nobody").err

    Called(monkeypatch, "lock", "acquire", "part", "--lease-only")
    assert "--locks" in Called(monkeypatch, "ledger", "show", "--kind", "LOCK_*").err
    shown = Called(monkeypatch, "ledger", "show", "--locks", "--jsonl").out.splitlines()
    kinds = [json.loads(line)["action_type"] for line in shown]
    assert kinds == ["MUTATION", "MUTATION_CONFLICT", "LOCK_ACQUIRED"]


def test_what_has_no_end_is_no_document(
    project: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding U10: `tail --follow --json` is refused, and `--jsonl` is the way."""
    done = Called(monkeypatch, "ledger", "tail", "--follow", "--json")
    assert done.code == 2
    assert "--jsonl" in document(done.out)["message"]


def test_contention_is_one_document(
    project: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding U10: `lock run --json` of a folder that is locked."""
    Called(monkeypatch, "lock", "acquire", "part", "--lease-only", "--holder", "other")
    done = Called(monkeypatch, "lock", "run", "part", "--json", "--", "true")
    assert done.code == 75
    check(document(done.out))
    assert document(done.out)["error_type"] == "LOCK_CONTENTION"
