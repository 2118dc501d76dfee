"""
Is this project protected? Finds hooks that are missing, out of date, untrusted, doubled or slow.

Changes nothing. Looks only at hosts that have left files in the project or in the user's home folder.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import time
from typing import Any

from noclobber.core.findings import Finding
from noclobber.errors import NoclobberError
from noclobber.hosts import command_line, hook_entries, install

SLOW_RATIO = 6.0
SLOW_S = 0.25
TRIES = 3
MAX_SETTINGS_BYTES = 4 << 20


def check(project: str) -> list[Finding]:
    """Return the findings about the hooks of every host that is used here."""
    project = os.path.realpath(project)
    findings: list[Finding] = []
    installed: dict[str, list[str]] = {}
    for host in hook_entries.find_hosts(project):
        scopes = [scope for scope in ("project", "user") if _has_ours(host, scope, project)]
        if scopes:
            installed[host] = scopes
        findings += _of_host(host, scopes, project)
    if "copilot" in installed and "project" in installed.get("claude-code", ()):
        findings.append(
            Finding(
                "hooks of copilot and claude-code",
                True,
                "doubled: Copilot reads .claude/settings.json too, so every event of Copilot comes twice",
                "Harmless, but slower. `noclobber install copilot --uninstall` leaves Claude's for both.",
            )
        )
    if installed:
        findings += [_memory(), _speed(next(iter(installed))), _log()]
    return findings


def _of_host(host: str, scopes: list[str], project: str) -> list[Finding]:
    name = f"hooks of {host}"
    if not scopes:
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
    findings = []
    for scope in scopes:
        file = hook_entries.hook_file(host, scope, project)
        trouble = _trouble(host, scope, project)
        option = " --user" if scope == "user" else ""
        detail = trouble or f"in place ({file.path})"
        findings.append(
            Finding(name, not trouble, detail, f"noclobber install {host}{option}" if trouble else "")
        )
    if len(scopes) > 1:
        findings.append(
            Finding(
                name,
                True,
                "doubled: in the project's and in the user's configuration, so every event comes twice",
                f"Harmless, but slower. `noclobber install {host} --uninstall` leaves the user's.",
            )
        )
    if off := _switched_off(host, project):
        path, setting = off
        findings.append(
            Finding(
                name,
                False,
                f"switched off: {path} has {setting}, so no write is checked",
                "Remove that setting, or uninstall the hooks.",
            )
        )
    if host == "codex":
        findings.append(_codex_trust([hook_entries.hook_file(host, scope, project).path for scope in scopes]))
    return findings


# What switches a host's hooks off, in any of its settings files: the setting as its file spells it.
_OFF = re.compile(
    r""""(disableAllHooks|disable_all_hooks)"\s*:\s*true|"(enableHooks|hooksEnabled)"\s*:\s*false|"""
    r""""hooks(?:Config)?"\s*:\s*\{[^{}\[\]]*"enabled"\s*:\s*false|^\s*hooks\s*=\s*false""",
    re.M,
)


def _switched_off(host: str, project: str) -> tuple[str, str] | None:
    """Return the file and the setting that switch a host's hooks off, None if none does."""
    files = [hook_entries.hook_file(host, scope, project).path for scope in ("project", "user")]
    more = ("settings.local.json", "config.toml")
    files += [f"{os.path.dirname(path)}/{name}" for path in files for name in more]
    for path in dict.fromkeys(files):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                text = file.read(MAX_SETTINGS_BYTES)
        except OSError:
            continue
        if found := _OFF.search(f"{text}\n{_plainly(text)}"):
            return path, " ".join(found[0].split())
    return None


def _plainly(text: str) -> str:
    """Return JSON in its plainest spelling, empty if it is none: a key may be written with escapes."""
    try:
        return json.dumps(json.loads(text.removeprefix("\ufeff")))
    except (ValueError, RecursionError):
        return ""


def _has_ours(host: str, scope: str, project: str) -> bool:
    try:
        change = install.plan(hook_entries.hook_file(host, scope, project), uninstall=True)
    except NoclobberError:
        return False  # It cannot be read. The host is then reported as "missing".
    return change.is_needed


def _trouble(host: str, scope: str, project: str) -> str:
    """Return what is wrong with installed hooks; empty if nothing is."""
    text = install.plan(hook_entries.hook_file(host, scope, project)).before or ""
    for portable in (False, True):
        if not install.plan(hook_entries.hook_file(host, scope, project, portable=portable)).is_needed:
            return ""
    for line in _commands(text):
        for program in shlex.split(line):
            if program.endswith(("/python", "/start.py")) and not os.access(program, os.R_OK):
                return f"broken: {program} does not exist any more, so every write is refused"
    return "out of date: this version of noclobber would write other hooks"


def _commands(text: str) -> list[str]:
    from noclobber.hosts import json_edit

    found: list[str] = []

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            line = value.get("command", value.get("bash"))
            if isinstance(line, str) and hook_entries.is_ours(value):
                found.append(line)
            for member in value.values():
                walk(member)
        elif isinstance(value, list):
            for member in value:
                walk(member)

    try:
        walk(json_edit.parse(text).value)
    except NoclobberError:
        pass
    return found


def _codex_trust(paths: list[str]) -> Finding:
    """Codex skips hooks until the user trusts them, and remembers that in its own configuration."""
    import tomllib

    home = os.environ.get("CODEX_HOME", os.path.expanduser("~/.codex"))
    remedy = "Start codex in this project, and trust the hooks when it asks (or /hooks)."
    try:
        with open(f"{home}/config.toml", "rb") as file:
            hooks = tomllib.load(file).get("hooks", {})
    except FileNotFoundError:
        hooks = {}
    except (OSError, ValueError) as error:
        return Finding(
            "hooks of codex", False, f"probably untrusted: its configuration cannot be read ({error})", remedy
        )
    states = hooks.get("state", {}) if isinstance(hooks, dict) else {}
    trusted = [
        key
        for key, state in (states.items() if isinstance(states, dict) else ())
        if isinstance(state, dict) and any(name.startswith("trusted") for name in state)
    ]
    if any(any(path in key for path in paths) for key in trusted):
        return Finding("hooks of codex", True, "trusted")
    return Finding("hooks of codex", False, "untrusted: Codex skips them", remedy)


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
