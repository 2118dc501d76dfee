"""Roots and commands that nobody should use: clear errors, nothing lost, nothing left mounted or running."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from noclobber.shell import process
from noclobber.shell.namespace import mounts_below
from noclobber.shell.roots import why_not
from tests.rigs.commands import run as noclobber
from tests.shell.test_git_locks import run_observed
from tests.shell.test_process import is_available, noclobber_run, project, run_with_an_outsider, shell

__all__ = ["project"]
pytestmark = pytest.mark.skipif(not is_available(), reason="no namespaces here")


def test_a_root_that_is_no_project_is_not_guarded(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-shell: `/`, a home folder, one above it; with --require nothing is run, and the message says why."""
    assert why_not("/") is not None
    monkeypatch.setenv("HOME", str(project / "home"))
    assert why_not(str(project)) is not None
    refused = shell(project, "touch ran", "--require")
    assert (refused.returncode, "home folder" in refused.stderr) == (69, True)
    assert not (project / "ran").exists()
    plain = shell(project, "touch ran")
    assert (plain.returncode, "unguarded" in plain.stderr or "watched" in plain.stderr) == (0, True)


@pytest.mark.skipif(os.geteuid() != 0, reason="another user is needed")
def test_a_root_of_another_user_is_not_guarded(project: Path) -> None:
    """N-shell: nothing could be landed there."""
    os.chown(project, 0, 0)
    pid = os.fork()
    if pid == 0:
        os.setuid(65534)
        os._exit(0 if why_not(str(project)) else 1)
    assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.parametrize(
    "name", [b"new\nline", b"com,ma", b"co:lon", b"back\\slash", b"sp ace", b"\xff\xfe", b"-dash"]
)
def test_names_of_any_bytes(tmp_path: Path, name: bytes) -> None:
    """N-shell: of the root, and of files in it. What no JSON can spell is refused with a reason."""
    root = os.path.join(os.fsencode(tmp_path), name)
    os.makedirs(os.path.join(root, b".noclobber"), 0o700)
    with open(os.path.join(root, name), "wb") as file:
        file.write(b"one\n")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "noclobber",
            "run",
            "--require",
            "--",
            "sh",
            "-c",
            'for f in ./*; do echo two >> "$f"; done',
        ],
        cwd=root,
        capture_output=True,
        timeout=60,
    )
    with open(os.path.join(root, name), "rb") as file:
        content = file.read()
    assert (done.returncode, content) in ((0, b"one\ntwo\n"), (69, b"one\n")), done.stderr
    if name != b"\xff\xfe":
        assert done.returncode == 0, done.stderr
    assert mounts_below(os.fsdecode(root)) == []


def test_a_file_whose_name_is_not_text_is_refused_with_a_reason(project: Path) -> None:
    """N-shell: no record could name it; nothing else of that command lands."""
    done = shell(project, "echo x > $(printf '\\377\\376'); echo two >> plan.md")
    assert (done.returncode, "not UTF-8" in done.stderr) == (75, True)
    assert (project / "plan.md").read_text() == "one\n"


def test_a_command_that_makes_the_root_unreadable(project: Path) -> None:
    """N-shell: the root's own permissions are not part of it; what is inside lands or is refused."""
    done = shell(project, "echo two >> plan.md; chmod 0 .")
    assert done.returncode in (0, 75), done.stderr
    assert "permissions of the project" in done.stderr
    assert (project / "plan.md").read_text() in ("one\n", "one\ntwo\n")
    assert shell(project, "true").returncode == 0


def test_a_command_that_replaces_the_root_by_a_link(project: Path) -> None:
    """N-shell: the root is a mount point inside, and cannot be removed or renamed."""
    done = shell(project, f"cd ..; mv project away && ln -s away project; rmdir {project}")
    assert done.returncode != 0
    assert (project / "plan.md").read_text() == "one\n"
    assert not project.is_symlink()


def test_a_command_that_writes_into_the_state_folder(project: Path) -> None:
    """N-shell: an agent cannot edit its own record."""
    done = shell(
        project, "echo x > .noclobber/agent_trace.jsonl; rm -rf .noclobber; mkdir .noclobber/run/x; true"
    )
    assert "Read-only file system" in done.stderr
    assert not (project / ".noclobber/agent_trace.jsonl").exists()


def test_a_command_that_makes_its_own_namespace(project: Path) -> None:
    """N-shell: it is inside ours, and what it writes to the tree lands as ever."""
    done = shell(project, "unshare -Urm sh -c 'echo two >> plan.md'")
    if done.returncode == 0:
        assert (project / "plan.md").read_text() == "one\ntwo\n"


