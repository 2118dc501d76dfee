"""What counts as a change of a file: its attributes and names, and holes stay holes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from noclobber.guard.workspace import Workspace
from noclobber.shell.changes import (
    CREATE,
    DELETE,
    FILE,
    FOLDER,
    TreeChange,
    TreeChanges,
    changes,
    undecodable,
)
from noclobber.shell.landing_unchecked import land_unchecked
from tests.rigs.commands import run
from tests.rigs.trusting import trusted_options
from tests.shell.test_process import events, is_available, project, run_with_an_outsider, shell

__all__ = ["project"]
pytestmark = pytest.mark.skipif(not is_available(), reason="no namespaces here")


def set_attribute(name: str, file: str = "plan.md") -> str:
    return f"{sys.executable} -S -c \"import os; os.setxattr('{file}', 'user.{name}', b'x')\""


def test_attributes_land_with_a_file_and_alone(project: Path) -> None:
    """N-shell: a command that changes an attribute and no byte has changed the file."""
    plan = project / "plan.md"
    os.setxattr(plan, "user.before", b"v")
    assert shell(project, f"echo two >> plan.md; {set_attribute('one')}").returncode == 0
    assert (sorted(os.listxattr(plan)), plan.read_text()) == (["user.before", "user.one"], "one\ntwo\n")
    done = shell(project, set_attribute("alone"))
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(os.listxattr(plan)) == ["user.alone", "user.before", "user.one"]
    assert plan.read_text() == "one\ntwo\n"
    refused = run_with_an_outsider(project, set_attribute("late"), "echo theirs >> plan.md")
    assert refused.returncode == 75
    assert "user.late" not in os.listxattr(plan)


def test_new_names_of_one_file_stay_names_of_one_file(project: Path) -> None:
    """N-shell: a second name for a file that was there is a copy of it; of a changed one, too."""
    done = shell(project, "echo new > a; ln a b; ln plan.md second.md")
    assert (done.returncode, done.stderr) == (0, "")
    assert os.path.samefile(project / "a", project / "b")
    assert (project / "second.md").read_text() == "one\n"
    done = shell(project, "echo two >> plan.md; chmod 600 plan.md; ln plan.md third.md")
    assert (done.returncode, done.stderr) == (0, "")
    for name in ("plan.md", "third.md"):
        assert (project / name).read_text() == "one\ntwo\n"
        assert (project / name).stat().st_mode & 0o777 == 0o600


def test_a_written_name_of_a_linked_file_is_a_file_of_its_own(project: Path) -> None:
    """N-shell: as an editor's save; the other name keeps the old bytes (docs/shell.md)."""
    os.link(project / "plan.md", project / "twin.md")
    assert shell(project, "echo two >> plan.md").returncode == 0
    assert (project / "plan.md").read_text() == "one\ntwo\n"
    assert (project / "twin.md").read_text() == "one\n"


def test_holes_stay_holes(project: Path) -> None:
    """N-shell: one byte in a large sparse file costs no space for the rest of it."""
    with open(project / "sparse", "wb") as file:
        file.truncate(200 << 20)
    write = "printf y | dd of=sparse bs=1 seek=150000000 conv=notrunc status=none"
    assert shell(project, f"{write}; truncate -s 100M new").returncode == 0
    for name, size in (("sparse", 200 << 20), ("new", 100 << 20)):
        status = (project / name).stat()
        assert status.st_size == size
        assert status.st_blocks * 512 < 8 << 20


def test_a_name_that_is_not_utf8_is_found_however_deep_it_is(tmp_path: Path) -> None:
    """N-shell, bad input: in a folder that comes, in one that goes; what stands for a removed one is none."""
    root, upper = tmp_path / "root", tmp_path / "upper"
    (root / "old" / "deep").mkdir(parents=True)
    (upper / "new" / "deep").mkdir(parents=True)
    assert undecodable(changes(str(root), str(upper))) == ""
    for folder, name in ((upper / "new", "new"), (root / "old", "old")):
        bad = os.path.join(os.fsencode(folder / "deep"), b"bad\xff")
        with open(bad, "wb"):
            pass
        old = TreeChange(DELETE, FOLDER, "old", "", os.lstat(root / "old"))
        found = changes(str(root), str(upper)) if name == "new" else TreeChanges(str(root), (old,))
        assert undecodable(found) == f"{name}/deep/bad\udcff"
        os.unlink(bad)
    with open(os.path.join(os.fsencode(upper), b"\xfftop"), "wb"):
        pass
    assert undecodable(changes(str(root), str(upper))) == "\udcfftop"


