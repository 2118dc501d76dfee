"""`noclobber doctor` about hooks: whether they run, and what keeps a host from running them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from noclobber.cli import main as command_line
from noclobber.core.findings import Finding
from noclobber.hook import doctor, dry_event
from noclobber.hosts import HOSTS, hook_entries, install, installations, loading
from noclobber.hosts.hook_entries import hook_file
from noclobber.hosts.traits import all_with_packages
from noclobber.shell.level import ShellLevel
from tests.rigs.hooks import HookRig
from tests.rigs.trusting import trusted_options

FORMATS = all_with_packages()

HOOKED = [host for host in HOSTS if host not in ("cline", "opencode")]  # Plugins are no command lines.


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nobody's own configuration is looked at."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setattr(doctor, "TRIES", 1)  # For the speed, which is not what these tests are about.
    for name in ("CODEX_HOME", "COPILOT_HOME", "XDG_DATA_HOME", "GEMINI_CLI_TRUSTED_FOLDERS_PATH"):
        monkeypatch.delenv(name, raising=False)
    return folder


def findings(root: Path) -> dict[tuple[str, str], Finding]:
    """Return the findings by name and by the first words of what they say."""
    return {
        (finding.name, finding.detail.partition(":")[0].partition(" (")[0]): finding
        for finding in doctor.check(str(root))
    }


def everything_below(*folders: Path) -> dict[str, bytes]:
    """Return every file, with its content."""
    return {
        str(path): path.read_bytes() if path.is_file() else b""
        for folder in folders
        for path in sorted(folder.rglob("*"))
    }


def trust_by_codex(home: Path, root: Path, form: str = "project") -> None:
    """Write what Codex writes when its user trusts the hooks."""
    [one] = [one for one in installations.find("codex", str(root)) if one.form == form]
    lines = []
    for number, (_, found) in enumerate(loading._hashes(one)):
        key = "noclobber@noclobber:hooks/hooks.json" if form == "plugin" else one.path
        lines.append(f'[hooks.state."{key}:event:{number}:0"]\ntrusted_hash = "{found}"\n')
    if form == "plugin":
        lines.append('[plugins."noclobber@noclobber"]\nenabled = true\n')
    (home / ".codex").mkdir(exist_ok=True)
    (home / ".codex" / "config.toml").write_text("".join(lines))


def trust_by_gemini(home: Path, folder: Path, host: str = "gemini", rule: str = "TRUST_FOLDER") -> None:
    """Write what Gemini CLI writes when its user trusts a folder."""
    (home / f".{host}").mkdir(exist_ok=True)
    (home / f".{host}" / "trustedFolders.json").write_text(json.dumps({str(folder): rule}))


# -- which hooks there are ------------------------------------------------------------------------------------


def test_an_agent_that_is_used_elsewhere_makes_no_folder_unhealthy(
    rig: HookRig, root: Path, home: Path
) -> None:
    """R-hook: a library's user who also has a coding agent at home needs no hooks here."""
    (home / ".claude").mkdir(exist_ok=True)
    [finding] = [finding for finding in doctor.check(str(root)) if finding.name == "hooks of claude-code"]
    assert finding.ok
    assert "noclobber install claude-code" in finding.remedy


def test_the_doctor_names_missing_and_doubled_hooks(rig: HookRig, root: Path, home: Path) -> None:
    """N-install."""
    (root / ".claude").mkdir()
    assert findings(root) == {
        ("hooks of claude-code", "missing"): Finding(
            "hooks of claude-code", False, "missing", "noclobber install claude-code"
        )
    }

    command_line(["install", "claude-code", "copilot", "--root", str(root)])
    # As earlier versions installed them: Copilot reads this file, and not the local one.
    (root / ".claude/settings.local.json").rename(root / ".claude/settings.json")
    command_line(["install", "claude-code", "--user", "--root", str(root)])
    found = findings(root)
    assert found["hooks of claude-code", "in place"].ok
    doubled = found["hooks of claude-code", "doubled"]
    assert doubled.ok
    assert str(home) in doubled.detail
    assert str(root) in doubled.detail
    assert "twice" in found["hooks of copilot and claude-code", "doubled"].detail
    assert found["failures of hooks", "none"].ok
    assert any(name == "speed of a hook" for name, _ in found)


