"""
The approval window: somebody saves between the check and the host's write.

The check runs as a process, as hosts run it, because that is what forks the process that looks on.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from noclobber.guard import lookout, watch
from noclobber.guard.watch import Watch, WatchedFile
from tests.conftest import sha256
from tests.rigs.hooks import HookRig, beside, is_denied, refusal

THEIRS = b"hello\nworld\na person's line\n"
MINE = b"mine\n"


def until(is_so: Callable[[], object]) -> None:
    """Wait for another process; a minute is for a machine that is busy."""
    deadline_s = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.001)


@pytest.fixture
def agent(rig: HookRig, file: Path) -> Iterator[HookRig]:
    """A session that has read the file; whatever looks on ends with it."""
    rig.read(file)
    yield rig
    rig.call("claude-code", rig.event("SessionEnd", reason="exit"), "note")
    assert copies(rig) == []


def copies(rig: HookRig) -> list[str]:
    """The copies that nobody has judged yet."""
    folder = rig.root / ".noclobber" / "kept"
    return [path.name for path in folder.glob(".watch-*[0-9a-f]")] if folder.exists() else []


def check(rig: HookRig, tool: str, given: dict[str, Any]) -> None:
    """Ask as a host does; it must be let through."""
    done = rig.process("claude-code", rig.tool("PreToolUse", tool, given, tool_use_id="w"), "check")
    assert (done.returncode, done.stdout) == (0, b"")


def save(path: Path, data: bytes, how: str) -> None:
    if how == "in place":
        path.write_bytes(data)
    else:
        path.with_name("staged").write_bytes(data)
        os.rename(path.with_name("staged"), path)


@pytest.mark.parametrize("host", ["in place", "renamed"])
@pytest.mark.parametrize("person", ["in place", "renamed"])
def test_what_a_person_saves_while_the_dialogue_is_open_is_kept_and_told(
    agent: HookRig, file: Path, person: str, host: str
) -> None:
    """finding H4: whichever way each of them writes."""
    given = {"file_path": str(file), "content": "mine\n"}
    check(agent, "Write", given)
    save(file, THEIRS, person)
    until(lambda: copies(agent))
    save(file, MINE, host)

    told = agent.told("Write", given, tool_use_id="w")

    assert "decision" not in told
    found = refusal(told)
    assert (found["error_type"], found["file_path"]) == ("MUTATION_RACE", str(file))
    kept = Path(found["details"]["kept"])
    assert kept.read_bytes() == THEIRS
    assert beside(told).startswith("\nWhat they had, and what is there now:\n@@ from line 1 @@\n-hello")
    [race] = agent.ledger()
    assert race["action_type"] == "MUTATION_RACE"
    assert race["payload"]["overwritten_hash"] == f"sha256:{sha256(THEIRS)}"
    assert race["payload"]["expected_hash"] == race["payload"]["current_hash"] == f"sha256:{sha256(MINE)}"
    assert [agent.root / name for name in race["payload"]["kept"]] == [kept]
    assert agent.edit(file, "mine", "ours") == {}  # The agent knows what is there.


def test_a_host_with_two_installations_of_the_hook_asks_twice_and_is_answered_twice(
    agent: HookRig, file: Path
) -> None:
    """finding H4, finding S2: one process looks on for one call; a second one that waited for it held the host up."""
    given = {"file_path": str(file), "content": MINE.decode()}
    check(agent, "Write", given)
    check(agent, "Write", given)
    file.write_bytes(MINE)
    assert agent.told("Write", given, tool_use_id="w") == {}


def test_an_edit_that_is_made_in_what_they_saved_overwrites_nothing(agent: HookRig, file: Path) -> None:
    """finding H4: found and told as ever, and nothing has to be kept."""
    given = {"file_path": str(file), "old_string": "hello", "new_string": "HELLO"}
    check(agent, "Edit", given)
    save(file, THEIRS, "renamed")
    until(lambda: copies(agent))
    save(file, THEIRS.replace(b"hello", b"HELLO"), "renamed")

    assert refusal(agent.told("Edit", given, tool_use_id="w"))["error_type"] == "STALE_FILE"
    assert [path.name for path in (agent.root / ".noclobber" / "kept").iterdir()] == []
    assert agent.kinds() == ["MUTATION_RACE"]


def test_a_file_that_somebody_creates_meanwhile_is_kept(agent: HookRig, root: Path) -> None:
    """finding H4: the agent creates a file, and so did somebody else."""
    file = root / "new.txt"
    given = {"file_path": str(file), "content": "mine\n"}
    check(agent, "Write", given)
    save(file, b"theirs\n", "in place")
    until(lambda: copies(agent))
    save(file, MINE, "in place")

    found = refusal(agent.told("Write", given, tool_use_id="w"))
    assert Path(found["details"]["kept"]).read_bytes() == b"theirs\n"


def test_a_call_that_was_declined_leaves_their_save_and_no_copy(agent: HookRig, file: Path) -> None:
    """finding H4, finding H8: nobody overwrote anything."""
    check(agent, "Write", {"file_path": str(file), "content": "mine\n"})
    save(file, THEIRS, "in place")
    until(lambda: copies(agent))

    agent.call("claude-code", agent.event("Stop"), "note")

    assert copies(agent) == []
    assert file.read_bytes() == THEIRS
    assert agent.kinds() == []
    assert is_denied(agent.edit(file, "hello", "HELLO"))


def test_a_host_that_wrote_and_never_said_so_has_overwritten_it_all_the_same(
    agent: HookRig, file: Path
) -> None:
    """finding H4: the end of the turn finds it."""
    check(agent, "Write", {"file_path": str(file), "content": "mine\n"})
    save(file, THEIRS, "in place")
    until(lambda: copies(agent))
    save(file, MINE, "in place")

    agent.call("claude-code", agent.event("Stop"), "note")

    [race] = agent.ledger()
    [kept] = race["payload"]["kept"]
    assert (race["action_type"], (agent.root / kept).read_bytes()) == ("MUTATION_RACE", THEIRS)


def test_plain_work_leaves_no_trace(agent: HookRig, file: Path) -> None:
    """finding H4, 009-SC-002: nobody saved, so nothing is kept or told, and the mark is gone."""
    given = {"file_path": str(file), "content": "mine\n"}
    check(agent, "Write", given)
    file.write_bytes(MINE)

    assert agent.told("Write", given, tool_use_id="w") == {}
    assert agent.kinds() == ["MUTATION"]
    assert copies(agent) == []
    assert [path.name for path in agent.runtime.rglob("*.watch.*")] == []


def test_a_save_into_the_file_that_the_host_replaces_at_the_same_moment_is_kept(
    agent: HookRig, file: Path
) -> None:
    """finding H4: nobody waits for the copy, neither the host nor the event after the call."""
    given = {"file_path": str(file), "content": "mine\n"}
    check(agent, "Write", given)
    # The person is in the middle of a save when the host replaces the file, and finishes it afterwards.
    with file.open("r+b") as theirs:
        save(file, MINE, "renamed")
        theirs.write(THEIRS)
    found = refusal(agent.told("Write", given, tool_use_id="w"))

    assert Path(found["details"]["kept"]).read_bytes() == THEIRS


def test_it_holds_the_file_and_nothing_of_the_hosts(agent: HookRig, file: Path) -> None:
    """finding H4: no end of output waits for it, and the host may end its group."""
    if not Path("/proc/self/fd").exists():
        pytest.skip("there is no /proc here")
    check(agent, "Write", {"file_path": str(file), "content": "mine\n"})

    [child] = [entry for entry in Path("/proc").glob("[0-9]*") if is_ours(entry, agent.runtime)]
    assert os.readlink(child / "cwd") == "/"
    session = (child / "stat").read_text().rpartition(")")[2].split()[3]
    assert session == child.name
    pages = {link for link in map(os.readlink, (child / "fd").iterdir()) if link.startswith("pipe:")}
    assert len(pages) <= 1  # It holds the file's pages, and nobody else has an end of it.
    assert not pages & {os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()}
    held = {os.readlink(link) for link in (child / "fd").iterdir()} - {
        "/dev/null",
        str(file),
        str(file.parent),
        *pages,
    }
    assert {os.path.commonpath([path, str(agent.runtime)]) for path in held} <= {str(agent.runtime)}

    agent.call("claude-code", agent.event("Stop"), "note")
    until(lambda: not child.exists())


def is_ours(entry: Path, runtime: Path) -> bool:
    """True for a process that a hook of this test has forked."""
    try:
        command, environment = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
    except OSError:
        return False
    return b"hook/start.py" in command and f"XDG_RUNTIME_DIR={runtime}\0".encode() in environment + b"\0"


def test_the_host_is_found_behind_the_shells_that_run_the_hook(tmp_path: Path) -> None:
    """finding H4: the shells end with the hook, and the host does not."""
    if not Path("/proc/self/stat").exists():
        pytest.skip("there is no /proc here")
    program = tmp_path / "ask.py"
    program.write_text(
        "import os\nfrom noclobber.guard.watch import host_of\nprint(host_of(os.getppid()), os.getppid())\n"
    )
    inner = f"{sys.executable} {program}; :"
    done = subprocess.run(
        ["sh", "-c", f"sh -c '{inner}'; :"], capture_output=True, text=True, check=True, timeout=60
    )

    host, parent = map(int, done.stdout.split())
    assert host == os.getpid() != parent


# -- the process that looks on ----------------------------------------------------------------------------


def watched(root: Path, file: Path, mark: Path, host_pid: int) -> Watch:
    (root / ".noclobber").mkdir(exist_ok=True)
    mark.touch()
    one = WatchedFile(str(file), sha256(file.read_bytes()), (sha256(MINE),))
    return Watch(str(root), "key", str(mark), host_pid, (one,))


@pytest.mark.parametrize("end", ["written", "mark", "host", "age"])
def test_it_ends_by_itself(root: Path, tmp_path: Path, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """finding H4: when the host has written, when nobody asks any more, when the host is gone, and in time."""
    file, mark = root / "a.txt", tmp_path / "mark"
    file.write_text("old\n")
    gone = subprocess.Popen([sys.executable, "-c", "pass"])
    gone.wait()
    monkeypatch.setattr(lookout, "HOST_CHECK_S", 0.0)
    if end == "age":
        monkeypatch.setattr(lookout, "LIFE_S", 0.05)
        monkeypatch.setattr(lookout, "NAPS_S", ((1.0, 0.001),))
    looking = watched(root, file, mark, gone.pid if end == "host" else os.getpid())
    thread = threading.Thread(target=lookout.run, args=(looking,))
    thread.start()
    if end == "written":
        file.write_bytes(MINE)
    elif end == "mark":
        mark.unlink()
    thread.join(60)

    assert not thread.is_alive()


def test_every_version_that_was_saved_is_copied_and_the_checked_one_is_not(
    root: Path, tmp_path: Path
) -> None:
    """finding H4: two saves of a person, one after the other, and the old version once more."""
    file, mark = root / "a.txt", tmp_path / "mark"
    file.write_text("old\n")
    thread = threading.Thread(target=lookout.run, args=(watched(root, file, mark, os.getpid()),))
    thread.start()
    for number, text in enumerate(("one\n", "two\n"), 1):
        save(file, text.encode(), "renamed")
        until(lambda: len(watch.copies_of(str(root), "key")) == number)  # noqa: B023
    save(file, b"old\n", "renamed")
    mark.unlink()
    thread.join(60)

    found = [watch.content_of(copy) for copy in watch.copies_of(str(root), "key", str(file))]
    assert found == [b"one\n", b"two\n"]


def opened(sight: lookout.Sight, file: Path, mode: str) -> IO[bytes]:
    """Open a file for writing while it is looked at: that waits for a look."""
    found: list[IO[bytes]] = []
    thread = threading.Thread(target=lambda: found.append(file.open(mode, buffering=0)))
    thread.start()
    until(lambda: sight.look() or found)
    thread.join()
    return found[0]


def test_who_writes_a_new_file_beside_the_watched_one_is_let_in(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding H4: it is held because it may be a save under its first name; its writer must not wait for 45 s."""
    if not hasattr(fcntl, "F_SETLEASE"):
        pytest.skip("no leases on this system")
    file, other = root / "a.txt", root / "b.txt"
    file.write_text("old\n")
    about = watched(root, file, tmp_path / "mark", os.getpid())
    sight = lookout.Sight(about, about.files[0])
    assert not sight.look()
    other.write_text("new\n")
    until(lambda: sight.look() or (sight._newcomers and sight._newcomers["b.txt"]._is_leased))
    monkeypatch.setattr(lookout, "TICK_S", -1.0)  # Nothing changes in the folder any more.

    with pytest.raises(BlockingIOError):
        os.open(other, os.O_WRONLY | os.O_NONBLOCK)
    sight.look()
    os.close(os.open(other, os.O_WRONLY | os.O_NONBLOCK))
    sight.close()


