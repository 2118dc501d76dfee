"""
Run a command as one transaction: it works in a private view, and what it changed lands all together or not.

    command → private view (`shell/`) → change set → `landing` → answer

The view is of the workspace's root. Inside, the command sees the tree as it is, and its own changes. When it
has ended, its changes are committed as one compare-and-swap. A refusal leaves the tree as it was; what the
command wrote is kept for a while (`shell/runs`), and can be shown, run again or dropped.

Where there can be no private view the command is watched (`watched_commands`), unless the caller requires
one.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from noclobber.core.actions import READ
from noclobber.core.json_text import parse
from noclobber.core.project import STATE_FOLDER, UNCHECKED
from noclobber.core.values import WriteResult
from noclobber.disk.hashing import is_hash
from noclobber.disk.system_errors import commit_failed
from noclobber.errors import (
    ABSENT,
    DELETED,
    BadPathError,
    BadRequestError,
    FileBusyError,
    NoclobberError,
    ShellUnavailableError,
    StaleFileError,
)
from noclobber.guard.landing import CommandRun, in_git, land
from noclobber.guard.who_commits import why_no_command, why_no_view
from noclobber.lock.names import LOCK_NAME
from noclobber.shell import runs
from noclobber.shell.changes import (
    MOST_LEVELS,
    TIMES,
    TooDeepError,
    TreeChanges,
    changes,
    unchecked_names,
    undecodable,
)
from noclobber.shell.git_folders import changes_beside, moved_at_once
from noclobber.shell.keeping import make_room, trim
from noclobber.shell.named_links import named_links
from noclobber.shell.namespace import UnavailableError, is_inside
from noclobber.shell.output import MAX_OUTPUT_BYTES, communicate
from noclobber.shell.process import GRACE_S, Ended, all_below
from noclobber.shell.roots import why_no_record, why_not

if TYPE_CHECKING:
    from subprocess import Popen

    from noclobber.core.actions import Action
    from noclobber.core.values import ToolCall
    from noclobber.errors import OverwroteError
    from noclobber.guard.command_turn import CommandTurn
    from noclobber.guard.turn import Turn
    from noclobber.guard.unchecked_rule import WorkedOn

GUARDED = "guarded"
JOINED = "joined"
WATCHED = "watched"
TOOL = "run_command"
LISTENS_S = 5.0
"""How long a command has to end after it was asked to."""


class CommandResult(NamedTuple):
    """What became of a command whose changes landed, or that changed nothing."""

    exit_code: int
    landed: tuple[WriteResult, ...] = ()
    """One a file."""
    stdout: bytes = b""
    stderr: bytes = b""
    level: str = GUARDED
    """
    `guarded`; `joined`: it ran inside another guarded command, and lands with that one; `watched`: there is
    no guarded shell here, so what it changed is on record and was not checked.
    """
    left_behind: int = 0
    """How many processes the command left, which were ended."""
    run_id: str = ""
    timed_out: bool = False
    """True if it was ended because its time was over, or because it was stopped; then nothing landed."""

    overwritten: tuple[OverwroteError, ...] = ()
    """Watched commands: files of others that it wrote over, and where their versions are kept."""
    not_landed: tuple[str, ...] = ()
    """What of folders that are not checked (`node_modules`) could not be landed, each with the reason."""


class CommandStop:
    """Ends a command from another thread. Nothing of it lands, unless that has begun by then."""

    def __init__(self) -> None:
        self.is_asked = False
        self._process: Popen[bytes] | None = None

    def ask(self) -> None:
        """End the command, or let it not begin."""
        self.is_asked = True  # First: a command that begins now looks at it after it can be found here.
        if self._process is not None:
            _end(self._process)

    def begun(self, process: Popen[bytes]) -> None:
        """The command runs, with this process around it."""
        self._process = process
        if self.is_asked:
            _end(process)


def _end(process: Popen[bytes]) -> None:
    """End a command. What does not listen is killed, and everything that it has started."""
    import threading

    process.terminate()
    timer = threading.Timer(LISTENS_S, _kill_below, (process,))
    timer.daemon = True
    timer.start()


def _kill_below(process: Popen[bytes]) -> None:
    """Kill what the process has started, and not itself: it waits for them, and would leave them behind."""
    if process.poll() is None:
        for child in all_below(process.pid):
            try:
                os.kill(child, 9)
            except ProcessLookupError:
                pass


def run_command(
    turn: Turn,
    command: str | Sequence[str],
    *,
    cwd: str | os.PathLike[str] | None = None,
    environment: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    expect: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
    call: ToolCall | None = None,
    stop: CommandStop | None = None,
    require: bool = False,
    max_output_bytes: int = MAX_OUTPUT_BYTES,
) -> CommandResult:
    """
    Run a command in a private view of the turn's workspace and land what it changed.

    A string is run by `sh -c`. Its output is captured: of each stream the first and the last bytes, if it is
    more than `max_output_bytes`, with a line that says how many are left out. Refusals are exceptions, with
    `run_id` and `exit_code` as attributes, and `stdout`, `stderr` and `timed_out`; then nothing has landed.

    Where there can be no view the command is watched (`watched_commands`); with `require`, and where nothing
    can be recorded either, `ShellUnavailableError`: nothing was run.
    """
    argv = ["sh", "-c", command] if isinstance(command, str) else [str(word) for word in command]
    if not argv or not argv[0]:
        raise BadRequestError("", "There is no command.")
    folder = os.path.realpath(os.path.join(turn.root, cwd or "."))
    call = call or turn.tool_call(TOOL)
    variables = dict(os.environ if environment is None else environment)
    stop = stop or CommandStop()
    if (refusal := refusal_of_reads(argv, folder, turn.root)) is not None:
        raise refusal
    try:
        text = command if isinstance(command, str) else ""
        done = _run(
            turn, argv, text, folder, variables, stdin, expect, timeout_s, call, stop, max_output_bytes
        )
        _note_reads(turn, call, argv, folder, done)
        return done
    except UnavailableError as error:
        if require or why_no_record(turn.root) is not None:
            raise ShellUnavailableError(
                turn.root, f"There is no guarded shell here: {error}. The command was not run."
            ) from None
    except OSError as error:
        raise commit_failed(error, turn.root) from error  # A refusal of ours stays what it is.
    from noclobber.guard.watched_commands import begin, end, run_plainly, text_of

    if (reason := why_no_command(turn.root, text_of(argv))) is not None:
        not_run = ShellUnavailableError(turn.root, f"The command was not run: {reason}.")
        turn.recorder.refusal(call, not_run)
        raise not_run
    start = begin(turn, call, text_of(argv), cwd=folder, expect=expect or {})
    code, out, err, is_late = run_plainly(argv, folder, variables, stdin, timeout_s, stop, max_output_bytes)
    ended = end(turn, call, start)
    landed = tuple(WriteResult(file.path, file.after, "plain", file.before) for file in ended.files)
    done = CommandResult(code, landed, out, err, WATCHED, timed_out=is_late, overwritten=ended.overwritten)
    _note_reads(turn, call, argv, folder, done)
    return done


def refusal_of_reads(argv: Sequence[str], cwd: str, root: str) -> NoclobberError | None:
    """Return why a command whose text shows that it reads a lock file is not run; None: it does not."""
    if not any(LOCK_NAME in word for word in argv):
        return None
    from noclobber.guard.facts import Facts
    from noclobber.guard.judge import refusal_of

    for action in _recognised(argv, cwd, "pre"):
        if (refusal := refusal_of(Facts(READ, action.path, action.path, root))) is not None:
            return refusal
    return None


def _note_reads(
    turn: Turn,
    call: ToolCall,
    argv: Sequence[str],
    cwd: str,
    done: CommandResult,
) -> None:
    """Take note of files that a command has shown: its text names them, and its output has what they hold."""
    reads = _recognised(argv, cwd, "post")
    if not reads:
        return
    from noclobber.core.actions import CallResult, Shown
    from noclobber.guard.outside import Outside

    text = Shown((done.stdout + done.stderr).decode("utf-8", "replace"), is_mixed=True)
    Outside(turn, call, reads).after(CallResult(shown=text))


def _recognised(argv: Sequence[str], cwd: str, kind: str) -> list[Action]:
    """Return the files that a command shows, by its text."""
    from noclobber.guard.watched_commands import text_of
    from noclobber.shell import recognise

    try:
        found = recognise.actions(text_of(argv), kind)
    except BadRequestError:
        return []  # A patch from elsewhere, for a tool that is none here.
    reads = (action for action in found if action.kind == READ and not action.is_removal)
    return [action._replace(path=canonical(cwd, action.path)) for action in reads]


def _run(
    turn: Turn,
    argv: Sequence[str],
    text: str,
    folder: str,
    variables: Mapping[str, str],
    stdin: bytes,
    expect: Mapping[str, str] | None,
    timeout_s: float | None,
    call: ToolCall,
    stop: CommandStop,
    max_output_bytes: int,
) -> CommandResult:
    root = turn.root
    if is_inside(root):
        from noclobber.guard.watched_commands import run_plainly

        code, out, err, is_late = run_plainly(
            argv, folder, variables, stdin, timeout_s, stop, max_output_bytes
        )
        return CommandResult(code, (), out, err, JOINED, timed_out=is_late)
    if (reason := why_not(root) or why_no_view(root)) is not None:
        raise UnavailableError(reason)
    turn.recorder.prepare()
    if recovered := runs.tidy(root):
        turn.recorder.recovered(call, recovered)
    run = runs.made(root)
    try:
        first_ns = run.touch()
        note_job(run, argv, folder, call, expect or {}, first_ns, text)
        links = named_links([text] if text else argv, folder, root)
        ended, out, err, is_late = _in_a_process(
            run, folder, variables, stdin, timeout_s, stop, max_output_bytes
        )
        if ended.complaint:  # As a shell would have said it: 126 or 127 alone tells nobody what is missing.
            err += f"{argv[0]}: {ended.complaint}\n".encode("utf-8", "backslashreplace")
        if ended.left_view:
            err += f"noclobber: {ended.left_view}\n".encode("utf-8", "backslashreplace")
        try:
            landed = conclude(turn, call, run, argv, folder, ended, expect or {}, text=text, links=links)
        except NoclobberError as error:
            error.stdout, error.stderr, error.timed_out = out, err, is_late  # type: ignore[attr-defined]
            raise
        return CommandResult(
            ended.exit_code,
            landed,
            out,
            err,
            GUARDED,
            ended.left_behind,
            run.run_id,
            is_late,
            not_landed=tuple(run.not_landed),
        )
    finally:
        if not run.is_refused:
            run.remove()
        run.close()


def note_job(
    run: runs.RunFolder,
    argv: Sequence[str],
    cwd: str,
    call: ToolCall,
    expect: Mapping[str, str],
    first_ns: int,
    text: str = "",
) -> None:
    """Write down what is run: for `run list`, and to run it again."""
    run.note(
        "job",
        {
            "argv": list(argv),
            "cwd": cwd,
            "root": run.root,
            "first_ns": first_ns,
            "grace_s": GRACE_S,
            "expect": dict(expect),
            "agent_id": call.agent_id,
            "session_id": call.session_id,
            "turn_id": call.turn_id,
            "host": call.host,
            "text": text,
        },
    )


def conclude(
    turn: Turn | CommandTurn,
    call: ToolCall,
    run: runs.RunFolder,
    argv: Sequence[str],
    cwd: str,
    ended: Ended,
    expect: Mapping[str, str],
    *,
    text: str = "",
    links: Collection[tuple[str, str]] = (),
) -> tuple[WriteResult, ...]:
    """Land what an ended command left in its upper layer. A refusal is noted in the run's folder."""
    found = TreeChanges(run.root, ())
    names: Collection[str] = UNCHECKED

    def kept(error: Exception) -> None:
        named = call._replace(turn_id=getattr(turn, "named_turn", call.turn_id))  # As its host names it.
        keep(
            run,
            argv,
            cwd,
            named,
            expect,
            ended,
            error,
            text=text,
            seen=lambda: _seen_of(turn, found),
            unchecked=names,
        )

    try:
        expected = {
            _led_to(canonical(cwd, path)): checked_hash(path, given) for path, given in expect.items()
        }
        names = of_options = unchecked_names(turn.options.unchecked)
        work: list[WorkedOn] = []

        def worked_on(folder: str) -> list[str]:
            from noclobber.guard.unchecked_rule import WorkedOn  # Here: most commands have none.

            if not work:
                work.append(WorkedOn(turn, run.root, expected))
            return work[0](folder)

        found = changes(run.root, run.upper, of_options, ended.began_ns, ended.replaced, worked_on)
        found = found._replace(beside=changes_beside(run.path, ended.began_ns))
        if found.unchecked:
            from noclobber.guard.unchecked_rule import (
                without_forbidden_caches,
            )  # Here: most commands have none.

            found = without_forbidden_caches(turn, found)
        is_judged = not ended.signal and (found.same or found.overtaken)
        if not found.changes and not found.beside and not is_judged:
            return ()
        if ended.signal:
            raise FileBusyError(
                run.root,
                f"the command was ended by signal {ended.signal} in the middle of its work, so none of its"
                " changes landed. Run it again.",
            )
        if not ended.is_over:
            raise FileBusyError(
                run.root, "the command left processes that could not be ended, so nothing landed."
            )
        command = CommandRun(
            tuple(argv),
            cwd,
            run.run_id,
            ended.began_ns,
            ended.exit_code,
            expected,
            text,
            links,
            run.index_fd,
        )
        if name := undecodable(found):
            shown = f"{run.root}/{name}".encode("utf-8", "backslashreplace").decode()
            raise BadPathError(shown, "its name is not UTF-8, so no record can name it.")
        owed = None
        beside: Callable[[], None] | None = None
        if found.beside or any(change.action != TIMES for change in found.unchecked):
            from noclobber.shell.owed import drafted, settle_beside  # Here: most commands have none.

            owed = drafted(run, found, ended.began_ns)
            if found.beside:
                all_found = found
                beside = lambda: settle_beside(run, all_found, ended.began_ns)  # noqa: E731 - `functools` is slow
        try:
            landed = land(turn, call, command, found, owed=owed, beside=beside)
        except NoclobberError as late:
            if late.has_landed:
                _land_rest(run, found, ended)
            raise
        _land_rest(run, found, ended)
        return landed
    except TooDeepError as deep:
        levels = f"it has more than {MOST_LEVELS} folders inside of each other, too many for one commit."
        too_deep = BadPathError(f"{run.root}/{deep}", levels)
        kept(too_deep)
        turn.recorder.refusal(call, too_deep)
        raise too_deep from None
    except OSError as failure:  # For example, the disk is full. A commit that began is taken back.
        gone = _removed_meanwhile(run, failure)
        if gone is not None:
            turn.recorder.refusal(call, gone)
        error = gone or commit_failed(failure, _shown(run, failure))
        kept(error)
        raise error from failure
    except NoclobberError as error:
        if error.has_landed:  # Kept as refused, it would be run again.
            error.run_id, error.exit_code = run.run_id, ended.exit_code  # type: ignore[attr-defined]
        else:
            kept(error)
        raise