def install_package(host: str, home: Path) -> Path:
    """Write a package, and what the host writes when it installs it; return the file with the hooks."""
    folder = home / ".local/share/noclobber/packages"
    command_line(["install", host, "--as", "plugin"])
    hooks = folder / host / FORMATS[host].hooks
    if host in ("gemini", "qwen"):
        place = home / f".{host}" / "extensions" / "noclobber" / "hooks" / "hooks.json"
    elif host == "codex":
        place = home / ".codex/plugins/cache/noclobber/noclobber/0.1.0/hooks/hooks.json"
    elif host == "claude-code":
        place = home / ".claude/plugins/cache/noclobber/noclobber/0.1.0/hooks/hooks.json"
        listed = {"plugins": {"noclobber@noclobber": [{"installPath": str(place.parents[1])}]}}
        place.parent.mkdir(parents=True)
        (home / ".claude/plugins/installed_plugins.json").write_text(json.dumps(listed))
        (home / ".claude/settings.json").write_text('{"enabledPlugins": {"noclobber@noclobber": true}}')
    elif host == "copilot":
        source = {"noclobber": {"source": {"source": "directory", "path": str(folder)}}}
        (home / ".copilot").mkdir()
        settings = {"extraKnownMarketplaces": source, "enabledPlugins": {"noclobber@noclobber": True}}
        (home / ".copilot/settings.json").write_text(json.dumps(settings))
        return hooks
    else:
        (home / ".config/opencode").mkdir(parents=True)
        settings_file = home / ".config/opencode/opencode.jsonc"
        settings_file.write_text(json.dumps({"plugin": [f"file://{folder}/opencode"]}))
        return hooks
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(hooks.read_text())
    return place


@pytest.mark.parametrize("host", FORMATS)
def test_a_package_is_found_and_so_is_what_is_beside_it(
    host: str, rig: HookRig, root: Path, home: Path
) -> None:
    """finding H11: a plugin alone protects; a plugin and the project's hooks answer every event twice."""
    place = install_package(host, home)
    if host == "codex":
        trust_by_codex(home, root, "plugin")
    found = findings(root)
    assert found[f"hooks of {host}", "in place"].detail == f"in place ({place})"
    assert not [finding for finding in found.values() if not finding.ok and finding.name != "speed of a hook"]

    command_line(["install", host, "--root", str(root)])
    doubled = findings(root)[f"hooks of {host}", "doubled"]
    assert str(place) in doubled.detail
    assert f"noclobber install {host} --uninstall" in doubled.remedy


def test_a_package_that_is_out_of_date_is_renewed_in_the_host_too(
    rig: HookRig, root: Path, home: Path
) -> None:
    """N-install: the host has a copy, so writing the package anew is not enough."""
    place = install_package("gemini", home)
    place.write_text(place.read_text().replace("30000", "29000"))
    old = findings(root)["hooks of gemini", "out of date"]
    assert not old.ok
    assert old.remedy.startswith(
        "noclobber install gemini --as plugin && gemini extensions uninstall noclobber && "
    )


def test_two_versions_for_one_host_are_bad(rig: HookRig, root: Path, home: Path) -> None:
    """finding H11: hooks of two environments answer every event, and one of them may be of another version."""
    command_line(["install", "qwen", "--root", str(root)])
    command_line(["install", "qwen", "--user", "--portable", "--root", str(root)])
    two = findings(root)["hooks of qwen", "two versions"]
    assert not two.ok
    assert hook_entries.START in two.detail
    assert "on the PATH" in two.detail


# -- whether they run -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", HOOKED)
def test_a_dry_event_leaves_no_trace(host: str, rig: HookRig, root: Path, home: Path) -> None:
    """finding H3, N-ledger: not in the ledger, not in what sessions remember, not in the log, not in the project."""
    file = root / "a.txt"
    file.write_text("x\n")
    rig.read(file)
    rig.write(file, "y\n")
    command_line(["install", host, "--root", str(root)])
    before = everything_below(root, rig.runtime, home)
    [one] = installations.find(host, str(root))
    for _, line in one.commands():
        assert dry_event.trouble_with(host, line) == ""
    doctor.check(str(root))
    assert everything_below(root, rig.runtime, home) == before


