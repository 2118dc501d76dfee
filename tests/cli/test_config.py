"""`noclobber config show`: the options in force, and where each comes from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from noclobber import ConfigError, Workspace
from tests.rigs.commands import run


def own(root: Path, text: str) -> Path:
    path = root / "noclobber.toml"
    path.write_text(text)
    return path


def refusal(root: Path) -> str:
    with pytest.raises(ConfigError) as refused:
        Workspace(root)
    assert refused.value.code == "BAD_CONFIG"
    return str(refused.value)


def test_show_says_what_holds_and_where_it_comes_from(root: Path) -> None:
    """N-cli: for people and for programs."""
    path = own(root, 'unread = "deny"\nwrite_scope = ["docs"]\n')
    answer = json.loads(run("config", "show", "--json", cwd=root).out)
    assert answer["file"] == str(path)
    assert answer["options"]["unread"] == {"value": "deny", "source": str(path)}
    assert answer["options"]["write_scope"] == {"value": ["docs"], "source": str(path)}
    assert answer["options"]["scope"] == {"value": "turn", "source": "default"}

    lines = run("config", "show", cwd=root).out.splitlines()
    assert ["unread", '"deny"', "noclobber.toml"] in [line.split() for line in lines]
    assert ["scope", '"turn"', "default"] in [line.split() for line in lines]


def test_show_mentions_the_environment(root: Path) -> None:
    """N-cli: who wonders about a level must find the reason."""
    done = run("config", "show", cwd=root, NOCLOBBER_LEVEL="plain")
    assert ["NOCLOBBER_LEVEL", "plain", "environment"] in [line.split() for line in done.out.splitlines()]


def test_show_of_a_wrong_file_says_what_is_wrong(root: Path) -> None:
    """N-cli: exit code 3, and the same words as from the library."""
    own(root, "unreed = 1\n")
    done = run("config", "show", cwd=root)
    assert (done.code, done.out) == (3, "")
    assert done.err == f"noclobber: {refusal(root)}\n"
