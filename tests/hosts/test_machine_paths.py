"""Hooks with this machine's paths: into which file they go, and that they will last (finding U4)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from noclobber.cli import main as command_line
from noclobber.hosts import machine_paths
from tests.rigs.commands import run


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    root = tmp_path / "project"
    (root / ".claude").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", root], check=True)
    return root


def untracked(root: Path) -> list[str]:
    """What `git add -A` would add."""
    done = subprocess.run(
        ["git", "status", "--porcelain", "-uall"], cwd=root, capture_output=True, text=True, check=True
    )
    return [line[3:] for line in done.stdout.splitlines()]


def hooks_in(path: Path) -> bool:
    return path.exists() and "noclobber" in path.read_text()


def test_machine_paths_go_to_the_local_file_and_stay_out_of_git(root: Path) -> None:
    """finding U4: the file that teams commit is not touched."""
    shared, local = root / ".claude/settings.json", root / ".claude/settings.local.json"
    assert command_line(["install", "claude-code", "--root", str(root)]) == 0
    assert not shared.exists()
    assert hooks_in(local)
    assert untracked(root) == []

    assert command_line(["install", "claude-code", "--root", str(root), "--uninstall"]) == 0
    assert not local.exists()


def test_hooks_of_this_machine_in_the_shared_file_are_moved(root: Path) -> None:
    """finding U4: an earlier version wrote them there; two files would answer every event twice."""
    shared, local = root / ".claude/settings.json", root / ".claude/settings.local.json"
    shared.write_text('{"model": "x"}\n')
    machine_paths.steps("claude-code", str(root), portable=False, uninstall=False)
    from noclobber.hosts import install
    from noclobber.hosts.hook_entries import hook_file

    install.carry_out(hook_file("claude-code", "project", str(root))._replace(path=str(shared)))
    assert hooks_in(shared)

    assert command_line(["install", "claude-code", "--root", str(root)]) == 0
    assert shared.read_text() == '{"model": "x"}\n'
    assert hooks_in(local)


def test_what_a_team_shares_is_kept_and_not_doubled(root: Path) -> None:
    """finding U4: `install` on a colleague's machine brings the shared hooks up to date, and adds none."""
    bin_folder = root.parent / "bin"
    bin_folder.mkdir()
    program = bin_folder / "noclobber"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m noclobber "$@"\n')
    program.chmod(0o755)
    shared, local = root / ".claude/settings.json", root / ".claude/settings.local.json"
    path = f"{bin_folder}:{os.environ['PATH']}"
    home = str(root.parent / "home")
    assert run("install", "claude-code", "--portable", cwd=root, PATH=path, HOME=home).code == 0
    before = shared.read_text()

    done = run("install", "claude-code", cwd=root, PATH=path, HOME=home)
    assert done.code == 0
    assert "they work" in done.out
    assert shared.read_text() == before
    assert not local.exists()
    assert untracked(root) == [".claude/settings.json"]

    # Without the program on the PATH the hooks would refuse every write: said at once.
    done = run("install", "claude-code", cwd=root, PATH="/usr/bin:/bin", HOME=home)
    assert done.code == 1
    assert "the hooks do not run, so every write will be refused" in done.out
    assert "--uninstall" in done.out


