"""
`noclobber run -- COMMAND …`: run a command as one transaction.

The command sees the project as it is, and its own changes. When it has ended they land all together, if
nobody else has touched those files meanwhile; otherwise none of them does, and the exit code is 75.
docs/shell.md is the contract.

It starts light: argparse alone takes as long as everything else here. The rest is loaded while the command
runs, and only if it writes.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from noclobber.core.values import Recovered, WriteResult
    from noclobber.guard.command_turn import CommandTurn, SeenOf
    from noclobber.shell.process import Ended
    from noclobber.shell.runs import RunFolder
    from noclobber.shell.watched import WatchedChange

EXIT_USAGE, EXIT_UNAVAILABLE, EXIT_REFUSED = 2, 69, 75
EXAMPLES = """\
examples:
  noclobber run -- sed -i s/old/new/ src/*.py   all of the files, or none
  noclobber run -- sh -c 'make format && git commit -am format'
  noclobber run --expect plan.md=SHA256 -- ./update plan.md
  noclobber run list                            refused commands that are kept
  noclobber run diff ID                         what one of them would have changed
  noclobber run rerun ID

exit codes: the command's own; 75 refused, nothing landed; 69 not available here (with --require)
"""
SHELLS = ("sh", "bash", "zsh", "dash", "ksh")
LANDING = (
    *("core.options", "core.values", "disk.paths", "disk.ordering", "disk.commit.note_keys"),
    *("disk.commit.journal", "disk.leases", "disk.commit.departed", "disk.metadata", "disk.renames"),
    *(
        "disk.commit.store",
        "disk.commit.sweep",
        "disk.commit.restore",
        "disk.mappings",
        "disk.commit.flushing",
    ),
    *("disk.commit.reuse", "disk.hashing_thread", "disk.processes", "disk.commit.swap", "disk.signals"),
    *("disk.commit.found_files", "disk.commit.displaced_copy", "disk.commit.inplace_recovery"),
    *("disk.commit.open_stores", "disk.commit.recovery", "disk.commit.section", "disk.commit.inplace"),
    *("disk.commit.committer", "disk.commit.remove", "disk.commit.many_files", "disk.commit.tree_files"),
    *("disk.commit.trees", "disk.file_guard", "disk.versions", "disk.version_keeper", "guard.claims"),
    *("guard.fence", "guard.recording", "guard.snapshot", "ledger.line", "ledger.open_file", "ledger.ledger"),
    *("guard.command_turn", "core.actions", "guard.facts", "shell.changes", "guard.git.rule", "guard.judge"),
    *("guard.landing", "guard.commands"),
)
"""What a landing loads, the parts before what is made of them."""
KEPT = ("list", "show", "diff", "rerun", "drop")
VALUES = (
    "--root",
    "--agent",
    "--session",
    "--turn",
    "--call",
    "--host",
    "--expect",
    "--expect-file",
    "--report",
)


def add_arguments(parser: ArgumentParser) -> None:
    """Describe the command line, for `--help` and for completion. `main()` reads it."""
    parser.usage = (
        "noclobber run [options] -- COMMAND …\n"
        "       noclobber run list | show ID | diff ID | rerun ID | drop ID"
    )
    parser.add_argument("--root", metavar="FOLDER", help="the project; without it, found from here")
    parser.add_argument("--agent", metavar="NAME", help="who runs it, for the record")
    parser.add_argument("--session", metavar="ID", help="the agent's session")
    parser.add_argument("--turn", metavar="ID", help="the agent's turn")
    parser.add_argument("--call", metavar="ID", help="the tool call")
    parser.add_argument("--host", metavar="NAME", help="the coding agent's program")
    parser.add_argument(
        "--expect",
        metavar="FILE=HASH",
        action="append",
        help="what a file holds if the agent knows it: a SHA-256, or ABSENT",
    )
    parser.add_argument(
        "--expect-file", metavar="FILE", help="the same for many: a JSON object, path to hash"
    )
    parser.add_argument("--report", metavar="FILE", help="write what became of it there, as JSON")
    parser.add_argument("--require", action="store_true", help="exit with 69 where there is no private view")
    parser.add_argument(
        "--json",
        action="store_true",
        help="answer in JSON; with a command: print only a refusal, if there is one",
    )
    parser.add_argument("command", nargs="*", metavar="COMMAND")


def run(args: Namespace) -> int:
    """Not used: `cli` calls `main()` with the words as they are."""
    raise NotImplementedError


class UsageError(Exception):
    """The command line is wrong."""


class Asked:
    """What the command line says."""

    def __init__(self) -> None:
        self.root = self.agent = self.session = self.turn = self.call = self.host = ""
        self.expect_file = self.report = ""
        self.text = ""
        """The command as the agent wrote it, if `argv` has more around it."""
        self.expect: dict[str, str] = {}
        self.require = self.as_json = False
        self.is_merging: bool | None = None
        """True if the project merges; None if nobody has looked yet."""
        self.seen_of: SeenOf | None = None
        self.died_of = 0
        """The signal that ended the command."""
        self.argv: list[str] = []


def main(words: Sequence[str]) -> int:
    """Run a command, or look at one that was refused; return the exit code."""
    if words and words[0] in ("--help", "-h"):
        from noclobber.cli import parser_of

        parser_of("run").print_help()
        return 0
    try:
        asked = _asked(list(words))
    except UsageError as error:
        from noclobber.errors import BadRequestError

        raise BadRequestError("", f"run: {error}") from None
    if not isinstance(asked, Asked):
        from noclobber.cli.kept_runs import look

        return look(*asked)
    return guarded(asked)


def _asked(words: list[str]) -> Asked | tuple[str, list[str], Asked]:
    asked = Asked()
    while words and words[0].startswith("-") and words[0] != "--":
        word, *words = words
        name, equals, value = word.partition("=")
        if word == "--require":
            asked.require = True
        elif word == "--json":
            asked.as_json = True
        elif name in VALUES:
            if not equals:
                if not words:
                    raise UsageError(f"{name} needs a value")
                value, *words = words
            if name == "--expect":
                path, equals, sha256 = value.rpartition("=")
                if not equals or not path:
                    raise UsageError(f"--expect needs FILE=HASH, not {value!r}")
                asked.expect[path] = sha256
            else:
                setattr(asked, name[2:].replace("-", "_"), value)
        else:
            raise UsageError(f"there is no option {word}. Write the command after --")
    if words[:1] == ["--"]:
        asked.argv = words[1:]
        if not asked.argv or not asked.argv[0]:
            raise UsageError("write the command to run after --")
        return asked
    if words and words[0] in KEPT:
        rest = words[1:]
        while rest and rest[-1].startswith("--"):
            last = rest.pop()
            if last != "--json":
                raise UsageError(f"there is no option {last}")
            asked.as_json = True
        return words[0], rest, asked
    raise UsageError("write the command to run after --")


def guarded(asked: Asked) -> int:
    """Run a command at the level that there is here: in a private view, or else watched."""
    from noclobber.core.light import own_modules

    own_modules.use()
    from noclobber.core.project import existing_folder, find_project
    from noclobber.errors import NoclobberError

    cwd = os.getcwd()
    try:
        root = existing_folder(asked.root) if asked.root else find_project(cwd)
    except NoclobberError as error:
        print(f"noclobber: run: {error}", file=sys.stderr)
        return EXIT_USAGE
    if asked.expect_file:
        try:
            asked.expect |= _expectations(asked.expect_file)
        except (OSError, ValueError) as error:
            print(f"noclobber: run: --expect-file {asked.expect_file}: {error}", file=sys.stderr)
            return EXIT_USAGE
    from noclobber.shell import runs
    from noclobber.shell.namespace import UnavailableError, is_inside
    from noclobber.shell.roots import why_not

    if os.environ.get(runs.ENVIRONMENT_RUN) and is_inside(root):
        _reported(asked, 0, os.environ[runs.ENVIRONMENT_RUN], level="joined")
        return _plainly(asked.argv)  # Inside a guarded command already: part of it.
    try:
        if (reason := why_not(root) or _why_not_here(root)) is not None:
            raise UnavailableError(reason)
        code = _in_a_view(asked, root, cwd)
    except UnavailableError as error:
        code = _unavailable(asked, root, cwd, str(error))
    if asked.died_of and code == 128 + asked.died_of:
        _die_of(asked.died_of)
    return code


def _why_not_here(root: str) -> str | None:
    """Return why a command's changes could not land; known before it runs."""
    from noclobber.core.project import COORDINATOR

    if not os.environ.get(COORDINATOR):
        return None
    from noclobber.guard.who_commits import why_no_view

    return why_no_view(root)


def _die_of(number: int) -> None:
    """End as the command did: a shell goes on with its loop after an exit code, and not after Ctrl-C."""
    import _signal  # type: ignore[import-not-found]  # `signal` loads `enum`.
    import resource

    sys.stdout.flush()
    sys.stderr.flush()
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if number not in (_signal.SIGKILL, _signal.SIGSTOP):
        _signal.signal(number, _signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _in_a_view(asked: Asked, root: str, cwd: str) -> int:
    """Run a command in a private view and land what it changed. `UnavailableError`: it was not run."""
    from noclobber.shell import process, runs
    from noclobber.shell.namespace import UnavailableError
    from noclobber.shell.starting import Start, start

    _prepare_state(root)
    try:
        if recovered := runs.tidy(root):
            _record_recovered(asked, root, recovered)
        folder = runs.made(root)
    except OSError as error:
        raise UnavailableError(f"{error.strerror}: {error.filename}") from None
    try:
        if asked.expect and _is_merging(asked, root):
            from noclobber.shell.steady import hold

            hold(folder, list(asked.expect), cwd, asked.text or " ".join(asked.argv))
        first_ns = folder.touch()
        environment = runs.environment_of(folder.run_id, os.environ)
        parts = _loaded_for_landing()
        may_pass = _passing(asked, root, cwd)
        begun = start(Start(folder, asked.argv, cwd, environment, first_ns, may_pass), meanwhile=parts)
        if not isinstance(begun, process.CommandProcess):
            print(f"noclobber: run: {asked.argv[0]}: {begun.complaint}", file=sys.stderr)
            return _reported(asked, begun.exit_code, folder.run_id)
        ended = begun.wait(meanwhile=parts)
        asked.died_of = ended.signal
        if ended.left_behind:
            left = ended.left_behind
            told = "one process was ended" if left == 1 else f"{left} processes were ended"
            print(
                f"noclobber: run: {told} that the command had left in the background. Start servers without"
                " noclobber run.",
                file=sys.stderr,
            )
        if folder.has_new_root_mode():
            print(
                "noclobber: run: the permissions of the project's own folder stay as they were.",
                file=sys.stderr,
            )
        if not os.listdir(folder.upper) and not ended.passed:
            return _reported(asked, ended.exit_code, folder.run_id)
        return _land(asked, folder, cwd, ended)
    finally:
        if not folder.is_refused:
            folder.remove()
        folder.close()


def _record_recovered(asked: Asked, root: str, recovered: Sequence[Recovered]) -> None:
    """Put on record how the landing of a killed command ended."""
    from noclobber.errors import NoclobberError
    from noclobber.guard.command_turn import CommandTurn
    from noclobber.guard.commands import TOOL

    try:
        with CommandTurn(root, **_identity(asked)) as turn:
            turn.recorder.recovered(turn.tool_call(TOOL, {"command": asked.argv}), recovered)
    except NoclobberError as error:
        print(f"noclobber: run: what was recovered is not on record: {error}", file=sys.stderr)


def _is_merging(asked: Asked, root: str) -> bool:
    """True if the project merges stale writes. Only then is it worth knowing what the command reads."""
    if asked.is_merging is None:
        from noclobber.core.options import load_options
        from noclobber.errors import NoclobberError

        try:
            asked.is_merging = load_options(root).on_stale == "merge"
        except NoclobberError:
            return False  # The landing says so.
    return asked.is_merging


def _expectations(path: str) -> dict[str, str]:
    from noclobber.core.light.json_text import parse

    with open(path, "rb") as file:
        found = parse(file.read())
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise ValueError("it must be a JSON object, each member a path and its hash")
    return found


def _reported(
    asked: Asked,
    exit_code: int,
    run_id: str = "",
    *,
    level: str = "guarded",
    landed: Sequence[WriteResult] = (),
    rows: Sequence[WatchedChange] = (),
    refused: object = None,
) -> int:
    """Write the report, if one is wanted; return the exit code."""
    if not asked.report:
        return exit_code
    from noclobber.core.light.json_text import spell_for_any_reader

    found = [(done.path, done.previous_sha256, done.sha256) for done in landed]
    found += [(change.path, change.before, change.after) for change in rows]
    report = {
        "level": level,
        "run_id": run_id,
        "exit_code": exit_code,
        "refused": refused,
        "landed": [["ABSENT" if word == "DELETED" else word for word in row] for row in found],
        "merged": {done.path: done.merged.base_sha256 for done in landed if done.merged is not None},
    }
    try:
        with open(f"{asked.report}.new", "w", encoding="utf-8") as file:
            file.write(spell_for_any_reader(report))
        os.rename(f"{asked.report}.new", asked.report)
    except OSError as error:
        print(f"noclobber: run: the report could not be written: {error}", file=sys.stderr)
    return exit_code


def _passing(asked: Asked, root: str, cwd: str) -> Callable[[str, int], bool]:
    """Return what is asked about large files that the command opens for writing."""
    turns: list[CommandTurn] = []

    def may_pass(path: str, size: int) -> bool:
        from noclobber.errors import NoclobberError
        from noclobber.guard.command_turn import CommandTurn
        from noclobber.guard.commands import canonical
        from noclobber.guard.passing import may_pass

        try:
            if not turns:
                turns.append(CommandTurn(root, **_identity(asked)))
            return may_pass(turns[0], path, size, {canonical(cwd, name) for name in asked.expect})
        except (NoclobberError, OSError, ValueError):
            return False  # The landing says what is wrong.

    return may_pass


def _loaded_for_landing() -> Iterator[None]:
    """Load what a landing needs, in small parts: in between, the command may need an answer."""
    from noclobber.disk.hashing import start_light

    yield
    start_light()
    for name in LANDING:
        __import__(f"noclobber.{name}")
        yield


def _land(asked: Asked, folder: RunFolder, cwd: str, ended: Ended) -> int:
    from noclobber.errors import NoclobberError
    from noclobber.guard.command_turn import CommandTurn
    from noclobber.guard.commands import TOOL, conclude, refused_note

    try:
        with CommandTurn(folder.root, **_identity(asked), seen_of=asked.seen_of) as turn:
            call = turn.tool_call(TOOL, {"command": asked.argv}, call_id=asked.call or None)
            landed = conclude(
                turn, call, folder, asked.argv, cwd, ended, asked.expect, text=_text(asked), is_last=True
            )
    except NoclobberError as error:
        _tell_refused(folder, error, as_json=asked.as_json)
        note = refused_note(error)
        return _reported(asked, EXIT_REFUSED, folder.run_id, refused=note["error"])
    _tell_merged(landed)
    return _reported(asked, ended.exit_code, folder.run_id, landed=landed)


def _text(asked: Asked) -> str:
    """Return the command as its agent wrote it for a shell, empty if it is not one for a shell."""
    is_shell = len(asked.argv) == 3 and asked.argv[1] == "-c" and asked.argv[0].rpartition("/")[2] in SHELLS
    return asked.text or (asked.argv[2] if is_shell else "")


def _tell_merged(landed: Sequence[WriteResult]) -> None:
    """Say which files were merged with what others changed meanwhile, and how those had changed them."""
    for done in landed:
        if done.merged is not None:
            from noclobber.text.short_diff import bounded
            from noclobber.text.visible import visible

            print(
                f"noclobber: run: {visible(done.path)} was changed by {done.merged.by or 'an outsider'} while"
                " the command ran. Both changes are in the file. What they changed:\n"
                f"{bounded(done.merged.changes)}",
                file=sys.stderr,
            )


def _identity(asked: Asked) -> dict[str, Any]:
    return {
        "agent_id": asked.agent or os.environ.get("NOCLOBBER_AGENT") or "shell",
        "session_id": asked.session or None,
        "turn_id": asked.turn or None,
        "host": asked.host or None,
    }


def _tell_errors(error: Any, *, as_json: bool = False) -> None:
    """Print the object for the model alone on its line, on stdout with `--json`; then every other file."""
    from noclobber.core.wire import to_json
    from noclobber.guard.commands import others
    from noclobber.text.visible import visible

    try:
        print(to_json(error), file=sys.stdout if as_json else sys.stderr)
    except TypeError:
        print(f"noclobber: run: {error}", file=sys.stderr)
    for other in others(error):
        print(to_json(other), file=sys.stderr)
    for one in (error, *others(error)):
        reason = getattr(one, "not_merged", None)
        if reason:
            print(f"noclobber: run: {visible(one.path)}: It was not merged: {reason}", file=sys.stderr)


def _tell_refused(folder: RunFolder, error: Any, *, as_json: bool = False) -> None:
    """Print what was refused, and what to do."""
    _tell_errors(error, as_json=as_json)
    if folder.is_refused:
        print(
            f"noclobber: run: nothing of this command landed. `noclobber run diff {folder.run_id}` shows"
            " what it would have changed.",
            file=sys.stderr,
        )


def _prepare_state(root: str) -> None:
    """Make the state folder, once in the life of a project."""
    from noclobber.core.project import STATE_FOLDER

    if os.path.lexists(f"{root}/{STATE_FOLDER}"):
        return
    from noclobber.guard.workspace import Workspace

    with Workspace(root) as workspace:
        workspace.recorder.prepare()


def _unavailable(asked: Asked, root: str, cwd: str, reason: str) -> int:
    """Run a command watched, or plainly where nothing can be recorded, or not at all with `--require`."""
    if asked.require:
        print(f"noclobber: run: there is no guarded shell here: {reason}.", file=sys.stderr)
        return EXIT_UNAVAILABLE
    from noclobber.guard.watched_commands import text_of
    from noclobber.guard.who_commits import why_no_command
    from noclobber.shell.roots import why_no_record

    if (refusal := why_no_command(root, asked.text or text_of(asked.argv))) is not None:
        print(f"noclobber: run: the command was not run: {refusal}.", file=sys.stderr)
        return _reported(asked, EXIT_UNAVAILABLE, level="plain")
    is_watched = why_no_record(root) is None
    how = "the command is only watched" if is_watched else "running the command unguarded"
    print(f"noclobber: run: there is no guarded shell here ({reason}); {how}.", file=sys.stderr)
    if is_watched:
        return _watched(asked, root, cwd)
    _reported(asked, 0, level="plain")
    return _plainly(asked.argv)


def _watched(asked: Asked, root: str, cwd: str) -> int:
    """Run a command in the real tree, and look before it and after it."""
    from noclobber.errors import NoclobberError
    from noclobber.guard import watched_commands as commands
    from noclobber.guard.commands import TOOL, refused_note
    from noclobber.guard.workspace import Workspace
    from noclobber.shell.plain_process import PlainProcess, start_plainly
    from noclobber.shell.watched import LEVEL

    text = asked.text or commands.text_of(asked.argv)
    with Workspace(root) as workspace, workspace.turn(**_identity(asked)) as turn:
        call = turn.tool_call(TOOL, {"command": asked.argv}, call_id=asked.call or None)
        try:
            start = commands.begin(turn, call, text, cwd=cwd, expect=asked.expect)
        except NoclobberError as error:
            _tell_errors(error, as_json=asked.as_json)
            print("noclobber: run: the command was not run.", file=sys.stderr)
            return _reported(asked, EXIT_REFUSED, level=LEVEL, refused=refused_note(error)["error"])
        sys.stdout.flush()
        sys.stderr.flush()
        begun = start_plainly(asked.argv)
        ended = begun.wait() if isinstance(begun, PlainProcess) else begun
        asked.died_of = ended.signal
        if ended.complaint:
            print(f"noclobber: run: {asked.argv[0]}: {ended.complaint}", file=sys.stderr)
            return _reported(asked, ended.exit_code, level=LEVEL)
        try:
            done = commands.end(turn, call, start)
        except NoclobberError as error:  # It has run: its exit code stands, and what is missing is said.
            print(f"noclobber: run: what the command changed is not on record: {error}", file=sys.stderr)
            return _reported(asked, ended.exit_code, level=LEVEL)
        for overwritten in done.overwritten:
            _tell_errors(overwritten)
        return _reported(asked, ended.exit_code, level=LEVEL, rows=done.files)


def _plainly(argv: list[str]) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - running it is what was asked for
    except FileNotFoundError:
        print(f"noclobber: run: {argv[0]}: command not found", file=sys.stderr)
        return 127
    except OSError as error:
        print(f"noclobber: run: {argv[0]}: {error.strerror}", file=sys.stderr)
        return 126