def _removed_meanwhile(run: runs.RunFolder, failure: OSError) -> StaleFileError | None:
    """Return the refusal, if what a landing looked for was removed by others between two of its looks."""
    path = failure.filename
    if failure.errno not in (errno.ENOENT, errno.ENOTDIR) or not isinstance(path, str):
        return None
    if not path.startswith(f"{run.root}/") or path.startswith(f"{run.root}/{STATE_FOLDER}/"):
        return None
    from noclobber.guard.judge import stale_since_began  # Here: it takes two in the same moment.

    return stale_since_began(path, DELETED)


def _land_rest(run: runs.RunFolder, found: TreeChanges, ended: Ended) -> None:
    """Land what needs no check."""
    if run.owes:
        from noclobber.shell.owed import settle  # Here: most commands have none.

        run.not_landed += settle(run, found, ended.began_ns)
    elif found.unchecked:
        from noclobber.shell.landing_unchecked import land_unchecked

        run.not_landed = land_unchecked(found, ended.began_ns)


def _shown(run: runs.RunFolder, failure: OSError) -> str:
    """Return the file that an error is about, as the project names it; the root if it is not known."""
    name = failure.filename if isinstance(failure.filename, str) else ""
    for above in (run.upper, run.root):
        if name.startswith(f"{above}/"):
            return f"{run.root}{name[len(above) :]}"
    return run.root