def test_a_host_in_the_middle_of_its_own_write_is_no_stranger(root: Path, tmp_path: Path) -> None:
    """finding H4: half of it may be there for long; a save is what nobody is writing any more."""
    if not hasattr(fcntl, "F_SETLEASE"):
        pytest.skip("nobody can tell here whether a file is being written")
    file = root / "a.txt"
    file.write_bytes(b"old text\n")
    own = Watch(str(root), "key", str(tmp_path / "mark"), 0, ())
    sight = lookout.Sight(own, WatchedFile(str(file), sha256(b"old text\n"), (sha256(b"new TEXT\n"),)))
    assert not sight.look()
    with opened(sight, file, "r+b") as host:  # It writes over the old text, and does not empty the file.
        for piece in (b"new", b" TE"):
            host.write(piece)
            assert not sight.look()
        host.write(b"XT\n")
    assert sight.look()
    sight.close()

    assert watch.copies_of(str(root), "key") == []


def test_a_save_waits_until_somebody_looks_and_the_host_waits_until_it_is_copied(
    root: Path, tmp_path: Path
) -> None:
    """finding H4: however late the process that looks on gets its turn, both are held in `open()` meanwhile."""
    if not hasattr(fcntl, "F_SETLEASE"):
        pytest.skip("nobody can be held here")
    file = root / "a.txt"
    file.write_bytes(b"old text\n")
    (root / ".noclobber").mkdir(exist_ok=True)
    own = Watch(str(root), "key", str(tmp_path / "mark"), 0, ())
    sight = lookout.Sight(own, WatchedFile(str(file), sha256(b"old text\n"), (sha256(MINE),)))
    sight.look()

    def overwrite(data: bytes, expected: bytes) -> None:
        held = sight._now
        assert held is not None
        program = f"open({str(file)!r}, 'wb').write({data!r})"
        writer = subprocess.Popen([sys.executable, "-I", "-c", program])
        until(lambda: fcntl.fcntl(held.descriptor, fcntl.F_GETLEASE) != fcntl.F_RDLCK)
        assert file.read_bytes() == expected
        sight.look()
        assert writer.wait(60) == 0

    overwrite(THEIRS, b"old text\n")
    sight.look()
    assert [watch.content_of(copy) for copy in watch.copies_of(str(root), "key")] == [THEIRS]
    overwrite(MINE, THEIRS)
    assert sight.look()
    sight.close()


