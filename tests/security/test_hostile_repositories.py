"""A cloned repository names programs in every place that git knows. Reading it runs none of them (finding S23)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import noclobber
from noclobber import OthersWorkError, Workspace
from noclobber.disk import hashing
from noclobber.guard.commands import run_command
from noclobber.guard.git.commit import commit_mine
from noclobber.guard.git.lineage import WrittenBy
from noclobber.guard.git.literal import others_work_before
from noclobber.guard.git.mine import Mine
from noclobber.guard.past_bytes import find_bytes
from noclobber.shell.roots import why_not
from tests.rigs.clones import IDENTITY, Clone
from tests.rigs.hooks import HookRig

TEXT = b"".join(b"line %d\n" % number for number in range(1, 21))


class Trap:
    """A clone in which every program that its configuration names leaves a trace outside of it."""

    def __init__(self, clone: Clone, folder: Path) -> None:
        self.clone, self.folder = clone, folder
        folder.mkdir()
        self.program = folder / "program"
        self.program.write_text(f'#!/bin/sh\necho "$0 $*" >> {folder}/ran\nexit 1\n')
        self.program.chmod(0o755)

    def ran(self) -> str:
        """Return which programs ran."""
        trace = self.folder / "ran"
        return trace.read_text() if trace.exists() else ""

    def hook(self, folder: Path, name: str) -> None:
        """A hook that leaves a trace."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(self.program)


def fsmonitor(trap: Trap) -> None:
    trap.clone.git("config", "core.fsmonitor", str(trap.program))


def included(trap: Trap) -> None:
    (trap.clone.root / "tools.cfg").write_text(f"[core]\n\tfsmonitor = {trap.program}\n")
    trap.clone.git("config", "include.path", "../tools.cfg")


def included_for_a_branch(trap: Trap) -> None:
    (trap.clone.root / "tools.cfg").write_text(
        f'[core]\n\tfsmonitor = {trap.program}\n[filter "x"]\n\tclean = {trap.program}\n'
    )
    trap.clone.git("config", "includeIf.onbranch:main.path", "../tools.cfg")


def clean_filter(trap: Trap) -> None:
    trap.clone.git("config", "filter.x.clean", str(trap.program))
    trap.clone.git("config", "filter.x.required", "true")


def process_filter(trap: Trap) -> None:
    trap.clone.git("config", "filter.x.process", str(trap.program))


def odd_filter(trap: Trap) -> None:
    """A name with the characters that end a key on a command line."""
    (trap.clone.root / ".git/info/attributes").write_text("* filter=a=b\n")
    with (trap.clone.root / ".git/config").open("a") as file:
        file.write(f'[filter "a=b"]\n\tclean = {trap.program}\n')


def worktree_filter(trap: Trap) -> None:
    trap.clone.git("config", "extensions.worktreeConfig", "true")
    trap.clone.git("config", "--worktree", "filter.x.clean", str(trap.program))


def users_own_filter(trap: Trap) -> None:
    """git-lfs, for one: it runs what the repository's own configuration says."""
    (trap.folder / "gitconfig").write_text(f'[filter "x"]\n\tclean = {trap.program}\n')
    os.environ["GIT_CONFIG_GLOBAL"] = f"{trap.folder}/gitconfig"


def hooks(trap: Trap) -> None:
    for name in ("post-index-change", "reference-transaction", "post-checkout", "pre-commit", "fsmonitor"):
        trap.hook(trap.clone.root / ".git/hooks", name)


def hooks_elsewhere(trap: Trap) -> None:
    trap.hook(trap.clone.root / "hooks", "post-index-change")
    trap.clone.git("config", "core.hooksPath", "hooks")


def other_programs(trap: Trap) -> None:
    program = str(trap.program)
    for key in (
        *(
            "diff.external",
            "diff.x.textconv",
            "diff.x.command",
            "core.pager",
            "core.sshCommand",
            "gpg.program",
        ),
        *("core.askPass", "credential.helper", "core.alternateRefsCommand", "core.editor", "merge.x.driver"),
        *("gpg.ssh.program", "alias.ls-files", "alias.rev-parse", "pager.log", "core.gitProxy"),
    ):
        trap.clone.git("config", key, program)
    trap.clone.git("config", "log.showSignature", "true")


def missing_objects(trap: Trap) -> None:
    """A partial clone: git would fetch what is missing, by a program of the repository's choice."""
    clone = trap.clone
    blob = clone.git("rev-parse", "HEAD:of-bob.md").strip()
    (clone.root / f".git/objects/{blob[:2]}/{blob[2:]}").unlink()
    clone.git("config", "core.repositoryFormatVersion", "1")
    clone.git("config", "extensions.partialClone", "origin")
    clone.git("config", "remote.origin.url", f"ext::{trap.program} fetched")
    clone.git("config", "remote.origin.promisor", "true")
    clone.git("config", "protocol.ext.allow", "always")


def upload_pack(trap: Trap) -> None:
    missing_objects(trap)
    trap.clone.git("config", "remote.origin.url", str(trap.clone.root))
    trap.clone.git("config", "remote.origin.uploadpack", str(trap.program))


