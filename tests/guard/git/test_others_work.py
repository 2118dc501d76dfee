"""git in the guarded shell: others' uncommitted work is neither taken away nor swept up; one's own passes."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from noclobber import OthersWorkError, StaleFileError, Workspace
from noclobber.guard.commands import run_command
from noclobber.guard.git.repository import in_one_line
from noclobber.shell.roots import why_not
from tests.rigs.clones import IDENTITY, Clone

TEXT = b"".join(b"line %d\n" % number for number in range(1, 21))


@pytest.fixture
def clone(root: Path, monkeypatch: pytest.MonkeyPatch) -> Clone:
    """A clone in which ana works; bob has changed `of-bob.md` and made a new file."""
    if (reason := why_not(str(root))) is not None:
        pytest.skip(reason)
    for name, value in IDENTITY.items():
        monkeypatch.setenv(name, value)
    clone = Clone(root, {"of-ana.md": TEXT, "of-bob.md": TEXT, ".gitignore": b"*.log\n"})
    clone.write("ana", "of-ana.md", TEXT.replace(b"line 3\n", b"ana\n"))
    return clone


def bob_works(clone: Clone) -> None:
    """Another agent changes a file and makes one."""
    clone.write("bob", "of-bob.md", TEXT.replace(b"line 3\n", b"bob\n"), "session-of-bob")
    clone.write("bob", "new-of-bob.md", b"bob\n", "session-of-bob")


def run(clone: Clone, command: str, *seen: str, agent: str = "ana") -> None:
    """Run a command in the guarded shell, as an agent that has read some files."""
    with Workspace(clone.root) as workspace, workspace.turn(agent_id=agent) as turn:
        for name in seen:
            turn.read_file(name)
        done = run_command(turn, command)
        assert done.exit_code == 0, done.stderr


REFUSED = (
    ("git commit -qam mine", "swept up", "of-bob.md"),
    ("git add -A", "swept up", "new-of-bob.md, of-bob.md"),
    ("git add . && git commit -qm mine", "swept up", "new-of-bob.md, of-bob.md"),
    ("git stash -q -u", "taken away", "new-of-bob.md, of-bob.md"),
    ("git stash -q", "taken away", "of-bob.md"),
    ("git checkout -q -- .", "taken away", "of-bob.md"),
    ("git checkout -q -f", "taken away", "of-bob.md"),
    ("git restore of-bob.md", "taken away", "of-bob.md"),
    ("git reset -q --hard", "taken away", "of-bob.md"),
    ("git clean -qfd", "taken away", "new-of-bob.md"),
    ("git rm -qf of-bob.md", "taken away", "of-bob.md"),
)


def test_what_others_have_not_committed_is_refused(clone: Clone) -> None:
    """N-shell, N-who: with the files and the owner, and nothing is changed: no file, no HEAD, no index."""
    bob_works(clone)
    before = clone.status(), clone.git("rev-parse", "HEAD"), clone.git("stash", "list")

    for command, what, files in REFUSED:
        with pytest.raises(OthersWorkError, match=f"would be {what}") as refused:
            run(clone, command)
        assert refused.value.details == {"files": files, "owners": "bob, session session-"}, command
        assert (clone.status(), clone.git("rev-parse", "HEAD"), clone.git("stash", "list")) == before
    assert b"bob\n" in (clone.root / "of-bob.md").read_bytes()


def test_git_in_a_script_is_judged_alike(clone: Clone) -> None:
    """N-shell: by what it did; for `git clean` by the script's text."""
    bob_works(clone)
    for line in ("git commit -qam mine", "git stash -q", "git clean -qfd"):
        (clone.root / "work.log").write_text(f"set -e\nX=1\n{line}\n")
        with pytest.raises(OthersWorkError):
            run(clone, "sh work.log")


