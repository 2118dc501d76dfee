"""The process that stands by for a host's next event, and the script that asks it."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import signal
import stat
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from noclobber.hook import standby
from noclobber.hosts import command_line
from tests.rigs import postgres
from tests.rigs.hooks import HookRig, is_denied, refusal

pytestmark = pytest.mark.skipif(
    not os.path.exists("/proc/self/ns/mnt") or not hasattr(os, "pidfd_open"),
    reason="a process stands by only where there are /proc and pidfds",
)
SHELLS = [[name] for name in ("dash", "bash") if shutil.which(name)]
SHELLS += [["busybox", "sh"]] if shutil.which("busybox") else []
PATIENCE_S = 60


class Asker:
    """Asks as a host does, and sees whether the process that stands by took the question."""

    def __init__(self, rig: HookRig) -> None:
        self.rig = rig
        self.folder = rig.runtime / "noclobber" / standby.FOLDER
        self.environment = {"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(rig.runtime)}

    def words(self, host: str, duty: str) -> list[str]:
        return ["/bin/sh", "-c", command_line.command(host, duty)]

    def ask(
        self, payload: Any, duty: str, host: str = "claude-code", **more: Any
    ) -> subprocess.CompletedProcess[str]:
        words = more.pop("words", None) or self.words(host, duty)
        environment = {**self.environment, **more.pop("environment", {})}
        data = json.dumps(payload)
        return subprocess.run(
            words, input=data, capture_output=True, text=True, env=environment, timeout=PATIENCE_S, **more
        )

    def begin(self, host: str = "claude-code") -> None:
        """Have the first event of a session leave a process behind; wait until it waits."""
        assert self.ask({}, "note", host).returncode == 0
        self.until(lambda: self.is_free())

    def is_free(self) -> bool:
        """True if a process waits at every place."""
        names = {f"{n}.{kind}" for n in range(1, standby.PLACES + 1) for kind in ("in", "out")}
        try:
            there = set(os.listdir(self.folder))
        except OSError:
            return False
        return (
            names <= there and not any(name.endswith(".taken") for name in there) and len(self.waiting()) == 2
        )

    def until(self, is_so: Callable[[], bool]) -> None:
        end_s = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < end_s, (os.listdir(self.folder), self.processes())
            select.select([], [], [], 0.002)

    def took(
        self, act: Callable[[], subprocess.CompletedProcess[str]]
    ) -> tuple[subprocess.CompletedProcess[str], bool]:
        """
        Do something; return what came out, and whether the process that stands by was asked.

        A place has another pair of FIFOs after each question. The old ones are held open, for a file system
        gives the number of a file that nobody has any more to the next one.
        """
        self.until(self.is_free)
        before = [os.open(path, os.O_PATH) for path in sorted(self.folder.glob("*.in"))]
        try:
            numbers = {os.fstat(descriptor).st_ino for descriptor in before}
            done = act()
            if self.folder.exists() and self.processes():
                self.until(self.is_free)
            return done, {path.stat().st_ino for path in self.folder.glob("*.in")} != numbers
        finally:
            for descriptor in before:
                os.close(descriptor)

    def processes(self) -> list[int]:
        """The processes that have the folder open."""
        pids = map(int, filter(str.isdigit, os.listdir("/proc")))
        return [pid for pid in pids if str(self.folder) in links_of(pid)]

    def parents(self) -> dict[int, int]:
        """The same with their parents, as they were in one moment: one that ended meanwhile is left out."""
        parents = {pid: self._parent(pid) for pid in self.processes()}
        return {pid: parent for pid, parent in parents.items() if parent}

    def waiting(self) -> list[int]:
        """Those of them that wait at a place."""
        parents = self.parents()
        return [pid for pid, parent in parents.items() if parent in parents]

    def busy(self) -> list[int]:
        """Those of them that were asked: their FIFOs have no name any more."""
        return [pid for pid in self.waiting() if any(".in (deleted)" in link for link in links_of(pid))]

    def main(self) -> int:
        """The one that stays."""
        parents = self.parents()
        [pid] = [pid for pid, parent in parents.items() if parent not in parents]
        return pid

    def all_end(self, act: Callable[[], Any]) -> None:
        """Do something that is the end of all that stand by, and see their end."""
        self.until(self.is_free)
        watched = [os.pidfd_open(pid) for pid in self.processes()]
        assert len(watched) == 1 + standby.PLACES
        act()
        for descriptor in watched:  # Those who wait see the end of the one that stays.
            assert select.select([descriptor], [], [], PATIENCE_S)[0]
            os.close(descriptor)

    def end(self) -> None:
        """End all that stand by."""
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    @staticmethod
    def _parent(pid: int) -> int:
        try:
            return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return 0


def is_drained(pipe: Any) -> bool:
    """True if everything that was written to a pipe has been read."""
    return fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)) == bytes(4)


def links_of(pid: int) -> set[str]:
    """What a process has open."""
    try:
        return {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
    except OSError:
        return set()


@pytest.fixture
def asker(rig: HookRig, monkeypatch: pytest.MonkeyPatch) -> Iterator[Asker]:
    """One who asks, in a session that has begun."""
    monkeypatch.delenv("NOCLOBBER_STANDBY", raising=False)
    made = Asker(rig)
    made.begin()
    yield made
    made.end()


def read_event(rig: HookRig, file: Path, **members: Any) -> dict[str, Any]:
    text = file.read_text()
    lines = text.count("\n") + 1
    shown = {"file": {"content": text, "startLine": 1, "numLines": lines, "totalLines": lines}}
    return rig.tool("PostToolUse", "Read", {"file_path": str(file)}, tool_response=shown, **members)


def write_event(rig: HookRig, file: Path, content: str, **members: Any) -> dict[str, Any]:
    return rig.tool("PreToolUse", "Write", {"file_path": str(file), "content": content}, **members)


@pytest.mark.parametrize("shell", SHELLS, ids=lambda words: words[0])
def test_what_stands_by_answers_as_the_hook_does(asker: Asker, root: Path, shell: list[str]) -> None:
    """N-speed: a read is noted, a fresh write goes ahead, a stale one is refused, in whatever shell `sh` is."""
    file = root / "a.txt"
    file.write_text("one\n")

    def ask(payload: Any, duty: str) -> subprocess.CompletedProcess[str]:
        hook = command_line.hook_words("claude-code", duty)
        done, is_taken = asker.took(lambda: asker.ask(payload, duty, words=[*shell, command_line.ASK, *hook]))
        assert is_taken
        assert (done.returncode, done.stderr) == (0, "")
        return done

    assert ask(read_event(asker.rig, file), "note").stdout == ""
    assert ask(write_event(asker.rig, file, "two\n", tool_use_id="1"), "check").stdout == ""
    file.write_text("somebody else's\n")
    stale = json.loads(ask(write_event(asker.rig, file, "two\n", tool_use_id="2"), "check").stdout)
    assert refusal(stale)["error_type"] == "STALE_FILE"
    assert file.read_text() == "somebody else's\n"


def test_an_answer_longer_than_a_line_of_the_shell_arrives_whole(asker: Asker, root: Path) -> None:
    """N-speed: content that was merged is as long as its file."""
    (root / "noclobber.toml").write_text('on_stale = "merge"\n')
    file = root / "a.txt"
    lines = [f"line {number}\n" for number in range(4000)]
    file.write_text("".join(lines))
    asker.ask(read_event(asker.rig, file), "note")
    file.write_text("".join(["theirs\n", *lines[1:]]))
    mine = "".join([*lines[:-1], "mine\n"])
    payload = write_event(asker.rig, file, mine, tool_use_id="1")
    done, is_taken = asker.took(lambda: asker.ask(payload, "check"))
    assert is_taken
    written = json.loads(done.stdout)["hookSpecificOutput"]["updatedInput"]["content"]
    assert written == "".join(["theirs\n", *lines[1:-1], "mine\n"])
    assert not list(asker.folder.glob("*.said"))


def test_the_answer_is_made_with_the_environment_and_the_folder_of_whoever_asks(
    asker: Asker, root: Path
) -> None:
    """N-speed: Copilot runs Claude Code's hooks, and is told apart by a variable that the first event had not."""
    payload = {"hook_event_name": "PreToolUse", "tool_name": "Write", "tool_input": 1, "cwd": str(root)}
    copilot = {"COPILOT_CLI": "1"}
    done, is_taken = asker.took(lambda: asker.ask(payload, "check", environment=copilot))
    assert is_taken
    assert "permissionDecision" in json.loads(done.stdout)  # Flat, as Copilot wants it.
    done, is_taken = asker.took(lambda: asker.ask(payload, "check"))
    assert is_taken
    assert "permissionDecision" not in json.loads(done.stdout)


