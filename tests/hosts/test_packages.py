"""Packages of each host's own kind: the same hooks, in other files. `tests/e2e` runs them in the real hosts."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from noclobber.cli import main as command_line
from noclobber.hosts import HOSTS, packages, traits
from noclobber.hosts.hook_entries import hook_file
from noclobber.hosts.traits import all_with_packages

FORMATS = all_with_packages()
RECOMMENDED = {host: traits.of(host).recommended for host in HOSTS}

REPOSITORY = Path(__file__).resolve().parents[2]


def files_below(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("portable", [False, True])
@pytest.mark.parametrize("host", FORMATS)
def test_a_package_has_the_hooks_that_install_writes(host: str, portable: bool, root: Path) -> None:
    """N-install: one source, so a package never checks less than a configuration."""
    ours = hook_file(host, "user", str(root), portable=portable)
    files = packages.contents(host, portable=portable)
    manifest = json.loads(files[FORMATS[host].manifest])
    assert manifest["name"].startswith("noclobber")
    hooks = files[FORMATS[host].hooks]
    if ours.whole is not None:
        assert hooks == ours.whole
        return
    value = json.loads(hooks)
    found = [(event, entry) for event, entries in value["hooks"].items() for entry in entries]
    assert sorted(found, key=str) == sorted(((entry.event, entry.value) for entry in ours.entries), key=str)
    assert all(value[key] == member for key, member in ours.preamble)


def test_packages_are_written_once_and_removed_without_a_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """N-install: the command says what to run in the host, and why this way or the other."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    (folder / "mine.txt").write_text("mine\n")
    words = ["install", *FORMATS, "--as", "plugin", "--to", str(folder)]
    assert command_line([*words, "--dry-run"]) == 0
    assert list(files_below(folder)) == ["mine.txt"]

    assert command_line(words) == 0
    said = capsys.readouterr().out
    assert "claude plugin install noclobber@noclobber" in said
    assert f"gemini extensions install --consent '{folder}/gemini'" in said
    assert RECOMMENDED["gemini"].why in said
    once = files_below(folder)
    assert {"claude-code/hooks/hooks.json", ".agents/plugins/marketplace.json"} <= set(once)
    for host in ("claude-code", "copilot"):
        listed = json.loads(once[FORMATS[host].marketplace])["plugins"]
        assert [(folder / one["source"]).is_dir() for one in listed] == [True]

    assert command_line(words) == 0
    assert capsys.readouterr().out.count("is up to date") == len(FORMATS)
    assert command_line([*words, "--uninstall"]) == 0
    assert files_below(folder) == {"mine.txt": "mine\n"}
    assert os.listdir(folder) == ["mine.txt"]


def test_a_file_of_somebody_else_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """N-install: a folder may be anybody's."""
    theirs = tmp_path / "gemini" / "gemini-extension.json"
    theirs.parent.mkdir()
    theirs.write_text('{"name": "other"}')
    assert command_line(["install", "gemini", "--as", "plugin", "--to", str(tmp_path)]) != 0
    assert "--to" in capsys.readouterr().err
    assert files_below(tmp_path) == {"gemini/gemini-extension.json": '{"name": "other"}'}


def test_a_host_without_packages_is_told_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Errors say what to do instead."""
    assert command_line(["install", "cursor", "--as", "plugin", "--to", str(tmp_path)]) == 2
    assert "noclobber install cursor" in capsys.readouterr().err
    assert command_line(["install", "cursor", "--to", str(tmp_path)]) == 2
    assert "--as plugin" in capsys.readouterr().err


def test_every_host_has_a_recommendation_that_can_be_followed(
    root: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """N-install: `install` says which way works best, and why."""
    assert set(RECOMMENDED) == set(HOSTS)
    for host, one in RECOMMENDED.items():
        assert one.form in ("hooks", "user") or host in FORMATS
    command_line(["install", "gemini", "--root", str(root)])
    assert f"`--as plugin` works better. {RECOMMENDED['gemini'].why}" in capsys.readouterr().out
    command_line(["install", "gemini", "opencode", "--user", "--root", str(root)])
    said = capsys.readouterr().out
    assert f"gemini: this works as well as `--as plugin`. {RECOMMENDED['gemini'].why}" in said
    assert f"opencode: this is the best way to install it here. {RECOMMENDED['opencode'].why}" in said
    command_line(["install", "claude-code", "--user", "--root", str(root)])
    assert "claude-code: without `--user` works better" in capsys.readouterr().out


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nobody's own folders are touched."""
    folder = tmp_path.parent / f"{tmp_path.name}-home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    return folder


def test_packages_are_kept_in_the_users_data_folder(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-install: where nobody deletes it by accident; a relative path in the variable counts for none."""
    assert packages.default_folder() == f"{home}/.local/share/noclobber/packages"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert packages.default_folder() == f"{tmp_path}/noclobber/packages"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert packages.default_folder() == f"{home}/.local/share/noclobber/packages"


def test_make_packages_writes_all_of_them_for_any_machine(tmp_path: Path) -> None:
    """N-install: what is published names no path of the machine that made it."""
    shown: Any = subprocess.run(
        ["make", "-n", "packages"], cwd=REPOSITORY, capture_output=True, text=True, timeout=60
    )
    [line] = [line for line in shown.stdout.splitlines() if " install " in line and "--as plugin" in line]
    words = line.split()[line.split().index("install") :]
    assert words[-2:] == ["--to", "dist/packages"]
    assert command_line([*words[:-1], str(tmp_path)]) == 0
    written = files_below(tmp_path)
    assert {name.partition("/")[0] for name in written if not name.startswith(".")} == set(FORMATS)
    assert not [name for name, text in written.items() if str(REPOSITORY) in text or "/bin/python" in text]
