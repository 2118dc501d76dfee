"""Folders of commands that came with a repository: nothing outside is touched, read or waited for."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from noclobber.cli import main
from noclobber.shell import git_locks, runs
from tests.disk.test_apart import is_marked, marked_at_mkdir
from tests.rigs.commands import run
from tests.shell.test_process import is_available

RUN_ID = "6afb5918-3120-5665d1"
JOB = {"argv": ["true"], "cwd": "/", "agent_id": "shell"}


@pytest.fixture
def planted(root: Path) -> Path:
    """A command that was refused, as somebody could have packed it."""
    folder = root / ".noclobber/run" / RUN_ID
    (folder / "upper").mkdir(parents=True)
    for each in (root / ".noclobber", root / ".noclobber/run", folder):
        each.chmod(0o700)
    (folder / "job.json").write_text(json.dumps(JOB))
    (folder / "refused.json").write_text('{"code": "STALE_FILE", "error": {}, "others": []}')
    return folder


def test_what_commands_write_is_kept_apart_from_what_the_project_has_just_deleted(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-speed, N-shell: ext4 looks at each file that was deleted lately whenever one is made in that group."""
    state = root / ".noclobber"
    state.mkdir(0o700, exist_ok=True)
    noted = marked_at_mkdir(monkeypatch, state)
    runs.made(root=str(root)).remove()
    runs.made(root=str(root)).remove()
    if not noted["run"]:
        pytest.skip("this filesystem does not have the attribute T")
    assert noted == {"run": True}  # Once; and what else is made there stays where it belongs.
    assert not is_marked(state)
    assert (state / "run").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("which", ["run", ".noclobber"])
def test_a_link_instead_of_the_folder_of_runs_leads_nobody_outside(
    root: Path, tmp_path: Path, which: str
) -> None:
    """findings S1 and S20: the next command deleted every folder with a name of hexadecimal digits there."""
    outside = tmp_path / "somebody's/.git/objects"
    precious = (outside if which == "run" else outside / "run") / "ab" / "object"
    precious.parent.mkdir(parents=True)
    precious.write_text("precious")
    (precious.parent / "job.json").write_text(json.dumps(JOB))
    (precious.parent / "refused.json").write_text("{}")
    state = root / ".noclobber"
    shutil.rmtree(state, ignore_errors=True)
    if which == "run":
        state.mkdir(0o700)
        (state / "run").symlink_to(outside)
    else:
        state.symlink_to(outside)
    for words in (("list",), ("drop", "ab"), ("--", "true")):
        ended = run("run", "--root", str(root), *words, cwd=root)
        assert "Traceback" not in ended.err
        assert "internal error" not in ended.err
    assert sorted(os.listdir(precious.parent)) == ["job.json", "object", "refused.json"]
    assert os.listdir(precious.parent.parent) == ["ab"]


def test_runs_of_another_user_or_open_to_others_are_not_believed(root: Path, planted: Path) -> None:
    """finding S1: a folder that others may write to is anybody's."""
    assert runs.all_ids(str(root)) == [RUN_ID]
    planted.parent.chmod(0o777)
    assert runs.all_ids(str(root)) == []
    assert runs.found(str(root), RUN_ID) is None
    runs.tidy(str(root), kept_days=0)
    assert planted.is_dir()


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _large(path: Path) -> None:
    path.write_bytes(b"[" * (3 << 20))


def _wrong(text: str) -> Callable[[Path], None]:
    def plant(path: Path) -> None:
        path.write_text(text)

    return plant


@pytest.mark.parametrize("name", ["job.json", "refused.json"])
@pytest.mark.parametrize(
    "plant",
    [
        _fifo,
        _endless,
        _large,
        _wrong('{"argv":5,"cwd":5,"code":[],"others":7}'),
        _wrong('{"argv":["\\ud800"],"cwd":"/"}'),
        _wrong('{"argv":["a\\u0000b"],"cwd":"/\\u0000"}'),
    ],
)
def test_no_record_of_a_command_hangs_or_breaks_a_command(
    root: Path,
    planted: Path,
    name: str,
    plant: Callable[[Path], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """finding S15: what can be read as a file, and as words, is; the rest is not known."""
    (planted / name).unlink()
    plant(planted / name)
    reruns = [("rerun", RUN_ID)] if name == "job.json" else []  # Without a command there is nothing to run.
    for words in (("list",), ("list", "--json"), ("show", RUN_ID), *reruns):
        assert main(["run", "--root", str(root), *words]) in (0, 1)
        assert "internal error" not in capsys.readouterr().err


def test_no_list_of_git_locks_removes_anything_else(root: Path, planted: Path, tmp_path: Path) -> None:
    """finding S1: a link as our lock made any file look like ours; a hard link did, too."""
    linked, named, lock = tmp_path / "linked", tmp_path / "named.lock", root / ".git/index.lock"
    lock.parent.mkdir()
    for path in (linked, named, lock):
        path.write_text("precious")
    listed = b"\0".join(os.fsencode(path) for path in (linked, named, lock))
    (planted / git_locks.LIST_FILE).write_bytes(listed)
    own = planted / git_locks.LOCK_FILE
    for target in (linked, named, lock):
        own.symlink_to(target)
        git_locks.release_left(str(root), str(planted))
        own.unlink()
    os.link(named, own)
    git_locks.release_left(str(root), str(planted))
    assert all(path.read_text() == "precious" for path in (linked, named, lock))
    own.unlink()
    lock.unlink()
    own.write_text("ours")
    os.link(own, lock)
    git_locks.release_left(str(root), str(planted))
    assert not lock.exists()


def test_what_is_kept_stays_until_its_command_has_run_again(root: Path, tmp_path: Path) -> None:
    """N-shell: a program that is not there any more, and a signal, are no reason to drop what was written."""
    if not is_available():
        pytest.skip("no namespaces here")
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\ntest ! -e again || kill -TERM $$\necho two >> a.md\n")
    program.chmod(0o755)
    refused = run("run", "--expect", f"a.md={'0' * 64}", "--", str(program), cwd=root)
    assert refused.code == 75
    (run_id,) = os.listdir(root / ".noclobber/run")
    program.rename(tmp_path / "away")
    assert run("run", "rerun", run_id, cwd=root).code == 127
    (tmp_path / "away").rename(program)
    (root / "again").touch()
    assert run("run", "rerun", run_id, cwd=root).code == 143
    assert "+two" in run("run", "diff", run_id, cwd=root).out
    (root / "again").unlink()
    assert run("run", "--expect", "a.md=ABSENT", "rerun", run_id, cwd=root).code == 0
    assert os.listdir(root / ".noclobber/run") == []


def test_each_of_several_commands_runs_again_for_its_own_agent(root: Path) -> None:
    """N-shell: the record names who it was."""
    if not is_available():
        pytest.skip("no namespaces here")
    for agent in ("anna", "ben"):
        expect = ("--expect", f"{agent}.md={'0' * 64}")
        done = run("run", "--agent", agent, *expect, "--", "sh", "-c", f"echo 1 > {agent}.md", cwd=root)
        assert done.code == 75
    now = [word for agent in ("anna", "ben") for word in ("--expect", f"{agent}.md=ABSENT")]
    assert run("run", *now, "rerun", *os.listdir(root / ".noclobber/run"), cwd=root).code == 0
    lines = map(json.loads, (root / ".noclobber/agent_trace.jsonl").read_text().splitlines())
    landed = [each for each in lines if each["action_type"] == "MUTATION"]
    assert {each["payload"]["target_file"]: each["identity"]["agent_id"] for each in landed} == {
        f"{agent}.md": agent for agent in ("anna", "ben")
    }