def test_what_was_saved_and_overwritten_while_the_file_stayed_open_is_no_half(
    root: Path, tmp_path: Path
) -> None:
    """finding H4: two programs have the file open at the same time, and the second overwrites the first."""
    file = root / "a.txt"
    file.write_bytes(b"old text\n")
    (root / ".noclobber").mkdir(exist_ok=True)
    own = Watch(str(root), "key", str(tmp_path / "mark"), 0, ())
    sight = lookout.Sight(own, WatchedFile(str(file), sha256(b"old text\n"), (sha256(MINE),)))
    sight.look()
    with opened(sight, file, "wb") as host:
        file.write_bytes(THEIRS)
        sight.look()
        host.truncate(0)
        host.write(MINE)
    assert sight.look()
    sight.close()

    assert [watch.content_of(copy) for copy in watch.copies_of(str(root), "key")] == [THEIRS]


def asleep(root: Path, tmp_path: Path, old: bytes, new: bytes) -> tuple[Path, lookout.Sight]:
    """Return a file, and a process that looks on and has let somebody in, and is not awake since."""
    if not hasattr(fcntl, "F_SETLEASE"):
        pytest.skip("files are not held here")
    file = root / "a.txt"
    file.write_bytes(old)
    (root / ".noclobber").mkdir(exist_ok=True)
    own = Watch(str(root), "key", str(tmp_path / "mark"), 0, ())
    sight = lookout.Sight(own, WatchedFile(str(file), sha256(old), (sha256(new),)))
    sight.look()
    sight.hold_pages()
    assert sight._now is not None
    sight._now._let_in()
    return file, sight


