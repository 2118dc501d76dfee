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
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from noclobber.core.options import Options
    from noclobber.core.values import Recovered, WriteResult
    from noclobber.errors import NoclobberError
    from noclobber.guard.command_turn import CommandTurn
    from noclobber.guard.memory import Memory
    from noclobber.hook.guarded_calls import GuardedCall
    from noclobber.hook.session_memory import SessionMemory
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
MOST_TOLD = 20
_DAMAGED = (ValueError, TypeError, KeyError, AttributeError)
_HEX = frozenset("0123456789abcdef")
SHELLS = ("sh", "bash", "zsh", "dash", "ksh")
LANDING = (
    # Small ones first, which do not need `errors`: they are loaded while the view is made, and whoever makes
    # it waits for the end of a part.
    *("disk.steps", "guard.replaced_paths", "disk.after_fork", "lock.names", "disk.c_library"),
    *("core.clock", "disk.mutex", "ledger.chosen", "core.actions", "disk.renames", "disk.filesystems"),
    *("disk.volume_mutex", "lock.locked_folder", "core.json_text", "disk.ordering", "disk.leases"),
    *(
        "disk.commit.departed",
        "disk.signals",
        "shell.origins",
        "shell.changes",
        "guard.git.rule",
        "shell.git_locks",
    ),
    *("core.switches", "core.values", "disk.mappings", "disk.processes", "disk.hashing_thread"),
    *("errors", "core.options", "disk.system_errors", "disk.paths", "disk.reading", "disk.commit.note_keys"),
    *("disk.commit.journal", "disk.metadata", "disk.commit.store", "disk.commit.sweep"),
    *("disk.commit.restore", "disk.commit.flushing", "disk.commit.reuse", "disk.commit.link_appeared"),
    *("disk.commit.swap", "disk.commit.prints", "disk.commit.found_files", "disk.commit.displaced_copy"),
    *("disk.commit.inplace_recovery", "disk.apart", "disk.commit.open_stores", "disk.commit.move_recovery"),
    *("disk.commit.recovery", "disk.commit.open_files", "disk.commit.section", "disk.commit.inplace"),
    *("disk.commit.committer", "disk.commit.staged_things"),
    *("disk.commit.rows", "disk.commit.change_set", "disk.file_guard", "disk.versions", "disk.ignored"),
    *("disk.version_keeper", "guard.claims", "guard.fence", "guard.recording", "guard.snapshot"),
    *("ledger.line", "ledger.open_file", "ledger.tail", "ledger.ledger", "guard.who_commits"),
    *(
        "guard.memory",
        "guard.command_turn",
        "text.encoding",
        "guard.facts",
        "guard.judge",
        "guard.policies",
        "guard.landing",
    ),
    *("guard.commands", "shell.early_flush"),
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
        help="print what became of it as one JSON document; a command's own output goes to stderr then",
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
        self.seen: dict[str, Any] = {}
        """When a command is run again: what its agent had seen then, packed, by path."""
        self.parent_agent: str | None = None
        """The agent whose knowledge counts for files that a subagent has not seen itself."""
        self.guarded_call: GuardedCall | None = None
        """The call of a host's that this is: its hook waits to hear of it."""
        self.died_of = 0
        """The signal that ended the command."""
        self.was_run = True
        """False if the command did not begin."""
        self.answer: dict[str, Any] = {}
        """What `--json` prints: the report, or the object of what was refused."""
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
                if not can_be_hash(sha256):
                    raise UsageError(f"--expect {path}: a hash has 64 lower-case hex digits, or is ABSENT")
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
        for word in words[1:]:
            if word.startswith("--") and word != "--json":
                raise UsageError(f"there is no option {word}")
        asked.as_json = asked.as_json or "--json" in words
        return words[0], [word for word in words[1:] if word != "--json"], asked
    raise UsageError("write the command to run after --")


def guarded(asked: Asked) -> int:
    """Run a command at the level that there is here, and say what became of it."""
    if asked.as_json:
        from noclobber.cli.run_document import answered, print_answer

        code, answer = answered(asked)
        try:
            print_answer(answer)
        except BrokenPipeError:
            _discard(sys.stdout)
    else:
        code = at_best_level(asked)
    if asked.died_of and code == 128 + asked.died_of:
        _die_of(asked.died_of)
    return code


def at_best_level(asked: Asked) -> int:
    """Run a command in a private view, or else watched; return the exit code."""
    from noclobber.core.project import existing_folder, find_project

    cwd = os.getcwd()
    try:
        root = existing_folder(asked.root) if asked.root else find_project(cwd)
    except Exception as error:
        from noclobber.errors import NoclobberError  # Here: it takes a millisecond to load.

        if not isinstance(error, NoclobberError):
            raise
        return _not_run(asked, error, EXIT_USAGE)
    if asked.expect_file:
        try:
            asked.expect |= _expectations(asked.expect_file)
        except (OSError, ValueError) as error:
            from noclobber.errors import BadRequestError

            told = f"--expect-file {asked.expect_file}: {error}"
            return _not_run(asked, BadRequestError("", told), EXIT_USAGE)
    if any(".lock" in word for word in asked.argv):
        from noclobber.guard.commands import refusal_of_reads

        if (refusal := refusal_of_reads(asked.argv, cwd, root)) is not None:
            return _not_run(asked, refusal, EXIT_REFUSED)
    from noclobber.shell import runs
    from noclobber.shell.namespace import UnavailableError, is_inside
    from noclobber.shell.roots import why_not

    if os.environ.get(runs.ENVIRONMENT_RUN) and is_inside(root):
        # Inside a guarded command already: part of it.
        return _plainly(asked, "joined", os.environ[runs.ENVIRONMENT_RUN])
    try:
        if (reason := why_not(root) or _why_not_here(root)) is not None:
            raise UnavailableError(reason)
        return _in_a_view(asked, root, cwd)
    except UnavailableError as error:
        return _unavailable(asked, root, cwd, str(error))


def _not_run(asked: Asked, error: NoclobberError, exit_code: int) -> int:
    """Say why a command was not run; return the exit code."""
    asked.was_run = False
    _came_back(asked)
    if asked.as_json:
        from noclobber.core.wire import to_object

        asked.answer = to_object(error)
    else:
        _say(f"noclobber: run: {error}")
    return exit_code


def _why_not_here(root: str) -> str | None:
    """Return why a command's changes could not land; known before it runs."""
    from noclobber.core.project import COORDINATOR

    if not os.environ.get(COORDINATOR):
        return None
    from noclobber.guard.who_commits import why_no_view

    return why_no_view(root)


def _die_of(number: int) -> None:
    """End as the command did: a shell goes on with its loop after an exit code, and not after Ctrl-C."""
    import resource
    import signal

    sys.stdout.flush()
    sys.stderr.flush()
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _in_a_view(asked: Asked, root: str, cwd: str) -> int:
    """Run a command in a private view and land what it changed. `UnavailableError`: it was not run."""
    from noclobber.shell import runs
    from noclobber.shell.git_folders import has_written
    from noclobber.shell.named_links import named_links
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
        first_ns = folder.touch()
        named = [asked.text] if asked.text else asked.argv
        links = named_links(named, cwd, root)
        environment = runs.environment_of(folder.run_id, os.environ)
        parts = _loaded_for_landing()
        begun = start(Start(folder, asked.argv, cwd, environment, first_ns), meanwhile=parts)
        from noclobber.shell.process import CommandProcess  # Here: loaded by now, while the view was made.

        if not isinstance(begun, CommandProcess):
            asked.was_run = False
            _say(f"noclobber: run: {asked.argv[0]}: {begun.complaint}")
            return _reported(asked, begun.exit_code, folder.run_id)
        # Once more: a link that was put there before the command could begin was not there at the first look.
        links |= named_links(named, cwd, root)
        ended = begun.wait(meanwhile=parts)
        asked.died_of = ended.signal
        if ended.left_behind:
            left = ended.left_behind
            told = "one process was ended" if left == 1 else f"{left} processes were ended"
            _say(
                f"noclobber: run: {told} that the command had left in the background. Start servers without"
                " noclobber run."
            )
        if ended.left_view:
            _say(f"noclobber: run: {ended.left_view}")
        if folder.has_new_root_mode():
            _say("noclobber: run: the permissions of the project's own folder stay as they were.")
        if not ended.replaced and not has_written(folder.path):
            return _reported(asked, ended.exit_code, folder.run_id)
        return _land(asked, folder, cwd, ended, links)
    finally:
        if not folder.is_refused:
            folder.remove()
        folder.close()


def _has_session(asked: Asked) -> bool:
    """True if the command is of an agent whose hooks remember what it saw."""
    if not asked.host or not asked.session:
        return False
    from noclobber.hosts import HOSTS

    return asked.host in HOSTS  # Of others nobody notes what they read, so nobody could free them either.


def _memory(asked: Asked, root: str, options: Options | None = None) -> SessionMemory:
    """Open what the agent of a host's session saw: what its hooks have noted, for its turn or its session."""
    from noclobber.hook.session_memory import SessionMemory

    if options is None:
        from noclobber.hook.settings import options_of

        options = options_of(root)
    return SessionMemory(
        asked.host,
        asked.session,
        _identity(asked)["agent_id"],
        root=root,
        turn_id=asked.turn or None if options.scope == "turn" else None,
        rebaseline=options.rebaseline,
        parent_agent_id=asked.parent_agent,
    )


def _turn(asked: Asked, root: str) -> CommandTurn:
    from noclobber.guard.command_turn import CommandTurn

    if _has_session(asked) and not _is_over(asked, root):
        from noclobber.hook.settings import options_of

        def open_memory(options: Options) -> Memory:
            return _memory(asked, root, options)

        return CommandTurn(root, **_identity(asked), options=options_of(root), open_memory=open_memory)
    turn = CommandTurn(root, **_identity(asked))
    for packed in asked.seen.values():
        try:
            turn.context.unpack(packed)
        except _DAMAGED:
            from noclobber.errors import BadRequestError

            raise BadRequestError("", "What the agent had seen is not known any more.") from None
    return turn


def _is_over(asked: Asked, root: str) -> bool:
    """True if a command is run again whose session has ended: nothing remembers any more what it saw."""
    if not asked.seen:
        return False
    with _memory(asked, root) as memory:
        return memory.is_empty and not memory.is_lost


def drop_what_was_read_since(asked: Asked, cwd: str) -> None:
    """Expect nothing any more of a file that the agent's session has read since the first run."""
    if not _has_session(asked) or not asked.expect or _is_over(asked, asked.root):
        return
    from noclobber.guard.commands import canonical
    from noclobber.guard.snapshot import TurnContext

    with _memory(asked, asked.root) as memory:
        for name in list(asked.expect):
            path = canonical(cwd, name)
            then = TurnContext(asked.root, turn_id="")
            try:
                then.unpack(asked.seen.get(path, {"files": {}, "name": None}))
            except _DAMAGED:
                continue
            last = memory.recall(path, path)[0].last_for(path, path)
            if last is not None and last != then.last_for(path, path):
                del asked.expect[name]


def _record_recovered(asked: Asked, root: str, recovered: Sequence[Recovered]) -> None:
    """Put on record how the landing of a killed command ended."""
    from noclobber.errors import NoclobberError
    from noclobber.guard.commands import TOOL

    try:
        with _turn(asked, root) as turn:
            turn.recorder.recovered(turn.tool_call(TOOL, {"command": asked.argv}), recovered)
    except NoclobberError as error:
        _say(f"noclobber: run: what was recovered is not on record: {error}")


def can_be_hash(text: object) -> bool:
    """Asked before the command runs: what it did elsewhere could not be taken back afterwards."""
    return text == "ABSENT" or (isinstance(text, str) and len(text) == 64 and _HEX.issuperset(text))


def _expectations(path: str) -> dict[str, str]:
    from noclobber.core.json_text import parse

    with open(path, "rb") as file:
        found = parse(file.read())
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise ValueError("it must be a JSON object, each member a path and its hash")
    for name, value in found.items():
        if not can_be_hash(value):
            raise ValueError(f"{name}: a hash has 64 lower-case hex digits, or is ABSENT")
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
    _came_back(asked)
    if not asked.report and not asked.as_json:
        return exit_code
    from noclobber.core.json_text import spell_for_any_reader

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
    if not asked.answer:
        asked.answer = report
    if not asked.report:
        return exit_code
    try:
        with open(f"{asked.report}.new", "w", encoding="utf-8") as file:
            file.write(spell_for_any_reader(report))
        os.rename(f"{asked.report}.new", asked.report)
    except OSError as error:
        _say(f"noclobber: run: the report could not be written: {error}")
    return exit_code


def _came_back(asked: Asked) -> None:
    """Tell the hook that waits for it that what became of the command is known."""
    if asked.guarded_call is not None:
        from noclobber.hook.guarded_calls import report

        call, asked.guarded_call = asked.guarded_call, None
        report(call)


def _loaded_for_landing() -> Iterator[None]:
    """Load what a landing needs, in small parts: in between, the command may need an answer."""
    yield
    for name in LANDING:
        __import__(f"noclobber.{name}")
        yield


def _land(asked: Asked, folder: RunFolder, cwd: str, ended: Ended, links: Collection[tuple[str, str]]) -> int:
    from noclobber.errors import NoclobberError
    from noclobber.guard.commands import TOOL, conclude, refused_note
    from noclobber.shell.changes import unchecked_names
    from noclobber.shell.early_flush import EarlyFlush

    try:
        with (
            _turn_of(asked, folder, cwd, ended) as turn,
            EarlyFlush(folder.upper, unchecked_names(turn.options.unchecked)),
        ):
            call = turn.tool_call(TOOL, {"command": asked.argv}, call_id=asked.call or None)
            text, argv = _text(asked), asked.argv
            landed = conclude(turn, call, folder, argv, cwd, ended, asked.expect, text=text, links=links)
    except NoclobberError as error:
        if error.has_landed:
            _tell_errors(error)
            _say("noclobber: run: the changes of this command have landed. Do not run it again for that.")
            return _reported(asked, ended.exit_code, folder.run_id)
        _tell_refused(asked, folder, error)
        note = refused_note(error)
        return _reported(asked, EXIT_REFUSED, folder.run_id, refused=note["error"])
    _tell_merged(landed)
    if folder.not_landed:
        _tell_not_landed(folder.not_landed)
    return _reported(asked, ended.exit_code, folder.run_id, landed=landed)


def _turn_of(asked: Asked, folder: RunFolder, cwd: str, ended: Ended) -> CommandTurn:
    """Return the turn that lands what a command wrote. Without one (bad options) that is kept, too."""
    from noclobber.errors import NoclobberError

    who = _identity(asked)
    try:
        return _turn(asked, folder.root)
    except NoclobberError as error:
        from noclobber.core.values import ToolCall
        from noclobber.guard.commands import TOOL, keep

        call = ToolCall(TOOL, {}, **who)
        keep(folder, asked.argv, cwd, call, asked.expect, ended, error, text=_text(asked))
        raise


def _text(asked: Asked) -> str:
    """Return the command as its agent wrote it for a shell, empty if it is not one for a shell."""
    is_shell = len(asked.argv) == 3 and asked.argv[1] == "-c" and asked.argv[0].rpartition("/")[2] in SHELLS
    return asked.text or (asked.argv[2] if is_shell else "")


def _tell_merged(landed: Sequence[WriteResult]) -> None:
    """Say which files were merged with what others changed meanwhile, and how those had changed them."""
    for done in landed:
        if done.merged is not None:
            from noclobber.text.diff import bounded
            from noclobber.text.visible import visible

            _say(
                f"noclobber: run: {visible(done.path)} was changed by {done.merged.by or 'an outsider'} while"
                " the command ran. Both changes are in the file. What they changed:"
            )
            _print(bounded(done.merged.changes))


def _tell_not_landed(troubles: Sequence[str]) -> None:
    """Say what of unchecked folders could not be landed. Everything else has."""
    from noclobber.text.visible import visible

    for number, trouble in enumerate(troubles):
        if number == MOST_TOLD:
            _say(f"noclobber: run: and {len(troubles) - number} more.")
            return
        _say(f"noclobber: run: could not be landed: {visible(trouble)}")


def _identity(asked: Asked) -> dict[str, Any]:
    return {
        "agent_id": asked.agent or os.environ.get("NOCLOBBER_AGENT") or "shell",
        "session_id": asked.session or None,
        "turn_id": asked.turn or None,
        "host": asked.host or None,
    }


def _say(text: str) -> None:
    """Print sentences on stderr: folded at words where a person is watching."""
    if not sys.stderr.isatty():
        _print(text)
        return
    from noclobber.cli.terminal import say

    _unless_nobody_listens(lambda: say(text, sys.stderr))


def _print(text: str) -> None:
    """Print a text on stderr as it is."""
    _unless_nobody_listens(lambda: print(text, file=sys.stderr, flush=True))


def _unless_nobody_listens(tell: Callable[[], None]) -> None:
    """
    Say something, if it can be said.

    A reader that has gone (`2>&1 | head`), or a full disk, must change neither what lands nor the exit code.
    """
    try:
        tell()
    except OSError:
        _discard(sys.stderr)


def _discard(stream: Any) -> None:
    """Let a stream lead nowhere. Otherwise Python flushes it at exit, and ends with a code of its own."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), stream.fileno())
    except (OSError, ValueError, AttributeError):
        pass


def _tell_refusal(asked: Asked, error: Any) -> None:
    """Print what was refused: with `--json` the object is the document, and the rest is on stderr."""
    if not asked.as_json:
        return _tell_errors(error)
    from noclobber.cli.run_document import object_of

    asked.answer = object_of(error)
    return _tell_others(error)


def _tell_errors(error: Any) -> None:
    """Print the object for the model alone on its line, then every other file."""
    from noclobber.core.wire import to_json

    try:
        _print(to_json(error))
    except TypeError:
        _say(f"noclobber: run: {error}")
    _tell_others(error)


def _tell_others(error: Any) -> None:
    from noclobber.core.wire import to_json
    from noclobber.guard.commands import others
    from noclobber.text.visible import visible

    for other in others(error):
        _print(to_json(other))
    for one in (error, *others(error)):
        reason = getattr(one, "not_merged", None)
        if reason:
            _say(f"noclobber: run: {visible(one.path)}: It was not merged: {reason}")


def _tell_refused(asked: Asked, folder: RunFolder, error: Any) -> None:
    """Print what was refused, and what to do."""
    _tell_refusal(asked, error)
    if error.beside:
        _say(f"noclobber: run: {error.beside}")
    if _has_session(asked) and error.code in ("STALE_FILE", "UNREAD_FILE", "PARTIAL_READ"):
        from noclobber.hosts import load
        from noclobber.text.visible import visible

        _say(f"noclobber: run: read {visible(error.path)} with {load(asked.host).READ_TOOL} first.")
    if folder.is_refused:
        _say(
            f"noclobber: run: nothing of this command landed. `noclobber run diff {folder.run_id}` shows"
            " what it would have changed."
        )
    elif folder.not_kept:
        from errno import EDQUOT, ENOSPC

        is_full = folder.not_kept in (ENOSPC, EDQUOT)
        _say(
            f"noclobber: run: {'the disk is full' if is_full else os.strerror(folder.not_kept)}: nothing of"
            " this command landed, and nothing of what it wrote could be kept."
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
    from noclobber.errors import ShellUnavailableError

    if asked.require:
        told = f"there is no guarded shell here: {reason}."
        return _not_run(asked, ShellUnavailableError("", told), EXIT_UNAVAILABLE)
    from noclobber.guard.watched_commands import text_of
    from noclobber.guard.who_commits import why_no_command
    from noclobber.shell.roots import why_no_record

    if (refusal := why_no_command(root, asked.text or text_of(asked.argv))) is not None:
        told = f"the command was not run: {refusal}."
        _reported(asked, EXIT_UNAVAILABLE, level="plain")
        return _not_run(asked, ShellUnavailableError("", told), EXIT_UNAVAILABLE)
    is_watched = why_no_record(root) is None
    how = "the command is only watched" if is_watched else "running the command unguarded"
    _say(f"noclobber: run: there is no guarded shell here ({reason}); {how}.")
    if is_watched:
        return _watched(asked, root, cwd)
    return _plainly(asked, "plain")


def _watched(asked: Asked, root: str, cwd: str) -> int:
    """Run a command in the real tree, and look before it and after it."""
    from noclobber.errors import NoclobberError
    from noclobber.guard import watched_commands as commands
    from noclobber.guard.commands import TOOL, refused_note
    from noclobber.shell.plain_process import PlainProcess, start_plainly
    from noclobber.shell.watched import LEVEL

    text = asked.text or commands.text_of(asked.argv)
    _prepare_state(root)
    if _has_session(asked):
        from noclobber.hook.session_notes import note_level

        note_level(asked.host, asked.session, LEVEL)  # From now on the hook looks before and after.
    with _turn(asked, root) as turn:
        call = turn.tool_call(TOOL, {"command": asked.argv}, call_id=asked.call or None)
        try:
            start = commands.begin(turn, call, text, cwd=cwd, expect=asked.expect)
        except NoclobberError as error:
            _tell_refusal(asked, error)
            _say("noclobber: run: the command was not run.")
            return _reported(asked, EXIT_REFUSED, level=LEVEL, refused=refused_note(error)["error"])
        sys.stdout.flush()
        sys.stderr.flush()
        begun = start_plainly(asked.argv)
        ended = begun.wait() if isinstance(begun, PlainProcess) else begun
        asked.died_of = ended.signal
        if ended.complaint:
            asked.was_run = False
            _say(f"noclobber: run: {asked.argv[0]}: {ended.complaint}")
            return _reported(asked, ended.exit_code, level=LEVEL)
        try:
            done = commands.end(turn, call, start)
        except NoclobberError as error:  # It has run: its exit code stands, and what is missing is said.
            _say(f"noclobber: run: what the command changed is not on record: {error}")
            return _reported(asked, ended.exit_code, level=LEVEL)
        for overwritten in done.overwritten:
            _tell_errors(overwritten)
        return _reported(asked, ended.exit_code, level=LEVEL, rows=done.files)


def _plainly(asked: Asked, level: str, run_id: str = "") -> int:
    """Become the command: nothing of it is looked at here. With `--json` wait for it, to say how it ended."""
    sys.stdout.flush()
    sys.stderr.flush()
    if asked.as_json:
        from noclobber.shell.plain_process import PlainProcess, start_plainly

        begun = start_plainly(asked.argv)
        ended = begun.wait() if isinstance(begun, PlainProcess) else begun
        asked.died_of = ended.signal
        if ended.complaint:
            asked.was_run = False
            _say(f"noclobber: run: {asked.argv[0]}: {ended.complaint}")
        return _reported(asked, ended.exit_code, run_id, level=level)
    _reported(asked, 0, run_id, level=level)
    try:
        os.execvp(asked.argv[0], asked.argv)  # noqa: S606 - running it is what was asked for
    except FileNotFoundError:
        _say(f"noclobber: run: {asked.argv[0]}: command not found")
        return 127
    except OSError as error:
        _say(f"noclobber: run: {asked.argv[0]}: {error.strerror}")
        return 126