@pytest.mark.parametrize("host", HOOKED)
@pytest.mark.parametrize("what", ["interpreter", "package", "crash"])
def test_hooks_that_do_not_run_are_broken(
    host: str, what: str, rig: HookRig, root: Path, tmp_path: Path
) -> None:
    """finding H3, finding U4: each command is really run, so a dead path is found wherever it is."""
    command_line(["install", host, "--user", "--root", str(root)])
    path = Path(hook_file(host, "user", str(root)).path)
    crash = tmp_path / "python"
    crash.write_text("#!/bin/sh\nkill -9 $$\n")
    crash.chmod(0o755)
    gone = {
        "interpreter": (os.path.realpath(sys.executable), "/gone/python"),
        "package": (hook_entries.START, "/gone/noclobber/hook/start.py"),
        "crash": (os.path.realpath(sys.executable), str(crash)),
    }[what]
    path.write_text(path.read_text().replace(*gone))
    broken = findings(root)[f"hooks of {host}", "broken"]
    assert not broken.ok
    assert str(path) in broken.detail
    if what != "crash":
        assert "/gone/" in broken.detail
    assert f"noclobber install {host}" in broken.remedy


def test_nothing_that_a_repository_brings_along_is_run(rig: HookRig, root: Path, tmp_path: Path) -> None:
    """finding S13: a configuration that was cloned may look like ours; it is looked at, not run."""
    proof = tmp_path / "it was run"
    evil = root / "python"
    evil.write_text(f"#!/bin/sh\ntouch '{proof}'\n")
    evil.chmod(0o755)
    command_line(["install", "claude-code", "--root", str(root)])
    path = Path(hook_file("claude-code", "project", str(root)).path)
    value = json.loads(path.read_text())
    ours = value["hooks"]["PreToolUse"][0]["hooks"][0]["command"]
    for line in (
        f"touch '{proof}' # noclobber hook claude-code check",
        f"{evil} -I -S /x/noclobber/hook/start.py claude-code check",
        ours.replace(os.path.realpath(sys.executable), str(evil)),
        ours.replace("shift;", f"shift; touch '{proof}';"),
        f"{ours}; touch '{proof}'",
        f"{ours}\n'",
    ):
        value["hooks"]["PreToolUse"][0]["hooks"][0]["command"] = line
        path.write_text(json.dumps(value))
        assert [finding for finding in doctor.check(str(root)) if not finding.ok]
        assert not proof.exists(), line


def test_a_dead_path_in_a_shared_configuration_is_found_without_running_it(rig: HookRig, root: Path) -> None:
    """finding U4: a colleague's paths, committed by mistake."""
    command_line(["install", "qwen", "--root", str(root)])
    path = Path(hook_file("qwen", "project", str(root)).path)
    path.write_text(path.read_text().replace(hook_entries.START, "/gone/noclobber/hook/start.py"))
    assert "/gone/" in findings(root)["hooks of qwen", "broken"].detail


def test_one_dead_note_among_living_hooks_is_found(rig: HookRig, root: Path) -> None:
    """finding U4: a note that does not run says nothing, as one that runs; the doctor can tell."""
    command_line(["install", "gemini", "--user", "--root", str(root)])
    path = Path(hook_file("gemini", "user", str(root)).path)
    value = json.loads(path.read_text())
    [hook] = value["hooks"]["SessionEnd"][0]["hooks"]
    hook["command"] = hook["command"].replace(hook_entries.START, "/gone/noclobber/hook/start.py")
    path.write_text(json.dumps(value))
    assert "SessionEnd" in findings(root)["hooks of gemini", "broken"].detail


