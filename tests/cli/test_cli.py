"""The command line as a whole: help, errors, exit codes, output that fails, and no traceback, ever."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noclobber import cli
from noclobber.cli import COMMANDS, main, parser_of
from noclobber.cli.tables import table
from noclobber.cli.terminal import Cell, visible
from tests.rigs.commands import Terminal, environment, noclobber_command, run
from tests.rigs.parsers import nodes

DOCS = Path(__file__).parents[2] / "docs" / "cli.md"
ESCAPE = "\x1b["


# Help


def test_help_lists_every_command_and_needs_no_argparse() -> None:
    """N-cli: the page is made by hand, because argparse takes as long to load as Python itself."""
    code = (
        "import sys; from noclobber.cli import main; main(['--help']);"
        "sys.exit(any(name in sys.modules for name in ('argparse', 'json')))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, env=environment(), timeout=60
    )

    assert done.returncode == 0
    for name, (_, summary) in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(summary)}$", done.stdout, re.M)


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["help"], ["help", "nonsense"]])
def test_every_way_of_asking_for_help_works(words: list[str]) -> None:
    """N-cli: and is no error."""
    done = run(*words)
    assert (done.code, done.out, done.err) == (0, cli.help_page(), "")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_commands_help_ends_with_examples_that_parse(name: str) -> None:
    """N-cli: an example that does not parse teaches the wrong thing."""
    done = run(name, "--help")
    assert done.code == 0
    examples = re.split(r"examples?:\n", done.out)[-1]
    called = re.findall(rf"(?:^|\(|\s)noclobber {name}((?: [^\s|>#)]+)*)", examples)
    assert called, f"`noclobber {name} --help` has no example of {name}"
    parser = parser_of(name)
    for words in called:
        # Two blanks end the command; what follows says what it does.
        line = next(line for line in examples.splitlines() if f"noclobber {name}{words}" in line)
        command = re.split(r" {2,}|[|<>)]", line.partition(f"noclobber {name}")[2])[0]
        parser.parse_args([word.strip("'\"") for word in command.split()])
    assert run("help", name).out == done.out


def test_the_version_is_the_packages() -> None:
    """N-cli: by either option."""
    from noclobber import __version__

    assert run("--version") == run("-V") == (0, f"noclobber {__version__}\n", "")


# Wrong calls


def test_a_mistyped_command_is_answered_with_the_one_that_was_meant() -> None:
    """N-cli: exit code 2 and one line."""
    done = run("stauts")
    assert (done.code, done.out) == (2, "")
    assert done.err == "noclobber: there is no command 'stauts'. Did you mean 'status'?\n"


def test_a_mistyped_option_is_answered_with_an_option() -> None:
    """Finding U11: `--versoin` was answered with the command `versions`."""
    assert run("--versoin").err == "noclobber: there is no option '--versoin'. Did you mean '--version'?\n"


@pytest.mark.parametrize(
    "words",
    [
        ["status", "--nope"],
        ["status", "-n", "minus"],
        ["status", "--roo", "."],
        ["ledger"],
        ["ledger", "shwo"],
        ["ledger", "tail", "-n", "x"],
        ["ledger", "show", "--since", "teatime"],
        ["ledger", "export", "--format", "xml"],
        ["ledger", "export", "--format", "nothing"],
        ["config"],
        ["diff"],
        ["diff", "x", "--against", "zz"],
        ["watch", "--interval", "0"],
        ["watch", "--interval", "nan"],
        ["watch", "--changes", "0"],
        ["completion", "tcsh"],
        ["--nope"],
    ],
)
def test_a_wrong_call_exits_with_2_and_says_why(words: list[str], root: Path) -> None:
    """N-cli: documented exit codes. Options are not abbreviated."""
    (root / ".noclobber").mkdir()
    (root / ".noclobber" / "agent_trace.jsonl").touch()
    done = run(*words, cwd=root)
    assert (done.code, done.out) == (2, "")
    assert done.err
    assert "Traceback" not in done.err


def test_a_refusal_is_a_sentence_for_people_and_an_object_for_programs(root: Path) -> None:
    """N-cli: with --json errors are JSON too, on stdout, in the shape that every refusal has."""
    for_people = run("ledger", "verify", "--root", str(root))
    for_programs = run("ledger", "verify", "--root", str(root), "--json")

    assert (for_people.code, for_programs.code) == (3, 3)
    assert for_people.err.startswith("noclobber: ")
    refusal = json.loads(for_programs.out)
    assert set(refusal) == {"error_type", "file_path", "message", "resolution", "details"}
    assert for_programs.err == ""


def test_a_folder_that_is_none_is_refused(root: Path) -> None:
    """N-cli: a mistyped --root is not an empty workspace."""
    (root / "file").touch()
    for command in (["status"], ["watch"], ["config", "show"], ["ledger", "show"], ["diff", "x"]):
        for folder in ("nope", "file", "nope\nnext"):
            done = run(*command, "--root", str(root / folder))
            assert done.code == 3
            assert len(done.err.splitlines()) == 1  # A newline in a name does not make a second line.


# Output that fails


def test_a_reader_that_goes_away_is_no_error(root: Path) -> None:
    """N-cli: `| head` is how people look at things."""
    command = f"{' '.join(noclobber_command('completion', 'zsh'))} | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, env=environment(), timeout=60
    )
    assert done.stdout.splitlines() == ["#compdef noclobber", "0"]
    assert done.stderr == ""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_behind_the_output_is_reported(root: Path) -> None:
    """N-cli: exit code 0 would mean that the answer was given."""
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            noclobber_command("config", "show", "--root", str(root)),
            stdout=full, stderr=subprocess.PIPE, text=True, env=environment(), timeout=60,
        )  # fmt: skip
    assert done.returncode == 3
    assert done.stderr == "noclobber: [Errno 28] No space left on device\n"


def test_closed_streams_do_not_matter(root: Path) -> None:
    """N-cli: `>&- 2>&-` in a cron job."""
    for words in (["status"], ["--help"], ["nonsense"]):
        command = f"{' '.join(noclobber_command(*words))} >&- 2>&-; echo $?"
        done = subprocess.run(
            ["bash", "-c", command], cwd=root, capture_output=True, text=True, env=environment(), timeout=60
        )
        assert done.stdout.strip() == str(run(*words, cwd=root).code)


def test_a_terminal_that_speaks_ascii_gets_escapes_and_json_stays_utf8(root: Path) -> None:
    """N-cli: printing a name never fails, and JSON is JSON in every locale."""
    folder = root / "ünï-日本"
    folder.mkdir()
    plain = run("status", "--root", str(folder), PYTHONIOENCODING="ascii")
    assert (plain.code, plain.err) == (0, "")
    assert "\\u65e5" in plain.out

    answer = run("status", "--root", str(folder), "--json", PYTHONIOENCODING="ascii")
    assert json.loads(answer.out)["root"] == str(folder)


def test_a_name_that_is_not_text_is_shown_and_is_json(tmp_path: Path) -> None:
    """N-cli: Linux takes any bytes for a name."""
    folder = os.fsencode(tmp_path) + b"/\xff\x1b[31m"
    os.mkdir(folder)
    for words in (["status"], ["doctor"], ["config", "show"]):
        done = run(*words, cwd=folder)
        assert done.code == (0 if words == ["config", "show"] else 1), done.err
        assert ESCAPE not in done.out
        assert isinstance(json.loads(run(*words, "--json", cwd=folder).out), dict)
    assert "the folder's path is not UTF-8, so every write is refused" in run("doctor", cwd=folder).out


# Interrupts


def test_an_interrupt_exits_with_130_and_without_a_word(root: Path) -> None:
    """N-cli: documented exit code, no traceback."""
    with subprocess.Popen(
        noclobber_command("demo", "--seconds", "60"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout.readline()
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in err


def test_an_interrupt_in_the_middle_of_an_import_exits_with_130_too(tmp_path: Path) -> None:
    """N-cli: importing a dataclass executes a text, and Python then prefers to end with the signal."""
    (tmp_path / "interrupted.py").write_text(
        "import os, runpy, signal, noclobber.cli\n"
        "def main():\n"
        "    try:\n"
        "        exec('os.kill(os.getpid(), signal.SIGINT)\\nwhile True: pass')\n"
        "    except KeyboardInterrupt:\n"
        "        return 130\n"
        "noclobber.cli.main = main\n"
        "runpy.run_module('noclobber', run_name='__main__')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "interrupted"], cwd=tmp_path, env=environment(), check=False, timeout=60
    )
    assert done.returncode == 130


# Terminals


def test_colours_are_for_terminals_only(root: Path) -> None:
    """N-cli: a pipe never gets an escape code; NO_COLOR and dumb terminals turn them off."""
    assert ESCAPE not in run("config", "show", cwd=root).out
    changes: Any
    for changes, coloured in (({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)):
        with Terminal("config", "show", cwd=root, **changes) as terminal:
            assert (ESCAPE in terminal.read_all()) is coloured, changes


def test_without_rich_tables_are_plain_and_say_the_same(root: Path, tmp_path: Path) -> None:
    """N-cli: rich is an extra."""
    missing = tmp_path / "norich"
    missing.mkdir()
    (missing / "rich.py").write_text("raise ImportError('not here')")
    path = os.pathsep.join([str(missing), environment()["PYTHONPATH"]])
    with (
        Terminal("config", "show", cwd=root) as rich,
        Terminal("config", "show", cwd=root, PYTHONPATH=path) as plain,
    ):
        with_rich, without = rich.read_all(), plain.read_all()

    assert "━" in with_rich or "─" in with_rich
    assert "─" not in without
    assert ESCAPE in without
    words = [re.sub(r"\x1b\[[0-9;]*m|[─━]", "", text).lower().split() for text in (with_rich, without)]
    assert words[0] == words[1]


def test_a_table_shows_control_characters_and_no_markup() -> None:
    """N-cli: names are other people's text: they must not move a cursor, nor be taken for rich's markup."""
    drawn = table(("name", ">n"), [["a\x1b[2J\tb\n", "1"], [Cell("[red]日本[/red]", "bad"), "22"]])
    lines = drawn.splitlines()
    assert lines[1].startswith("a\\x1b[2J\\tb\\n")
    assert "[red]日本[/red]" in lines[2]
    assert [line.rstrip()[-2:] for line in lines[1:]] == [" 1", "22"]
    assert visible("plain ü 日本") == "plain ü 日本"


# Documentation


def documented_sections() -> dict[str, str]:
    """Headings of docs/cli.md that name a command, and the text below each."""
    text = DOCS.read_text(encoding="utf-8")
    parts = re.split(r"^#{2,3} ", text, flags=re.M)[1:]
    return {part.partition("\n")[0].strip(): part.partition("\n")[2] for part in parts}


@pytest.mark.parametrize("node", [pytest.param(node, id=" ".join(node.path) or "top") for node in nodes()])
def test_every_command_and_option_is_documented(node: Any) -> None:
    """N-cli: whoever adds an option without a word about it hears of it here."""
    if not node.path:
        return
    sections = documented_sections()
    name = " ".join(("noclobber", *node.path))
    assert name in sections, f"docs/cli.md has no section `## {name}`"
    for option in node.options:
        flags = [flag for flag in option.flags if flag not in ("-h", "--help")]
        for flag in flags:
            assert re.search(rf"`{re.escape(flag)}[ `]", sections[name]), (
                f"{name}: `{flag}` is not documented"
            )


def test_no_section_is_about_a_command_that_is_gone() -> None:
    """N-cli: the other direction."""
    known = {" ".join(("noclobber", *node.path)) for node in nodes()}
    assert {name for name in documented_sections() if name.startswith("noclobber ")} <= known


def test_exit_codes_are_documented_as_they_are() -> None:
    """N-cli: one table, in the code and in the docs."""
    rows = re.findall(r"^\| (\d+) \| .*$", cli.__doc__, re.M)
    assert {int(row) for row in rows} == {getattr(cli, name) for name in dir(cli) if name.startswith("EXIT_")}
    for line in cli.__doc__.splitlines():
        if re.match(r"\| \d", line):
            assert line in DOCS.read_text(encoding="utf-8")


def test_every_command_has_json() -> None:
    """N-cli: `--json` everywhere."""
    for node in nodes():
        if node.path and not node.subcommands and node.path[0] not in ("hook", "mcp"):
            flags = [flag for option in node.options for flag in option.flags]
            assert "--json" in flags, f"{' '.join(node.path)} has no --json"


# No traceback, ever

WORDS = st.one_of(
    st.sampled_from(
        [
            word
            for node in nodes()
            for word in (*node.path, *(flag for option in node.options for flag in option.flags))
        ]
    ),
    st.sampled_from(
        ["", "-", "--", ".", "..", "/", "/dev/null", "0", "-1", "9" * 30, "1e999", "\x1b[2J", "é", "\udcff"]
    ),
    st.text(max_size=8),
)
# These start processes of their own, wait, or run for long; they are called with arguments that end at once.
SLOW = {"demo", "watch", "view", "lock", "mcp", "hook", "install", "run", "start"}


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    command=st.sampled_from([name for name in COMMANDS if name not in SLOW]),
    words=st.lists(WORDS, max_size=5),
    wreck=st.sampled_from(["nothing", "empty", "ledger", "folder", "garbage", "config", "link", "boards"]),
)
def test_whatever_the_words_and_whatever_the_workspace_no_traceback(
    command: Any, words: list[Any], wreck: str
) -> None:
    """N-cli: an exit code from the table, or somebody else's; an exception from main() would be a traceback."""
    if "-f" in words or "--follow" in words:
        words = [word for word in words if word not in ("-f", "--follow")]
    with tempfile.TemporaryDirectory() as folder:
        ruin(Path(folder), wreck)
        before = os.getcwd()
        os.chdir(folder)
        try:
            importlib.reload(sys.modules["noclobber.cli.terminal"])  # Nothing may depend on an earlier call.
            code = main([command, *words])
        finally:
            os.chdir(before)
    assert code in (0, 1, 2, 3), (command, words, wreck)


