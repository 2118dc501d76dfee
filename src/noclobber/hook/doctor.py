"""
Is this project protected? Sends a dry event through every installed hook, and finds what keeps it off.

Missing hooks, hooks that do not run, out of date, switched off, in a folder that is not trusted, two
installations in each other's way, slow ones. Changes nothing: the event leaves no trace (see `dry_event`).
Looks only at hosts that have left files in the project or in the user's home folder.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
import time
from typing import TYPE_CHECKING

from noclobber.core.findings import Finding
from noclobber.core.project import STATE_FOLDER
from noclobber.errors import NoclobberError
from noclobber.hook import dry_event
from noclobber.hook.settings import options_of
from noclobber.hosts import (
    before_install,
    command_line,
    hook_entries,
    install,
    installations,
    loading,
    opencode,
    packages,
    traits,
)
from noclobber.hosts.installations import Installation
from noclobber.shell.level import GUARDED, probe

if TYPE_CHECKING:
    from collections.abc import Callable

SLOW_RATIO = 6.0
SLOW_S = 0.25
TRIES = 3


def check(project: str) -> list[Finding]:
    """Return the findings about the hooks of every host that is used here."""
    project = os.path.realpath(project)
    findings: list[Finding] = []
    installed: dict[str, list[Installation]] = {}
    for host in hook_entries.find_hosts(project):
        found = installations.find(host, project)
        if found:
            installed[host] = found
        findings += _of_host(host, found, project)
    if "copilot" in installed and any(
        one.path == f"{project}/.claude/settings.json" for one in installed.get("claude-code", ())
    ):
        findings.append(
            Finding(
                "hooks of copilot and claude-code",
                True,
                "doubled: Copilot reads .claude/settings.json too, so every event of Copilot comes twice",
                "Harmless, but slower. `noclobber install copilot --uninstall` leaves Claude's for both.",
            )
        )
    if installed:
        findings += [_memory(), _speed(next(iter(installed))), _log(), _shell(list(installed), project)]
    return findings


def _shell(hosts: list[str], project: str) -> Finding:
    """Return which level shell commands get here, and why it is not more. The attempt is a real one."""
    name = "shell commands"
    page = "docs/shell-in-hooks.md says what the levels are"
    try:
        wish = options_of(project).shell
    except NoclobberError as error:
        return Finding(name, False, f"the options cannot be read: {error}", "noclobber config show")
    if wish == "off":
        return Finding(name, True, 'not looked at: the option is shell = "off"', page)
    if wish == "watched":
        return Finding(name, True, 'watched: the option is shell = "watched"', page)
    # In a folder of its own: the project may have no state folder yet, and the filesystem is what counts.
    with tempfile.TemporaryDirectory(prefix=".noclobber-", dir=project) as scratch:
        os.mkdir(f"{scratch}/{STATE_FOLDER}", 0o700)
        found = probe(os.path.realpath(scratch))
    if found.name != GUARDED:
        return Finding(name, True, f"watched: there can be no private view here ({found.why})", page)
    # Claude Code's shell comes to us by what a session's first hook writes.
    routes: dict[str, Callable[[str], bool]] = {"opencode": _plugin_routes, "claude-code": lambda _: True}
    routed = [host for host in hosts if host in routes and routes[host](project)]
    others = [host for host in hosts if host not in routed]
    told = [f"guarded in {', '.join(routed)}"] if routed else []
    for host in others:
        told.append(
            f"watched in {host}"
            + (f", guarded if `noclobber start {host}` starts it" * bool(traits.of(host).program))
        )
    return Finding(name, True, "; ".join(told))


def _plugin_routes(project: str) -> bool:
    """True if opencode's plugin knows where noclobber is; one for any machine (`--portable`) only watches."""
    for base, scope in ((project, "project"), (os.path.expanduser("~"), "user")):
        text = install.read_text(opencode.hooks(base, scope, portable=False).path)
        if text and hook_entries.routes_shell(text):
            return True
    return False


def _of_host(host: str, found: list[Installation], project: str) -> list[Finding]:
    name = f"hooks of {host}"
    if not found:
        remedy = f"noclobber install {host}"
        if hook_entries.is_used_in(project, host):
            return [Finding(name, False, "missing", remedy)]
        # In the home folder only: the user may not use this agent in this project.
        return [
            Finding(
                name,
                True,
                "not installed; this project has no files of this agent",
                f"to use it here: {remedy}",
            )
        ]
    findings = [_of_installation(one, project) for one in found]
    findings += _in_each_others_way(host, found)
    if off := loading.switched_off(host, project):
        findings.append(Finding(name, False, off.detail, off.remedy))
    findings += _trust(host, found, project)
    return findings


def _of_installation(one: Installation, project: str) -> Finding:
    """Return whether the hooks of one place work; out of date counts as not."""
    name = f"hooks of {one.host}"
    again = _again(one)
    lines = {line: event for event, line in reversed(one.commands())}  # Many events run the same command.
    for line, event in lines.items():
        trouble = _trouble(one, line, project)
        if not trouble:
            continue
        return Finding(
            name,
            False,
            f"broken: the hook for {event} in {one.path} does not run, so writes are refused: {trouble}",
            f"{again} (or the same with --uninstall)",
        )
    if not _is_up_to_date(one, project):
        return Finding(
            name, False, f"out of date: this version of noclobber would write other hooks ({one.path})", again
        )
    return Finding(name, True, f"in place ({one.path})")