@pytest.mark.parametrize("kind", ["empty", "others"])
def test_no_program_of_the_hosts_path_is_needed(asker: Asker, root: Path, tmp_path: Path, kind: str) -> None:
    """finding H3: a host may clear the path, or have another `cat` first; the hook itself asks for none."""
    (root / "noclobber.toml").write_text('on_stale = "merge"\n')
    others = tmp_path / "others"
    others.mkdir()
    for name in ("cat", "rm") if kind == "others" else ():
        (others / name).write_text("#!/bin/sh\nexit 3\n")
        (others / name).chmod(0o755)
    there = {"PATH": str(others)}
    lines = [f"line {number}\n" for number in range(4000)]
    file = root / "a.txt"
    file.write_text("".join(lines))
    asker.ask(read_event(asker.rig, file), "note", environment=there)
    file.write_text("".join(["theirs\n", *lines[1:]]))
    payload = write_event(asker.rig, file, "".join([*lines[:-1], "mine\n"]), tool_use_id="1")
    done, is_taken = asker.took(lambda: asker.ask(payload, "check", environment=there))
    assert is_taken
    merged = json.loads(done.stdout)["hookSpecificOutput"]["updatedInput"]["content"]
    assert merged == "".join(["theirs\n", *lines[1:-1], "mine\n"])
    assert not list(asker.folder.glob("*.said"))