def ruin(folder: Path, how: str) -> None:
    """Make a workspace that is broken in one way."""
    state = folder / ".noclobber"
    if how == "link":
        state.symlink_to("/nonexistent")
        return
    if how == "garbage":
        state.write_bytes(b"\0\xff")
        return
    if how == "config":
        (folder / "noclobber.toml").write_bytes(b"\xff = [")
        return
    state.mkdir()
    if how == "ledger":
        (state / "agent_trace.jsonl").write_bytes(
            b'{"seq":1\n[]\n\0\0\nnull\n{"payload":3,"time":[]}\n\xff\n'
        )
    elif how == "folder":
        (state / "agent_trace.jsonl").mkdir()
        (state / "turns").write_text("not a folder")
        (state / "notes").write_text("not a folder")
    elif how == "boards":
        for part in ("turns", "notes", "swap", "kept"):
            (state / part).mkdir()
        (state / "turns" / "a").write_bytes(b"[1,2]" + b"\0" * 3000)
        (state / "turns" / "b").write_bytes(b'["x",null,"h","b","n"]'.ljust(2048, b"\0") + b"[1]")
        os.mkfifo(state / "turns" / "c")
        (state / "notes" / "zz").write_bytes(b"P" * 100)
        (state / "notes" / "1-2").write_bytes(b"S{".ljust(4096, b"\xff"))
        (state / "kept" / f"kept-00-{'0' * 64}~\x1b[2J").write_bytes(b"x")
        os.mkfifo(state / "swap" / f"swap-00-{'0' * 64}~pipe")