def test_a_command_that_forks_without_end(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-shell: what it leaves behind is ended, all of it, with a message."""
    mine = f"0.05{os.getpid()}"  # Another run of this test on the machine has its own.
    text = f"loop() {{ sleep {mine}; loop & }}; for i in 1 2 3; do loop & done; (sleep 300 &) ; echo $$"
    done = noclobber_run(project, "sh", "-c", f"ulimit -u 4000; {text}")
    assert "ended" in done.stderr
    left = subprocess.run(["pgrep", "-f", f"sleep {mine}"], capture_output=True, text=True).stdout
    assert left == ""
    assert process.MOST_ROUNDS > 10


def test_a_background_process_is_ended_and_said(project: Path) -> None:
    """N-shell: a server that a command leaves behind does not live on in a view that is gone."""
    done = shell(project, "sleep 299 & echo started > log")
    assert (done.returncode, "was ended" in done.stderr) == (0, True)
    assert (project / "log").read_text() == "started\n"


def test_a_full_disk_refuses_and_changes_nothing(project: Path) -> None:
    """N-shell: the command sees the error, and what is too much is not there."""
    (project / "small").mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "none", str(project / "small")])
    if mounted.returncode:
        pytest.skip("may not mount here")
    try:
        root = project / "small"
        (root / ".noclobber").mkdir(mode=0o700)
        (root / "plan.md").write_text("one\n")
        done = shell(root, "head -c 1000000 /dev/zero > big || exit 9; echo two >> plan.md")
        assert done.returncode in (9, 75), done.stderr
        assert (root / "plan.md").read_text() == "one\n"
    finally:
        subprocess.run(["umount", str(project / "small")], check=True)


def test_a_full_disk_on_which_nothing_can_be_kept_is_told_in_a_sentence(project: Path) -> None:
    """N-shell: the command itself had ended well, so its exit code said nothing, and nothing can be shown."""
    root = project / "small"
    root.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "none", str(root)]).returncode:
        pytest.skip("may not mount here")
    try:
        (root / ".noclobber").mkdir(mode=0o700)
        (root / "plan.md").write_text("one\n")
        done = shell(
            root, "echo two >> plan.md; head -c 2000000 /dev/zero > big 2> /dev/null; true", "--require"
        )
        if done.returncode == 69:
            pytest.skip("no private view on this filesystem")
        assert done.returncode == 75
        assert done.stderr.splitlines()[1:] == [
            "noclobber: run: the disk is full: nothing of this command landed, and nothing of what it wrote could"
            " be kept."
        ]
        assert (root / "plan.md").read_text() == "one\n"
        assert os.listdir(root / ".noclobber/run") == []
        assert shell(root, "echo two >> plan.md").returncode == 0
    finally:
        subprocess.run(["umount", str(root)], check=True)


def test_a_root_inside_another_overlay(project: Path) -> None:
    """N-shell: guarded if the kernel can, else not available with a reason; never half."""
    for name in ("lower", "upper", "work", "merged"):
        (project / name).mkdir()
    layers = f"lowerdir={project}/lower,upperdir={project}/upper,workdir={project}/work"
    mounted = subprocess.run(["mount", "-t", "overlay", "over", "-o", layers, str(project / "merged")])
    if mounted.returncode:
        pytest.skip("may not mount here")
    try:
        root = project / "merged"
        (root / ".noclobber").mkdir(mode=0o700)
        (root / "plan.md").write_text("one\n")
        done = shell(root, "echo two >> plan.md", "--require")
        assert done.returncode in (0, 69), done.stderr
        assert (root / "plan.md").read_text() == ("one\ntwo\n" if done.returncode == 0 else "one\n")
        if done.returncode == 69:
            assert "overlay" in done.stderr
    finally:
        subprocess.run(["umount", str(project / "merged")], check=True)


def test_a_command_that_does_not_exist(project: Path) -> None:
    """N-shell: exit codes as a shell has them."""
    assert noclobber_run(project, "no-such-command").returncode == 127
    assert noclobber_run(project, "./plan.md").returncode == 126
    assert noclobber_run(project, "sh", "-c", "kill -9 $$").returncode == -9
    assert noclobber_run(project, "sh", "-c", "sh -c 'kill -9 $$'; exit $?").returncode == 137
    assert (
        subprocess.run([sys.executable, "-m", "noclobber", "run", "--"], capture_output=True).returncode == 2
    )


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="another user is needed")
def test_a_user_without_rights_has_the_same_shell() -> None:
    """N-shell: in a namespace of their own; what lands is theirs, and others' files stay as they are."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        root = Path(folder, "project")
        (root / "sub").mkdir(parents=True)
        (root / ".noclobber").mkdir(mode=0o700)
        for name in ("plan.md", "sub/a", "of-root"):
            (root / name).write_text("one\n")
        os.chmod(folder, 0o755)
        for path in (root, root / ".noclobber", root / "plan.md", root / "sub", root / "sub/a"):
            os.chown(path, 65534, 65534)

        def as_nobody(*words: str) -> subprocess.CompletedProcess[str]:
            become = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
            environment = {**os.environ, "HOME": "/nonexistent"}
            return subprocess.run(
                [*become, *words], cwd=root, capture_output=True, text=True, env=environment
            )

        if as_nobody(sys.executable, "-c", "import noclobber, ctypes").returncode:
            pytest.skip("that user cannot read this installation")
        if as_nobody("unshare", "-Urm", "true").returncode:
            pytest.skip("that user may not make namespaces here")
        run = [sys.executable, "-m", "noclobber", "run", "--require", "--", "sh", "-c"]
        text = "id -u; echo two >> plan.md; mv sub moved; mkdir new; echo n > new/n; chmod 600 plan.md"
        done = as_nobody(*run, text)
        assert (done.returncode, done.stdout, done.stderr) == (0, "65534\n", "")
        assert (root / "plan.md").read_text() == "one\ntwo\n"
        assert {path.name for path in root.iterdir()} == {".noclobber", "plan.md", "of-root", "moved", "new"}
        assert {path.stat().st_uid for path in (root / "plan.md", root / "new/n")} == {65534}
        assert as_nobody(*run, "echo x >> of-root").returncode != 0
        assert as_nobody(*run, "rm of-root; echo mine > of-root").returncode in (0, 75)
        assert (root / "of-root").exists()
        assert mounts_below(str(root)) == []


def test_a_disk_that_fills_up_before_the_landing(project: Path) -> None:
    """N-shell: the old tree or the new one, an error that says so, and the next command works."""
    small = project / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "none", str(small)]).returncode:
        pytest.skip("may not mount here")
    try:
        (small / ".noclobber").mkdir(mode=0o700)
        for name in ("a", "b"):
            (small / name).write_text("one\n")
        if shell(small, "true", "--require").returncode == 69:
            pytest.skip("no private view on this filesystem")
        text = "echo two >> a; echo two >> b; mkdir new; echo n > new/n"
        fill = "head -c 1000000 /dev/zero > fill; true"
        done = run_with_an_outsider(small, "true", fill, "--require", before=text)
        tree = {(small / name).read_text() for name in ("a", "b")}
        assert len(tree) == 1
        assert done.returncode in (0, 75)
        if done.returncode == 75:
            assert tree == {"one\n"}
            assert "No space left" in done.stderr or "full" in done.stderr, done.stderr
        (small / "fill").unlink()
        assert shell(small, "echo three >> a", "--require").returncode == 0
        assert (small / "a").read_text().endswith("three\n")
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_no_process_and_no_mount_is_left_by_a_command_that_tries_to_stay(project: Path) -> None:
    """N-shell: a daemon with a session of its own that ignores signals and keeps a file open is ended."""
    daemon = "setsid sh -c 'trap \"\" TERM HUP INT; exec 3>> plan.md; while :; do echo late >&3; sleep 0.02; done' &"
    done = shell(project, f"{daemon} echo started > log; echo $NOCLOBBER_RUN")
    assert (done.returncode, "ended" in done.stderr) == (0, True)
    before = (project / "plan.md").read_text()
    assert shell(project, "true").returncode == 0
    assert (project / "plan.md").read_text() == before
    sign = f"NOCLOBBER_RUN={done.stdout.strip()}\0".encode()
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            assert sign not in environment.read_bytes()
        except OSError:
            continue
    assert mounts_below(str(project)) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_landing_leaves_one_whole_tree_and_nothing_else(
    project: Path, number: signal.Signals
) -> None:
    """N-shell: at every eighth step; the next command finds the old tree or the new one, and nothing is left."""
    text = "echo two >> plan.md; mv here there; echo two > new; rm old; echo $NOCLOBBER_RUN > ../run-id"
    for at in range(1, 200, 8):
        for name in ("there", "here"):
            shutil.rmtree(project / name, ignore_errors=True)
        (project / "here").mkdir()
        (project / "here/f").write_text("f\n")
        (project / "old").write_text("old\n")
        (project / "plan.md").write_text("one\n")
        (project / "new").unlink(missing_ok=True)
        left = at

        def interrupt(step: str) -> None:
            nonlocal left
            left -= 1
            if not left:
                os.kill(os.getpid(), number)

        code = run_observed(project, text, interrupt)
        assert shell(project, "true").returncode == 0
        found = (
            (project / "plan.md").read_text(),
            *((project / name).exists() for name in ("here/f", "there/f", "new", "old")),
        )
        assert found in (
            ("one\n", True, False, False, True),
            ("one\ntwo\n", False, True, True, False),
        ), (at, code, found)
        assert mounts_below(str(project)) == []
        refused = [
            each for each in (project / ".noclobber/run").iterdir() if (each / "refused.json").exists()
        ]
        assert len(list((project / ".noclobber/run").iterdir())) == len(refused)
        assert not running_with((project.parent / "run-id").read_text().strip())
        if code == 0 and left > 0:
            return  # There are no more steps.
    raise AssertionError("a landing has more steps than that?")


