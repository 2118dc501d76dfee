"""Commands in a private view, run as a user runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from noclobber.core.wire import parse_stale
from noclobber.shell.namespace import UnavailableError, library
from tests.rigs.commands import run


def is_available() -> bool:
    try:
        library()
    except UnavailableError:
        return False
    return subprocess.run(["unshare", "-Urm", "true"], capture_output=True).returncode == 0


pytestmark = pytest.mark.skipif(not is_available(), reason="no namespaces here")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    (root / ".noclobber").mkdir(mode=0o700)
    (root / "plan.md").write_text("one\n")
    return root


def noclobber_run(
    root: Path, *words: str, options: tuple[str, ...] = (), stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "noclobber", "run", *options, "--", *words],
        cwd=root,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
    )


def events(root: Path) -> list[dict[str, Any]]:
    ledger = root / ".noclobber/agent_trace.jsonl"
    return [json.loads(line) for line in ledger.read_text().splitlines()] if ledger.exists() else []


def shell(root: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    return noclobber_run(root, "sh", "-c", text, options=options)


def behind(root: Path, text: str) -> str:
    """A command that lets somebody outside of its view act, and waits for that, if the test is there."""
    go = f"{root.parent}/go"
    return f"if [ -e {go}.wanted ]; then touch {go}; while [ -e {go} ]; do sleep 0.01; done; fi; {text}"


def run_with_an_outsider(
    root: Path, text: str, outside: str, *options: str, before: str = "true"
) -> subprocess.CompletedProcess[str]:
    """Run a command, and something else outside of its view after it has begun and before it ends."""
    go, wanted = root.parent / "go", root.parent / "go.wanted"
    wanted.touch()
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "noclobber",
            "run",
            *options,
            "--",
            "sh",
            "-c",
            f"{before}; {behind(root, text)}",
        ],
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not go.exists():
        assert process.poll() is None, process.communicate()
    wanted.unlink()
    subprocess.run(["sh", "-c", outside], cwd=root, check=True)
    go.unlink()
    out, err = process.communicate(timeout=60)
    return subprocess.CompletedProcess([], process.returncode, out, err)


def test_everything_that_a_command_does_to_a_tree_lands(project: Path) -> None:
    """N-shell: files, folders, links and modes; the exit code is the command's own."""
    (project / "old").mkdir()
    (project / "old/f").write_text("gone")
    (project / "kept").write_text("kept")
    done = shell(
        project,
        "echo two >> plan.md; rm -r old; mkdir -p new/deep empty; echo f > new/deep/f;"
        " ln -s plan.md link; chmod 600 kept; exit 3",
    )
    assert (done.returncode, done.stderr) == (3, "")
    assert (project / "plan.md").read_text() == "one\ntwo\n"
    assert not (project / "old").exists()
    assert (project / "new/deep/f").read_text() == "f\n"
    assert (project / "empty").is_dir()
    assert os.readlink(project / "link") == "plan.md"
    assert (project / "kept").stat().st_mode & 0o777 == 0o600
    mutations = {event["payload"]["target_file"] for event in events(project)}
    assert mutations == {"plan.md", "old/f", "new/deep/f", "empty", "link", "kept"}
    assert os.listdir(project / ".noclobber/swap") == []
    assert os.listdir(project / ".noclobber/run") == []


def test_a_link_is_not_replaced_by_a_file_if_what_it_led_to_was_changed_meanwhile(project: Path) -> None:
    """N-shell: the command made its file of the version before; to a link that only moves it does not matter."""
    os.symlink("plan.md", project / "link")
    by_file, elsewhere = "sed s/one/two/ link > t; mv t link", "ln -sfn other.md link"
    refused = run_with_an_outsider(project, by_file, "echo theirs >> link")
    assert refused.returncode == 75
    assert "STALE_FILE" in refused.stderr.splitlines()[0]
    assert os.readlink(project / "link") == "plan.md"

    assert shell(project, by_file).returncode == 0
    assert (project / "link").read_text() == "two\ntheirs\n"
    os.unlink(project / "link")
    os.symlink("plan.md", project / "link")
    assert run_with_an_outsider(project, elsewhere, "echo theirs >> link").returncode == 0
    assert os.readlink(project / "link") == "other.md"


