"""Options of a project that weaken the guard count only where the user has looked at them (ruling 34, S30)."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from noclobber import Workspace
from noclobber.cli import main
from noclobber.cli.trust import BY_AGENTS
from noclobber.core import own_state, trust
from noclobber.core.options import DEFAULTS, load_options
from tests.rigs.hooks import HookRig
from tests.rigs.trusting import trusted_options

LOOSE: dict[str, Any] = {
    'switches = "open"': {"switches": "open"},
    'shell = "off"': {"shell": "off"},
    'shell = "watched"': {"shell": "watched"},
    'unchecked = ["src"]': {"unchecked": ["src"]},
    'formatters = ["sh {file}"]': {"formatters": ["sh {file}"]},
    'versions = "off"': {"versions": "off"},
    "[versions]\ndays = 0": {"versions_days": 0},
    "versions_bytes = 1": {"versions_bytes": 1},
    'versions_exclude = ["*"]': {"versions_exclude": ["*"]},
    "versions_exclude = []": {"versions_exclude": []},
    '[versions]\nignored = "keep"': {"versions_ignored": "keep"},
}
TIGHT = (
    'unread = "deny"',
    'write_scope = ["docs"]',
    'unchecked = ["!build"]',
    'layout = "refuse"',
    "versions_days = 30",
    'switches = "reserved"',
    'reserved = ["x"]',
    'on_stale = "merge"',
)


@pytest.fixture(autouse=True)
def _own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in BY_AGENTS:
        monkeypatch.delenv(name, raising=False)


def options_of(root: Path, text: str) -> dict[str, Any]:
    """Give a project options; return those that count and are not the defaults."""
    (root / "noclobber.toml").write_text(text)
    return counting(root)


def counting(root: Path) -> dict[str, Any]:
    """Return the options that count and are not the defaults."""
    found = load_options(str(root))._asdict()
    return {name: value for name, value in found.items() if value != getattr(DEFAULTS, name)}


@pytest.mark.parametrize("text", LOOSE)
@pytest.mark.parametrize("file", ["noclobber.toml", "pyproject.toml"])
def test_an_option_that_weakens_the_guard_counts_in_a_trusted_folder_only(
    root: Path, text: str, file: str
) -> None:
    """ruling 34: from either file. It is ignored and said elsewhere, and the rest of the file counts."""
    table = text.replace("[versions]", "[tool.noclobber.versions]")
    shown = (
        f"[tool.noclobber]\n{table}\n" if file == "pyproject.toml" and "[" not in text[:1] else f"{table}\n"
    )
    (root / file).write_text(shown if file == "pyproject.toml" else f"{text}\n")

    assert counting(root) == {}
    assert trust.ignored(str(root)) == LOOSE[text]
    with Workspace(root) as workspace:
        assert workspace.options == DEFAULTS

    trust.trust(str(root), trust.weakening(str(root)))
    assert {name: list(v) if isinstance(v, tuple) else v for name, v in counting(root).items()} == LOOSE[text]
    assert trust.ignored(str(root)) == {}


@pytest.mark.parametrize("text", TIGHT)
def test_an_option_that_tightens_counts_always(root: Path, text: str) -> None:
    """ruling 34: nobody has to be asked."""
    assert bool(options_of(root, text)) == (text != 'switches = "reserved"')
    assert trust.ignored(str(root)) == {}


def test_what_tightens_beside_what_weakens_counts(root: Path) -> None:
    """ruling 34: in one file, and in one list."""
    found = options_of(root, 'unread = "deny"\nshell = "off"\nunchecked = ["src", "!build"]\n')
    assert found == {"unread": "deny", "unchecked": ("!build",)}


Change = Callable[[Path], Path]


def pulled(root: Path) -> Path:
    (root / "noclobber.toml").write_text('shell = "off"\nswitches = "open"\n')
    return root


def changed_value(root: Path) -> Path:
    (root / "noclobber.toml").write_text('shell = "watched"\n')
    return root


def moved(root: Path) -> Path:
    root.rename(root.parent / "moved")
    return root.parent / "moved"


def copied(root: Path) -> Path:
    shutil.copytree(root, root.parent / "copy")
    return root.parent / "copy"


def replaced(root: Path) -> Path:
    root.rename(root.parent / "away")
    shutil.copytree(root.parent / "away", root)
    return root


def owned_by_another(root: Path) -> Path:
    if os.geteuid():
        pytest.skip("only root gives a folder away")
    os.chown(root, 12345, -1)
    return root


def list_open_to_others(root: Path) -> Path:
    Path(own_state.own_folder(), trust.TRUSTED).chmod(0o777)
    return root


def entry_open_to_others(root: Path) -> Path:
    for entry in Path(own_state.own_folder(), trust.TRUSTED).iterdir():
        entry.chmod(0o666)
    return root


def entry_of_another(root: Path) -> Path:
    if os.geteuid():
        pytest.skip("only root gives a file away")
    for entry in Path(own_state.own_folder(), trust.TRUSTED).iterdir():
        os.chown(entry, 12345, -1)
    return root


def entry_is_a_link(root: Path) -> Path:
    for entry in Path(own_state.own_folder(), trust.TRUSTED).iterdir():
        entry.rename(root / "entry")
        entry.symlink_to(root / "entry")
    return root


CHANGES = [
    *(pulled, changed_value, moved, copied, replaced, owned_by_another),
    *(list_open_to_others, entry_open_to_others, entry_of_another, entry_is_a_link),
]


@pytest.mark.parametrize("change", CHANGES)
def test_trust_is_for_what_was_looked_at(root: Path, change: Change) -> None:
    """ruling 34: these options, in this folder, as direnv does it; and for what the user alone could write."""
    trusted_options(root, 'shell = "off"\n')
    assert counting(root) == {"shell": "off"}

    assert counting(change(root)) == {}


def test_what_tightens_may_change_in_a_trusted_folder(root: Path) -> None:
    """ruling 34: a rule more is no reason to ask again; nor is going back to what was looked at."""
    trusted_options(root, 'shell = "off"\n')
    assert options_of(root, 'unread = "deny"\nshell = "off"') == {"unread": "deny", "shell": "off"}
    assert options_of(root, 'shell = "watched"') == {}
    assert options_of(root, 'shell = "off"') == {"shell": "off"}


def test_a_repository_cannot_bring_its_own_trust(root: Path) -> None:
    """ruling 34: an entry is nothing outside of the user's own state, and another folder's is another's."""
    trusted_options(root, 'shell = "off"\n')
    other = root.parent / "other"
    shutil.copytree(root, other)
    shutil.copytree(own_state.own_folder(), other / ".noclobber")
    assert counting(other) == {}


