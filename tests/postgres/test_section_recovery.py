"""Sections that no honest writer begins: what a client with the agents' role, or a spoiled server, can make others do."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import psycopg
import pytest

import noclobber
from noclobber.errors import NoclobberError
from noclobber.postgres import shared_volume
from noclobber.postgres.coordinator import _connection
from noclobber.postgres.workspace_name import place_of
from tests.rigs import postgres

ID = "a" * 24
EVIL = b"evil\n"
EVIL_SHA256 = sha256(EVIL).hexdigest()


@pytest.fixture
def volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A shared volume with a file, and a file outside of it."""
    monkeypatch.setenv("NOCLOBBER_COORDINATOR", postgres.coordinator())
    monkeypatch.setattr(shared_volume, "is_shared_volume", lambda root: True)
    (tmp_path / "p/.noclobber/sections").mkdir(parents=True)
    (tmp_path / "p/a.txt").write_text("first\n")
    (tmp_path / "home").mkdir()
    (tmp_path / "home/rc").write_text("mine\n")
    write_guarded(tmp_path / "p", "b.txt")  # The workspace and its tree have their names.
    yield tmp_path / "p"
    with psycopg.connect(postgres.coordinator()) as link:
        link.execute("DELETE FROM noclobber.section")
    _connection.cache_clear()


def write_guarded(volume: Path, name: str) -> None:
    with noclobber.Workspace(volume) as workspace, workspace.turn(agent_id="victim") as turn:
        turn.write_file(name, f"{os.urandom(4).hex()}\n", expected_hash=None)


def row(path: str, action: str = "write", was: str = "ABSENT", to: str = EVIL_SHA256) -> dict[str, str]:
    return {"path": path, "action": action, "from": was, "to": to}


def begin(volume: Path, files: Any, section_id: str = ID, patience: float | None = 0) -> str:
    """What a client with the agents' role may ask for; the server's answer, or its error."""
    address, role = postgres.coordinator(), f"agent_{os.urandom(4).hex()}"
    with psycopg.connect(address, autocommit=True) as link:
        link.execute(f"CREATE ROLE {role} LOGIN IN ROLE noclobber_agent".encode())
        place, tree = place_of(str(volume)), (volume / ".noclobber/sections/tree_id").read_text().split()[0]
        try:
            link.execute(f"SET ROLE {role}".encode())
            answer = link.execute(
                "SELECT noclobber.begin_section(%s,%s,%s,%s::jsonb,NULL,NULL,'evil',NULL,'{}',%s,NULL)",
                (place.workspace, tree, section_id, json.dumps(files), patience),
            ).fetchone()
        except psycopg.Error as error:
            return str(error.sqlstate)
        finally:
            link.execute("RESET ROLE")
            link.execute(f"DROP ROLE {role}".encode())
    assert answer is not None
    return str(answer[0]["outcome"])


def forge(volume: Path, files: Any, section_id: str = ID) -> None:
    """The same as whoever owns the database can have it: a decided section that is overdue."""
    workspace = place_of(str(volume)).workspace
    with psycopg.connect(postgres.coordinator()) as link:
        link.execute(
            "INSERT INTO noclobber.section VALUES (%s,%s,'evil',NULL,'epoch','decided',%s)",
            (section_id, workspace, json.dumps(files)),
        )
        link.execute(
            "INSERT INTO noclobber.file (workspace, path, section_id) VALUES (%s, 'a.txt', %s)"
            " ON CONFLICT (workspace, path) DO UPDATE SET section_id = excluded.section_id",
            (workspace, section_id),
        )


OUTSIDE = [
    "../home/rc",
    "x/../../home/rc",
    "/etc/rc",
    "link/rc",
    "./../home/rc",
    "x//../../home/rc",
    "..",
    "",
]
BAD: list[Any] = [
    [],
    {},
    None,
    ["a.txt"],
    [row("a.txt", "run")],
    [row("a.txt", to="short")],
    [row("a.txt", was="")],
    [{"path": "a.txt"}],
    [row("b.txt"), row("a.txt")],
    [row("a.txt"), row("a.txt")],
]


@pytest.mark.parametrize(
    "path", [*OUTSIDE, ".noclobber/agent_trace.jsonl", "x/.NOCLOBBER/y", ".noclobber-x/y"]
)
def test_the_server_begins_no_section_outside_of_the_root(volume: Path, path: str) -> None:
    """Finding S21: whatever else is in the section; a link is for the client to see."""
    if path != "link/rc":
        assert begin(volume, sorted([row("a.txt"), row(path)], key=lambda each: each["path"])) == "22023"


@pytest.mark.parametrize("files", BAD)
def test_the_server_begins_no_section_that_is_none(volume: Path, files: Any) -> None:
    """Finding S21, S28: everybody who finds it overdue reads it."""
    assert begin(volume, files) == "22023"
    write_guarded(volume, "a.txt")