def test_a_line_that_was_added_and_overwritten_while_nobody_was_awake_is_kept(
    root: Path, tmp_path: Path
) -> None:
    """finding H4: the file's pages are held, and what was in them when the host emptied the file is found."""
    old = b"hello\nworld\n"
    file, sight = asleep(root, tmp_path, old, MINE)
    with file.open("ab") as person:
        person.write(b"a person's line\n")
    file.write_bytes(MINE)
    assert sight.look()
    sight.close()

    assert [watch.content_of(copy) for copy in watch.copies_of(str(root), "key")] == [THEIRS]


@pytest.mark.parametrize(
    "old", [b"hello\nworld\n", b"ends in zeros\0\0", b"x" * 4096], ids=["text", "zeros", "page"]
)
@pytest.mark.parametrize("how", ["emptied", "over it", "over it and cut"])
def test_a_host_that_writes_while_nobody_is_awake_is_no_stranger(
    root: Path, tmp_path: Path, old: bytes, how: str
) -> None:
    """finding H4, 009-SC-002: what it replaced was checked, however the pages show it."""
    file, sight = asleep(root, tmp_path, old, MINE if how != "over it" else MINE + old[len(MINE) :])
    with file.open("wb" if how == "emptied" else "r+b") as host:
        host.write(MINE)
        if how == "over it and cut":
            host.truncate()
    assert sight.look()
    sight.close()

    assert watch.copies_of(str(root), "key") == []


