"""
What a person can do from the page: put a version back, drop what was kept, run a command again, undo writes.

Each is a command of `noclobber`, run in a process of its own, or the same function that the command calls. So
the page can do nothing that the command line cannot, judged by the same rules, recorded the same way, and the
page shows which command it is. What is given is checked here: it comes from a browser.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any, NamedTuple

from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.core.own_python import own_command
from noclobber.errors import BadRequestError
from noclobber.guard import kept_versions
from noclobber.view import attention, file_timeline

if TYPE_CHECKING:
    from collections.abc import Mapping

PATIENCE_S = 300
MOST_LETTERS = 400
MOST_TOLD = 20_000
_HEX = frozenset("0123456789abcdef")
_RUN_ID = _HEX | {"-"}
SCOPES = ("call", "turn", "session", "agent")


class ActionResult(NamedTuple):
    """How it ended."""

    done: bool
    text: str
    command: str
    """The same at the command line."""


def carry_out(root: str, asked: Mapping[str, Any]) -> ActionResult:
    """Do what a person has confirmed."""
    action, kind = _text(asked, "action"), str(asked.get("kind", ""))
    if (action, kind) == ("restore", "kept"):
        name = _text(asked, "name")
        path = kept_versions.restore(root, name)
        return ActionResult(
            True, f"{_near(root, path)} has the kept version again.", f"noclobber kept restore {name}"
        )
    if (action, kind) == ("drop", "kept"):
        name = _text(asked, "name")
        kept_versions.drop(root, name)
        return ActionResult(True, "The kept version was removed.", f"noclobber kept drop {name}")
    return _ran(_command(root, action, kind, asked))


def preview(root: str, asked: Mapping[str, Any]) -> str:
    """Return what an action would change, as a diff, before a person confirms it."""
    action, kind = _text(asked, "action"), str(asked.get("kind", ""))
    if kind == "kept":
        kept = kept_versions.named(root, _text(asked, "name"))
        target = kept_versions.origin(root, kept)
        return attention.diff_of_kept(root, _text(asked, "name"), target, SYSTEM_CLOCK.now_s())
    if kind == "run":
        name = _run_id(asked)
        shown = _shown(["run", "--root", root, "show", name])
        return f"{shown}\n{_shown(['run', '--root', root, 'diff', name])}"
    if action == "undo":
        return _shown([*_command(root, "undo", "", asked)[3:], "--dry-run"])
    if action == "restore":
        version = _version(asked)
        file = _text(asked, "file")
        return file_timeline.diff_between(root, file, file_timeline.NOW, version, SYSTEM_CLOCK)
    raise BadRequestError("", "There is no such action.")


def _command(root: str, action: str, kind: str, asked: Mapping[str, Any]) -> list[str]:
    start = own_command()
    if action in ("retry", "drop") and kind == "run":
        verb = {"retry": "rerun", "drop": "drop"}[action]
        return [*start, "run", "--root", root, verb, _run_id(asked)]
    if action == "restore":
        path = file_timeline.meant(root, _text(asked, "file"), SYSTEM_CLOCK)
        return [*start, "versions", "restore", _version(asked), path, "--root", root]
    if action == "undo":
        scope = _text(asked, "scope")
        if scope not in SCOPES:
            raise BadRequestError("", f"What is undone is one of {', '.join(SCOPES)}.")
        words = [*start, "undo", f"--{scope}={_text(asked, 'id')}", "--root", root]
        if asked.get("file"):
            words.append(f"--file={file_timeline.meant(root, _text(asked, 'file'), SYSTEM_CLOCK)}")
        return words
    raise BadRequestError("", "There is no such action.")


def _ran(command: list[str]) -> ActionResult:
    spelled = " ".join(["noclobber", *command[3:]])
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PATIENCE_S,
            check=False,
            cwd="/",
        )
    except subprocess.TimeoutExpired:
        return ActionResult(False, f"It was ended: it took more than {PATIENCE_S} s.", spelled)
    told = done.stdout.decode("utf-8", "replace")
    rest = "" if len(told) <= MOST_TOLD else "\n(The rest is not shown.)\n"
    text = told[:MOST_TOLD] + rest
    return ActionResult(done.returncode == 0, text or "Done.", spelled)


def _shown(words: list[str]) -> str:
    text = _ran(own_command(*words)).text
    return text[: attention.MOST_DIFF_LETTERS]


def _near(root: str, path: str) -> str:
    return path.removeprefix(root.rstrip("/") + "/")


def _text(asked: Mapping[str, Any], name: str) -> str:
    value = asked.get(name)
    if not isinstance(value, str) or not value or "\0" in value or len(value) > MOST_LETTERS * 10:
        raise BadRequestError("", f"`{name}` is missing, or is not a text that can be used.")
    return value


def _version(asked: Mapping[str, Any]) -> str:
    version = _text(asked, "version")
    if len(version) != 64 or not _HEX.issuperset(version):
        raise BadRequestError("", "A version is named by its SHA-256.")
    return version


def _run_id(asked: Mapping[str, Any]) -> str:
    name = _text(asked, "name")
    if not _RUN_ID.issuperset(name) or name.startswith("-"):
        raise BadRequestError("", "That is no command's id.")
    return name