@pytest.mark.parametrize("way", ["link", "./sub/../link", "docs/plan.md", "{root}/link"])
@pytest.mark.parametrize(
    "outside",
    ["sed s/one/theirs/ {link} > t; {gone}; mv t {link}", "{gone}; ln -sfn other.md {link}", "{gone}"],
    ids=["a file", "another link", "nothing"],
)
def test_a_write_through_a_link_that_is_another_one_by_now_is_refused(
    project: Path, way: str, outside: str
) -> None:
    """N-shell: what was written behind it nobody would find there; links to files and to folders, by any name."""
    (project / "sub").mkdir()
    (project / "real").mkdir()
    (project / "real/plan.md").write_text("one\n")
    os.symlink("real/plan.md", project / "link")
    os.symlink("real", project / "docs")
    link = "docs" if way.startswith("docs") else "link"
    if link == "docs":
        outside = outside.replace("sed s/one/theirs/ {link} > t", "mkdir t; echo theirs > t/plan.md")
    outside = outside.format(link=link, gone=f"rm {link}")
    text = f"echo mine >> {way.format(root=project)}"
    refused = run_with_an_outsider(project, "true", outside, before=text)
    assert refused.returncode == 75
    said = json.loads(refused.stderr.splitlines()[0])
    assert said["error_type"] == "STALE_FILE"
    assert (project / "real/plan.md").read_text() == "one\n"


def test_a_write_through_a_link_lands_behind_it(project: Path) -> None:
    """N-shell: also if other names changed meanwhile, and if the command itself replaces the link."""
    os.symlink("plan.md", project / "link")
    done = run_with_an_outsider(project, "echo two >> link", "ln -s plan.md another; touch third")
    assert (done.returncode, done.stderr) == (0, "")
    assert (project / "plan.md").read_text() == "one\ntwo\n"
    assert shell(project, "echo three >> link; ln -sfn another link").returncode == 0
    assert (project / "plan.md").read_text() == "one\ntwo\nthree\n"
    assert os.readlink(project / "link") == "another"


@pytest.mark.parametrize("what", ["here", "here/f"])
@pytest.mark.parametrize("outside", ["mv {what} elsewhere", "rm -r {what}"])
def test_what_somebody_else_has_moved_meanwhile_is_not_there_twice(
    project: Path, what: str, outside: str
) -> None:
    """N-shell, finding E1: a command that moved it, or removed it, too, is refused."""
    (project / "here").mkdir()
    (project / "here/f").write_text("f\n")
    by_others = outside.format(what=what)
    refused = run_with_an_outsider(project, "true", by_others, before=f"mv {what} there")
    assert refused.returncode == 75
    said = json.loads(refused.stderr.splitlines()[0])
    assert said["error_type"] == "STALE_FILE"
    assert what in json.dumps(said)
    assert not (project / "there").exists()
    assert (project / "elsewhere").exists() == outside.startswith("mv")

    (project / "here").mkdir(exist_ok=True)
    (project / "here/f").write_text("f\n")
    both = run_with_an_outsider(project, "true", f"rm -r {what}", before=f"rm -r {what}")
    assert both.returncode == 75


@pytest.mark.parametrize("text", ["rmdir job", "rm -r job", "rmdir job; mkdir job", "rmdir job; echo > job"])
def test_a_full_folder_that_somebody_else_has_removed_meanwhile_is_removed_once(
    project: Path, text: str
) -> None:
    """Ruling 30, finding E1: an overlay keeps no trace of a removed folder whose real one has gone just before."""
    (project / "job").mkdir()
    (project / "job/f").write_text("f\n")
    outside = f"mv job {project.parent}/removed"  # As a landing removes it: by a rename.
    refused = run_with_an_outsider(project, text, outside, before="rm job/f")
    assert refused.returncode == 75, refused.stderr
    assert not (project / "job").exists()


