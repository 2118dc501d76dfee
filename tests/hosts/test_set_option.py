"""`noclobber install --on-stale merge`: one option, in the project's own file, and the rest as it was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from noclobber.cli import main as command_line
from noclobber.core.options import load_options
from noclobber.errors import ConfigError
from noclobber.hosts import set_option
from noclobber.hosts.json_edit import BadConfigurationError

FILES = {
    "nothing": None,
    "empty": "",
    "other options": 'unread = "deny"\n',
    "no newline at the end": 'unread = "deny"',
    "a comment": "# ours\n",
    "a table": '# ours\nunread = "deny"\n\n[versions]\ndays = 3\n',
    "the other value": 'unread = "deny"\non_stale = "refuse" # for now\n[versions]\ndays = 3\n',
    "the same value": 'on_stale="merge"\n',
}


@pytest.mark.parametrize("name", FILES)
def test_the_option_is_set_and_the_others_stay(root: Path, name: str) -> None:
    """N-merge: set twice changes nothing."""
    file, text = root / "noclobber.toml", FILES[name]
    if text is not None:
        file.write_text(text)
    before = load_options(str(root))

    set_option.carry_out(str(root), "on_stale", "merge")

    assert load_options(str(root)) == before._replace(on_stale="merge")
    assert not set_option.carry_out(str(root), "on_stale", "merge").is_needed
    kept = [line for line in (text or "").splitlines() if "on_stale" not in line]
    assert [line for line in file.read_text().splitlines() if "on_stale" not in line] == kept


def test_a_file_that_cannot_be_changed_safely_is_left_alone(root: Path) -> None:
    """N-input: a wrong file, options in pyproject.toml, and the key in a text of several lines."""
    file = root / "noclobber.toml"
    file.write_text("on_stale = \n")
    with pytest.raises(ConfigError):
        set_option.carry_out(str(root), "on_stale", "merge")
    assert file.read_text() == "on_stale = \n"
    file.unlink()
    shared = root / "pyproject.toml"
    shared.write_text('[tool.noclobber]\nunread = "deny"\n')
    with pytest.raises(BadConfigurationError, match=r"\[tool.noclobber\]"):
        set_option.carry_out(str(root), "on_stale", "merge")
    assert not file.exists()
    shared.write_text('[tool.noclobber]\non_stale = "merge"\n')
    assert not set_option.carry_out(str(root), "on_stale", "merge").is_needed


def test_install_offers_it_and_says_what_is_set(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """N-merge: without a question; --dry-run changes nothing; not for all projects of a user."""
    monkeypatch.setenv("HOME", str(root / "home"))
    words = ["install", "claude-code", "--root", str(root)]
    assert command_line([*words, "--dry-run", "--on-stale", "merge"]) == 0
    assert '+on_stale = "merge"' in capsys.readouterr().out
    assert not (root / "noclobber.toml").exists()

    assert command_line(words) == 0
    assert "stale writes: refused." in capsys.readouterr().out
    assert command_line([*words, "--on-stale", "merge"]) == 0
    assert "stale writes: merged with what others changed" in capsys.readouterr().out
    assert load_options(str(root)).on_stale == "merge"
    assert command_line([*words, "--on-stale", "refuse", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows[-1]["option"] == "on_stale"
    assert rows[-1]["changed"] is True

    assert command_line(["install", "claude-code", "--user", "--on-stale", "merge"]) != 0
    assert "option of a project" in capsys.readouterr().err


def test_doctor_says_what_is_set(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """N-merge, N-notice."""
    (root / "noclobber.toml").write_text('on_stale = "merge"\nnotices = "names"\n')
    command_line(["doctor", str(root)])

    out = capsys.readouterr().out
    assert 'merged if nothing of either side is lost (on_stale = "merge")' in out
    assert 'told of others\' changes by name (notices = "names")' in out
