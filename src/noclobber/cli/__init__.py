"""
The command line: a table of commands, each in a module of its own that is imported when it is called.

A command module has `add_arguments(parser)` and `run(args) -> int`, the exit code, and as a rule `EXAMPLES`,
which its `--help` ends with. An error becomes one line on stderr and a documented exit code; a traceback
never reaches the user.

With `--json` stdout has exactly one JSON document, and nothing else: the answer, or the error as an object.
With `--jsonl`, which commands have whose answer is a list that may be long or has no end, it has one a line.
`cli/schemas` has a schema for each command's document. The output of a program that a command runs (`run`,
`lock run`) goes to stderr then: mixed with the document, nobody could tell them apart.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | the answer is no: unhealthy, broken chain, changed, not locked |
| 2 | the command was called wrongly |
| 3 | refused: stale, busy, outside the workspace, and so on |
| 75 | `lock`: locked by somebody else, try again later; `run`: refused, nothing landed |
| 130 | interrupted |

`noclobber --help` is written without argparse, which alone takes as long to import as Python takes to start.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import ArgumentParser

EXIT_OK, EXIT_NO, EXIT_USAGE, EXIT_REFUSED, EXIT_CONTENTION, EXIT_INTERRUPTED = 0, 1, 2, 3, 75, 130

SUMMARY = "Keep files safe when several AI agents and people write to them at the same time."

COMMANDS = {
    # name: (module below this package, one line for --help)
    "demo": ("demo", "show it at work on a scratch folder, with real processes, in half a minute"),
    "status": ("status", "open turns, claims, locks, recent refusals and kept files of a workspace"),
    "watch": ("watch", "what `view` shows, live in the terminal"),
    "view": ("view", "a live page of the project in a browser, on this machine only"),
    "diff": ("diff", "what changed in a file since an agent read or wrote it"),
    "versions": ("versions", "past versions of files: list, show, restore, prune"),
    "write": ("write", "a guarded write for scripts: stdin replaces the file, if it has the expected hash"),
    "hash": ("hash", "the SHA-256 of files, for `write --expect`"),
    "kept": ("kept", "versions kept aside for a person: list, show, restore, drop"),
    "run": ("run", "run a command as one transaction: its changes land all together, or not at all"),
    "undo": ("undo", "undo what one agent, session, turn or call wrote, and nothing else"),
    "blame": ("blame", "which agent, or who else, each line of a file comes from"),
    "commit": ("commit", "make a git commit of exactly what one agent or session wrote"),
    "ledger": ("ledger", "the record of writes and refusals: show, tail, verify, export"),
    "doctor": ("doctor", "what this filesystem can promise, and what a crash left behind"),
    "mcp": ("mcp", "guarded file tools for any MCP client, on stdio or loopback HTTP"),
    "install": ("install", "protect this project: install hooks for coding agents"),
    "trust": ("trust", "let options of a project count that weaken the guard, after a look at them"),
    "start": ("start", "start a coding agent so that its shell commands run guarded"),
    "hook": ("hook", "answer one event of a coding agent (called by the hooks that `install` sets up)"),
    "lock": ("lock", "one task agent at a time in a deliverable folder, with leases that cannot get stuck"),
    "coordinator": ("coordinator", "the PostgreSQL server that several machines share: init, status, doctor"),
    "config": ("config", "the options in force, and where each comes from"),
    "completion": ("completion", "print a completion script for bash, zsh or fish"),
}

# Every other refusal is EXIT_REFUSED.
_EXIT_BY_CODE = {"LOCK_CONTENTION": EXIT_CONTENTION, "BAD_REQUEST": EXIT_USAGE}

NOWHERE = "the folder that you are in no longer exists. Go to another one."

_WIDE_ENOUGH = 60  # For the summaries of commands to be beside their names.
HELP_WORDS = ("--help", "-h", "help")
OPTIONS = ("--help", "--version", "--json")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if argv is None and "_ARGCOMPLETE" in os.environ:
        from noclobber.cli import completion

        completion.answer()
    if argv is None and words[:2] == ["run", "--"]:
        _run_quickly(words[1:])
    from noclobber.cli import clean_output

    _print_undecodable_names()
    before = clean_output.install()
    try:
        return _ended(words)
    finally:
        sys.stdout, sys.stderr = before


def _run_quickly(words: list[str]) -> None:
    """Run a guarded command, and leave without the interpreter's own shutdown. Never returns."""
    import gc

    gc.disable()  # Nothing could be freed before the end.
    from noclobber.cli import clean_output

    _print_undecodable_names()
    clean_output.install()
    code = _ended(["run", *words])
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass
    os._exit(code)


