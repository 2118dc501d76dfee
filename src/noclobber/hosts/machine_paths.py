"""
Commands with this machine's paths: into which file of a project they go, and whether they will last.

A hook of this machine names an interpreter and a file of this installation. Two things go wrong with that
(finding U4). A team commits the file, and on everybody else's machine the hook does not run, so every write
is refused there. Or the installation was a temporary one (`uvx`, `pipx run`), and some days later it is gone.

Claude Code has a file for one machine, `settings.local.json`. Where a host has none, our own files are kept
out of git by the repository's exclude file, and for files that others write to as well the user is told.
"""

from __future__ import annotations

import os
import sys
import tempfile
from typing import NamedTuple

from noclobber.hosts.command_line import START
from noclobber.hosts.hook_entries import ConfigFile, hook_file
from noclobber.hosts.installations import entries_in
from noclobber.lock.git_exclude import keep_out_of_git

HEADING = "# noclobber: hooks with paths of this machine."

# Folders from which uv and pipx run a program without installing it. Both clear them by themselves.
_CACHES = (
    ("/uv/archive-v", "`uvx` runs programs from a cache that is cleared"),
    ("/uv/builds-v", "`uv run --with` uses a cache that is cleared"),
    ("/uv/environments-v", "`uv run` uses a cache that is cleared"),
    ("/pipx/.cache/", "`pipx run` removes what it runs after two weeks"),
    ("/pipx/cache/", "`pipx run` removes what it runs after two weeks"),
    ("/cache/pipx/", "`pipx run` removes what it runs after two weeks"),
    ("/.cache/pipx/", "`pipx run` removes what it runs after two weeks"),
)


class FileStep(NamedTuple):
    """A configuration file, and whether our hooks are added to it or removed from it."""

    file: ConfigFile
    uninstall: bool


def steps(host: str, project: str, *, portable: bool, uninstall: bool) -> list[FileStep]:
    """
    Return which files of a project to change, the one that gets the hooks last.

    Hooks of ours in the other of Claude Code's two files would answer every event a second time. So they are
    moved; but what a team shares stays where it is, and is brought up to date there.
    """
    if host != "claude-code":
        return [FileStep(hook_file(host, "project", project, portable=portable), uninstall)]
    shared = hook_file(host, "project", project, portable=True)
    local = hook_file(host, "project", project)
    if uninstall:
        return [FileStep(each, True) for each in (shared, local) if entries_in(each.path)] or [
            FileStep(local, True)
        ]
    if portable or is_portable(shared):
        leaving, wanted = local, shared
    else:
        leaving, wanted = shared, local
    moved = [FileStep(leaving, True)] if entries_in(leaving.path) else []
    return [*moved, FileStep(wanted, False)]


def is_portable(file: ConfigFile) -> bool:
    """True if a file has hooks of ours, and they call `noclobber` from the PATH."""
    entries = entries_in(file.path)
    return bool(entries) and all("/noclobber/hook/start.py" not in repr(each.value) for each in entries)


def keep_private(file: ConfigFile, project: str) -> str:
    """Keep a file with this machine's paths out of git, if it is ours alone; else return what to know."""
    name = os.path.relpath(file.path, project)
    is_ours_alone = (
        file.whole is not None
        or os.path.basename(file.path) == "settings.local.json"
        or os.path.basename(file.path) == "noclobber.json"
    )
    try:
        if is_ours_alone:
            keep_out_of_git(project, [f"**/{name}"], HEADING)
            return ""
        in_git = keep_out_of_git(project, [], HEADING) is not None
    except OSError:
        in_git = True
    return f"{name} has paths of this machine now: before you commit it, use --portable." if in_git else ""


def short_lived() -> str:
    """Return why this installation will be gone some day; empty if nothing says so."""
    for path in (START, os.path.realpath(sys.executable), sys.prefix):
        for mark, why in _CACHES:
            if mark in path:
                return why
        cache = os.environ.get("UV_CACHE_DIR")
        if cache and path.startswith(f"{os.path.realpath(cache)}/"):
            return "`uvx` runs programs from a cache that is cleared"
    return ""


def temporary_folder() -> str:
    """Return the folder for temporary files that this installation is in; empty if it is in none."""
    for folder in (tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm"):  # noqa: S108 - only compared
        if START.startswith(f"{os.path.realpath(folder)}/"):
            return folder
    return ""