def test_a_hostile_options_file_does_not_weaken_the_guard(root: Path, tmp_path: Path) -> None:
    """ruling 20, ruling 34: links, and files below and above."""
    elsewhere = tmp_path / "elsewhere.toml"
    elsewhere.write_text('switches = "open"\n')
    (root / "noclobber.toml").symlink_to(elsewhere)
    (root / "sub").mkdir()
    (root / "sub" / "noclobber.toml").write_text('switches = "open"\n')
    assert counting(root) == counting(root / "sub") == {}
    trust.trust(str(root), trust.weakening(str(root)))
    assert counting(root) == {"switches": "open"}
    assert counting(root / "sub") == {}


def test_a_hook_says_once_what_does_not_count(rig: HookRig, root: Path) -> None:
    """ruling 34: at the start of a turn or after a call, once a session; and the switch stays closed."""
    (root / "noclobber.toml").write_text('switches = "open"\nshell = "off"\n')
    prompt = rig.event("UserPromptSubmit", prompt="go")
    first = json.dumps(rig.call("claude-code", prompt, "note")[0])
    assert "shell, switches" in first
    assert "noclobber trust" in first
    assert "noclobber trust" not in json.dumps(rig.call("claude-code", prompt, "note")[0])
    assert "noclobber trust" not in json.dumps(rig.write(root / "a.md", "x"))
    assert rig.ask("Write", {"file_path": str(root / "noclobber.toml"), "content": ""}, tool_use_id="w") != {}


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Call a command; return its exit code, and all that it said."""
    code = main(list(words))
    out, err = capsys.readouterr()
    return code, out + err


def test_config_doctor_and_status_say_it(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """ruling 34: ignored and said, and nobody is unhealthy for that."""
    (root / "noclobber.toml").write_text('shell = "off"\nunread = "deny"\n')
    for words in (("config", "show", "--root"), ("status", "--root"), ("doctor", "--no-repair")):
        code, text = said(capsys, *words, str(root))
        assert code == 0
        assert "do not count" in text.replace("\n", " ")
        assert "noclobber trust" in text.replace("\n", " ")
    shown = json.loads(said(capsys, "config", "show", "--root", str(root), "--json")[1])
    assert shown["ignored"] == {"shell": "off"}
    assert shown["options"]["shell"] == {"value": "guarded", "source": "default"}
    assert shown["options"]["unread"]["value"] == "deny"


class Terminal(io.StringIO):
    """A person who types."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("typed", "is_trusted"), [("y\n", True), ("YES\n", True), ("n\n", False), ("", False)]
)
def test_trust_shows_and_asks(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    typed: str,
    is_trusted: bool,
) -> None:
    """ruling 34: every such option is shown before, on one line each."""
    (root / "noclobber.toml").write_text('formatters = ["sh \\u001b[2J\\n{file}"]\nunread = "deny"\n')
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    code, text = said(capsys, "trust", str(root))
    assert code == (0 if is_trusted else 1)
    assert "\x1b" not in text
    assert "formatters = " in text
    assert "unread" not in text
    assert bool(counting(root).get("formatters")) == is_trusted


