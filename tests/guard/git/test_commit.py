"""`commit_mine`: a commit of exactly what one agent wrote, whatever git is in the middle of."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from noclobber import CannotCommitError, ShellUnavailableError, Workspace
from noclobber.disk import leases
from noclobber.guard.git import commit as commit_module
from noclobber.guard.git.commit import CommitMade, commit_mine
from noclobber.guard.git.mine import Mine
from noclobber.guard.git.others_work import content_of
from tests.rigs.clones import IDENTITY, Clone

TEXT = b"".join(b"line %d\n" % number for number in range(1, 21))


@pytest.fixture(autouse=True)
def identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may have no name in git, or a configuration of their own."""
    for name, value in IDENTITY.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def clone(root: Path) -> Clone:
    """A clone with one file, which ana and bob have changed."""
    clone = Clone(root, {"plan.md": TEXT, "other.md": b"other\n"})
    clone.change("ana", "plan.md", b"line 3\n", b"ana\n", "session-of-ana")
    clone.change("bob", "plan.md", b"line 12\n", b"bob\n", "session-of-bob")
    return clone


def commit(clone: Clone, *agents: str, message: str = "mine", **more: object) -> CommitMade:
    """Commit what agents wrote."""
    return commit_mine(str(clone.root), Mine(agents), message, **more)  # type: ignore[arg-type]


def hook(clone: Clone, name: str, script: str) -> None:
    """Install a hook."""
    path = clone.root / ".git/hooks" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_foreign_hunks_of_the_same_file_stay_uncommitted(clone: Clone) -> None:
    """N-shell: HEAD has ana's line and not bob's; the work tree is untouched; status shows bob's alone."""
    before = (clone.root / "plan.md").read_bytes()
    made = commit(clone, "ana")

    assert made.commit == clone.git("rev-parse", "HEAD").strip()
    assert clone.shown("plan.md") == TEXT.replace(b"line 3\n", b"ana\n")
    assert (clone.root / "plan.md").read_bytes() == before
    assert clone.status() == [" M plan.md"]
    assert clone.git("diff", "--cached") == ""
    assert "-line 12" in clone.git("diff")
    assert "ana" not in clone.git("diff").replace(" ana", "")
    assert made.plan.files[0].left == ("bob, session session-",)

    commit(clone, "bob")
    assert clone.shown("plan.md") == before
    assert clone.status() == []
    assert commit(clone, "ana").commit is None


def test_the_commit_names_its_agent_and_its_author_is_gits(clone: Clone) -> None:
    """N-who: identity from git's configuration, a trailer for the agent and its session."""
    commit(clone, "ana", message="Subject\n\nBody.\n\nReviewed-by: Bea")

    shown = clone.git("show", "--no-patch", "--format=%an %ae%n%B")
    assert shown.startswith("Ada ada@example.org\nSubject\n\nBody.\n\nReviewed-by: Bea\n")
    assert "Noclobber-Agent: ana\nNoclobber-Session: session-of-ana\n" in shown
    assert clone.git("reflog", "-1").strip().endswith("commit (noclobber): Subject")


def test_a_session_is_enough_and_another_session_of_that_agent_is_not_meant(clone: Clone) -> None:
    """N-versions: whose, by the ledger."""
    clone.change("ana", "other.md", b"other\n", b"in another session\n", "second")
    commit_mine(str(clone.root), Mine(sessions=("session-of-a",)), "mine")

    assert clone.shown("other.md") == b"other\n"
    assert clone.shown("plan.md") == TEXT.replace(b"line 3\n", b"ana\n")


def test_what_an_outsider_changed_is_nobodys(clone: Clone) -> None:
    """N-versions: an editor's change between two guarded writes stays in the work tree."""
    path = clone.root / "plan.md"
    path.write_bytes(path.read_bytes().replace(b"line 7\n", b"by hand\n"))
    clone.change("ana", "plan.md", b"line 18\n", b"ana again\n")
    commit(clone, "ana", "bob")

    assert b"by hand" not in clone.shown("plan.md")
    assert clone.git("diff").count("\n+by hand") == 1
    assert clone.status() == [" M plan.md"]


