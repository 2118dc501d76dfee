"""A checked write turns no switch, wherever it is and whatever it is called (findings S26, S31, S32)."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from noclobber import ReservedFileError, StorageError, Workspace
from noclobber.core import own_state, switches
from noclobber.guard.commands import run_command
from tests.rigs.hooks import HookRig, is_denied, refusal


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder of this test's own."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    for name in ("XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "CODEX_HOME", "COPILOT_HOME"):
        monkeypatch.delenv(name, raising=False)
    return folder


def refused(rig: HookRig, path: Path) -> str:
    """Return what a hook says to a write."""
    given = {"file_path": str(path), "content": "off"}
    return str(refusal(rig.ask("Write", given, tool_use_id=rig.next_id()))["error_type"])


@pytest.mark.parametrize(
    "name",
    [
        "home/.claude/plugins/cache/noclobber/noclobber/1/hooks/hooks.json",
        "home/.claude/plugins/installed_plugins.json",
        "home/.claude/session-env/1234/sessionstart-hook-0.sh",
        "home/.codex/plugins/cache/x/noclobber/1/hooks/hooks.json",
        "home/.copilot/installed-plugins/noclobber/hooks.json",
        "home/.copilot/config.json",
        "home/.gemini/extensions/noclobber/hooks/hooks.json",
        "home/.gemini/trustedFolders.json",
        "home/.qwen/extensions/noclobber/gemini-extension.json",
        "home/.config/opencode/opencode.json",
        "home/.local/share/noclobber/packages/codex/hooks/hooks.json",
        "home/.local/state/noclobber/trusted/x",
        "noclobber.toml",
        "workspace/sub/noclobber.toml",
        "workspace/sub/.claude/settings.local.json",
        "elsewhere/project/.codex/config.toml",
        "elsewhere/project/.opencode/plugins/x.js",
    ],
)
def test_a_switch_is_one_in_every_folder(rig: HookRig, home: Path, tmp_path: Path, name: str) -> None:
    """finding S26: packages, another project's, the folder's above, one below."""
    assert refused(rig, tmp_path / name) == "RESERVED_FILE"


@pytest.mark.parametrize(
    ("variable", "below"),
    [
        ("CODEX_HOME", "config.toml"),
        ("CODEX_HOME", "plugins/cache/x/noclobber/1/hooks/hooks.json"),
        ("COPILOT_HOME", "hooks/noclobber.json"),
        ("CLAUDE_CONFIG_DIR", "settings.json"),
        ("CLAUDE_CONFIG_DIR", "plugins/x"),
        ("QWEN_HOME", "settings.json"),
        ("QWEN_HOME", ".qwen/settings.json"),
        ("GEMINI_CLI_HOME", ".gemini/settings.json"),
        ("XDG_CONFIG_HOME", "opencode/plugin/noclobber.js"),
        ("XDG_STATE_HOME", "noclobber/trusted/x"),
        ("XDG_DATA_HOME", "noclobber/packages/x"),
        ("CLAUDE_ENV_FILE", ""),
        ("GEMINI_CLI_TRUSTED_FOLDERS_PATH", ""),
    ],
)
@pytest.mark.parametrize("is_linked", [False, True])
def test_a_hosts_folder_counts_wherever_the_environment_puts_it(
    rig: HookRig,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    below: str,
    is_linked: bool,
) -> None:
    """finding S26: by the name in the environment, and by where that leads."""
    (tmp_path / "moved").mkdir()
    given = tmp_path / "moved" / "there"
    if is_linked:
        (tmp_path / "link").symlink_to(tmp_path / "moved")
        given = tmp_path / "link" / "there"
    monkeypatch.setenv(variable, str(given))

    assert refused(rig, tmp_path / "moved" / "there" / below) == "RESERVED_FILE"
    assert refused(rig, given / below) == "RESERVED_FILE"
    assert rig.write(tmp_path / "moved" / "another.md", "x") == {}


@pytest.mark.parametrize("made", ["file", "folder", "nothing yet", "nothing in the folder yet"])
@pytest.mark.parametrize("place", ["home", "workspace"])
def test_the_file_behind_a_link_is_the_switch(
    rig: HookRig, home: Path, tmp_path: Path, made: str, place: str
) -> None:
    """finding S26, finding S31: dotfiles are kept so, and a repository may bring such a link."""
    dotfiles, host = tmp_path / "dotfiles", tmp_path / place / ".codex"
    (dotfiles / "c").mkdir(parents=True)
    target = dotfiles / "c" / "hooks.json"
    if "folder" in made:
        host.symlink_to(dotfiles / "c")
    else:
        host.mkdir()
        (host / "hooks.json").symlink_to(target)
    if "nothing" not in made:
        target.write_text("on")

    assert refused(rig, target) == "RESERVED_FILE"
    assert refused(rig, host / "hooks.json") == "RESERVED_FILE"
    assert rig.write(dotfiles / "c" / "notes.md", "x") == {}


def test_what_install_wrote_is_reserved_by_its_real_name(
    rig: HookRig, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding S26: `--to FOLDER` is known to nobody but the list. After `--uninstall` it is a file again."""
    from noclobber.cli import main

    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    words = ["install", "gemini", "--as", "plugin", "--to", str(tmp_path / "link"), "--portable"]
    assert main(words) == 0
    written = [path for path in (tmp_path / "real").rglob("*") if path.is_file()]

    assert len(written) >= 3
    os.link(written[0], rig.root / "notes.txt")
    assert {refused(rig, path) for path in [*written, rig.root / "notes.txt"]} == {"RESERVED_FILE"}
    assert main([*words, "--uninstall"]) == 0
    assert not is_denied(rig.ask("Write", {"file_path": str(written[0]), "content": "x"}, tool_use_id="z"))