@pytest.mark.parametrize(
    "wreck", ["nothing", "empty", "ledger", "folder", "garbage", "config", "link", "boards"]
)
@pytest.mark.broken_ledger
def test_every_command_survives_a_broken_workspace_in_its_own_process(wreck: str, root: Path) -> None:
    """N-cli: the same with real processes, stderr included."""
    commands = [
        ["status"],
        ["watch", "--changes", "1"],
        ["doctor", "--no-repair"],
        ["doctor"],
        ["config", "show"],
        ["ledger", "show"],
        ["ledger", "tail"],
        ["ledger", "verify"],
        ["ledger", "export", "--format", "otlp"],
        ["diff", "a.md"],
        ["lock", "list"],
    ]
    for words in commands:
        shutil.rmtree(root)
        root.mkdir()
        ruin(root, wreck)
        done = run(*words, cwd=root)
        assert done.code in (0, 1, 3), (words, done)
        assert "Traceback" not in done.err, (words, done.err)
        assert "internal error" not in done.err, (words, done.err)


def test_a_bug_of_ours_is_called_one_and_shown_on_demand(root: Path) -> None:
    """N-cli: NOCLOBBER_DEBUG=1 is the only way to a traceback."""
    code = (
        "import sys; from noclobber import cli; from noclobber.cli import status\n"
        "def broken(*_, **__): raise RuntimeError('boom')\n"
        "status.read_state = broken\n"
        "sys.exit(cli.main(['status']))"
    )
    from tests.rigs.commands import python

    done = python(code, cwd=root)
    assert done.code == 3
    assert "internal error: RuntimeError: boom" in done.err
    assert "Traceback" not in done.err
    assert "Traceback" in python(code, cwd=root, NOCLOBBER_DEBUG="1").err