def test_a_change_of_the_same_lines_is_refused_with_owners_and_lines(clone: Clone) -> None:
    """N-shell: and nothing is changed; the earlier one may commit, and then the later one."""
    clone.change("cay", "plan.md", b"ana\n", b"cay\n")
    head, index = clone.git("rev-parse", "HEAD"), (clone.root / ".git/index").read_bytes()

    with pytest.raises(CannotCommitError, match=r"Line 3: .* of ana, session session-\.") as refused:
        commit(clone, "cay")
    assert refused.value.details == {"owners": "ana, session session-", "lines": "3-3"}
    assert refused.value.path == str(clone.root / "plan.md")
    assert (clone.git("rev-parse", "HEAD"), (clone.root / ".git/index").read_bytes()) == (head, index)

    commit(clone, "ana")
    assert clone.shown("plan.md") == TEXT.replace(b"line 3\n", b"ana\n")
    commit(clone, "cay")
    assert clone.shown("plan.md") == TEXT.replace(b"line 3\n", b"cay\n")


def test_two_agents_can_be_committed_together(clone: Clone) -> None:
    """N-shell: the way out where each one's changes are among the other's."""
    clone.change("bob", "plan.md", b"ana\n", b"bob on ana\n")
    clone.change("ana", "plan.md", b"bob on ana\n", b"ana on bob\n")
    for agent in ("ana", "bob"):
        with pytest.raises(CannotCommitError):
            commit(clone, agent)

    commit(clone, "ana", "bob")
    assert clone.status() == []


def test_created_and_deleted_files_are_committed(clone: Clone) -> None:
    """N-shell: a new file with its mode, a deletion; a file that another created is not mine."""
    clone.write("ana", "new/tool.sh", b"#!/bin/sh\n")
    (clone.root / "new/tool.sh").chmod(0o755)
    clone.write("ana", "other.md", None)
    clone.write("bob", "of-bob.md", b"bob\n")
    made = commit(clone, "ana")

    assert sorted(each.path for each in made.plan.files) == ["new/tool.sh", "other.md", "plan.md"]
    assert clone.git("ls-tree", "-r", "--format=%(objectmode) %(path)", "HEAD").splitlines() == [
        "100755 new/tool.sh",
        "100644 plan.md",
    ]
    assert clone.status() == [" M plan.md", "?? of-bob.md"]


def test_a_file_that_another_created_and_did_not_commit_is_refused(clone: Clone) -> None:
    """N-shell: lines cannot be committed without their file."""
    clone.write("bob", "new.md", b"one\ntwo\nthree\n")
    clone.change("ana", "new.md", b"three\n", b"three\nana\n")
    with pytest.raises(CannotCommitError, match="created by bob and is not committed"):
        commit(clone, "ana")

    commit(clone, "bob")
    assert clone.shown("new.md") == b"one\ntwo\nthree\n"
    commit(clone, "ana")
    assert clone.shown("new.md") == b"one\ntwo\nthree\nana\n"


def test_a_moved_file_takes_foreign_hunks_nowhere(clone: Clone) -> None:
    """N-shell: the move is committed, and bob's line in it is not."""
    with Workspace(clone.root) as workspace, workspace.turn(agent_id="ana") as turn:
        turn.read_file("plan.md")
        turn.move_file("plan.md", "docs/plan.md")
    commit(clone, "ana")

    assert clone.shown("docs/plan.md") == TEXT.replace(b"line 3\n", b"ana\n")
    assert clone.status() == [" M docs/plan.md"]
    commit(clone, "bob")
    assert clone.status() == []


def test_changes_in_a_file_that_another_moved_are_committed_at_its_old_name(clone: Clone) -> None:
    """N-shell: where the file goes is the other's change."""
    with Workspace(clone.root) as workspace, workspace.turn(agent_id="bob") as turn:
        turn.read_file("plan.md")
        turn.move_file("plan.md", "moved.md")
    commit(clone, "ana")

    assert clone.shown("plan.md") == TEXT.replace(b"line 3\n", b"ana\n")
    commit(clone, "bob")
    assert clone.shown("moved.md") == (clone.root / "moved.md").read_bytes()
    assert clone.status() == []