def keep(
    run: runs.RunFolder,
    argv: Sequence[str],
    cwd: str,
    call: ToolCall,
    expect: Mapping[str, str],
    ended: Ended,
    error: Exception,
    *,
    text: str = "",
    seen: Callable[[], dict[str, Any]] = dict,
    unchecked: Collection[str] = UNCHECKED,
) -> None:
    """
    Keep what a refused command wrote, to be shown and run again.

    `seen`: what the agent knew of its files; the command is held to that when it is run again.
    """
    error.run_id, error.exit_code = run.run_id, ended.exit_code  # type: ignore[attr-defined]
    if not isinstance(error, NoclobberError):
        return
    if ended.began_ns and (moved := moved_at_once(run.root, run.path, cwd, ended.began_ns)):
        error.beside = (
            f"Not taken back, because it is outside of the project, and changed while the command ran:"
            f" {', '.join(moved)}. Look at `git status` and `git reflog` before anybody commits."
        )
    try:
        run.drop_work()
        if run.noted("job") is None:
            note_job(run, argv, cwd, call, expect, 0, text)
        run.note("job", {**(run.noted("job") or {}), "seen": seen()})
        kept_bytes = trim(run.upper, unchecked)
        run.note("refused", {**refused_note(error), "bytes": kept_bytes})
        make_room(run.root, kept_bytes)
    except OSError as failure:
        run.not_kept = failure.errno or errno.EIO  # No space for that, either: then nothing is kept.