def test_only_a_folder_is_a_folder_of_build_outputs(project: Path) -> None:
    """N-shell: a script called `build` and a branch called `dist` are checked; they were not."""
    (project / "build").write_text("#!/bin/sh\n")
    (project / ".git/refs/heads").mkdir(parents=True)
    (project / ".git/refs/heads/dist").write_text("one\n")
    (project / "node_modules").mkdir()
    for name in ("build", ".git/refs/heads/dist"):
        refused = run_with_an_outsider(project, f"echo ours >> {name}", f"echo theirs >> {name}")
        assert refused.returncode == 75
        assert "ours" not in (project / name).read_text()
    late = "echo ours > node_modules/f"
    assert run_with_an_outsider(project, late, "echo theirs > node_modules/f").returncode == 0
    assert (project / "node_modules/f").read_text() == "ours\n"


def test_an_unchecked_folder_lands_in_one_that_somebody_made_meanwhile(project: Path) -> None:
    """N-shell: the last writer wins. It was lost, and nobody was told."""
    text = "mkdir -p node_modules/x; echo ours > node_modules/x/f; echo ours > node_modules/mine"
    outsider = "mkdir -p node_modules/x; echo theirs > node_modules/x/f; echo theirs > node_modules/theirs"
    done = run_with_an_outsider(project, text, outsider)
    assert (done.returncode, done.stderr) == (0, "")
    modules = project / "node_modules"
    found = {name: (modules / name).read_text() for name in ("x/f", "mine", "theirs")}
    assert found == {"x/f": "ours\n", "mine": "ours\n", "theirs": "theirs\n"}


def test_what_of_an_unchecked_folder_cannot_be_landed_is_told(tmp_path: Path) -> None:
    """N-shell: with the exit code of a command that went well, silence would be a lie."""
    (tmp_path / "upper").write_text("ours\n")
    lost = TreeChange(CREATE, FILE, "dist/gone/f", str(tmp_path / "upper"), is_checked=False)
    (told,) = land_unchecked(TreeChanges(str(tmp_path / "root"), (lost,)), 0)
    assert told == f"{tmp_path}/root/dist/gone/f: No such file or directory"


