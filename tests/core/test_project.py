"""Which folder is the project: one rule, and nobody else can choose it for this user."""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from noclobber import MissingFileError, NotAFileError, UnreadFileError, Workspace
from noclobber.core import project
from noclobber.core.project import find_project, ledger_path
from noclobber.hook.settings import project_of
from tests.rigs.commands import run

STRANGER = 54321

Mark = Callable[[Path], Path]
MARKS: dict[str, Mark] = {}


def mark(make: Mark) -> Mark:
    """Keep one way to mark a folder under its name."""
    MARKS[make.__name__] = make
    return make


@mark
def state_folder(folder: Path) -> Path:
    (folder / ".noclobber").mkdir()
    return folder / ".noclobber"


@mark
def own_file(folder: Path) -> Path:
    (folder / "noclobber.toml").write_text("")
    return folder / "noclobber.toml"


@mark
def shared_file(folder: Path) -> Path:
    (folder / "pyproject.toml").write_text("[tool.noclobber]\n")
    return folder / "pyproject.toml"


@mark
def broken_file(folder: Path) -> Path:
    (folder / "noclobber.toml").write_text("= broken")
    return folder / "noclobber.toml"


@pytest.fixture(params=list(MARKS))
def make_mark(request: pytest.FixtureRequest) -> Mark:
    """Each way to mark a folder."""
    return MARKS[request.param]


@pytest.fixture
def give_away(monkeypatch: pytest.MonkeyPatch, is_root: bool) -> Callable[..., None]:
    """Make things belong to somebody else: by chown where we may, else by being somebody else ourselves."""

    def give(*paths: Path) -> None:
        if is_root:
            for path in paths:
                os.chown(path, STRANGER, -1, follow_symlinks=False)
        else:
            user = os.geteuid() + 1
            monkeypatch.setattr(os, "geteuid", lambda: user)

    return give


def test_the_nearest_mark_upward_is_the_project(root: Path, make_mark: Mark) -> None:
    """N-project, ruling 16."""
    deep = root / "a" / "b" / "c"
    deep.mkdir(parents=True)
    make_mark(root)
    assert find_project(deep) == str(root)
    make_mark(root / "a")
    assert find_project(deep) == str(root / "a")
    assert find_project(str(root / "a")) == str(root / "a")


def test_a_mark_further_up_wins_over_a_nearer_repository(root: Path, make_mark: Mark) -> None:
    """Ruling 16, finding S5: `mkdir docs/.git` does not switch the project's rules off."""
    (root / "docs" / ".git").mkdir(parents=True)
    make_mark(root)
    assert find_project(root / "docs", host_folder=str(root / "docs")) == str(root)


def test_without_a_mark_the_host_names_the_project_then_git_then_the_folder_itself(root: Path) -> None:
    """Ruling 16: in this order."""
    deep = root / "a" / "b"
    deep.mkdir(parents=True)
    assert find_project(deep) == str(deep)
    (root / "a" / ".git").write_text("gitdir: elsewhere\n")
    assert find_project(deep) == str(root / "a")
    assert find_project(deep, host_folder=str(root)) == str(root)


def test_a_mark_above_the_hosts_folder_counts_from_anywhere(root: Path, tmp_path: Path) -> None:
    """Ruling 16: an agent that works outside the project for a while still has the project's rules."""
    (root / "sub").mkdir()
    own_file(root)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert find_project(elsewhere, host_folder=str(root / "sub")) == str(root)


@pytest.mark.parametrize("named", ["", "relative", "/nowhere/at/all", "/etc/passwd", "/a\0b"])
def test_a_host_folder_that_is_no_folder_is_ignored(root: Path, named: str) -> None:
    """Ruling 16: bad input."""
    assert find_project(root, host_folder=named) == str(root)


def test_a_strangers_mark_is_no_mark(root: Path, make_mark: Mark, give_away: Callable[..., None]) -> None:
    """Ruling 16, finding S1: nobody else chooses this user's project from a folder above it."""
    mine = root / "mine"
    mine.mkdir()
    give_away(make_mark(root), root)
    assert find_project(mine) == str(mine)


def test_a_strangers_state_folder_is_no_mark_even_in_a_folder_of_ours(
    root: Path, give_away: Callable[..., None], is_root: bool
) -> None:
    """finding S1: a root is never found in a state folder that somebody else owns."""
    if not is_root:
        pytest.skip("giving a folder away needs root")
    give_away(state_folder(root))
    (root / "sub").mkdir()
    assert find_project(root / "sub") == str(root / "sub")