def _seen_of(turn: Turn | CommandTurn, found: TreeChanges) -> dict[str, Any]:
    """Return what the agent knows of the files that a command changed: by path, as `TurnContext` packs it."""
    packed: dict[str, Any] = {}
    try:
        named = [change.path for change in (*found.files(), *found.same)]
    except (OSError, RecursionError):
        return packed  # Too deep to be looked at, and refused for that.
    named += [path for path, _ in found.overtaken]
    try:
        with turn.memory as memory:
            for path in (f"{found.root}/{name}" for name in named):
                snapshot, _ = memory.recall(path, path)
                if not in_git(path) and snapshot.last_for(path, path) is not None:
                    packed[path] = snapshot.pack(path, path)
    except NoclobberError:
        pass  # It is refused for that, and when it is run again, too.
    return packed


def refused_note(error: NoclobberError) -> dict[str, object]:
    """Return what is kept of a refusal: the object, and every other file beside it."""
    from noclobber.core.wire import to_object

    try:
        told: object = to_object(error)
    except TypeError:
        told = {"message": str(error)}
    return {"error": told, "code": error.code, "others": [other.to_agent() for other in others(error)]}


def others(error: NoclobberError) -> tuple[StaleFileError, ...]:
    """Return the further stale files of a refused command."""
    return error.others if isinstance(error, StaleFileError) else ()


