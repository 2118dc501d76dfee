"""A git command that would run a program of the repository's is not plainly read-only (finding S30)."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from noclobber.shell.read_only import is_read_only
from tests.rigs.hooks import HookRig, is_denied


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A plain repository with a folder in it."""
    folder = tmp_path / "repository"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "a.txt").write_text("a\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    return folder


def git(folder: Path, *words: str) -> None:
    """Run git in a folder."""
    subprocess.run(
        ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b.c", *words], check=True
    )


def setting(name: str, value: str) -> Callable[[Path], None]:
    """Return what sets something in a repository."""
    return lambda folder: git(folder, "config", name, value)


def hook(folder: Path) -> None:
    (folder / ".git" / "hooks").mkdir(exist_ok=True)
    (folder / ".git" / "hooks" / "post-index-change").write_text("#!/bin/sh\n")


def on_the_sections_line(folder: Path) -> None:
    with open(folder / ".git" / "config", "a") as file:
        file.write("[CORE] FSMonitor = ./x\n")


def embedded(folder: Path) -> None:
    inner = folder / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    git(inner, "commit", "-qm", "x", "--allow-empty")
    git(folder, "add", "inner")


def unreadable(folder: Path) -> None:
    (folder / ".git" / "config").rename(folder / "config")
    (folder / ".git" / "config").mkdir()


NAMED = {
    "fsmonitor": setting("core.fsmonitor", "./x"),
    "a filter": setting("filter.x.clean", "./x"),
    "textconv": setting("diff.x.textconv", "./x"),
    "external diff": setting("diff.external", "./x"),
    "a driver": setting("diff.x.command", "./x"),
    "hooks elsewhere": setting("core.hooksPath", "hooks"),
    "included": setting("include.path", "../x"),
    "included for a branch": setting("includeIf.onbranch:main.path", "../x"),
    "signatures": setting("gpg.program", "./x"),
    "objects elsewhere": setting("remote.origin.promisor", "true"),
    "a hook": hook,
    "on one line": on_the_sections_line,
    "a repository inside": embedded,
    "unreadable": unreadable,
}


@pytest.mark.parametrize("name", NAMED)
def test_git_is_not_plainly_reading_where_a_repository_names_a_program(repository: Path, name: str) -> None:
    """finding S30: wherever the command goes from where it begins."""
    commands = {
        "git status": repository / "sub",
        "timeout 5 git diff": repository,
        f"git -C {repository} log": repository.parent,
        f"cd {repository} && cd sub && git status": repository.parent,
        "cd repository/sub; git -C .. diff --stat": repository.parent,
    }
    assert all(is_read_only(command, cwd=str(cwd)) for command, cwd in commands.items())

    NAMED[name](repository)

    assert not any(is_read_only(command, cwd=str(cwd)) for command, cwd in commands.items())
    assert is_read_only("cat a.txt; ls", cwd=str(repository))


def test_a_linked_work_tree_has_the_repositorys_configuration(repository: Path, tmp_path: Path) -> None:
    """finding S30: its `.git` is a file, and the configuration is elsewhere."""
    git(repository, "commit", "-qm", "first")
    git(repository, "worktree", "add", "-q", str(tmp_path / "linked"))
    assert is_read_only("git status", cwd=str(tmp_path / "linked"))
    git(repository, "config", "core.fsmonitor", "./x")
    assert not is_read_only("git status", cwd=str(tmp_path / "linked"))


def test_a_hook_takes_such_a_command_for_one_that_may_write(rig: HookRig, root: Path) -> None:
    """finding S30: it is watched, or guarded, as every other program is."""
    git(root, "init", "-q")
    call = {"command": "git status"}
    assert not is_denied(rig.ask("Bash", call, tool_use_id="1"))
    git(root, "config", "core.fsmonitor", "./x.sh")
    assert not is_denied(rig.ask("Bash", call, tool_use_id="2"))
    assert not is_read_only("git status", cwd=str(root))