def test_an_agent_alone_is_never_held_up(clone: Clone) -> None:
    """N-shell: its own changes, by guarded tools and by guarded commands, are its own."""
    for command in (
        "git commit -qam mine",
        "git stash -q && git stash pop -q",
        "git stash -q -u",
        "git checkout -q -b side && git commit -qam mine && git checkout -q main && git merge -q side",
        "git checkout -q -- .",
        "git commit -qam mine && git reset -q --hard HEAD^",
        "git clean -qfd",
    ):
        run(clone, "echo more >>of-ana.md; echo new >new.md; echo more >>of-bob.md")
        run(clone, command)


def test_one_by_one_as_agents_do_it(clone: Clone) -> None:
    """N-shell: stash in one command and pop in the next, then a branch, a commit, and a rebase."""
    clone.git("branch", "side")
    for command in (
        "git stash -q",
        "git stash pop -q",
        "git add -A",
        "git commit -qm mine",
        "git checkout -q side",
        "echo side >side.md && git add side.md && git commit -qm side",
        "git rebase -q main",
        "git checkout -q main",
        "git merge -q side",
    ):
        run(clone, command)
    assert clone.status() == []


def test_commands_that_leave_others_alone_pass(clone: Clone) -> None:
    """N-shell: naming one's own files is enough."""
    bob_works(clone)
    for command in (
        "git add of-ana.md",
        "git commit -qm mine of-ana.md",
        "git checkout -q -b side",
        "rm of-ana.md",
    ):
        run(clone, command)
    assert clone.status() == [" D of-ana.md", " M of-bob.md", "?? new-of-bob.md"]


def test_what_the_agent_has_seen_is_its_own_to_change(clone: Clone) -> None:
    """N-shell: since this agent saw it."""
    bob_works(clone)
    run(clone, "git commit -qam both", "of-bob.md")
    assert clone.shown("of-bob.md") == TEXT.replace(b"line 3\n", b"bob\n")


def test_a_persons_change_counts_for_an_agent_with_a_memory(clone: Clone) -> None:
    """N-shell: and not for one that has none, because then it may be its own."""
    (clone.root / "of-bob.md").write_bytes(b"typed by hand\n")
    with pytest.raises(OthersWorkError, match="an outsider"):
        run(clone, "git stash -q", "of-ana.md")
    run(clone, "git stash -q")


@pytest.mark.parametrize(
    "command", ["git commit -qm it of-bob.md", "sh -c 'git add of-bob.md && git commit -qm it'"]
)
def test_a_named_file_that_nobody_on_record_wrote_is_committed(clone: Clone, command: str) -> None:
    """finding H18: an own script may have written it. What another agent wrote below is still theirs."""
    (clone.root / "of-bob.md").write_bytes(b"\0 a script's\n")
    with pytest.raises(OthersWorkError) as refused:
        run(clone, "git commit -qam all", "of-ana.md")
    assert "`git add -- of-bob.md && git commit -m MESSAGE -- of-bob.md`" in str(refused.value)
    run(clone, command, "of-ana.md")
    assert clone.status() == [" M of-ana.md"]
    bob_works(clone)
    (clone.root / "of-bob.md").write_bytes(b"on top of bob's\n")
    with pytest.raises(OthersWorkError, match="bob"):
        run(clone, command, "of-ana.md")


@pytest.mark.parametrize("nested", ["", "inner/"])
def test_a_file_that_changed_since_the_agent_read_it_is_told_as_stale(clone: Clone, nested: str) -> None:
    """N-shell, ruling 18: the agent gets the object that says to read again, in a nested clone, too."""
    if nested:
        (clone.root / nested).mkdir()
        Clone(clone.root / nested, {"of-bob.md": TEXT})
    file = clone.root / f"{nested}of-bob.md"
    with Workspace(clone.root) as workspace, workspace.turn(agent_id="ana") as turn:
        file.write_bytes(b"seen\n")
        turn.read_file(file)
        file.write_bytes(b"typed by hand\n")
        with pytest.raises(StaleFileError) as refused:
            run_command(turn, f"cd {file.parent} && git checkout -q -- of-bob.md")
    assert (refused.value.path, file.read_bytes()) == (str(file), b"typed by hand\n")