def _led_to(path: str) -> str:
    """Return the file that a caller expects something of: behind a link, the one that the link leads to."""
    return os.path.realpath(path) if os.path.islink(path) else path


def canonical(cwd: str, path: str) -> str:
    """Return a path with the links of its folder resolved, as everything else here names files."""
    folder, name = os.path.split(os.path.join(cwd, path))
    return os.path.join(os.path.realpath(folder), name)


def checked_hash(path: str, sha256: str) -> str:
    """Return what a caller expects of a file, if it can be a hash."""
    if sha256 != ABSENT and not is_hash(sha256):
        raise BadRequestError(
            path, f"{sha256[:80]!r} is not a hash: 64 lower-case hex digits, or {ABSENT}.", parameter="expect"
        )
    return sha256


def _stopped(run: runs.RunFolder) -> FileBusyError:
    error = FileBusyError(
        run.root, "the command was stopped before it had ended, so nothing of it landed. Run it again."
    )
    error.timed_out = True  # type: ignore[attr-defined]
    return error


def as_shell(code: int) -> int:
    """Return an exit code as a shell says it: 128 and the signal's number, if a signal ended the command."""
    return code if code >= 0 else 128 - code


def _in_a_process(
    run: runs.RunFolder,
    cwd: str,
    environment: Mapping[str, str],
    stdin: bytes,
    timeout_s: float | None,
    stop: CommandStop,
    max_output_bytes: int,
) -> tuple[Ended, bytes, bytes, bool]:
    """
    Run the command with a process of its own around it.

    Returns how it ended, what it printed, and whether its time was over or it was stopped.
    """
    import subprocess  # Not at the top: `noclobber run` does without.

    from noclobber.shell import enclosed

    out_fd, in_fd = os.pipe()
    script = [sys.executable, "-I", "-S", enclosed.__file__, run.path, str(in_fd)]
    variables = runs.environment_of(run.run_id, environment)
    try:
        process = subprocess.Popen(
            script,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=variables,
            cwd="/",
            pass_fds=(in_fd,),
        )
    finally:
        os.close(in_fd)
    stop.begun(process)
    try:
        out, err = communicate(
            process, stdin, timeout_s=timeout_s, when_late=stop.ask, max_bytes=max_output_bytes
        )
    except BaseException:
        process.kill()
        process.wait()
        os.close(out_fd)
        raise
    told = b""
    while piece := os.read(out_fd, 65536):
        told += piece
    os.close(out_fd)
    is_late = stop.is_asked
    if not told and is_late:
        raise _stopped(run)
    if not told:
        raise UnavailableError("the process around the command was killed")
    report = parse(told)
    if "unavailable" in report:
        raise UnavailableError(report["unavailable"])
    ended = Ended(**report)
    if is_late:
        ended = ended._replace(signal=15)
    return ended, out, err, is_late