def test_a_file_that_others_write_to_as_well_is_named(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """finding U4: where a host has no file for one machine, the user is told before they commit."""
    (root / ".gemini").mkdir()
    (root / ".gemini/settings.json").write_text('{"theme": "dark"}\n')
    assert command_line(["install", "gemini", "--root", str(root)]) == 0
    assert ".gemini/settings.json has paths of this machine now" in capsys.readouterr().out
    assert command_line(["install", "opencode", "--root", str(root)]) == 0
    assert "paths of this machine now" not in capsys.readouterr().out
    assert untracked(root) == [".gemini/settings.json"]


@pytest.mark.parametrize("host", ["codex", "gemini", "qwen"])
def test_a_file_that_the_installation_made_stays_out_of_git(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    """finding U4: an agent's `git add -A` committed it, and on other machines every write was refused."""
    exclude = root / ".git/info/exclude"
    before = exclude.read_bytes()
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    words = ["install", host, "--root", str(root)]
    assert command_line(words) == 0
    assert "git leaves it out; to share it, use --portable" in capsys.readouterr().out
    assert untracked(root) == []
    assert command_line(words) == 0  # Once more: nothing is to be told.
    assert "--portable" not in capsys.readouterr().out
    assert untracked(root) == []
    assert command_line([*words, "--portable"]) == 0
    assert len(untracked(root)) == 1
    assert exclude.read_bytes() == before
    assert command_line([*words, "--uninstall"]) == 0
    assert command_line(words) == 0
    assert command_line([*words, "--uninstall"]) == 0
    assert exclude.read_bytes() == before


@pytest.mark.parametrize(
    "place",
    [
        "/home/me/.cache/uv/archive-v0/Kq/lib/python3.13/site-packages/noclobber/hook/start.py",
        "/home/me/.local/share/pipx/.cache/1f/lib/python3.12/site-packages/noclobber/hook/start.py",
        "/home/me/.local/pipx/.cache/1f/lib/python3.12/site-packages/noclobber/hook/start.py",
    ],
)
def test_an_environment_that_goes_away_is_noticed(
    place: str, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """finding U4: `uvx noclobber install` would block every write some days later."""
    monkeypatch.setattr(machine_paths, "START", place)
    assert command_line(["install", "claude-code", "--root", str(root)]) == 2
    told = capsys.readouterr().err
    assert "uv tool install noclobber" in told
    assert not (root / ".claude/settings.local.json").exists()
    # Removing, and hooks that name no path, are fine.
    assert command_line(["install", "claude-code", "--root", str(root), "--uninstall"]) == 0
    assert command_line(["install", "claude-code", "--root", str(root), "--dry-run"]) == 0


def test_another_cache_of_uv_is_known_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """finding U4."""
    monkeypatch.setattr(machine_paths, "START", "/scratch/mine/x/site-packages/noclobber/hook/start.py")
    assert machine_paths.short_lived() == ""
    monkeypatch.setenv("UV_CACHE_DIR", "/scratch/mine")
    assert "uvx" in machine_paths.short_lived()


def test_an_installation_says_that_it_was_tried_and_how_to_undo_it(root: Path) -> None:
    """N-install: a dry event through every command that was written; programs get it as well."""
    home = str(root.parent / "home")
    said = run("install", "claude-code", cwd=root, HOME=home)
    assert "a dry event went through the hooks: they work" in said.out
    assert said.out.splitlines()[-1] == "undo: noclobber install claude-code --uninstall"
    row = json.loads(run("install", "claude-code", "--json", cwd=root, HOME=home).out)[0]
    assert row["trouble"] == ""
    assert not (root / ".noclobber").exists()


def test_removing_the_hooks_takes_the_line_of_git_back_as_well(root: Path) -> None:
    """finding U4: byte for byte; a line that somebody else wrote stays."""
    exclude = root / ".git/info/exclude"
    before = exclude.read_bytes()
    for words in (["claude-code"], ["claude-code", "--uninstall"]):
        assert command_line(["install", *words, "--root", str(root)]) == 0
    assert exclude.read_bytes() == before

    exclude.write_text("**/.claude/settings.local.json\n")
    for words in (["claude-code"], ["claude-code", "--uninstall"]):
        assert command_line(["install", *words, "--root", str(root)]) == 0
    assert exclude.read_text() == "**/.claude/settings.local.json\n"


def test_an_exclude_file_that_leads_elsewhere_is_not_changed_by_removing_hooks(
    root: Path, tmp_path: Path
) -> None:
    """finding U4: a repository may bring a link there."""
    exclude, elsewhere = root / ".git/info/exclude", tmp_path / "elsewhere"
    text = f"{machine_paths.HEADING}\n**/.claude/settings.local.json\n"
    elsewhere.write_text(text)
    exclude.unlink()
    exclude.symlink_to(elsewhere)
    for words in (["claude-code"], ["claude-code", "--uninstall"]):
        assert command_line(["install", *words, "--root", str(root)]) == 0
    assert elsewhere.read_text() == text