def test_uncommitted_work_is_protected_however_old_it_is(clone: Clone) -> None:
    """finding G13: an hour after bob's last write anybody could take his work away."""
    bob_works(clone)
    ledger = clone.root / ".noclobber/agent_trace.jsonl"
    ledger.write_bytes(re.sub(rb'"time":"20[0-9][0-9]', b'"time":"2001', ledger.read_bytes()))
    with pytest.raises(OthersWorkError, match="swept up"):
        run(clone, "git add -A && git commit -qm everything")


def test_a_plain_git_status_holds_no_commit_up(clone: Clone) -> None:
    """Finding G13: it writes the times of files into the index, and a guarded commit failed. Staging counts, also if undone."""
    (clone.root / "of-bob.md").touch()  # So that there is something to refresh.
    old = (clone.root / ".git/index").stat().st_mtime_ns
    began, go_on = clone.root.parent / "began", clone.root.parent / "go-on"
    command = (
        f"git commit -qm mine -- of-ana.md && touch {began} && while ! test -e {go_on}; do sleep 0.01; done"
    )
    (clone.root / "of-cy.md").write_bytes(b"a person's\n")
    clone.git("config", "alias.there-and-back", "!git add of-cy.md && git rm -q --cached of-cy.md")
    for elsewhere, is_refused in (
        (("status",), False),
        (("there-and-back",), True),
        (("add", "of-bob.md"), True),
    ):
        (clone.root / "of-ana.md").write_bytes(TEXT + str(elsewhere).encode())
        began.unlink(missing_ok=True)
        go_on.unlink(missing_ok=True)
        (clone.root / "of-bob.md").touch()
        if elsewhere[0] == "add":
            (clone.root / "of-bob.md").write_bytes(b"a person\n")
        with ThreadPoolExecutor() as pool:
            ended = pool.submit(run, clone, command)
            while not began.exists():
                assert not ended.done(), ended.result()
                time.sleep(0.01)
            clone.git(*elsewhere)
            assert (clone.root / ".git/index").stat().st_mtime_ns != old
            go_on.touch()
            if is_refused:
                with pytest.raises(StaleFileError, match="index"):
                    ended.result()
            else:
                ended.result()
    assert clone.count() == 2
    assert clone.status() == [" M of-ana.md", "M  of-bob.md", "?? of-cy.md"]


def test_what_git_says_is_one_line() -> None:
    """Finding G13: messages showed `\\n`."""
    assert in_one_line(b"error: a\nhint: b\n\n") == "error: a; hint: b"


def test_a_committed_change_of_others_is_theirs_no_more(clone: Clone) -> None:
    """N-shell: what bob has committed may be checked out, merged and reset."""
    bob_works(clone)
    with Workspace(clone.root) as workspace:
        workspace.commit_mine("of bob", agent_id="bob")
    run(clone, "git stash -q && git checkout -q HEAD^ && git checkout -q main && git stash pop -q")


def test_an_agents_work_stays_its_own_under_an_outsiders_change(clone: Clone) -> None:
    """N-who: to a caller without memory a person's line on top hid bob, and `checkout` took his work away."""
    bob_works(clone)
    file = Path(clone.root, "of-bob.md")
    file.write_bytes(file.read_bytes() + b"a person\n")
    for command in ("git checkout -q -- of-bob.md", "git commit -qam mine"):
        with pytest.raises(OthersWorkError) as refused:
            run(clone, command)
        assert "bob" in str(refused.value.details["owners"])
    assert file.read_bytes().endswith(b"a person\n")


def test_what_an_agent_has_committed_is_not_its_own_any_more(clone: Clone, monkeypatch: Any) -> None:
    """N-who: then only the outsider's line is uncommitted, which may be the caller's own."""
    bob_works(clone)
    monkeypatch.setenv("GIT_COMMITTER_DATE", f"{int(time.time()) + 5} +0000")
    clone.git("commit", "-qm", "bob", "of-bob.md")
    file = Path(clone.root, "of-bob.md")
    file.write_bytes(file.read_bytes() + b"a person\n")
    run(clone, "git commit -qm mine of-bob.md")