def _again(one: Installation) -> str:
    """Return how to install anew. Most hosts keep a copy of a package, and do not renew it by themselves."""
    command = f"noclobber install {one.host}{one.option}"
    if one.form != "plugin":
        return command
    steps = packages.steps_back(one.host) + packages.steps(one.host, packages.default_folder())
    return " && ".join([command, *(shlex.join(words) for words in steps)])


def _trouble(one: Installation, line: str, project: str) -> str:
    """
    Return why a hook does not run; empty if it does.

    A project's configuration may come from anybody. A command in it is run only if it is, to the letter, what
    this installation of noclobber would write; everything else there is only looked at.
    """
    own = {
        known
        for portable in (False, True)
        for _, known in one._replace(
            entries=hook_entries.hook_file(one.host, "project", project, portable=portable).entries
        ).commands()
    }
    if one.form != "project" or before_install.unmarked(line) in own:
        return dry_event.trouble_with(one.host, line)
    for word in dry_event.words_of(line)[-6:]:
        if word.startswith("/") and not os.access(word, os.R_OK):
            return f"{word} does not exist any more"
    return ""


def _is_up_to_date(one: Installation, project: str) -> bool:
    if one.form == "plugin":
        if not one.entries:
            return True
        ours = [
            list(hook_entries.hook_file(one.host, "user", project, portable=way).entries)
            for way in (False, True)
        ]
        return any(sorted(map(repr, one.entries)) == sorted(map(repr, wanted)) for wanted in ours)
    for portable in (False, True):
        wanted = hook_entries.hook_file(one.host, one.form, project, portable=portable)
        try:
            if not install.plan(wanted._replace(path=one.path)).is_needed:
                return True
        except NoclobberError:
            return False
    return False


def _in_each_others_way(host: str, found: list[Installation]) -> list[Finding]:
    """Return what is to be said about several installations for one host."""
    if len(found) < 2:
        return []
    name = f"hooks of {host}"
    listed = ", ".join(one.path for one in found)
    programs = {_program(line) for one in found for _, line in one.commands()}
    if len(programs) > 1:
        return [
            Finding(
                name,
                False,
                f"two versions: {' and '.join(sorted(programs))} both answer every event ({listed})",
                f"Keep one: {_removal(found[0])}",
            )
        ]
    return [
        Finding(
            name,
            True,
            f"doubled: every event comes {len(found)} times ({listed})",
            f"Harmless, but slower. {_removal(found[0])} leaves the others.",
        )
    ]


def _removal(one: Installation) -> str:
    if one.form == "plugin":
        return (
            " and ".join(shlex.join(words) for words in packages.steps_back(one.host)) or "deleting its line"
        )
    return f"`noclobber install {one.host}{one.option} --uninstall`"


def _program(line: str) -> str:
    """Return which noclobber a command runs."""
    words = dry_event.words_of(line)
    return next(
        (word for word in words if word.endswith("/noclobber/hook/start.py")), "noclobber on the PATH"
    )


def _trust(host: str, found: list[Installation], project: str) -> list[Finding]:
    """Return what the host does not load; that is bad only if nothing else protects the project."""
    name = f"hooks of {host}"
    obstacles = [(one, traits.of(one.host).untrusted(one, project)) for one in found]
    is_protected = any(obstacle is None for _, obstacle in obstacles)
    findings = [
        Finding(name, is_protected, obstacle.detail, obstacle.remedy) for _, obstacle in obstacles if obstacle
    ]
    if host == "codex" and is_protected:
        findings.append(Finding(name, True, "trusted"))
    return findings


def _memory() -> Finding:
    from noclobber.hook import session_memory

    try:
        os.close(session_memory.open_runtime())
    except NoclobberError as error:
        return Finding("what sessions have seen", False, str(error), "Until then every write is refused.")
    return Finding("what sessions have seen", True, f"kept in {session_memory.runtime_folder()}")


def _speed(host: str) -> Finding:
    """Compare a hook that has nothing to do with an interpreter that has nothing to do."""
    line = command_line.hook_words(host, "note")
    ours_s = min(_seconds(line) for _ in range(TRIES))
    bare_s = min(_seconds([line[0], "-I", "-S", "-c", "pass"]) for _ in range(TRIES))
    detail = f"{ours_s * 1000:.0f} ms a call, {ours_s / bare_s:.1f} times a bare interpreter"
    if ours_s <= SLOW_S and ours_s <= SLOW_RATIO * bare_s:
        return Finding("speed of a hook", True, detail)
    return Finding(
        "speed of a hook",
        False,
        f"slow: {detail}",
        "The package may be on a slow disk, or its .pyc files are missing: run `python -m compileall` on it.",
    )


def _seconds(line: list[str]) -> float:
    start_s = time.perf_counter()
    subprocess.run(line, input=b"{}", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60)
    return time.perf_counter() - start_s


def _log() -> Finding:
    from noclobber.hook import main, session_memory

    path = f"{session_memory.runtime_folder()}/{main.LOG_NAME}"
    try:
        with open(path, "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        lines = []
    if not lines:
        return Finding("failures of hooks", True, "none")
    last = lines[-1][:300].decode("utf-8", "replace")
    return Finding("failures of hooks", True, f"{len(lines)} on record, the last: {last}", f"See {path}.")