def _ended(words: list[str]) -> int:
    try:
        code = _run(words)
        sys.stdout.flush()  # Now, while a full disk can still be reported as an error.
        return code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _discard_stdout()  # The reader has gone (`| head`).
        return EXIT_OK
    except SystemExit as ended:  # `--help` was shown.
        return ended.code if isinstance(ended.code, int) else EXIT_USAGE
    except Exception as error:
        return _explain(error, as_json=_wants_json(words))


def _wants_json(words: list[str]) -> bool:
    """True if the answer is for a program; what follows `--` is another program's."""
    own = words[: words.index("--")] if "--" in words else words
    return "--json" in own or "--jsonl" in own


def _run(words: list[str]) -> int:
    name = words[0] if words else None
    if name == "run":  # Starts light, and what follows `--` is not ours to parse.
        from noclobber.cli import run

        return run.main(words[1:])
    if name in COMMANDS:
        args = parser_of(name).parse_args(words[1:])
        return int(args.run(args))
    if name is None or words == ["--json"]:
        from noclobber.cli import first_look

        return first_look.run(words)
    if name in HELP_WORDS:
        if len(words) > 1 and words[1] in COMMANDS:
            return _run([words[1], "--help"])
        sys.stdout.write(help_page(_columns()))
        return EXIT_OK
    if name in ("--version", "-V"):
        from noclobber import __version__

        print(f"noclobber {__version__}")
        return EXIT_OK
    raise _unknown(name)