def test_a_folder_of_build_outputs_that_others_removed_meanwhile_is_no_conflict(project: Path) -> None:
    """N-shell: the last one wins there. Nor is a folder that could not be removed, nor one of the command's own."""
    (project / "dist/job").mkdir(parents=True)
    (project / "dist/job/f").write_text("f\n")
    (project / "full").mkdir()
    (project / "full/f").write_text("f\n")
    text = "rmdir dist/job; mkdir own; rmdir own; mkdir own"
    outside = f"mv dist/job {project.parent}/removed; mv full {project.parent}/full"
    done = run_with_an_outsider(project, text, outside, before="rm dist/job/f; rmdir full 2> /dev/null")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_mode_that_others_have_given_a_file_meanwhile_is_a_conflict(project: Path) -> None:
    """Ruling 30: of two that do `chmod 600` one is refused, and nothing is if the command only opened it."""
    refused = run_with_an_outsider(project, "true", "chmod 600 plan.md", before="chmod 600 plan.md")
    assert refused.returncode == 75, refused.stderr
    done = run_with_an_outsider(project, ": >> plan.md", "chmod 640 plan.md")
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_lands_if_one_of_the_files_was_changed_meanwhile(project: Path) -> None:
    """N-shell, ruling 18: the exact object, every other file beside it, one event, and what it wrote is kept."""
    (project / "b.txt").write_text("b\n")
    (project / "c.txt").write_text("c\n")
    refused = run_with_an_outsider(
        project,
        "echo mine | tee -a plan.md b.txt c.txt",
        "echo theirs >> plan.md; echo theirs > b.txt",
    )
    assert refused.returncode == 75
    lines = refused.stderr.splitlines()
    stale = [parse_stale(line) for line in lines[:2]]
    assert [error and error.path for error in stale] == [f"{project}/b.txt", f"{project}/plan.md"]
    assert (project / "plan.md").read_text() == "one\ntheirs\n"
    assert (project / "c.txt").read_text() == "c\n"
    assert [event["action_type"] for event in events(project)] == ["MUTATION_CONFLICT"]
    (run_id,) = os.listdir(project / ".noclobber/run")
    assert run_id in lines[-1]
    shown = run("run", "diff", run_id, cwd=project).out
    assert "--- a/c.txt\n+++ b/c.txt\n@@ -1 +1,2 @@\n c\n+mine\n" in shown
    rerun = subprocess.run(
        [sys.executable, "-m", "noclobber", "run", "rerun", run_id],
        cwd=project,
        capture_output=True,
        text=True,
    )
    assert rerun.returncode == 0, rerun.stderr
    assert (project / "plan.md").read_text() == "one\ntheirs\nmine\n"
    assert os.listdir(project / ".noclobber/run") == []


def test_an_expected_hash_that_is_not_there_any_more_refuses(project: Path) -> None:
    """N-shell: what the agent last saw counts, whenever it was changed."""
    seen = "0" * 63 + "1"
    refused = shell(project, "echo two >> plan.md", "--expect", f"plan.md={seen}")
    assert refused.returncode == 75
    error = parse_stale(refused.stderr.splitlines()[0])
    assert error
    assert (error.path, error.expected) == (f"{project}/plan.md", seen)
    assert (project / "plan.md").read_text() == "one\n"


def test_a_command_inside_a_guarded_command_is_part_of_it(project: Path) -> None:
    """N-shell: nested runs join the outer one."""
    inner = f"{sys.executable} -m noclobber run -- sh -c 'echo two >> plan.md'"
    done = shell(project, f"{inner}; cat plan.md; test -d .noclobber/run")
    assert (done.returncode, done.stdout) == (0, "one\ntwo\n")
    assert len(events(project)) == 1


def test_git_inside_is_one_transaction(project: Path) -> None:
    """N-shell: add, commit, branch, checkout, stash; fsck is clean."""
    done = shell(
        project,
        "set -e; git init -q .; git config user.email a@b; git config user.name a; git add plan.md;"
        " git commit -qm one",
    )
    assert done.returncode == 0, done.stderr
    done = shell(
        project,
        "set -e; git checkout -qb side; echo side > plan.md; git commit -qam side; git checkout -q -;"
        " echo x > plan.md; git stash -q; git merge -q side; git gc -q",
    )
    assert done.returncode == 0, done.stderr
    assert (project / "plan.md").read_text() == "side\n"
    assert subprocess.run(["git", "fsck", "--strict"], cwd=project, capture_output=True).returncode == 0
    status = subprocess.run(["git", "status", "--porcelain"], cwd=project, capture_output=True, text=True)
    assert status.stdout == ""