def test_what_others_have_staged_stays_staged(clone: Clone) -> None:
    """N-shell: a rival's staged hunk in the same file is staged afterwards, and nothing of mine is undone."""
    clone.git("add", "plan.md")  # Bob staged everything: ana's line is in the index, too.
    clone.change("ana", "plan.md", b"line 18\n", b"ana again\n")
    (clone.root / "other.md").write_bytes(b"staged by hand\n")
    clone.git("add", "other.md")
    commit(clone, "ana")

    staged = clone.git("diff", "--cached")
    assert "+bob" in staged
    assert "+staged by hand" in staged
    assert "ana" not in staged.replace(" ana", "")
    assert clone.git("diff") == ""


def test_staged_changes_of_the_same_lines_are_refused(clone: Clone) -> None:
    """N-shell: they could not stay staged without undoing mine."""
    rival = TEXT.replace(b"line 3\n", b"staged by a rival\n")
    oid = subprocess.run(
        ["git", "hash-object", "-w", "--stdin"], cwd=clone.root, input=rival, capture_output=True, check=True
    ).stdout.decode()
    clone.git("update-index", "--cacheinfo", f"100644,{oid.strip()},plan.md")
    head = clone.git("rev-parse", "HEAD")

    with pytest.raises(CannotCommitError, match=r"git restore --staged -- plan\.md"):
        commit(clone, "ana")
    assert clone.git("rev-parse", "HEAD") == head
    assert not (clone.root / ".git/index.lock").exists()
    assert [name for name in os.listdir(clone.root / ".git") if "noclobber" in name] == []


def test_a_commit_in_between_is_not_undone(clone: Clone) -> None:
    """N-shell: HEAD is compared and swapped; what came in between is kept, and mine is planned again on it."""
    hook(
        clone,
        "pre-commit",
        "test -e between && exit 0; touch between; unset GIT_INDEX_FILE\n"
        "echo between >>other.md; git commit --quiet --no-verify -m between other.md",
    )
    commit(clone, "ana")

    assert clone.git("log", "--format=%s").split() == ["mine", "between", "first"]
    assert clone.shown("other.md") == b"other\nbetween\n"
    assert clone.shown("plan.md") == TEXT.replace(b"line 3\n", b"ana\n")
    assert clone.status() == [" M plan.md", "?? between"]