@pytest.mark.parametrize("section_id", ["../../home/rc", "", "A" * 24, "a" * 23, f"{'a' * 24}\n"])
def test_the_server_begins_no_section_with_a_name_that_is_a_path(volume: Path, section_id: str) -> None:
    """Finding S21: it is a part of the names of staged files."""
    assert begin(volume, [row("a.txt")], section_id) == "22023"


@pytest.mark.parametrize("patience", [None, float("inf"), float("nan"), -1e9, 1e9])
def test_no_section_lasts_for_ever(volume: Path, patience: float | None) -> None:
    """Finding S28: nobody else writes its files until its end."""
    assert begin(volume, [row("a.txt")], patience=patience) == "22023"


@pytest.mark.parametrize("path", OUTSIDE)
@pytest.mark.parametrize("action", ["write", "delete"])
def test_a_forged_section_reaches_nothing_outside_of_the_root(volume: Path, path: str, action: str) -> None:
    """Finding S21: also if the server believed it."""
    home = volume.parent / "home"
    (volume / "link").symlink_to(home)
    was = sha256(b"mine\n").hexdigest()
    forge(volume, [row("a.txt", was=sha256(b"first\n").hexdigest()), row(path, action, was)])
    for number in (0, 1):
        if action == "write" or not number:
            (volume / f".noclobber/sections/{ID}.{number}").write_bytes(EVIL)
        else:
            (volume / f".noclobber/sections/{ID}.{number}").mkdir()
    with pytest.raises(NoclobberError):
        write_guarded(volume, "a.txt")
    assert (home / "rc").read_text() == "mine\n"
    assert os.listdir(home) == ["rc"]
    assert (volume / "a.txt").read_text() == "first\n"


def test_a_section_whose_name_is_a_path_removes_nothing(volume: Path) -> None:
    """Finding S21: what is left of a section is removed by its name."""
    home = volume.parent / "home"
    (home / "rc.0").write_text("mine\n")
    forge(volume, [row("a.txt")], "../../../home/rc")
    with pytest.raises(NoclobberError):
        write_guarded(volume, "a.txt")
    assert sorted(os.listdir(home)) == ["rc", "rc.0"]


def test_the_folder_of_staged_files_is_no_link(volume: Path) -> None:
    """Finding S21: nothing is staged, taken or removed elsewhere."""
    (volume / ".noclobber/sections").rename(volume / ".noclobber/away")
    (volume / ".noclobber/sections").symlink_to(volume.parent / "home")
    with pytest.raises(NoclobberError):
        write_guarded(volume, "a.txt")
    assert os.listdir(volume.parent / "home") == ["rc"]


def test_a_folder_that_becomes_a_link_before_the_rename_lands_nothing_elsewhere(
    volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding S21: the folder is opened from the root, and the rename is made in what was opened."""
    from noclobber.disk import steps

    (volume / "d").mkdir()

    def swap(name: str) -> None:
        if name == "section-checked":
            (volume / "d").rmdir()
            (volume / "d").symlink_to(volume.parent / "home")

    monkeypatch.setattr(steps, "observer", swap)
    with pytest.raises(NoclobberError):
        write_guarded(volume, "d/rc")
    assert (volume.parent / "home/rc").read_text() == "mine\n"


def test_a_staged_file_that_is_not_the_sections_is_not_landed(volume: Path) -> None:
    """Finding S21: it is somebody else's, or was changed."""
    first = sha256(b"first\n").hexdigest()
    forge(volume, [row("a.txt", was=first), row("c.txt")])
    for number in (0, 1):
        (volume / f".noclobber/sections/{ID}.{number}").write_bytes(b"other\n")
    with pytest.raises(NoclobberError, match="staged"):
        write_guarded(volume, "a.txt")
    assert (volume / "a.txt").read_text() == "first\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's files take root")
@pytest.mark.parametrize("action", ["write", "delete"])
def test_nobody_lands_for_another_user_what_that_user_may_not_write(volume: Path, action: str) -> None:
    """Finding S21: root recovers, and does not lend its rights."""
    volume.chmod(0o755)
    first = sha256(b"first\n").hexdigest()
    forge(volume, [row("a.txt", action, first), row("c.txt")])
    staged = volume / f".noclobber/sections/{ID}.0"
    staged.mkdir() if action == "delete" else staged.write_bytes(EVIL)
    (volume / f".noclobber/sections/{ID}.1").write_bytes(EVIL)
    for number in (0, 1):
        os.chown(volume / f".noclobber/sections/{ID}.{number}", 12345, 12345)
    with pytest.raises(NoclobberError, match="user 12345"):
        write_guarded(volume, "a.txt")
    assert (volume / "a.txt").read_text() == "first\n"
    assert not (volume / "c.txt").exists()
    os.chown(volume, 12345, -1)  # Now it may.
    write_guarded(volume, "a.txt")
    assert (volume / "c.txt").read_bytes() == EVIL