def running_with(run_id: str) -> list[str]:
    """Processes of a run."""
    sign, found = f"NOCLOBBER_RUN={run_id}\0".encode(), []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            found += [environment.parent.name] * (sign in environment.read_bytes())
        except OSError:
            continue
    return found


def test_what_a_command_wrote_is_kept_if_the_options_are_wrong(project: Path) -> None:
    """N-shell: whatever refuses a command, its work is not thrown away."""
    (project / "noclobber.toml").write_text("unread = 7\n")
    refused = shell(project, "echo two >> plan.md")
    assert refused.returncode == 75
    assert json.loads(refused.stderr.splitlines()[0])["error_type"] == "BAD_CONFIG"
    kept = json.loads(noclobber("run", "list", "--json", cwd=project).out)
    assert [each["code"] for each in kept] == ["BAD_CONFIG"]
    (project / "noclobber.toml").unlink()
    assert "+two" in noclobber("run", "diff", kept[0]["id"], cwd=project).out
    assert noclobber("run", "rerun", kept[0]["id"], cwd=project).code == 0
    assert (project / "plan.md").read_text() == "one\ntwo\n"


def run_unheard(root: Path, how: str, text: str, *options: str) -> int:
    """Run a command whose stdout and stderr nobody can read; return the exit code."""
    if how == "gone":
        out_fd, in_fd = os.pipe()
        os.close(out_fd)
    else:
        in_fd = os.open("/dev/full", os.O_WRONLY)
    try:
        words = [sys.executable, "-m", "noclobber", "run", *options, "--", "sh", "-c", text]
        return subprocess.run(words, cwd=root, stdout=in_fd, stderr=in_fd, timeout=60).returncode
    finally:
        os.close(in_fd)