def test_owner_and_attributes_of_folders_land(project: Path) -> None:
    """N-shell: of one that was there, and of one that is renamed; they were lost in silence."""
    (project / "a/b").mkdir(parents=True)
    os.setxattr(project / "a", "user.old", b"1")
    os.setxattr(project / "a/b", "user.old", b"1")
    done = shell(project, f"{set_attribute('new', 'a')}; {set_attribute('other', 'a/b')}")
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(os.listxattr(project / "a")) == ["user.new", "user.old"]
    assert sorted(os.listxattr(project / "a/b")) == ["user.old", "user.other"]
    assert shell(project, "mv a c").returncode == 0
    assert sorted(os.listxattr(project / "c")) == ["user.new", "user.old"]
    assert sorted(os.listxattr(project / "c/b")) == ["user.old", "user.other"]
    theirs = f"{set_attribute('theirs', 'c/b')}"
    assert run_with_an_outsider(project, "echo x > c/b/f", theirs).returncode == 0
    assert sorted(os.listxattr(project / "c/b")) == ["user.old", "user.other", "user.theirs"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_that_is_given_away_lands(project: Path) -> None:
    """N-shell: `chown` without another change, of a file, a folder and a link; and a folder that is renamed."""
    (project / "d").mkdir()
    (project / "l").symlink_to("plan.md")
    assert shell(project, "chown 12345:12345 plan.md d; chown -h 12345 l").returncode == 0
    assert [os.lstat(project / name).st_uid for name in ("plan.md", "d", "l")] == [12345] * 3
    assert shell(project, "mv d e").returncode == 0
    assert os.stat(project / "e").st_uid == os.stat(project / "e").st_gid == 12345


def test_a_tree_that_is_too_deep_is_refused_and_nothing_is_left(project: Path) -> None:
    """N-shell: it ended with an internal error, and what it had written could not be removed any more."""
    text = "import os\nfor _ in range(1500):\n    os.mkdir('d')\n    os.chdir('d')"
    refused = shell(project, f'{sys.executable} -S -c "{text}"')
    assert refused.returncode == 75
    assert '"BAD_PATH"' in refused.stderr
    assert "Traceback" not in refused.stderr
    (kept,) = [name for name in os.listdir(project / ".noclobber/run") if not name.startswith("new-")]
    dropped = subprocess.run([sys.executable, "-m", "noclobber", "run", "drop", kept], cwd=project)
    assert dropped.returncode == 0
    assert os.listdir(project / ".noclobber/run") == []
    assert not (project / "d").exists()


def test_a_new_folder_of_a_refused_command_is_shown_file_by_file(project: Path) -> None:
    """N-shell: what it would have changed, not only that there is a folder."""
    assert shell(project, "mkdir -p new/deep; echo content > new/deep/f; echo 1 > .lock").returncode == 75
    (kept,) = os.listdir(project / ".noclobber/run")
    for verb, told in (("diff", "+content"), ("show", "new/deep/f")):
        words = [sys.executable, "-m", "noclobber", "run", verb, kept]
        shown = subprocess.run(words, cwd=project, capture_output=True, text=True)
        assert (shown.returncode, shown.stderr) == (0, "")
        assert told in shown.stdout


def test_a_command_that_landed_and_is_not_on_record_is_not_called_refused(project: Path) -> None:
    """Ruling 13: it said "nothing landed", with 75, and kept it to be run again. Its changes were there."""
    assert shell(project, "for i in $(seq 60); do echo $i > file$i; done").returncode == 0
    text = 'ulimit -f 20; exec "$@"'  # Blocks of 512 bytes: the ledger is longer than that.
    words = [sys.executable, "-m", "noclobber", "run", "--", "sh", "-c", "echo two >> plan.md; exit 4"]
    done = subprocess.run(["sh", "-c", text, "sh", *words], cwd=project, capture_output=True, text=True)
    assert (project / "plan.md").read_text() == "one\ntwo\n"
    assert done.returncode == 4
    assert '"LEDGER_FAILED"' in done.stderr
    assert "nothing of this command landed" not in done.stderr
    assert os.listdir(project / ".noclobber/run") == []


def test_what_is_no_hash_is_said_before_the_command_runs(project: Path) -> None:
    """Bad input: what it does outside of the project cannot be taken back."""
    outside = project.parent / "outside"
    refused = shell(project, f"touch {outside}", "--expect", "plan.md=nonsense")
    assert refused.returncode == 2
    (project.parent / "seen.json").write_text('{"plan.md": "nonsense"}')
    refused = shell(project, f"touch {outside}", "--expect-file", str(project.parent / "seen.json"))
    assert refused.returncode == 2
    assert not outside.exists()


def test_a_command_whose_folder_is_gone_is_not_run_again(project: Path) -> None:
    """Bad input: an error that says what is missing."""
    (project / "d").mkdir()
    assert shell(project / "d", "echo 1 > .lock", "--root", str(project)).returncode == 75
    (kept,) = os.listdir(project / ".noclobber/run")
    (project / "d").rmdir()
    words = [sys.executable, "-m", "noclobber", "run", "rerun", kept]
    done = subprocess.run(words, cwd=project, capture_output=True, text=True)
    assert done.returncode == 1
    assert "cannot be entered" in done.stderr


def with_options(project: Path, line: str) -> None:
    trusted_options(project, f"{line}\n")


def test_a_folder_of_the_options_lands_without_a_check(project: Path) -> None:
    """N-shell: the option `unchecked`. The last writer wins there, and no event is recorded."""
    with_options(project, 'unchecked = ["out"]')
    (project / "web/out").mkdir(parents=True)
    (project / "web/out/page").write_text("old\n")
    done = run_with_an_outsider(project, "echo ours > web/out/page", "echo theirs > web/out/page")
    assert (done.returncode, done.stderr) == (0, "")
    assert (project / "web/out/page").read_text() == "ours\n"
    assert events(project) == []
    (project / "out").write_text("a script\n")
    done = run_with_an_outsider(project, "echo ours > out", "echo theirs > out")
    assert (done.returncode, (project / "out").read_text()) == (75, "theirs\n")


def test_a_built_in_name_can_be_taken_off_the_list(project: Path) -> None:
    """N-shell: the option `unchecked`. `run show` names the files, as it does of any checked folder."""
    with_options(project, 'unchecked = ["!build", "!node_modules"]')
    (project / "build").mkdir()
    (project / "build/rules").write_text("old\n")
    outsider = "echo theirs > build/rules"
    done = run_with_an_outsider(
        project, "mkdir node_modules; echo > node_modules/x; echo ours > build/rules", outsider
    )
    assert (done.returncode, (project / "build/rules").read_text()) == (75, "theirs\n")
    assert not (project / "node_modules").exists()
    refused = json.loads(run("run", "list", "--json", cwd=project).out)[0]["id"]
    for verb in ("show", "diff"):
        assert "node_modules/x" in run("run", verb, refused, cwd=project).out
    (project / "noclobber.toml").write_text("unchecked = 7\n")
    assert "node_modules" in run("run", "show", refused, cwd=project).out
    again = run("run", "rerun", refused, cwd=project)
    assert (again.code, (project / "build/rules").read_text()) == (75, "theirs\n")
    assert "The option unchecked must be a list of names of folders" in again.err
    with_options(project, 'unchecked = ["!build", "!node_modules"]')
    assert run("run", "rerun", refused, cwd=project).code == 0
    assert (project / "build/rules").read_text() == "ours\n"
    assert {"node_modules/x", "build/rules"} <= {event["payload"]["target_file"] for event in events(project)}


def test_a_turn_and_a_workspace_take_unchecked_folders(project: Path) -> None:
    """N-shell: the option `unchecked`, from Python; a turn's beats that of its workspace."""
    (project / "out").mkdir()
    with Workspace(project, unchecked=["out"]) as workspace:
        with workspace.turn() as turn:
            assert turn.run("echo one > out/page").landed == ()
        with workspace.turn(unchecked=()) as turn:
            assert [done.path for done in turn.run("echo two > out/page").landed] == [f"{project}/out/page"]
    assert (project / "out/page").read_text() == "two\n"


@pytest.mark.parametrize(
    "line", ['write_scope = ["src"]', 'reserved = ["dist"]', 'reserved = ["dist/deep/page"]']
)
def test_what_the_options_forbid_is_forbidden_in_unchecked_folders(project: Path, line: str) -> None:
    """K-WRITE-1, finding S8: nobody compares what is in them, and that does not open them."""
    with_options(project, line)
    page = project / "dist/deep/page"
    page.parent.mkdir(parents=True)
    page.write_text("old\n")
    for text in (
        "echo ours > dist/deep/page",
        "rm -r dist",
        "rm -r dist; mkdir -p dist/deep; cp plan.md dist/deep/page",
    ):
        refused = shell(project, f"mkdir src; echo two > src/new; {text}")
        assert refused.returncode == 75
        assert json.loads(refused.stderr.splitlines()[0])["error_type"] in ("RESERVED_FILE", "OUTSIDE_SCOPE")
        assert (page.read_text(), (project / "src").exists()) == ("old\n", False)


def test_an_unchecked_folder_may_be_the_write_scope(project: Path) -> None:
    """K-WRITE-1: also if the command makes it."""
    with_options(project, 'write_scope = ["dist"]')
    for text in ("mkdir dist; echo one > dist/page", "echo two > dist/page", "rm -r dist"):
        done = shell(project, text)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("locked", [".", "dist"])
def test_a_lock_holds_for_unchecked_folders(project: Path, locked: str) -> None:
    """REQ-LOCK-010, N-shell: a folder that another agent has locked, and one in it."""
    (project / "dist").mkdir()
    (project / "dist/page").write_text("old\n")
    held = run("lock", "acquire", "--lease-only", "--holder", "bob", locked, cwd=project)
    assert held.code == 0
    for text in ("echo ours > dist/page", "rm -r dist"):
        refused = shell(project, text)
        assert (refused.returncode, "LOCK_CONTENTION" in refused.stderr) == (75, True)
        assert (project / "dist/page").read_text() == "old\n"
    assert run("lock", "release", "--id", held.out.strip(), locked, cwd=project).code == 0
    assert shell(project, "echo ours > dist/page").returncode == 0


def test_a_package_managers_own_lock_file_stops_nobody(project: Path) -> None:
    """N-shell: uv has a file called `.lock` in `.venv`."""
    (project / ".venv").mkdir()
    (project / ".venv/.lock").touch()
    done = shell(project, "echo > .venv/package; : >> .venv/.lock")
    assert (done.returncode, done.stderr) == (0, "")
    assert (project / ".venv/package").exists()


@pytest.mark.parametrize("rule", ['write_scope = ["src"]', 'reserved = ["lib"]', "lock"])
def test_caches_that_may_not_land_are_no_reason_to_refuse_a_command(project: Path, rule: str) -> None:
    """K-WRITE-1, N-shell: whoever runs the tests of a project writes `__pycache__` all over it."""
    for name in ("src", "lib"):
        (project / name).mkdir()
    if rule == "lock":
        assert run("lock", "acquire", "--lease-only", "--holder", "bob", "lib", cwd=project).code == 0
    else:
        with_options(project, rule)
    (project / "lib/__pycache__").mkdir()
    done = shell(project, "mkdir -p lib/__pycache__; echo 1 > lib/__pycache__/a.pyc; echo 1 > src/a")
    assert (done.returncode, done.stderr) == (0, "")
    assert (project / "src/a").exists()
    assert os.listdir(project / "lib/__pycache__") == []
    done = shell(project, "mkdir src/__pycache__; echo 1 > src/__pycache__/a.pyc")
    assert (done.returncode, done.stderr) == (0, "")
    assert (project / "src/__pycache__/a.pyc").exists()