def submodule(trap: Trap) -> None:
    """git compares a submodule by a process of its own, with that one's configuration."""
    inner = trap.clone.root / "inner"
    inner.mkdir()
    below = Clone(inner, {"a": b"a\n"})
    trap.clone.git("add", "inner")
    trap.clone.git("commit", "--quiet", "-m", "a submodule", "--", "inner")
    (inner / "a").write_bytes(b"b\n")
    below.git("config", "core.fsmonitor", str(trap.program))
    trap.hook(inner / ".git/hooks", "post-index-change")


TRAPS = (
    *(fsmonitor, included, included_for_a_branch, clean_filter, process_filter, odd_filter, worktree_filter),
    *(users_own_filter, hooks, hooks_elsewhere, other_programs, missing_objects, upload_pack, submodule),
)


@pytest.fixture
def trap(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trap:
    """A clone with work of two agents in it."""
    for name, value in IDENTITY.items():
        monkeypatch.setenv(name, value)
    clone = Clone(root, {"of-ana.md": TEXT, "of-bob.md": TEXT, ".gitattributes": b"* filter=x diff=x\n"})
    clone.write("ana", "of-ana.md", TEXT.replace(b"line 3\n", b"ana\n"))
    clone.write("bob", "of-bob.md", TEXT.replace(b"line 3\n", b"bob\n"))
    (root / ".gitattributes").touch()  # Younger than the index: git has to read it.
    return Trap(clone, tmp_path / "outside")


def before_a_command(trap: Trap) -> None:
    root = str(trap.clone.root)
    others_work_before("git stash -u", root=root, cwd=root, me=WrittenBy("ana"), known={})


def without_a_commit(trap: Trap) -> None:
    try:
        commit_mine(str(trap.clone.root), Mine(("ana",)), "mine", dry_run=True)
    except noclobber.CannotCommitError:
        pass  # Objects are missing, for one.


def looking_for_a_version(trap: Trap) -> None:
    find_bytes(str(trap.clone.root), str(trap.clone.root / "of-bob.md"), hashing.of_bytes(b"never"))


def landing(trap: Trap) -> None:
    """Not a git command: a program may have changed git's files."""
    if (reason := why_not(str(trap.clone.root))) is not None:
        pytest.skip(reason)
    with Workspace(trap.clone.root) as workspace, workspace.turn(agent_id="ana") as turn:
        try:
            run_command(turn, "echo of-ana.md >> .git/info/exclude; cp of-ana.md of-bob.md; : git clean")
        except noclobber.NoclobberError:
            pass


@pytest.mark.parametrize("way", [before_a_command, without_a_commit, looking_for_a_version, landing])
@pytest.mark.parametrize("prepare", TRAPS)
def test_reading_a_repository_runs_nothing_that_it_names(
    trap: Trap, prepare: Callable[[Trap], None], way: Callable[[Trap], None]
) -> None:
    """finding S23: in hooks, in landings, in a dry run of a commit, in the search for versions."""
    prepare(trap)
    (trap.folder / "ran").unlink(missing_ok=True)  # What setting it up has run.
    way(trap)

    assert trap.ran() == ""


def test_a_bare_repository_inside_a_clone_is_nobodys(rig: HookRig, trap: Trap) -> None:
    """finding S23: files in a folder of a commit are enough to be a repository; a hook asked git in there."""
    bare = trap.clone.root / "docs"
    (bare / "objects").mkdir(parents=True)
    (bare / "refs").mkdir()
    (bare / "HEAD").write_text("ref: refs/heads/main\n")
    (bare / "config").write_text(
        f"[core]\n\tbare = false\n\tworktree = {bare}\n\tfsmonitor = {trap.program}\n"
    )
    for command in ("git stash -u", "git clean -fd", "git commit -am x"):
        event = rig.tool("PreToolUse", "Bash", {"command": command}, tool_use_id="b")
        rig.call("claude-code", {**event, "cwd": str(bare)})

    assert trap.ran() == ""


def test_a_filter_that_is_not_run_lets_nobodys_work_go(trap: Trap) -> None:
    """finding S23: without its filters git takes more for changed, never less."""
    clean_filter(trap)
    root = str(trap.clone.root)
    error = others_work_before("git checkout .", root=root, cwd=root, me=WrittenBy("ana"), known={})

    assert isinstance(error, OthersWorkError)
    assert "of-bob.md (bob)" in str(error)


def test_a_real_commit_filters_what_it_keeps_and_runs_the_hooks(trap: Trap) -> None:
    """N-shell: making the commit is the one thing for which git obeys the repository: somebody asked for it."""
    trap.program.write_text(f"#!/bin/sh\necho $0 >> {trap.folder}/ran\nsed s/^ana/ANA/\n")
    trap.clone.git("config", "filter.x.clean", str(trap.program))
    trap.hook(trap.clone.root / ".git/hooks", "pre-commit")
    commit_mine(str(trap.clone.root), Mine(("ana",)), "mine")

    assert b"ANA\n" in trap.clone.shown("of-ana.md")
    assert "pre-commit" in trap.ran()


def test_git_is_called_in_one_place_for_reading_and_in_one_for_commits() -> None:
    """finding S23: any other call of git is one that a repository can turn into a program of its own."""
    package = Path(noclobber.__file__).parent
    calls = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if re.search(r"""\[\s*["'](/usr/bin/)?git["'],|["']git [a-z]+.*shell=""", path.read_text())
    }
    assert calls == {"guard/git/reading.py", "guard/git/repository.py"}
