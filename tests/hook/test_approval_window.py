"""
The approval window: somebody saves between the check and the host's write.

The check runs as a process, as hosts run it, because that is what forks the process that looks on.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

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


def test_a_host_that_is_stopped_in_the_middle_of_a_large_write_is_no_stranger(
    agent: HookRig, file: Path
) -> None:
    """finding H4, 009-SC-002: a busy machine may stop it for long; half of its own text is nobody's save."""
    text = "".join(f"line {number:06}\n" for number in range(40_000))
    given = {"file_path": str(file), "content": text}
    check(agent, "Write", given)
    with file.open("r+b", buffering=0) as host:
        host.write(text[:100_000].encode())
        until(lambda: copies(agent))
        host.write(text[100_000:].encode())

    assert agent.told("Write", given, tool_use_id="w") == {}
    assert list((agent.root / ".noclobber" / "kept").iterdir()) == []


def test_half_of_a_hosts_write_over_a_persons_save_is_not_what_is_told(agent: HookRig, file: Path) -> None:
    """finding H4: a host that is stopped over what a person saved; the person's whole version is kept, alone."""
    text = "mine\n" * 40
    given = {"file_path": str(file), "content": text}
    check(agent, "Write", given)
    theirs = THEIRS * 10
    file.write_bytes(theirs)
    until(lambda: len(copies(agent)) == 1)
    with file.open("r+b", buffering=0) as host:
        host.write(text[:100].encode())
        until(lambda: len(copies(agent)) == 2)
        host.write(text[100:].encode())
        host.truncate()

    found = refusal(agent.told("Write", given, tool_use_id="w"))
    assert Path(found["details"]["kept"]).read_bytes() == theirs
    assert len(list((agent.root / ".noclobber" / "kept").iterdir())) == 1


def test_it_holds_the_file_and_nothing_of_the_hosts(agent: HookRig, file: Path) -> None:
    """finding H4: no end of output waits for it, and the host may end its group."""
    if not Path("/proc/self/fd").exists():
        pytest.skip("there is no /proc here")
    check(agent, "Write", {"file_path": str(file), "content": "mine\n"})

    [child] = [entry for entry in Path("/proc").glob("[0-9]*") if is_ours(entry, agent.runtime)]
    assert os.readlink(child / "cwd") == "/"
    session = (child / "stat").read_text().rpartition(")")[2].split()[3]
    assert session == child.name
    held = {os.readlink(link) for link in (child / "fd").iterdir()} - {
        "/dev/null",
        str(file),
        str(file.parent),
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
        "import os\nfrom noclobber.disk.processes import host_of\nprint(host_of(os.getppid()), os.getppid())\n"
    )
    inner = f"{sys.executable} {program}; :"
    done = subprocess.run(
        ["sh", "-c", f"sh -c '{inner}'; :"], capture_output=True, text=True, check=True, timeout=60
    )

    host, parent = map(int, done.stdout.split())
    assert host == os.getpid() != parent
