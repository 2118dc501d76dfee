"""
`noclobber run list | show | diff | rerun | drop`: commands that were refused, and what they would have
done.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from noclobber.cli.terminal import say
from noclobber.core.json_text import spell_for_any_reader
from noclobber.core.options import load_options
from noclobber.core.project import existing_folder, find_project
from noclobber.errors import BadRequestError, ConfigError
from noclobber.shell import runs
from noclobber.shell.changes import DELETE, FILE, TooDeepError, changes, unchecked_names
from noclobber.text.visible import visible, visible_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noclobber.cli.run import Asked
    from noclobber.shell.changes import TreeChange

MOST_SHOWN_BYTES = 1 << 20
EXIT_REFUSED = 75
FOREIGN = "it came with this folder"
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=@%+,")


def look(verb: str, ids: list[str], asked: Asked) -> int:
    """Do what was asked with kept commands; return the exit code."""
    root = existing_folder(asked.root) if asked.root else find_project(os.getcwd())
    if verb == "list":
        return _list(root, as_json=asked.as_json)
    if not ids:
        raise BadRequestError("", f"run {verb}: name a command: `noclobber run list` has their ids.")
    code, answers = 0, []
    for run_id in ids:
        folder = runs.found(root, run_id)
        if folder is None or not folder.is_refused:
            if folder is not None:
                folder.close()
            if asked.as_json:
                answers.append({"id": run_id, "found": False})
            else:
                told = f"run {verb}: there is no refused command {visible(run_id)!r}."
                say(f"noclobber: {told}", sys.stderr)
            code = 1
            continue
        try:
            done, answer = _one(verb, folder, asked)
            code = done or code
            if answer is not None:
                answers.append(answer)
        finally:
            folder.close()
    if asked.as_json:
        print(spell_for_any_reader(answers[0] if len(ids) == 1 else answers))
    return code


def _list(root: str, *, as_json: bool) -> int:
    listed = []
    for run_id in runs.all_ids(root):
        folder = runs.found(root, run_id)
        if folder is None:
            continue
        try:
            if folder.is_refused:
                job, refused = folder.noted("job") or {}, folder.noted("refused") or {}
                listed.append(_summary(folder, job, refused))
        finally:
            folder.close()
    if as_json:
        print(spell_for_any_reader(listed))
        return 0
    for row in listed:
        words = [row["agent"], row["code"] if row["ours"] else FOREIGN, spelled(row["command"])]
        say("  ".join([row["id"], *map(visible, words)]))
    if not listed:
        print("No refused commands are kept.")
    return 0


def _summary(folder: runs.RunFolder, job: dict[str, Any], refused: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": folder.run_id,
        "command": _words(job),
        "cwd": _text(job.get("cwd")),
        "agent": _text(job.get("agent_id")),
        "ours": folder.is_ours,
        "code": _text(refused.get("code")),
        "age_s": round(folder.age_s),
        "refusal": refused.get("error"),
        "others": refused.get("others", []),
    }


def _words(job: dict[str, Any]) -> list[str]:
    """What was run; nothing if the record says what no command can be."""
    argv = job.get("argv")
    words = argv if isinstance(argv, list) else []
    return words if all(isinstance(word, str) and _is_possible(word) for word in words) else []


def spelled(words: Sequence[str]) -> str:
    """Return a command as a shell would be given it: what is one word is seen to be one."""
    from noclobber.shell.syntax import quote

    return " ".join(word if word and _PLAIN.issuperset(word) else quote(word) for word in words)


def _whole(summary: dict[str, Any]) -> str:
    """Return a command with nothing left out, and where it came from."""
    came = f"{visible(summary['agent']) or 'somebody'} ran it" if summary["ours"] else FOREIGN
    return f"{visible(spelled(summary['command']))}  ({came}, in {visible(summary['cwd'])})"


def _text(value: object) -> str:
    return value if isinstance(value, str) and _is_possible(value) else ""


def _is_possible(word: str) -> bool:
    try:
        return "\0" not in word and bool(os.fsencode(word) or True)
    except UnicodeEncodeError:
        return False


def _one(verb: str, folder: runs.RunFolder, asked: Asked) -> tuple[int, dict[str, Any] | None]:
    """Do it with one command; return the exit code, and the answer for programs."""
    if verb == "drop":
        folder.remove()
        return 0, {"id": folder.run_id, "found": True}
    if verb == "rerun":
        return _rerun(folder, asked)
    found = _changes(folder)
    if verb == "show":
        summary = _summary(folder, folder.noted("job") or {}, folder.noted("refused") or {})
        rows = [{"action": change.action, "kind": change.kind, "path": change.path} for change in found]
        if asked.as_json:
            return 0, {**summary, "changes": rows}
        print(f"{folder.run_id}: {_whole(summary)}")
        print(spell_for_any_reader(summary["refusal"]))
        for row in rows:
            print(f"{row['action']:7} {row['kind']:7} {visible(row['path'])}")
        return 0, None
    text = _diff(folder, found)
    if asked.as_json:
        return 0, {"id": folder.run_id, "diff": text}
    sys.stdout.write(visible_lines(text))
    return 0, None


def _changes(folder: runs.RunFolder) -> list[TreeChange]:
    """What it would have changed, file by file; of folders that are not checked, the folder alone."""
    try:
        found = changes(folder.root, folder.upper, _unchecked_in(folder.root))
        return [*found.files(), *found.unchecked]
    except (TooDeepError, RecursionError):
        told = "it has too many folders inside of each other to be shown."
        raise BadRequestError("", f"run: {folder.run_id}: {told}") from None


def _unchecked_in(root: str) -> frozenset[str]:
    """Return which folders land without a check; the built-in ones if the options cannot be read."""
    try:
        return unchecked_names(load_options(root).unchecked)
    except ConfigError:
        return unchecked_names(())  # To look at a command is possible all the same. To run it again is not.


def _diff(folder: runs.RunFolder, found: Any) -> str:
    from noclobber.text.diff import unified

    parts = []
    for change in found:
        if change.kind != FILE:
            parts.append(f"{change.action} {change.kind} {visible(change.path)}\n")
            continue
        old = b"" if change.old is None else _bytes(f"{folder.root}/{change.path}")
        new = b"" if change.action == DELETE else _bytes(change.upper)
        if old is None or new is None:
            parts.append(f"{change.action} {visible(change.path)}: too large, or not readable\n")
            continue
        parts.append(unified(old, new, f"/{change.path}"))
    return "".join(parts)


def _bytes(path: str) -> bytes | None:
    try:
        if os.stat(path).st_size > MOST_SHOWN_BYTES:
            return None
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


def _not_again(error: BadRequestError, asked: Asked) -> tuple[int, dict[str, Any]]:
    from noclobber.cli.run_document import object_of

    if not asked.as_json:
        say(f"noclobber: {error.message}", sys.stderr)
    return 1, object_of(error)


def _rerun(folder: runs.RunFolder, asked: Asked) -> tuple[int, dict[str, Any] | None]:
    """
    Run the same command again, on the files as they are now.

    It is held to what the first run was held to: what was expected, and what the agent had seen. Only an
    agent that has read a file since is held to what it read; so nobody gets around a refusal by this.
    """
    from noclobber.cli.run import Asked, at_best_level, can_be_hash, drop_what_was_read_since
    from noclobber.cli.run_document import answered

    job = folder.noted("job") or {}
    argv, cwd = _words(job), _text(job.get("cwd"))
    summary = _summary(folder, job, {})
    if not summary["ours"]:
        told = (
            f"run rerun: {folder.run_id} has not run here, it came with this folder. It is not run:"
            f" {_whole(summary)}. `noclobber run drop {folder.run_id}` removes it."
        )
        return _not_again(BadRequestError("", told), asked)
    if not argv or not cwd:
        unknown = f"run rerun: it is not known what {folder.run_id} was."
        return _not_again(BadRequestError("", unknown), asked)
    try:
        os.chdir(cwd)
    except OSError as error:
        told = (
            f"run rerun: {folder.run_id} ran in {visible(cwd)}, which cannot be entered ({error.strerror})."
        )
        return _not_again(BadRequestError("", told), asked)
    say(f"noclobber: run rerun: {_whole(summary)}", sys.stderr)
    again = Asked()
    again.argv, again.as_json, again.root = argv, asked.as_json, folder.root
    again.text, again.turn = _text(job.get("text")), _text(job.get("turn_id"))
    again.host, again.session = _text(job.get("host")), _text(job.get("session_id"))
    first_agent = _text(job.get("agent_id"))
    again.agent = first_agent if again.session else asked.agent or first_agent
    seen, expect = job.get("seen"), job.get("expect")
    again.seen = seen if isinstance(seen, dict) else {}
    if isinstance(expect, dict):
        again.expect = {path: sha256 for path, sha256 in expect.items() if can_be_hash(sha256)}
    drop_what_was_read_since(again, cwd)
    again.expect |= asked.expect
    code, answer = answered(again) if asked.as_json else (at_best_level(again), None)
    # One that did not begin, or that Ctrl-C ended, has not replaced what is kept.
    if code != EXIT_REFUSED and again.was_run and not again.died_of:
        folder.remove()
    return code, answer