@pytest.mark.parametrize("how", ["gone", "full"])
def test_what_cannot_be_said_changes_neither_what_lands_nor_the_exit_code(project: Path, how: str) -> None:
    """N-shell: `noclobber run -- … 2>&1 | head`. A refused command ended with 0, and a good one did not land."""
    plan = project / "plan.md"
    assert run_unheard(project, how, "chmod 700 .; echo two >> plan.md; exit 4") == 4
    assert plan.read_text() == "one\ntwo\n"
    left = "sleep 1000 > /dev/null 2>&1 & echo three >> plan.md"
    assert run_unheard(project, how, left) == 0
    assert plan.read_text() == "one\ntwo\nthree\n"
    assert run_unheard(project, how, "echo four >> plan.md", "--expect", "plan.md=ABSENT") == 75
    assert run_unheard(project, how, "touch ran", "--require", "--root", "/") == 69
    if how == "gone":
        assert run_unheard(project, how, "echo four >> plan.md", "--json", "--expect", "plan.md=ABSENT") == 75
        assert run_unheard(project, how, "echo four >> plan.md; exit 4", "--json") == 4
        assert plan.read_text() == "one\ntwo\nthree\nfour\n"


@pytest.mark.parametrize("level", ["guarded", "watched"])
def test_who_starts_it_may_ignore_the_end_of_children(project: Path, level: str) -> None:
    """N-shell: SIGCHLD ignored is inherited. A command over many files landed, and ended with 3."""
    words = [sys.executable, "-m", "noclobber", "run", "--"]
    home = {} if level == "guarded" else {"HOME": str(project)}  # A home folder gets no private view.

    def deaf(*command: str) -> int:
        return subprocess.run(
            [*words, *command],
            cwd=project,
            env={**os.environ, **home},
            capture_output=True,
            timeout=60,
            preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
        ).returncode

    assert deaf("sh", "-c", "for i in $(seq 200); do echo > f$i; done; exit 4") == 4
    assert deaf("no-such-program") == 127
    assert deaf("sh", "-c", "exit 5") == 5
    assert len(list(project.glob("f*"))) == 200
