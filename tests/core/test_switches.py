"""The guard's own switches, by every name that leads to them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from noclobber import BadRequestError, ReservedFileError, Workspace
from noclobber.core.options import options
from noclobber.core.switches import HOSTS, is_switch, runtime_folder
from noclobber.guard.policies import _is_reserved
from tests.mcp.conftest import Connect, connect, workspaces
from tests.rigs.hooks import HookRig, refusal

__all__ = ["connect", "workspaces"]  # Fixtures.


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder of this test's own."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    return folder


def linked(switch: Path, name: Path) -> bytes:
    """Make a switch if there is none, and another name for it; return its content."""
    switch.parent.mkdir(parents=True, exist_ok=True)
    if not switch.exists():
        switch.write_bytes(b"on\n")
    os.link(switch, name)
    return switch.read_bytes()


SWITCHES = tuple(
    f"{host}/{name}" if "." in name else f"{host}/{name}/any.js"
    for host, names in HOSTS.items()
    for name in names
)


@pytest.mark.parametrize("switch", SWITCHES)
@pytest.mark.parametrize("place", ["project", "home"])
def test_a_hard_link_to_a_switch_is_the_switch(
    rig: HookRig, root: Path, home: Path, connect: Connect, switch: str, place: str
) -> None:
    """finding S8: `ln .claude/settings.json notes.txt`, and then a checked write to notes.txt."""
    real, name = {"project": root, "home": home}[place] / switch, root / "notes.txt"
    before = linked(real, name)
    client = connect()

    answers = [
        refusal(rig.ask("Write", {"file_path": str(name), "content": "off"}, tool_use_id="w")),
        refusal(
            rig.ask(
                "Edit", {"file_path": str(name), "old_string": "on", "new_string": "off"}, tool_use_id="e"
            )
        ),
        client("write_file", path="notes.txt", content="off").structured,
    ]
    with Workspace(root) as workspace, workspace.turn() as turn, pytest.raises(ReservedFileError):
        turn.write_file("notes.txt", b"off")

    assert [answer["error_type"] for answer in answers] == ["RESERVED_FILE"] * 3
    assert real.read_bytes() == before
    name.unlink()
    assert rig.write(name, "a file of its own") == {}


def test_a_hard_link_to_hook_memory_or_the_options_is_refused(rig: HookRig, root: Path) -> None:
    """finding S8: what an agent is known to have seen, and the rules."""
    (root / "a.txt").write_text("x")
    rig.read(root / "a.txt")
    memory = next(path for path in Path(runtime_folder()).rglob("f*") if path.is_file())
    linked(memory, root / "innocent")
    linked(root / "noclobber.toml", root / "rules.txt")
    (root / "noclobber.toml").write_text("")

    for name in ("innocent", "rules.txt"):
        answer = rig.ask("Write", {"file_path": str(root / name), "content": "{}"}, tool_use_id=name)
        assert refusal(answer)["error_type"] == "RESERVED_FILE"


def test_a_hard_link_to_a_reserved_file_is_refused(root: Path) -> None:
    """finding S8: a file that `reserved` names, or one in a folder that it names."""
    before = (
        linked(root / "infra" / "deep" / "main.tf", root / "a.txt"),
        linked(root / "LICENSE", root / "b.txt"),
    )
    with (
        Workspace(root, reserved=["infra", "LICENSE"], switches="open") as workspace,
        workspace.turn() as turn,
    ):
        for name in ("a.txt", "b.txt"):
            with pytest.raises(ReservedFileError, match="hard link"):
                turn.write_file(name, b"x")
    assert ((root / "infra/deep/main.tf").read_bytes(), (root / "LICENSE").read_bytes()) == before


def test_hard_links_to_other_files_are_written_as_ever(root: Path) -> None:
    """N-links: only those to switches are refused."""
    linked(root / "a.txt", root / "b.txt")
    with Workspace(root, reserved=["infra"]) as workspace, workspace.turn() as turn:
        turn.write_file("b.txt", b"x")
    assert (root / "a.txt").read_bytes() == b"x"


@pytest.mark.parametrize("name", [".Claude/settings.json", ".claude/Settings.JSON", "NoClobber.toml"])
def test_switches_fold_case(root: Path, name: str) -> None:
    """finding S8, finding S20: on a filesystem that folds names, these open the very files."""
    assert is_switch(f"{root}/{name}", str(root))


def test_reserved_names_fold_case_where_the_filesystem_does(root: Path) -> None:
    """finding S8, finding S20: elsewhere another case is another file, and agents may have it."""
    (root / "infra").mkdir()
    reserved: dict[str, Any] = {"reserved": ("infra",), "is_moved": False}
    assert not _is_reserved(f"{root}/INFRA/main.tf", str(root), **reserved)
    (root / "INFRA").symlink_to(
        "infra"
    )  # As a filesystem that folds shows it: both names lead to one folder.
    assert _is_reserved(f"{root}/INFRA/main.tf", str(root), **reserved)


@pytest.mark.parametrize("pattern", ["*.lock", "docs/**", "docs/?.md"])
@pytest.mark.parametrize("option", ["reserved", "write_scope"])
def test_a_pattern_is_refused_where_names_are_meant(option: str, pattern: str) -> None:
    """finding S8: `reserved = ["*.key"]` protected nothing, and nobody was told."""
    with pytest.raises(BadRequestError, match="patterns are not supported"):
        options({option: ["ok", pattern]})
    assert options({option: ["app/[id]/page.tsx"]}) is not None