def test_a_head_that_never_holds_still_ends_in_an_error(
    clone: Clone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-shell: bounded."""
    monkeypatch.setattr(commit_module, "MOST_ATTEMPTS", 3)
    hook(clone, "pre-commit", "unset GIT_INDEX_FILE; git commit --quiet --no-verify --allow-empty -m between")
    with pytest.raises(CannotCommitError, match="HEAD kept moving; gave up after 3 attempts"):
        commit(clone, "ana")
    assert clone.count() == 4


def test_hooks_are_run_as_git_runs_them(clone: Clone) -> None:
    """N-shell: each sees what is committed; one that says no stops it; --no-verify leaves two of them out."""
    hook(clone, "pre-commit", "git diff --cached --name-only >seen; git show :plan.md >staged")
    hook(clone, "commit-msg", 'echo "from the hook" >>"$1"')
    hook(clone, "post-commit", "git log -1 --format=%s >after")
    commit(clone, "ana")
    assert (clone.root / "seen").read_text() == "plan.md\n"
    assert (clone.root / "staged").read_bytes() == TEXT.replace(b"line 3\n", b"ana\n")
    assert "from the hook" in clone.git("log", "-1", "--format=%B")
    assert (clone.root / "after").read_text() == "mine\n"

    hook(clone, "pre-commit", "echo no such luck; exit 1")
    with pytest.raises(CannotCommitError, match="pre-commit hook said no: no such luck"):
        commit(clone, "bob")
    assert clone.count() == 2
    commit(clone, "bob", verify=False)
    assert clone.count() == 3


def test_a_hook_that_stages_more_is_refused(clone: Clone) -> None:
    """N-shell: `git add` in a pre-commit hook would sweep bob's line up."""
    hook(clone, "pre-commit", "git add plan.md")
    with pytest.raises(CannotCommitError, match="pre-commit hook changed what is to be committed"):
        commit(clone, "ana")
    assert clone.count() == 1


@pytest.mark.parametrize(
    ("name", "words"),
    [("MERGE_HEAD", "A merge"), ("rebase-merge", "A rebase"), ("CHERRY_PICK_HEAD", "A cherry-pick")],
)
def test_in_the_middle_of_a_merge_or_rebase_nothing_is_committed(clone: Clone, name: str, words: str) -> None:
    """N-shell: with the way out."""
    (clone.root / ".git" / name).write_text(clone.git("rev-parse", "HEAD"))
    with pytest.raises(
        CannotCommitError, match=rf"{words} is in progress\. Finish it first, or give it up: git"
    ):
        commit(clone, "ana")


def test_the_first_commit_of_a_branch(root: Path) -> None:
    """N-shell: an unborn branch has no parent and no file."""
    clone = Clone(root)
    clone.write("ana", "a.md", b"ana\n")
    clone.write("bob", "b.md", b"bob\n")
    commit(clone, "ana")
    assert (clone.count(), clone.status()) == (1, ["?? b.md"])
    commit(clone, "bob")
    assert (clone.count(), clone.status()) == (2, [])


def test_a_detached_head_moves_and_no_branch_does(clone: Clone) -> None:
    """N-shell."""
    main = clone.git("rev-parse", "main")
    clone.git("checkout", "--quiet", "--detach")
    commit(clone, "ana")
    assert clone.git("rev-parse", "main") == main
    assert clone.git("rev-parse", "HEAD^") == main


def test_line_endings_and_filters_are_gits(root: Path) -> None:
    """N-shell: a file with CRLF on disk has LF in the repository, and only my line of it is committed."""
    clone = Clone(root, {".gitattributes": b"*.txt text eol=crlf\n*.up filter=up\n"})
    clone.git("config", "filter.up.clean", "tr a-z A-Z")
    clone.git("config", "filter.up.smudge", "tr A-Z a-z")
    lines = [b"line %d\r\n" % number for number in range(20)]
    (root / "a.txt").write_bytes(b"".join(lines))
    (root / "b.up").write_bytes(b"one\ntwo\nthree\nfour\nfive\n")
    clone.git("add", "-A")
    clone.git("commit", "--quiet", "-m", "second")
    clone.change("ana", "a.txt", b"line 3\r\n", b"ana\r\n")
    clone.change("bob", "a.txt", b"line 9\r\n", b"bob\r\n")
    clone.change("bob", "b.up", b"one\n", b"bob\n")
    clone.change("ana", "b.up", b"five\n", b"ana\n")
    commit(clone, "ana")

    assert clone.shown("a.txt") == b"".join(lines).replace(b"line 3\r\n", b"ana\r\n").replace(b"\r\n", b"\n")
    assert clone.shown("b.up") == b"ONE\nTWO\nTHREE\nFOUR\nANA\n"
    commit(clone, "bob")
    assert clone.status() == []


def test_ignored_files_and_other_repositories_are_left_out_and_named(clone: Clone) -> None:
    """N-shell: as `git add` would."""
    (clone.root / ".git/info/exclude").write_text("*.log\n")
    (clone.root / "nested").mkdir()
    Clone(clone.root / "nested", {"x.md": b"x\n"})
    clone.write("ana", "debug.log", b"log\n")
    clone.write("ana", "nested/x.md", b"ana\n")
    made = commit(clone, "ana")

    assert [each.path for each in made.plan.files] == ["plan.md"]
    assert sorted(reason.split(":")[0] for _, reason in made.plan.skipped) == [
        "It is in another repository below this one",
        "git ignores it.",
    ]


def test_a_link_in_the_last_commit_is_refused(clone: Clone) -> None:
    """N-shell: what was a link there and is a file of mine now."""
    (clone.root / "link").symlink_to("other.md")
    clone.git("add", "link")
    clone.git("commit", "--quiet", "-m", "link", "link")
    (clone.root / "link").unlink()
    clone.write("ana", "link", b"a file\n")
    with pytest.raises(CannotCommitError, match="symbolic link"):
        commit(clone, "ana")


def test_only_some_files_and_a_dry_run(clone: Clone) -> None:
    """N-shell: --file and --dry-run."""
    clone.change("ana", "other.md", b"other\n", b"ana\n")
    head = clone.git("rev-parse", "HEAD")
    made = commit(clone, "ana", paths=[str(clone.root / "other.md")], dry_run=True)
    assert [(each.path, each.after) for each in made.plan.files] == [("other.md", b"ana\n")]
    assert clone.git("rev-parse", "HEAD") == head

    commit(clone, "ana", paths=[str(clone.root / "other.md")])
    assert clone.shown("plan.md") == TEXT
    assert clone.shown("other.md") == b"ana\n"


def test_signing_is_honoured(clone: Clone, tmp_path: Path) -> None:
    """N-shell: commit.gpgsign, which commit-tree by itself does not read."""
    program = tmp_path / "gpg"
    program.write_text(
        "#!/bin/sh\ncat >/dev/null\necho '[GNUPG:] SIG_CREATED ' >&2\n"
        "printf -- '-----BEGIN PGP SIGNATURE-----\\n\\nsigned\\n-----END PGP SIGNATURE-----\\n'\n"
    )
    program.chmod(0o755)
    clone.git("config", "gpg.program", str(program))
    clone.git("config", "commit.gpgsign", "true")
    commit(clone, "ana")
    assert "gpgsig -----BEGIN PGP SIGNATURE-----" in clone.git("cat-file", "commit", "HEAD")


def test_a_linked_worktree_is_committed_on_its_own_branch(clone: Clone, tmp_path: Path) -> None:
    """N-shell: git folders elsewhere; its index and its HEAD are not the main work tree's."""
    folder = tmp_path / "linked"
    clone.git("worktree", "add", "--quiet", str(folder), "-b", "side")
    linked = object.__new__(Clone)
    linked.root = folder
    linked.change("ana", "plan.md", b"line 5\n", b"in the linked one\n")
    main = clone.git("rev-parse", "main")
    commit(linked, "ana")
    assert linked.shown("plan.md", "side") == TEXT.replace(b"line 5\n", b"in the linked one\n")
    assert clone.git("rev-parse", "main") == main
    assert linked.status() == []


def test_the_library_has_it_too(clone: Clone) -> None:
    """N-shell: `Workspace.commit_mine`."""
    with Workspace(clone.root) as workspace:
        made = workspace.commit_mine("mine", agent_id="ana", paths=["plan.md"])
    assert made.commit == clone.git("rev-parse", "HEAD").strip()


def test_a_move_by_a_command_counts_as_a_deletion_and_a_new_file(clone: Clone) -> None:
    """N-shell: committed so if the file was nobody else's; refused while others' lines in it are uncommitted."""
    with Workspace(clone.root) as workspace, workspace.turn(agent_id="cid") as turn:
        try:
            turn.run("mv other.md moved.md")
        except ShellUnavailableError as error:
            pytest.skip(str(error))
        turn.run("mv plan.md plan2.md")

    with pytest.raises(CannotCommitError, match=r"plan\.md"):
        commit(clone, "cid")
    paths = [f"{clone.root}/{name}" for name in ("other.md", "moved.md")]
    made = commit(clone, "cid", paths=paths)

    assert len(made.plan.files) == 2
    assert clone.shown("moved.md") == b"other\n"
    assert clone.git("ls-tree", "--name-only", "HEAD").split() == ["moved.md", "plan.md"]


LEASE_HOLDER = """
import fcntl, os, signal, sys
file = os.open(sys.argv[1], os.O_RDWR)
signal.signal(signal.SIGIO, lambda *_: os._exit(0))
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("held", flush=True)
signal.pause()
"""


@pytest.mark.skipif(not leases.SUPPORTED, reason="no leases here")
def test_a_file_that_is_being_committed_is_waited_for(clone: Clone) -> None:
    """N-shell: somebody else's commit has it for a moment; it is neither unreadable nor gone."""
    path = str(clone.root / "plan.md")
    for use in (lambda: commit(clone, "ana").commit, lambda: content_of(path)):
        words = [sys.executable, "-S", "-c", LEASE_HOLDER, path]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"held\n"
            assert use()
