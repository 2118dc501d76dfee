"""The digest of the ledger: a commit costs what has happened since, and comes out as if all had been read."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from noclobber import CannotCommitError, Workspace
from noclobber.core.project import DIGEST_PREFIX, ledger_path
from noclobber.guard.git import commit as commit_module
from noclobber.guard.git import digest as digest_module
from noclobber.guard.git import mine as mine_module
from noclobber.guard.git.commit import commit_mine
from noclobber.guard.git.digest import read_recorded, renew
from noclobber.guard.git.mine import Mine, MinePlan, plan
from noclobber.guard.git.repository import Repository
from noclobber.ledger.history import LandedWrite
from tests.rigs.clones import IDENTITY, Clone
from tests.rigs.trusting import trusted_options

TEXT = b"".join(b"line %d\n" % number for number in range(1, 31))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A digest after a few writes; and a name in git."""
    monkeypatch.setattr(digest_module, "MOST_BEHIND", 6)
    monkeypatch.setattr(commit_module, "MOST_BEHIND", 6)
    monkeypatch.setattr(digest_module, "LEFT_BEHIND", 2)
    for name, value in IDENTITY.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def clone(root: Path) -> Clone:
    """A clone in which ana has open lines from long ago, and bob has committed many times since."""
    clone = Clone(root, {"plan.md": TEXT, "other.md": b"other\n"})
    clone.change("ana", "plan.md", b"line 3\n", b"ana 3\n")
    write_outside(clone, b"line 27\n", b"person 27\n")
    for number in range(5):
        clone.change("bob", "plan.md", b"line %d\n" % (10 + number), b"bob %d\n" % number)
        clone.write("bob", "other.md", b"other %d\n" % number)
        commit_mine(str(root), Mine(("bob",)), f"bob {number}")
    return clone


def write_outside(clone: Clone, old: bytes, new: bytes) -> None:
    """A person's edit."""
    path = clone.root / "plan.md"
    path.write_bytes(path.read_bytes().replace(old, new))


def digest_of(clone: Clone) -> Path:
    """Where it is."""
    return clone.root / ".noclobber" / f"{DIGEST_PREFIX}{os.geteuid()}"


def forbid_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on the ledger must not be read from its beginning."""

    def refuse(root: str) -> Iterator[LandedWrite]:
        raise AssertionError(f"the whole ledger of {root} was read")

    monkeypatch.setattr(digest_module, "landed_writes", refuse)


def whole_plan(root: str, mine: Mine) -> MinePlan:
    """What would be committed, from the ledger alone."""
    return mine_module._planned(root, Repository(root), mine, None, read_recorded(root, is_whole=True))


def test_a_commit_does_not_read_the_ledger_from_its_beginning(
    clone: Clone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-shell: and what was open before the digest is whose it was."""
    forbid_whole(monkeypatch)
    clone.change("ana", "plan.md", b"line 20\n", b"ana 20\n")
    made = commit_mine(str(clone.root), Mine(("ana",)), "ana")
    expected = TEXT.replace(b"line 3\n", b"ana 3\n").replace(b"line 20\n", b"ana 20\n")
    for number in range(5):
        expected = expected.replace(b"line %d\n" % (10 + number), b"bob %d\n" % number)

    assert clone.shown("plan.md") == expected
    assert made.plan.files[0].left == ("an outsider",)
    assert made.plan.behind < 10
    assert not made.plan.was_whole
    assert commit_mine(str(clone.root), Mine(("ana",)), "again").commit is None


def test_a_digest_is_small_whatever_was_written(clone: Clone) -> None:
    """N-shell: it has what is open and a line a file, not every write."""
    size = digest_of(clone).stat().st_size
    for number in range(40):
        clone.write("bob", "other.md", b"other again %d\n" % number)
        if number % 4 == 0:
            commit_mine(str(clone.root), Mine(("bob",)), f"bob {number}")
    commit_mine(str(clone.root), Mine(("bob",)), "the last")
    assert digest_of(clone).stat().st_size < size + 1000
    assert read_recorded(str(clone.root)).behind <= 6


def test_head_that_went_back_is_noticed(clone: Clone) -> None:
    """N-shell: `git reset --soft` makes committed changes open again; the digest cannot know, and says so."""
    clone.git("reset", "--quiet", "--soft", "HEAD~3")
    clone.git("reset", "--quiet")
    made = commit_mine(str(clone.root), Mine(("bob",)), "bob again")
    assert made.plan.was_whole
    assert b"bob 4\n" in clone.shown("plan.md")
    assert b"ana 3\n" not in clone.shown("plan.md")
    assert clone.shown("other.md") == b"other 4\n"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_bytes(path.read_bytes().replace(b"ana", b"bob")),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(b""),
        lambda path: path.chmod(0o666),
        lambda path: (path.rename(f"{path}.real"), path.symlink_to(f"{path}.real")),
        lambda path: path.unlink(),
    ],
    ids=["edited", "torn", "empty", "open to others", "a link", "gone"],
)
def test_a_digest_that_is_not_as_it_was_written_is_as_good_as_none(clone: Clone, spoil: object) -> None:
    """N-shell: nobody is trusted about it."""
    spoil(digest_of(clone))  # type: ignore[operator]
    assert read_recorded(str(clone.root)).is_whole
    made = commit_mine(str(clone.root), Mine(("ana",)), "ana")
    assert made.plan.was_whole
    assert b"ana 3\n" in clone.shown("plan.md")
    assert b"person" not in clone.shown("plan.md")