def _unknown(name: str) -> Exception:
    from difflib import get_close_matches

    from noclobber.cli.parsing import WrongCallError

    kind = "option" if name.startswith("-") else "command"
    near = get_close_matches(name, OPTIONS if kind == "option" else COMMANDS, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else "`noclobber --help` lists the commands."
    if name == "uninstall":
        hint = "Use `noclobber install HOST --uninstall`."
    return WrongCallError("noclobber", "", f"there is no {kind} {name!r}. {hint}")


def _columns() -> int:
    """Return how wide the terminal is that a person looks at; 0 if there is none."""
    from noclobber.cli import clean_output

    if not clean_output.is_shown_to_a_person(sys.stdout):
        return 0
    from noclobber.cli.terminal import columns_wide

    return columns_wide()


def help_page(columns: int = 0) -> str:
    """Return what `noclobber --help` shows: folded to so many columns, or as it is."""
    width = max(len(name) for name in COMMANDS)
    page = _help_page("".join(f"  {name:<{width}}  {summary}\n" for name, (_, summary) in COMMANDS.items()))
    if not columns or all(len(line) <= columns for line in page.split("\n")):
        return page
    from noclobber.text.visible import fold

    left = width + 4 if columns >= _WIDE_ENOUGH else 6
    lines = []
    for name, (_, summary) in COMMANDS.items():
        first, *more = fold(summary, columns - left).split("\n")
        lines += [f"  {name:<{width}}  {first}"] if left > 6 else [f"  {name}", f"      {first}"]
        lines += [" " * left + line for line in more]
    return fold(_help_page("\n".join([*lines, ""])), columns)


def _help_page(commands: str) -> str:
    return (
        f"usage: noclobber COMMAND [...]\n\n{SUMMARY}\n\ncommands:\n{commands}\n"
        "options:\n  -h, --help     show this page; `noclobber COMMAND --help` shows a command's\n"
        "  -V, --version  show the version\n\n"
        "Without a command it says what it sees here, and the next step.\n\n"
        "examples:\n"
        "  noclobber demo              see it at work\n"
        "  noclobber status            what goes on here, and what was refused\n"
        "  noclobber doctor            is this folder safe to work in?\n\n"
        "exit codes: 0 done, 1 the answer is no, 2 called wrongly, 3 refused, 130 interrupted,\n"
        "75 try again: locked by somebody else (`lock`), or refused and nothing landed (`run`)\n"
    )


def parser_of(name: str) -> ArgumentParser:
    """Return the parser of one command. Only that command's module is imported."""
    from noclobber.cli.parsing import CommandParser

    parser = CommandParser(prog=f"noclobber {name}")
    fill(parser, name)
    return parser


def fill(parser: ArgumentParser, name: str) -> None:
    """Declare what a command takes."""
    from importlib import import_module

    module_name, summary = COMMANDS[name]
    module = import_module(f"noclobber.cli.{module_name}")
    parser.description = f"{summary[0].upper()}{summary[1:]}."
    parser.epilog = getattr(module, "EXAMPLES", None)
    module.add_arguments(parser)
    parser.set_defaults(run=module.run)


def _print_undecodable_names() -> None:
    """Make printing a path that is not valid text succeed."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # Closed (`>&-`). The next open() must not get its number.
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - for as long as we run
        elif hasattr(stream, "reconfigure"):  # Tests replace it.
            stream.reconfigure(errors="backslashreplace")


def _discard_stdout() -> None:
    # Otherwise Python flushes it at exit and prints the error again.
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):
        pass


def _explain(error: Exception, *, as_json: bool) -> int:
    from noclobber.cli.parsing import WrongCallError
    from noclobber.cli.terminal import visible
    from noclobber.errors import NoclobberError

    if isinstance(error, WrongCallError):
        if as_json:
            _print_object("BAD_REQUEST", error.message, "CHANGE_REQUEST")
        elif error.usage:
            _print_error(f"{error.usage}{error.program}: error: {error.message}", prefix="")
        else:
            _print_error(error.message)
        return EXIT_USAGE
    if isinstance(error, NoclobberError):
        if as_json:
            _print_ours(error)
        else:
            _print_error(visible(str(error)))
        return _EXIT_BY_CODE.get(error.code, EXIT_REFUSED)
    if isinstance(error, OSError):
        told = NOWHERE if isinstance(error, FileNotFoundError) and _is_nowhere() else str(error)
        if as_json:
            _print_object("STORAGE_FAILED", told or "a system call failed", "ASK_A_PERSON")
        _print_error(visible(told))
        _discard_stdout()  # It may be what failed: `>` to a full disk.
        return EXIT_REFUSED
    if os.environ.get("NOCLOBBER_DEBUG"):
        import traceback

        traceback.print_exception(error, file=sys.stderr)  # Raised, it would go round `clean_output`.
        return EXIT_REFUSED
    told = f"internal error: {type(error).__name__}: {error}"
    if as_json:
        _print_object("NOCLOBBER_ERROR", told, "ASK_A_PERSON")
    _print_error(
        f"{told}\nThis is a bug in noclobber. Run again with NOCLOBBER_DEBUG=1 and report what it prints."
    )
    return EXIT_REFUSED


def _is_nowhere() -> bool:
    """True if the folder that we were started in has been removed."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _print_ours(error: Exception) -> None:
    """Print an error of ours as the object that it has for programs."""
    from noclobber.core.wire import to_object
    from noclobber.errors import NoclobberError

    assert isinstance(error, NoclobberError)
    try:
        _print_document(to_object(error))
    except TypeError:  # It is no refusal: a fact about the caller, or about what was to be done.
        resolution = getattr(error, "resolution", None) or "ASK_A_PERSON"
        _print_object(error.code, str(error), resolution, str(getattr(error, "path", "") or ""))


def _print_object(kind: str, message: str, resolution: str, path: str = "") -> None:
    """Print an error in the shape that every refusal has."""
    about = {"error_type": kind, "file_path": path, "message": message or kind, "resolution": resolution}
    _print_document({**about, "details": {}})


def _print_document(value: object) -> None:
    from noclobber.cli import clean_output
    from noclobber.core.json_text import spell_for_any_reader

    try:
        print(spell_for_any_reader(value), file=clean_output.data_out(), flush=True)
    except (OSError, ValueError):
        pass  # The exit code still says it.


def _print_error(text: str, prefix: str = "noclobber: ") -> None:
    from noclobber.cli.terminal import say

    try:
        say(f"{prefix}{text}", sys.stderr)
    except OSError:
        pass  # The exit code still says it.
