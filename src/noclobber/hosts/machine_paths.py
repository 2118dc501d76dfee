"""
Commands with this machine's paths: into which file of a project they go, and whether they will last.

A hook of this machine names an interpreter and a file of this installation. Two things go wrong with that
(finding U4). A team commits the file, and on everybody else's machine the hook does not run, so every write
is refused there. Or the installation was a temporary one (`uvx`, `pipx run`), and some days later it is gone.

Claude Code has a file for one machine, `settings.local.json`. Where a host has none, files that we made are
kept out of git by the repository's exclude file (an agent's `git add -A` would commit them), and for files
that were there before the user is told.
"""

from __future__ import annotations

import os
import sys
import tempfile
from typing import NamedTuple

from noclobber.disk import hashing
from noclobber.disk.commit.committer import replace_if_unchanged
from noclobber.errors import StaleFileError
from noclobber.hosts.command_line import START
from noclobber.hosts.hook_entries import ConfigFile, hook_file
from noclobber.hosts.installations import entries_in
from noclobber.lock.git_exclude import exclude_file, keep_out_of_git

ROUNDS = 50
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


def keep_private(file: ConfigFile, project: str, *, is_new: bool = False) -> str:
    """Keep a file with this machine's paths out of git, if we made it; return what the user should know."""
    name = os.path.relpath(file.path, project)
    is_ours_alone = (
        file.whole is not None
        or os.path.basename(file.path) == "settings.local.json"
        or os.path.basename(file.path) == "noclobber.json"
    )
    try:
        if is_ours_alone or is_new or _is_kept_out(file, project):
            kept_out = keep_out_of_git(project, [f"**/{name}"], HEADING) is not None
            if is_ours_alone or not is_new or not kept_out:
                return ""
            return f"{name} has paths of this machine, so git leaves it out; to share it, use --portable."
        in_git = keep_out_of_git(project, [], HEADING) is not None
    except OSError:
        in_git = True
    return f"{name} has paths of this machine now: before you commit it, use --portable." if in_git else ""


def _is_kept_out(file: ConfigFile, project: str) -> bool:
    """True if an earlier installation has made the file, and has kept it out of git."""
    path = exclude_file(project)
    if path is None:
        return False
    with open(path, "rb") as opened:
        return _line_of(file, project) in opened.read()


def _line_of(file: ConfigFile, project: str) -> bytes:
    return f"{HEADING}\n**/{os.path.relpath(file.path, project)}\n".encode()


def no_longer_private(file: ConfigFile, project: str) -> None:
    """Take the line back that `keep_private` wrote; a line that was there before has no heading of ours."""
    path = exclude_file(project)
    if path is None:
        return
    ours = _line_of(file, project)
    for _ in range(ROUNDS):
        with open(path, "rb") as opened:
            before = opened.read()
        head, found, tail = before.partition(ours)
        if not found or (head and not head.endswith(b"\n")):
            return
        try:
            replace_if_unchanged(path, hashing.of_bytes(before), head + tail)
        except StaleFileError:  # git, or another installation, has written meanwhile.
            continue
        return


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