def test_a_save_by_rename_that_the_host_replaces_before_anybody_looks_is_kept(
    root: Path, tmp_path: Path
) -> None:
    """finding H4: the new file is held from the moment that it is made, under whatever name."""
    if not hasattr(fcntl, "F_SETLEASE"):
        pytest.skip("files are not held here")
    file, staged = root / "a.txt", root / ".a.txt.swp"
    file.write_bytes(b"hello\nworld\n")
    (root / ".noclobber").mkdir(exist_ok=True)
    own = Watch(str(root), "key", str(tmp_path / "mark"), 0, ())
    sight = lookout.Sight(own, WatchedFile(str(file), sha256(b"hello\nworld\n"), (sha256(MINE),)))
    sight.look()
    staged.write_bytes(THEIRS)
    sight.look()
    os.rename(staged, file)
    save(file, MINE, "renamed")
    assert sight.look()
    sight.close()

    assert [watch.content_of(copy) for copy in watch.copies_of(str(root), "key")] == [THEIRS]


def test_a_scratch_file_that_comes_and_goes_is_nobodys_save(root: Path, tmp_path: Path) -> None:
    """finding H4, 009-SC-002: lock files and the like are in the folder for a moment, and raise no alarm."""
    file, scratch = root / "a.txt", root / "index.lock"
    file.write_bytes(b"hello\nworld\n")
    (root / ".noclobber").mkdir(exist_ok=True)
    own = Watch(str(root), "key", str(tmp_path / "mark"), 0, ())
    sight = lookout.Sight(own, WatchedFile(str(file), sha256(b"hello\nworld\n"), (sha256(MINE),)))
    sight.look()
    scratch.write_bytes(b"4711\n")
    sight.look()
    scratch.unlink()
    sight.look()
    save(file, MINE, "in place" if not hasattr(fcntl, "F_SETLEASE") else "renamed")
    assert sight.look()
    sight.close()

    assert watch.copies_of(str(root), "key") == []


def test_short_turns_change_neither_the_share_nor_the_policy() -> None:
    """finding H4: a hook may run at a nice value that its user chose."""
    program = (
        "import os\nfrom noclobber.guard import short_turns\nos.nice(3)\nprint(short_turns.ask(), "
        "os.getpriority(os.PRIO_PROCESS, 0), getattr(os, 'sched_getscheduler', lambda _: 0)(0))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    said, nice, policy = done.stdout.split()

    assert (said in ("True", "False"), int(nice) >= 3, policy) == (True, True, "0"), done


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"new", True),
        (b"new t", True),
        (b"new text\nd text\n", False),
        (b"newold\n", False),
        (b"newer\n", False),
        (b"", True),
    ],
)
def test_what_half_of_a_write_is(data: bytes, expected: bool) -> None:
    """finding H4: a beginning of the new text, alone or with the rest of the old."""
    assert watch.is_half(data, b"very old text\n", b"new text\n") is expected
    assert watch.is_half(b"new text\ntext\n", b"very old text\n", b"new text\n")
    for written in (b"", b"new "):  # Its room was asked for first.
        assert watch.is_half(written.ljust(9, b"\0"), b"very old text\n", b"new text\n")
    assert not watch.is_half(b"new \0\0\0", b"very old text\n", b"new text\n")
    assert not watch.is_half(b"new \0\0\0\0x", b"very old text\n", b"new text\n")


def test_a_host_that_is_stopped_in_the_middle_of_a_large_write_is_no_stranger(
    root: Path, tmp_path: Path
) -> None:
    """finding H4: a busy machine may stop it for seconds; nothing is judged before it has closed the file."""
    if not hasattr(fcntl, "F_SETLEASE"):
        pytest.skip("nobody can tell here whether a file is being written")
    old = b"".join(b"line %06d\n" % at for at in range(40_000))
    new = old.replace(b"line", b"LINE")
    file = root / "a.txt"
    file.write_bytes(old)
    (root / ".noclobber").mkdir(exist_ok=True)
    own = Watch(str(root), "key", str(tmp_path / "mark"), 0, ())
    sight = lookout.Sight(own, WatchedFile(str(file), sha256(old), (sha256(new),)))
    assert not sight.look()
    with opened(sight, file, "r+b") as host:
        host.write(new[:100_000])
        begin_s = time.monotonic()
        until(lambda: sight.look() or time.monotonic() > begin_s + 0.3)
        assert watch.copies_of(str(root), "key") == []
        host.write(new[100_000:])
    assert sight.look()
    sight.close()

    assert watch.copies_of(str(root), "key") == []