@pytest.mark.parametrize(
    "script",
    [
        "ln -s elsewhere .codex",
        "mkdir -p elsewhere && ln -s elsewhere .github",
        "mkdir -p sub/.claude && echo {} > sub/.claude/settings.json",
        "echo > sub/noclobber.toml",
        "mv sub/.codex sub/codex",
        "rm -r sub/.codex",
        "mkdir -p .claude && echo {} > .claude/settings.json",
        "chmod 0 sub/.codex",
        "echo x > behind.toml",
    ],
)
def test_a_command_does_not_land_what_turns_a_switch(root: Path, home: Path, script: str) -> None:
    """finding S26, finding S31: by its name, by a link in the place of a host's folder, and behind one."""
    (root / "sub" / ".codex").mkdir(parents=True)
    (root / "sub" / ".codex" / "config.toml").write_text("on")
    (root / "behind.toml").write_text("on")
    (home / ".codex").mkdir()
    (home / ".codex" / "config.toml").symlink_to(root / "behind.toml")
    with Workspace(root) as workspace, workspace.turn() as turn, pytest.raises(ReservedFileError):
        run_command(turn, ["sh", "-c", script], require=True)


def test_a_clone_may_come_and_go_with_its_own_settings(root: Path, home: Path) -> None:
    """finding S26: nobody works in a folder that a command has just made."""
    with Workspace(root) as workspace, workspace.turn() as turn:
        for script in (
            "mkdir -p clone/.claude clone/deep/.codex && echo {} > clone/.claude/settings.json"
            " && echo > clone/noclobber.toml && echo > clone/deep/.codex/config.toml",
            "rm -r clone",
        ):
            done = run_command(turn, ["sh", "-c", script], require=True)
            assert done.exit_code == 0
    assert not (root / "clone").exists()


FAILURES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.EINTR, errno.ESTALE)


@pytest.mark.parametrize("code", FAILURES)
@pytest.mark.parametrize("call", ["lstat", "open", "listdir", "stat"])
def test_a_check_that_fails_is_a_refusal(
    root: Path, home: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    """finding S32: what cannot be looked at is not taken for "no switch": by name, by link, by hard link."""
    (home / ".codex").mkdir()
    (home / ".cline" / "plugins").mkdir(parents=True)
    (home / ".codex" / "config.toml").symlink_to(root / "behind.toml")
    (home / ".cline" / "plugins" / "x.js").write_text("on")
    own_state.add(switches.INSTALLED, os.fsencode(root / "listed"), os.fsencode(root / "listed"))
    for name, real in (("behind.toml", None), ("notes.txt", home / ".cline" / "plugins" / "x.js")):
        (root / name).write_text("on") if real is None else os.link(real, root / name)
    failing: list[str] = []

    def is_one(name: str) -> bool:
        path = str(root / name)
        return switches.is_switch(path, str(root)) or switches.is_another_name(
            path, str(root), (), with_switches=True
        )

    assert [is_one(name) for name in ("behind.toml", "notes.txt", "listed", "a.md")] == [
        True,
        True,
        True,
        False,
    ]
    for number in range(400):
        for name in ("behind.toml", "notes.txt", "listed"):
            with monkeypatch.context() as patch:
                failing.clear()
                _fail_at(patch, call, number, code, failing)
                try:
                    found = is_one(name)
                except StorageError as error:
                    assert os.strerror(code) in error.message
                else:
                    assert found, (name, failing)
        if not failing:
            break


def _fail_at(patch: pytest.MonkeyPatch, name: str, number: int, code: int, failing: list[str]) -> None:
    real: Callable[..., object] = getattr(os, name)
    calls = iter(range(1 << 20))

    def call(path: object, *given: object, **more: object) -> object:
        if next(calls) == number:
            failing.append(str(path))
            raise OSError(code, os.strerror(code), path)
        return real(path, *given, **more)

    patch.setattr(os, name, call)