def test_a_host_whose_shell_is_missing_cannot_run_hooks(
    rig: HookRig, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding H11: Gemini CLI and Qwen Code run hooks by bash, which a small system may not have."""
    line = hook_entries.command("gemini", "check")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "there is no bash" in dry_event.trouble_with("gemini", line)


def test_an_older_command_is_out_of_date_although_it_works(rig: HookRig, root: Path) -> None:
    """N-install: hooks of a version that did not answer for itself."""
    command_line(["install", "claude-code", "--root", str(root)])
    path = Path(hook_file("claude-code", "project", str(root)).path)
    value = json.loads(path.read_text())
    for groups in value["hooks"].values():
        for group in groups:
            line = group["hooks"][0]["command"]
            group["hooks"][0]["command"] = line[line.index(os.path.realpath(sys.executable)) :]
    path.write_text(json.dumps(value))
    assert not findings(root)["hooks of claude-code", "out of date"].ok


def test_the_doctor_says_when_hooks_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """N-install: slower than they should be."""
    monkeypatch.setattr(doctor, "_seconds", lambda line: 1.0 if "-c" not in line else 0.01)
    slow = doctor._speed("codex")
    assert not slow.ok
    assert slow.detail.startswith("slow")


# -- whether the host runs them -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "file", "text"),
    [
        ("claude-code", ".claude/settings.local.json", '{"disableAllHooks": true}'),
        ("claude-code", "~/.claude/settings.json", '{\n  "disableAllHooks" : true\n}'),
        ("qwen", ".qwen/settings.json", '{"disableAllHooks": true}'),
        ("gemini", "~/.gemini/settings.json", '{"hooksConfig": {"enabled": false}}'),
        ("gemini", "~/.gemini/settings.json", '{"hooksConfig": {"disabled": ["noclobber-check"]}}'),
        ("codex", "~/.codex/config.toml", "[features]\nhooks = false\n"),
        ("copilot", "~/.copilot/settings.json", '{"disableAllHooks": true}'),
    ],
)
def test_the_doctor_says_that_hooks_are_switched_off(
    rig: HookRig, root: Path, home: Path, host: str, file: str, text: str
) -> None:
    """finding S13, finding H11: in place, and yet no write is checked."""
    assert command_line(["install", host, "--root", str(root)]) == 0
    assert (f"hooks of {host}", "switched off") not in findings(root)
    path = Path(file.replace("~", str(home))) if file.startswith("~") else root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        path.write_text(path.read_text().replace("{", text.rstrip("}\n") + ",", 1))
    else:
        path.write_text(text)
    off = findings(root)[f"hooks of {host}", "switched off"]
    assert not off.ok
    assert str(path) in off.detail


def test_the_doctor_knows_whether_codex_trusts_exactly_these_hooks(
    rig: HookRig, root: Path, home: Path
) -> None:
    """finding H11: never trusted, trusted, and changed since. `tests/e2e` compares the hashes with Codex's own."""
    command_line(["install", "codex", "--root", str(root)])
    assert not findings(root)["hooks of codex", "untrusted"].ok
    trust_by_codex(home, root)
    assert findings(root)["hooks of codex", "trusted"].ok
    path = root / ".codex" / "hooks.json"
    path.write_text(path.read_text().replace('"^Bash$"', '"^Bash.*$"'))
    changed = findings(root)["hooks of codex", "untrusted"]
    assert "PreToolUse" in changed.detail
    assert not changed.ok
    (home / ".codex" / "config.toml").write_text("not [ toml")
    assert not findings(root)["hooks of codex", "probably untrusted"].ok


def test_the_doctor_knows_hooks_that_codex_was_told_to_skip(rig: HookRig, root: Path, home: Path) -> None:
    """finding H11: one hook can be switched off by its key."""
    command_line(["install", "codex", "--root", str(root)])
    trust_by_codex(home, root)
    config = home / ".codex" / "config.toml"
    config.write_text(config.read_text().replace("trusted_hash", "enabled = false\ntrusted_hash", 1))
    assert not findings(root)["hooks of codex", "switched off"].ok


@pytest.mark.parametrize(
    ("rules", "is_loaded"),
    [
        ({}, False),
        ({".": "TRUST_FOLDER"}, True),
        ({"..": "TRUST_FOLDER"}, True),
        ({"sub": "TRUST_PARENT"}, True),
        ({".": "DO_NOT_TRUST"}, False),
        ({"..": "TRUST_FOLDER", ".": "DO_NOT_TRUST"}, False),
        ({"../other": "TRUST_FOLDER"}, False),
        ({"sub": "TRUST_FOLDER"}, False),
    ],
)
def test_the_doctor_says_when_gemini_does_not_trust_the_folder(
    rules: dict[str, str], is_loaded: bool, rig: HookRig, root: Path, home: Path
) -> None:
    """finding H11: hooks of the project are in place and not loaded; hooks of the user are loaded anywhere."""
    command_line(["install", "gemini", "--root", str(root)])
    (home / ".gemini").mkdir(exist_ok=True)
    trusted = {os.path.normpath(root / folder): rule for folder, rule in rules.items()}
    (home / ".gemini" / "trustedFolders.json").write_text(json.dumps(trusted))
    found = findings(root)
    assert (("hooks of gemini", "not loaded") not in found) == is_loaded
    if not is_loaded:
        assert not found["hooks of gemini", "not loaded"].ok
        assert "--as plugin" in found["hooks of gemini", "not loaded"].remedy
        command_line(["install", "gemini", "--user", "--root", str(root)])
        assert findings(root)["hooks of gemini", "not loaded"].ok  # Said, and harmless: the user's protect.


def test_qwen_asks_about_folders_only_if_it_was_told_to(rig: HookRig, root: Path, home: Path) -> None:
    """finding H11."""
    command_line(["install", "qwen", "--root", str(root)])
    assert ("hooks of qwen", "not loaded") not in findings(root)
    (home / ".qwen").mkdir(exist_ok=True)
    settings: dict[str, Any] = {"security": {"folderTrust": {"enabled": True}}}
    (home / ".qwen" / "settings.json").write_text(json.dumps(settings))
    assert not findings(root)["hooks of qwen", "not loaded"].ok
    trust_by_gemini(home, root, "qwen")
    assert ("hooks of qwen", "not loaded") not in findings(root)


def test_the_doctor_says_when_copilot_does_not_trust_the_folder(rig: HookRig, root: Path, home: Path) -> None:
    """finding H11, finding S2: with `-p` nobody is asked, and the project's hooks do not run."""
    command_line(["install", "copilot", "--root", str(root)])
    assert not findings(root)["hooks of copilot", "not loaded"].ok
    (home / ".copilot").mkdir(exist_ok=True)
    (home / ".copilot" / "config.json").write_text(json.dumps({"trustedFolders": [str(root)]}))
    assert ("hooks of copilot", "not loaded") not in findings(root)


def test_doctor_says_which_level_shell_commands_get_and_why(
    root: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-shell: by a real attempt; the option, and what the place does not give, are the reasons."""

    def shell() -> str:
        [found] = [finding for finding in doctor.check(str(root)) if finding.name == "shell commands"]
        assert found.ok
        return found.detail

    install.carry_out(hook_file("claude-code", "project", str(root)))
    install.carry_out(hook_file("gemini", "project", str(root)))
    if shell().startswith("guarded"):
        assert shell() == (
            "guarded in claude-code; watched in gemini, guarded if `noclobber start gemini` starts it"
        )
    monkeypatch.setattr(doctor, "probe", lambda _: ShellLevel("watched", "it is forbidden"))
    assert shell() == "watched: there can be no private view here (it is forbidden)"
    trusted_options(root, 'shell = "watched"\n')
    assert "shell = " in shell()
    trusted_options(root, 'shell = "off"\n')
    assert shell().startswith("not looked at")


@pytest.mark.parametrize(("portable", "level"), [(True, "watched"), (False, "guarded")])
def test_doctor_says_watched_for_a_plugin_that_was_made_for_any_machine(
    root: Path, home: Path, monkeypatch: pytest.MonkeyPatch, portable: bool, level: str
) -> None:
    """N-shell: opencode's plugin with `--portable` knows no path to bring the shell to."""
    monkeypatch.setattr(doctor, "probe", lambda _: ShellLevel("guarded"))
    install.carry_out(hook_file("opencode", "project", str(root), portable=portable))
    [found] = [finding for finding in doctor.check(str(root)) if finding.name == "shell commands"]
    assert found.detail == f"{level} in opencode"