def test_without_a_process_that_stands_by_the_hook_runs(asker: Asker, root: Path) -> None:
    """finding H3: one that was killed leaves FIFOs behind; nobody waits at them, and the next event mends it."""
    file = root / "a.txt"
    file.write_text("one\n")
    asker.ask(read_event(asker.rig, file), "note")
    file.write_text("somebody else's\n")
    asker.until(asker.is_free)
    gone = asker.main()
    asker.all_end(lambda: os.kill(gone, signal.SIGKILL))
    assert list(asker.folder.glob("*.in"))

    stale = asker.ask(write_event(asker.rig, file, "two\n", tool_use_id="1"), "check")
    assert refusal(json.loads(stale.stdout))["error_type"] == "STALE_FILE"
    asker.begin()
    assert asker.main() != gone


def test_whoever_looks_on_while_a_call_waits_does_not_keep_others_from_standing_by(
    asker: Asker, root: Path
) -> None:
    """N-speed, finding H4: a permission dialogue may be open for minutes; an upgrade may come meanwhile."""
    file = root / "a.txt"
    file.write_text("one\n")
    asker.ask(read_event(asker.rig, file), "note")
    payload = write_event(asker.rig, file, "two\n", tool_use_id="1")
    done, is_taken = asker.took(lambda: asker.ask(payload, "check"))
    assert (done.stdout, is_taken) == ("", True)
    assert list((asker.rig.runtime / "noclobber").rglob("*.watch*")) != [], "it looks on"
    gone = asker.main()
    asker.all_end(lambda: os.kill(gone, signal.SIGKILL))
    asker.begin()
    assert asker.main() != gone


@pytest.mark.parametrize(("duty", "denies"), [("check", True), ("shell", True), ("note", False)])
def test_a_process_that_dies_with_the_event_is_a_hook_that_was_killed(
    asker: Asker, duty: str, denies: bool
) -> None:
    """finding H3: a check and a possible patch are refused with a way out; a note never fails."""
    asking = subprocess.Popen(
        asker.words("codex", duty), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=asker.environment
    )
    assert asking.stdin is not None
    asking.stdin.write(b'{"command":"apply_patch')  # It goes on, and the process reads on.
    asking.stdin.flush()
    asker.until(lambda: bool(asker.busy()) and is_drained(asking.stdin))
    [busy] = asker.busy()
    os.kill(busy, signal.SIGKILL)
    said = asking.communicate(b' and the rest, which names no patch"}', timeout=PATIENCE_S)[0]
    assert asking.returncode == 0
    assert (is_denied(json.loads(said)) if said else False) == denies


def test_nobody_looks_on_for_a_host_that_has_ended_its_hook(asker: Asker, root: Path) -> None:
    """finding H4: it ends one when a person interrupts the turn; who then looks on would do so for half an hour."""
    file = root / "a.txt"
    file.write_text("one\n")
    event = json.dumps(write_event(asker.rig, file, "two\n", tool_use_id="1")).encode()
    asking = subprocess.Popen(
        ["/bin/sh", command_line.ASK, *command_line.hook_words("claude-code", "check")],
        stdin=subprocess.PIPE,
        env=asker.environment,
    )
    assert asking.stdin is not None
    asking.stdin.write(event[:20])
    asking.stdin.flush()
    asker.until(lambda: bool(asker.busy()) and is_drained(asking.stdin))
    [busy] = asker.busy()
    busy_fd = os.pidfd_open(busy)
    asking.kill()
    asking.wait()
    asking.stdin.write(event[20:])  # What brings it goes on.
    asking.stdin.close()
    assert select.select([busy_fd], [], [], PATIENCE_S)[0]
    os.close(busy_fd)
    assert list((asker.rig.runtime / "noclobber").rglob("*.watch*")) == []