def test_a_digest_of_another_ledger_is_as_good_as_none(clone: Clone) -> None:
    """N-shell: it names the line where it ends, by its hash; a ledger that was begun anew has it not."""
    path = Path(ledger_path(str(clone.root)))
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    assert read_recorded(str(clone.root)).is_whole
    path.write_bytes(content.replace(b"bob", b"eve"))
    recorded = read_recorded(str(clone.root))
    assert recorded.is_whole
    assert {who.agent_id for file in recorded.files for who in file.authors} == {"ana", "eve"}


def test_a_full_disk_costs_the_digest_and_not_the_commit(
    clone: Clone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-shell: it is for speed alone."""

    def full(root: str, digest: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(digest_module, "_save", full)
    for number in range(8):
        clone.write("bob", "other.md", b"once more %d\n" % number)
    assert commit_mine(str(clone.root), Mine(("bob",)), "bob").commit is not None
    assert clone.shown("other.md") == b"once more 7\n"


def test_a_write_that_was_recorded_late_is_not_passed_over(clone: Clone) -> None:
    """N-shell: recorded behind the digest's end, landed before it. Its author gets it committed all the same."""
    for number in range(5):
        clone.change("bob", "plan.md", b"bob %d\n" % number, b"bob %d!\n" % number)
    clone.change("ana", "plan.md", b"line 22\n", b"ana 22\n")
    clone.change("bob", "plan.md", b"line 24\n", b"bob 24\n")
    path = Path(ledger_path(str(clone.root)))
    *before, anas, bobs = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*before, bobs, anas]))
    clone.write("bob", "other.md", b"one more\n")  # Now the digest ends between the two.
    renew(str(clone.root), Repository(str(clone.root)), is_whole=False)
    commit_mine(str(clone.root), Mine(("ana",)), "ana")
    assert b"ana 22\n" in clone.shown("plan.md")
    assert b"bob 24\n" not in clone.shown("plan.md")


@pytest.mark.parametrize("setting", ['versions_exclude = ["plan.md"]', 'versions = "off"'])
def test_lines_of_a_file_whose_versions_are_not_kept_are_not_in_the_digest(root: Path, setting: str) -> None:
    """N-versions: a file with secrets, for example; it is read from the ledger's beginning instead."""
    clone = Clone(root, {"plan.md": TEXT, "other.md": b"other\n"})
    trusted_options(root, f"{setting}\n")
    clone.change("ana", "plan.md", b"line 3\n", b"the password\n")
    for number in range(10):
        clone.write("bob", "other.md", b"other %d\n" % number)
    commit_mine(str(root), Mine(("bob",)), "bob")
    assert digest_of(clone).exists()
    assert b"password" not in digest_of(clone).read_bytes()
    commit_mine(str(root), Mine(("ana",)), "ana")
    assert b"the password\n" in clone.shown("plan.md")


@pytest.mark.parametrize("seed", range(3))
def test_what_is_planned_from_a_digest_is_what_is_planned_from_the_whole(root: Path, seed: int) -> None:
    """N-shell: files, contents, obstacles and whose changes stay; agents, a person, moves, deletes and commits."""
    dice = random.Random(seed)
    clone = Clone(root, {"plan.md": TEXT, "other.md": TEXT})
    agents = ["ana", "bob", "eve"]
    used = 0
    for number in range(60):
        who, kind = dice.choice(agents), dice.randrange(10)
        name = dice.choice(["plan.md", "other.md"])
        if kind < 5:
            lines = (root / name).read_bytes().splitlines(keepends=True)
            at = dice.randrange(len(lines))
            lines[at : at + dice.randrange(2)] = [b"%s %d\n" % (who.encode(), number)]
            clone.write(who, name, b"".join(lines))
        elif kind == 5:
            with (root / name).open("ab") as file:
                file.write(b"person %d\n" % number)
        elif kind == 6:
            new = f"new-{who}-{number % 2}.md"
            clone.write(who, new, None if (root / new).exists() else b"new %d\n" % number)
        elif kind == 7 and (root / f"new-{who}-0.md").exists():
            with Workspace(root) as workspace, workspace.turn(agent_id=who) as turn:
                turn.read_file(f"new-{who}-0.md")
                turn.move_file(f"new-{who}-0.md", f"moved-{who}-{number}.md")
        else:
            mine = Mine((who,))
            planned, expected = plan(str(root), Repository(str(root)), mine), whole_plan(str(root), mine)
            used += not planned.was_whole
            assert planned[:5] == expected[:5]
            try:
                commit_mine(str(root), mine, f"{who} {number}")
            except CannotCommitError:
                clone.git("commit", "--quiet", "--all", "--message", "the person commits all")
    assert used > 3


def test_the_digest_is_plain_json_under_its_own_hash(clone: Clone) -> None:
    """N-shell: for whoever has to look."""
    seal, _, body = digest_of(clone).read_bytes().partition(b"\n")
    assert len(seal) == 64
    assert {"version", "place", "files"} == set(json.loads(body))
    assert digest_of(clone).stat().st_mode & 0o777 == 0o600