def test_where_nobody_can_be_asked_nothing_is_trusted(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """ruling 34: a pipe is no answer, an agent is not asked; `--yes` is a person's."""
    (root / "noclobber.toml").write_text('shell = "off"\n')
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert said(capsys, "trust", str(root))[0] == 2
    for name in BY_AGENTS:
        with monkeypatch.context() as inside:
            inside.setenv(name, "1")
            assert said(capsys, "trust", str(root), "--yes")[0] == 3
    assert counting(root) == {}
    assert said(capsys, "trust", str(root), "--yes")[0] == 0
    assert counting(root) == {"shell": "off"}


def test_trust_is_listed_and_taken_back(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """ruling 34: also of a folder that is gone, and of one whose options have changed since."""
    assert json.loads(said(capsys, "trust", "--list", "--json")[1]) == {"folders": []}
    trusted_options(root, 'shell = "off"\n')
    (root / "noclobber.toml").write_text('shell = "watched"\n')
    listed = json.loads(said(capsys, "trust", "--list", "--json")[1])
    assert listed == {"folders": [{"folder": str(root), "options": {"shell": "off"}, "counts": False}]}
    assert "not any more" in said(capsys, "trust", "--list")[1]
    shutil.rmtree(root)
    assert said(capsys, "trust", "--remove", str(root))[0] == 0
    assert said(capsys, "trust", "--remove", str(root))[0] == 1
    assert trust.listed() == []


@pytest.mark.parametrize(
    ("typed", "more", "is_trusted"), [("y\n", [], True), ("n\n", [], False), ("", ["--trust"], True)]
)
def test_install_asks_once(
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    typed: str,
    more: list[str],
    is_trusted: bool,
) -> None:
    """ruling 34: only where options weaken the guard, and never again for the same ones."""
    monkeypatch.setenv("HOME", str(tmp_path))
    words = ["install", "gemini", "--portable", "--root", str(root)]
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    assert "Let them count?" not in said(capsys, *words)[1]
    (root / "noclobber.toml").write_text('shell = "off"\n')

    text = said(capsys, *words, *more)[1]

    assert ("Let them count?" in text) == (not more)
    assert ("do not count" in text) == (not is_trusted)
    assert bool(counting(root)) == is_trusted
    if is_trusted:
        assert "Let them count?" not in said(capsys, *words)[1]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a process as a second user")
def test_another_users_trust_is_not_mine(root: Path, tmp_path: Path) -> None:
    """ruling 34: by a folder of theirs in the place of the list, and by entries that they made."""
    trusted_options(root, 'shell = "off"\n')
    state = tmp_path / "state"
    for folder, _, names in os.walk(state):
        for name in (folder, *(f"{folder}/{name}" for name in names)):
            os.chown(name, 12345, 12345)
    assert counting(root) == {}


def test_many_processes_trust_at_once(tmp_path: Path) -> None:
    """ruling 34: nobody's entry is lost, and no half of one is read."""
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from noclobber.core import trust\n"
        "trust.trust(sys.argv[2], {'shell': 'off'})\n"
    )
    package = str(Path(own_state.__file__).parents[2])
    for number in range(8):
        (tmp_path / str(number)).mkdir()
    running = [
        subprocess.Popen([sys.executable, "-I", "-c", program, package, str(tmp_path / str(number))])
        for number in range(8)
    ]
    assert [each.wait() for each in running] == [0] * 8
    assert [one.folder for one in trust.listed()] == [str(tmp_path / str(number)) for number in range(8)]