def test_an_event_that_never_ends_is_given_up_before_the_host_gives_up(
    rig: HookRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding H3: after its own time-out a host may let the write through."""
    copy = installed_copy(tmp_path, monkeypatch)
    # Only for who stands by: the hook that begins the session compiles a whole installation first.
    answering = copy / "hook" / "standby.py"
    assert "    end_after(MOST_S)\n" in answering.read_text()
    answering.write_text(answering.read_text().replace("    end_after(MOST_S)\n", "    end_after(1)\n"))
    asker = Asker(rig)
    asker.begin()
    process = subprocess.Popen(
        asker.words("gemini", "check"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=asker.environment
    )
    assert process.stdin is not None
    assert process.stdout is not None
    said = process.stdout.read()
    assert process.wait(timeout=PATIENCE_S) == 0
    process.stdin.close()
    process.stdout.close()
    assert json.loads(said)["decision"] == "deny"
    asker.until(asker.is_free)
    os.kill(asker.main(), signal.SIGKILL)


def installed_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another installation, which a test may change; commands are made for it from now on."""
    package = tmp_path / "lib" / "noclobber"
    source = os.path.dirname(os.path.dirname(command_line.START))
    shutil.copytree(source, package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(command_line, "START", str(package / "hook" / "start.py"))
    monkeypatch.setattr(command_line, "ASK", str(package / "hook" / "ask.sh"))
    monkeypatch.delenv("NOCLOBBER_STANDBY", raising=False)
    return package


def test_after_an_upgrade_the_old_code_answers_nothing(
    rig: HookRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding H3: one file that it has loaded is another one now."""
    package = installed_copy(tmp_path, monkeypatch)
    asker = Asker(rig)
    asker.begin("gemini")
    host = package / "hosts" / "gemini.py"
    assert '"decision": "deny"' in host.read_text()
    host.write_text(host.read_text().replace('"decision": "deny"', '"decision": "deny", "is": "new"'))
    payload = {"hook_event_name": "BeforeTool", "tool_name": "write_file", "tool_input": 1}
    answer = json.loads(asker.ask(payload, "check", "gemini").stdout)
    assert answer["is"] == "new"
    # All of them: each has the lock that there is one of a kind, until it has ended.
    asker.until(lambda: not asker.processes())
    asker.begin("gemini")
    done, is_taken = asker.took(lambda: asker.ask(payload, "check", "gemini"))
    assert is_taken
    assert json.loads(done.stdout)["is"] == "new"
    os.kill(asker.main(), signal.SIGKILL)


def test_a_damaged_installation_answers_as_one_without_a_process_that_stands_by(
    rig: HookRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding H3: what is loaded would still work; the user is told that what is installed does not."""
    package = installed_copy(tmp_path, monkeypatch)
    asker = Asker(rig)
    asker.begin("gemini")
    lines = {duty: asker.words("gemini", duty) for duty in ("check", "note")}
    shutil.rmtree(package)
    done = asker.ask({}, "check", words=lines["check"])
    assert done.stdout == command_line.fallback("gemini", "check")
    assert asker.ask({}, "note", words=lines["note"]).returncode == 0


def test_whoever_sees_other_files_or_has_other_rights_is_not_answered(asker: Asker, root: Path) -> None:
    """N-speed, SECURITY: a container that shares the runtime folder, a sandbox; their own hook judges."""
    payload = {"hook_event_name": "PreToolUse", "tool_name": "Write", "tool_input": 1, "cwd": str(root)}
    _, is_taken = asker.took(lambda: asker.ask(payload, "check"))
    assert is_taken
    assert traced_start(asker, payload, ["sh", "-c", 'umask 007; exec "$@"', "sh"])
    assert not traced_start(asker, payload, [])
    unshare = shutil.which("unshare")
    if unshare and subprocess.run([unshare, "-rm", "true"], capture_output=True).returncode == 0:
        assert traced_start(asker, payload, [unshare, "-rm"])
        if os.geteuid() == 0:
            assert traced_start(asker, payload, [unshare, "-m"])


def traced_start(asker: Asker, payload: Any, before: list[str]) -> bool:
    """Ask by the same script with a mark where it runs a hook of one's own; return whether it did."""
    asker.until(asker.is_free)
    line = asker.words("claude-code", "check")[2]
    mark = asker.rig.runtime / "started"
    mark.unlink(missing_ok=True)
    script = Path(command_line.ASK).read_text().replace('exec "$@" stand-by', f': > "{mark}"; exec "$@"')
    traced = asker.rig.runtime / "ask.sh"
    traced.write_text(script)
    words = [*before, "/bin/sh", "-c", line.replace(command_line.ASK, str(traced))]
    done = asker.ask(payload, "check", words=words)
    assert is_denied(json.loads(done.stdout)), done
    return mark.exists()


def test_many_that_ask_at_once_get_each_their_own_answer(asker: Asker, root: Path) -> None:
    """N-speed: two places and eight who ask: nobody gets another's answer, and nobody waits for a place."""

    def session(number: int) -> list[str]:
        rig = HookRig(root, asker.rig.runtime, f"s{number}")
        file = root / f"{number}.txt"
        said = []
        for at in range(6):
            file.write_text(f"{number} {at}\n")
            asker.ask(read_event(rig, file), "note")
            is_stale = (number + at) % 2 == 0
            if is_stale:
                file.write_text("somebody else's\n")
            done = asker.ask(write_event(rig, file, "mine\n", tool_use_id=f"{number}-{at}"), "check")
            assert (done.returncode, done.stderr) == (0, "")
            answer = json.loads(done.stdout) if done.stdout else {}
            if answer:
                assert f"/{number}.txt" in json.dumps(refusal(answer)), answer
            assert is_denied(answer) == is_stale, (number, at, answer)
            said.append(done.stdout)
        return said

    with ThreadPoolExecutor(8) as pool:
        assert len(list(pool.map(session, range(8)))) == 8


def test_nobody_can_take_a_place_before_somebody_waits_there(tmp_path: Path) -> None:
    """finding H3: two that ask came to one pair of FIFOs, if the second came while the first process was made."""
    folder_fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    place = standby.AskingPlace(folder_fd, 1)
    try:
        place.open()
        assert sorted(os.listdir(tmp_path)) == ["1.in", "1.out", "1.taken"]
        place.is_open_to_all()
        assert sorted(os.listdir(tmp_path)) == ["1.in", "1.out"]
    finally:
        place.close()
        os.close(folder_fd)


def test_it_ends_with_its_host(rig: HookRig) -> None:
    """N-speed: nothing stays when the host is gone."""
    asker = Asker(rig)
    line = command_line.command("claude-code", "note")
    host = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import subprocess; subprocess.run({line!r}, shell=True, input=b'{{}}'); input('begun\\n')",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=asker.environment,
    )
    assert host.stdout is not None
    assert host.stdout.readline() == b"begun\n"  # The hook has ended, which had the folder open too.
    asker.all_end(lambda: host.communicate(b"\n", timeout=PATIENCE_S))
    assert os.listdir(asker.folder) == []


def test_it_can_be_switched_off(rig: HookRig) -> None:
    """N-speed: NOCLOBBER_STANDBY=off leaves nothing behind."""
    asker = Asker(rig)
    done = asker.ask({}, "note", environment={"NOCLOBBER_STANDBY": "off"})
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not asker.folder.exists()


def test_a_folder_that_is_not_ours_is_not_asked_at(
    asker: Asker, rig: HookRig, root: Path, tmp_path: Path
) -> None:
    """SECURITY: whoever owns the folder could let any write through."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (elsewhere / "noclobber").symlink_to(rig.runtime / "noclobber")
    file = root / "a.txt"
    file.write_text("one\n")
    payload = write_event(rig, file, "two\n", tool_use_id="1")
    there = {"XDG_RUNTIME_DIR": str(elsewhere)}
    done, is_taken = asker.took(lambda: asker.ask(payload, "check", environment=there))
    assert is_denied(json.loads(done.stdout))  # The hook itself refuses such a folder.
    assert not is_taken


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
@pytest.mark.parametrize("name", ["in", "out"])
def test_what_another_user_has_made_is_not_asked(rig: HookRig, root: Path, name: str) -> None:
    """SECURITY: a folder that others may write to is refused by the hook; nobody answers in its place."""
    asker = Asker(rig)
    file = root / "a.txt"
    file.write_text("one\n")
    asker.ask(read_event(rig, file), "note", environment={"NOCLOBBER_STANDBY": "off"})
    file.write_text("somebody else's\n")
    asker.folder.mkdir(mode=0o700)
    ends = {}
    for kind in ("in", "out"):
        os.mkfifo(asker.folder / f"1.{kind}", 0o666)
        ends[kind] = os.open(asker.folder / f"1.{kind}", os.O_RDWR)
    os.chown(asker.folder / f"1.{name}", 65534, 65534)

    def answer() -> bytes:
        hello = os.read(ends["in"], 4096)
        pid = hello.split(b" ")[0]
        os.write(ends["out"], pid + b" ready\n" + pid + b" end 0\n")
        return hello

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(answer)
        done = asker.ask(write_event(rig, file, "two\n", tool_use_id="1"), "check")
        os.write(ends["in"], b"nobody ")
        assert asked.result(PATIENCE_S) == b"nobody "
    for descriptor in ends.values():
        os.close(descriptor)
    assert refusal(json.loads(done.stdout))["error_type"] == "STALE_FILE"


def test_the_fifos_are_for_their_owner_only(asker: Asker) -> None:
    """SECURITY: events have the contents of files."""
    assert stat.S_IMODE(asker.folder.stat().st_mode) == 0o700
    for path in asker.folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


PRELOADED = """\
import json, os, sys
from noclobber.hook import standby, main
standby._load(sys.argv[1])
before = set(sys.modules)
for line in sys.stdin:
    payload, duty, write = json.loads(line)
    if write:
        with open(*write[:1], "w") as file:
            file.write(write[1])
    read_fd, write_fd = os.pipe()
    os.write(write_fd, json.dumps(payload).encode())
    os.close(write_fd)
    answer = main.respond(sys.argv[1], duty, read_fd)
    assert not answer.stdout, answer
print(*sorted(set(sys.modules) - before))
"""


def test_what_a_plain_read_and_edit_need_is_loaded_before(rig: HookRig, root: Path) -> None:
    """N-speed: what the first event of a project loads once more is not what each event loads."""
    file = root / "a.txt"
    file.write_text("one\n")
    (root / ".noclobber").mkdir(mode=0o700)
    edit = {"file_path": str(file), "old_string": "one", "new_string": "two"}

    def events(at: int) -> list[Any]:
        return [
            [read_event(rig, file), "note", None],
            [rig.tool("PreToolUse", "Edit", edit, tool_use_id=f"{at}"), "check", None],
            [
                rig.tool("PostToolUse", "Edit", edit, tool_use_id=f"{at}", tool_response={}),
                "note",
                [str(file), "two\n"],
            ],
        ]

    def run() -> str:
        file.write_text("one\n")
        return subprocess.run(
            [sys.executable, "-c", PRELOADED, "claude-code"],
            input="".join(f"{json.dumps(one)}\n" for one in events(1)),
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "XDG_RUNTIME_DIR": str(rig.runtime)},
        ).stdout

    run()  # Makes the project's state folder, which is done once.
    ours = [name for name in run().split() if name.startswith("noclobber.")]
    assert ours == []


def test_a_connection_to_the_server_of_the_event_before_is_not_used(
    rig: HookRig, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-machines, N-speed: a process that stays has closed it, and its number may be that of another file."""
    monkeypatch.delenv("NOCLOBBER_STANDBY", raising=False)
    asker = Asker(rig)
    asker.environment["NOCLOBBER_COORDINATOR"] = postgres.coordinator()
    file = root / "a.txt"
    given = {"file_path": str(file), "content": "one\n"}

    def write(call: str) -> tuple[str, bool]:
        payload = rig.tool("PreToolUse", "Write", given, tool_use_id=call)
        done, is_taken = asker.took(lambda: asker.ask(payload, "check"))
        file.write_text("one\n")
        asker.ask(rig.tool("PostToolUse", "Write", given, tool_use_id=call, tool_response={}), "note")
        return done.stdout, is_taken

    # The first event of all is about a write: its process has asked the server when it leaves one behind.
    file.write_text("one\n")
    asker.ask(rig.tool("PostToolUse", "Write", given, tool_use_id="0", tool_response={}), "note")
    asker.until(asker.is_free)
    try:
        stays = asker.main()
        assert [write(str(number)) for number in (1, 2)] == [("", True), ("", True)]
        assert asker.main() == stays
    finally:
        asker.end()