def test_a_colleagues_options_in_a_folder_of_ours_count(
    root: Path, give_away: Callable[..., None], is_root: bool
) -> None:
    """Ruling 16: the folder belongs to this user, who let the colleague write there."""
    if not is_root:
        pytest.skip("giving a file away needs root")
    give_away(own_file(root))
    (root / "sub").mkdir()
    assert find_project(root / "sub") == str(root)


@pytest.mark.parametrize("kind", ["file", "link to a folder", "broken link"])
def test_a_state_folder_is_a_real_folder(root: Path, tmp_path: Path, kind: str) -> None:
    """finding S20: a link in its place would lead recovery elsewhere."""
    (root / "sub").mkdir()
    if kind == "file":
        (root / ".noclobber").write_text("")
    else:
        (root / ".noclobber").symlink_to(tmp_path if kind == "link to a folder" else "nowhere")
    assert find_project(root / "sub") == str(root / "sub")


def test_a_pyproject_that_only_mentions_noclobber_is_no_mark(root: Path) -> None:
    """Ruling 16: the table counts, not a dependency."""
    (root / "pyproject.toml").write_text('[project]\ndependencies = ["noclobber"]\n')
    (root / "sub").mkdir()
    assert find_project(root / "sub") == str(root / "sub")


def test_links_to_the_project_lead_to_the_project(root: Path, tmp_path: Path) -> None:
    """Ruling 16: the path is canonical, so that two names are one project."""
    state_folder(root)
    (tmp_path / "link").symlink_to(root)
    assert find_project(tmp_path / "link") == str(root)


def test_a_start_that_is_no_folder_is_refused(root: Path) -> None:
    """N-input: clear errors."""
    with pytest.raises(MissingFileError, match="no such folder"):
        find_project(root / "missing")
    with pytest.raises(MissingFileError, match="no such folder"):
        find_project("a\0b")
    (root / "file").write_text("")
    with pytest.raises(NotAFileError, match="not a folder"):
        find_project(root / "file")


def test_the_library_the_command_line_and_hooks_find_one_project(
    root: Path, make_mark: Mark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ruling 16, finding C1: the same answer for each of them."""
    deep = root / "a" / ".git" / "deep"
    deep.mkdir(parents=True)
    (root / "a" / "b" / ".git").mkdir(parents=True)
    make_mark(root)
    if make_mark is not broken_file:
        with Workspace.find(deep) as workspace:
            assert workspace.root == str(root)
        monkeypatch.chdir(deep)
        with Workspace.find() as workspace:
            assert workspace.root == str(root)
    assert project_of(str(deep)) == str(root)
    assert json.loads(run("status", "--json", cwd=deep).out)["root"] == str(root)


def test_a_workspace_that_was_found_takes_options_and_obeys_the_file(root: Path) -> None:
    """Ruling 16: `Workspace.find` is `Workspace` with the root found."""
    (root / "noclobber.toml").write_text('unread = "deny"\n')
    (root / "sub").mkdir()
    (root / "sub" / "a.md").write_text("x")
    with Workspace.find(root / "sub", partial="deny") as workspace, workspace.turn() as turn:
        assert (workspace.options.unread, workspace.options.partial) == ("deny", "deny")
        with pytest.raises(UnreadFileError):
            turn.write_file("sub/a.md", "y")
    assert ledger_path(workspace.root) == workspace.ledger.path


def test_the_names_of_state_files_are_written_once() -> None:
    """finding C1: two files that each spell a name will differ one day."""
    alone = {project.STATE_FOLDER, project.LEDGER_NAME, project.OPTIONS_NAME, project.SHARED_OPTIONS_NAME}
    below = {
        *(project.SWAP_FOLDER, project.NOTES_FOLDER, project.KEPT_FOLDER),
        *(project.CLAIMS_FOLDER, project.TURNS_FOLDER),
    }

    def spells_one(value: object) -> bool:
        is_path = isinstance(value, str) and " " not in value  # Not prose.
        parts = set(str(value).split("/")) if is_path else set()
        return bool(parts & alone) or (len(parts) > 1 and bool(parts & below))

    home = Path(project.__file__)
    again = [
        f"{path.name}:{node.lineno}"
        for path in home.parents[1].rglob("*.py")
        if path != home
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and spells_one(node.value)
    ]
    assert again == []
