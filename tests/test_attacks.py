"""
A second attack on each mechanism that a security review broke (findings S1 to S20).

The first attack on each has its test beside the code. These come from another side: real processes, planted
links, hostile JSON, folded names, races. S15, S16, S17 and S19 are in `test_attacks_by_files`. S2 and S9 are proven inside the real hosts (tests/e2e). The second
attacks on S7, S8, S12 and S18 are beside their code: tests/mcp/tools/test_locks.py,
tests/core/test_switches.py, tests/cli/test_clean_output.py.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from noclobber import DeliverableLock, NoclobberError, OutsideWorkspaceError
from noclobber.disk.commit.committer import Committer
from noclobber.disk.file_guard import FileGuard
from noclobber.guard import approval
from noclobber.hook.doctor import check as check_hooks
from noclobber.hook.main import respond
from noclobber.hosts import install
from noclobber.hosts.hook_entries import hook_file
from noclobber.ledger import open_file
from noclobber.lock.names import LEDGER_NAME
from tests.conftest import sha256
from tests.disk.commit.test_recovery import killed, notes, rewrite_record
from tests.mcp.conftest import Call, Connect, call, connect, workspaces
from tests.rigs.commands import run
from tests.rigs.hooks import HookRig, is_denied, refusal

__all__ = ["call", "connect", "workspaces"]  # Fixtures.

TIMEOUT_S = 60


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """A folder outside the root that nothing may change; looked at when the test is over."""
    folder = tmp_path / "victim"
    folder.mkdir()
    (folder / "key").write_bytes(b"secret")
    (folder / "key").chmod(0o600)
    (folder / "sub").mkdir()
    before = picture(folder)
    yield folder
    assert picture(folder) == before


def picture(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Everything that is in a folder, with modes."""
    found = {".": (folder.stat().st_mode, b"")}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
        found[str(path.relative_to(folder))] = (status.st_mode, content)
    return found


def use(root: Path, name: str = "a") -> None:
    """Do what anybody does in a project: read, write, look after it."""
    for attempt in (
        lambda: FileGuard(root).read(name),
        lambda: Committer(str(root)).replace(name, sha256(b"no such version"), b"x"),
        lambda: FileGuard(root).write(name, b"mine", expected=None),
    ):
        try:
            attempt()
        except NoclobberError:
            pass
    run("doctor", str(root))


# -- S1: crash recovery ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "part",
    ["swap", "notes", "kept", "claims", "turns", "lost", f"versions.{os.geteuid()}", "agent_trace.jsonl"],
)
def test_a_link_inside_the_state_folder_leads_nobody_outside(root: Path, victim: Path, part: str) -> None:
    """finding S1: every folder and file of the state, as a link to somebody else's."""
    (root / "a").write_bytes(b"old")
    killed(root, "exchanged", (root / "a", b"new"))
    shutil.rmtree(root / ".noclobber" / part, ignore_errors=True)
    (root / ".noclobber" / part).unlink(missing_ok=True)
    target = victim / "key" if part.endswith("jsonl") else victim
    (root / ".noclobber" / part).symlink_to(target)

    use(root)


@pytest.mark.parametrize(
    "part", ["swap", "notes", "kept", "claims", "turns", "lost", f"versions.{os.geteuid()}"]
)
def test_a_link_inside_the_state_folder_leads_no_hook_outside(
    rig: HookRig, root: Path, victim: Path, tmp_path: Path, part: str
) -> None:
    """findings S1 and S20: a whole call of a host, with a save of somebody else's while it waits."""
    (root / ".noclobber").mkdir()
    (root / ".noclobber" / part).symlink_to(victim)
    file = root / "a.txt"
    file.write_text("one\n")
    rig.read(file)
    given = {"file_path": str(file), "content": "two\n"}
    event = tmp_path / "event"
    event.write_text(json.dumps(rig.tool("PreToolUse", "Write", given, tool_use_id="w")))
    with event.open() as stdin:
        window = respond("claude-code", "check", stdin.fileno()).watch
    if window is not None:  # What the process that looks on does when somebody saves meanwhile.
        approval.copy(window, window.files[0], b"theirs\n")
    file.write_text("two\n")
    rig.told("Write", given, tool_use_id="w")
    rig.call("claude-code", rig.event("Stop"), "note")
    rig.call("claude-code", rig.event("SessionEnd"), "note")

    assert set(os.listdir(victim)) == {"key", "sub"}
    assert window is not None or part in ("swap", "notes", "claims")  # Where the write was refused.


@pytest.mark.parametrize(
    "step", ["noted", "exchanged", "settled", "several noted", "several one-visible", "creating"]
)
@pytest.mark.parametrize("seed", range(4))
def test_no_change_of_a_note_leads_recovery_outside(root: Path, victim: Path, step: str, seed: int) -> None:
    """finding S1: every member of a real note is replaced by something hostile, by chance; seeds can be replayed."""
    dice = random.Random(f"{step}{seed}")
    inside = root / "sub"
    inside.mkdir()
    (root / "out").symlink_to(victim)
    (inside / "a").write_bytes(b"old")
    rows = (
        [(inside / "a", b"new"), (root / "b", b"new")]
        if step.startswith("several")
        else [(inside / "a", b"new")]
    )
    if step == "creating":
        rows = [(inside / "fresh", b"new")]
    killed(root, step.removeprefix("several "), *rows)
    hostile: list[object] = [
        *(str(victim), f"{victim}/key", "../victim", "../../victim/key", "out", "out/key", "key", "..", "."),
        *("", "/", "\0", "\n", "a" * 5000, "\udcff", ".noclobber", "create", "delete", "move", "exchange"),
        *(0, -1, 2**70, None, True, [], {}, [str(victim)], victim.stat().st_ino, 1e308),
    ]

    def change(value: Any) -> None:
        """Replace some members, at any depth."""
        for key in range(len(value)) if isinstance(value, list) else list(value):
            if isinstance(value[key], (list, dict)) and value[key] and dice.random() < 0.8:
                change(value[key])
            elif dice.random() < 0.3:
                value[key] = dice.choice(hostile)

    changed = 0
    for note in notes(root):
        if note.read_bytes()[1024:1025] in (b"[", b"{"):
            rewrite_record(note, change)
            changed += 1
    assert changed or step == "creating"

    use(root, "sub/a")

    assert (inside / "a").is_file()


SWAPPER = """
import os, sys
from noclobber.disk import renames
folder, link = sys.argv[1:]
here = os.open(os.path.dirname(folder), os.O_RDONLY)
print(flush=True)
while os.path.exists(sys.argv[1] + ".go"):
    renames.exchange(here, os.path.basename(folder), here, os.path.basename(link))
"""


def test_a_folder_that_becomes_a_link_at_any_moment_leads_no_tool_outside(
    connect: Connect, root: Path, victim: Path
) -> None:
    """findings S14 and S20: another process exchanges the folder for a link to somebody else's, all the time."""
    (root / "sub").mkdir()
    (root / "link").symlink_to(victim)
    (root / "sub.go").touch()
    swapper = subprocess.Popen(
        [sys.executable, "-c", SWAPPER, str(root / "sub"), str(root / "link")], stdout=subprocess.PIPE
    )
    client = connect()
    landed = refused = 0
    try:
        assert swapper.stdout is not None
        swapper.stdout.readline()
        for number in range(60):
            for tool, arguments in (
                ("write_file", {"path": f"sub/f{number}", "content": "mine"}),
                ("write_files", {"files": [{"path": f"sub/deep{number}/g", "content": "mine"}]}),
                ("read_text_file", {"path": "sub/key"}),
                ("create_directory", {"path": f"sub/d{number}/e"}),
                ("delete_file", {"path": "sub/key"}),
                ("move_file", {"source": f"sub/f{number}", "destination": f"sub/h{number}"}),
                ("lock_acquire", {"path": "sub"}),
                ("lock_acquire", {"path": "sub/sub"}),
                ("edit_file", {"path": "sub/key", "edits": [{"oldText": "secret", "newText": "x"}]}),
            ):
                answer = client(tool, **arguments)
                assert "secret" not in str(answer.content)
                landed, refused = landed + (not answer.is_error), refused + answer.is_error
                if tool == "lock_acquire" and not answer.is_error:
                    client("lock_release", path=arguments["path"], lock_id=answer.structured["lock_id"])
    finally:
        (root / "sub.go").unlink()
        swapper.wait(TIMEOUT_S)
        swapper.stdout.close()
    assert open_file._LOCK_LEDGER == LEDGER_NAME
    assert landed, "nothing ever landed, so nothing was tried"
    assert refused


# -- S3, S4, S5: what a hook is told -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "stdout"),
    [
        ("cat {} > /dev/null", ""),
        ("cat {} >&-", ""),
        ("cat {} 2>&1 | tail -0", ""),
        ("(cat {}) >/dev/null", ""),
        ("x=$(cat {})", ""),
        ("cat {} &", ""),
        ("bash -c 'cat {}' >/dev/null", ""),
        ("head -0 {}", ""),
        ("head -n 0 {}", ""),
        ("tail -n +999 {}", ""),
        ("sed -n 999p {}", ""),
        ("false && cat {}", ""),
        ("cat() { :; }; cat {}", ""),
        ("exec >/dev/null; cat {}", ""),
        ("cat {}", "theirs\n[... truncated ...]\n"),
        ("cat {}", ""),
    ],
)
def test_a_command_that_showed_something_else_ends_no_conflict(
    rig: HookRig, root: Path, command: str, stdout: str
) -> None:
    """finding S3: redirected, in a subshell, of no lines, a function of that name, output that was cut off."""
    file = root / "a.txt"
    file.write_text("hello\n")
    rig.read(file)
    file.write_text("theirs\n" * 50)
    os.utime(file, (1, 1))
    assert refusal(rig.write(file, "mine\n"))["error_type"] == "STALE_FILE"

    given = {"command": command.replace("{}", str(file))}
    rig.call("claude-code", rig.tool("PostToolUse", "Bash", given, tool_response={"stdout": stdout}))

    assert is_denied(rig.write(file, "mine\n"))


@pytest.mark.parametrize(
    "pair",
    [
        '"file_path": "{decoy}", "file_path": "{real}"',
        '"file_path": "{decoy}", "file\\u005fpath": "{real}"',
        '"file_path": "{decoy}", "path": "{real}"',
        '"file_path": "{real}", "absolute_path": "{decoy}"',
    ],
)
def test_a_key_that_occurs_twice_hides_no_file(rig: HookRig, root: Path, pair: str) -> None:
    """finding S4: hosts take the last of two equal keys, so that one is judged; two that differ are refused."""
    real, decoy = root / "real.txt", root / "decoy.txt"
    real.write_text("hello\n")
    rig.read(real)
    real.write_text("theirs\n")
    members = pair.replace("{decoy}", str(decoy)).replace("{real}", str(real))
    event = json.dumps(rig.tool("PreToolUse", "Write", {"GIVEN": 0}))
    event = event.replace('"GIVEN": 0', f'{members}, "content": "mine"')

    answer, _ = rig.call("claude-code", event.encode(), "check")

    assert refusal(answer)["error_type"] in ("STALE_FILE", "BAD_REQUEST")


@pytest.mark.parametrize("who", [{}, {"agent_id": "sub-1"}])
@pytest.mark.parametrize("trick", ["options", "state", "git", "link"])
def test_rules_that_an_agent_plants_in_a_subfolder_do_not_apply_to_it(
    rig: HookRig, root: Path, tmp_path: Path, trick: str, who: dict[str, str]
) -> None:
    """finding S5: not for its subagents either, and not through a link to the folder."""
    (root / "noclobber.toml").write_text('unread = "deny"\n')
    (root / "sub").mkdir()
    file = root / "sub" / "a.txt"
    file.write_text("x\n")
    rig.call("claude-code", rig.event("SessionStart"), "note")
    folder = root / "sub"
    if trick == "options":
        (folder / "noclobber.toml").write_text('unread = "allow"\n')
    elif trick == "state":
        (folder / ".noclobber").mkdir()
    elif trick == "git":
        (folder / ".git").mkdir()
    else:
        folder = tmp_path / "elsewhere"
        folder.symlink_to(root / "sub")

    payload = rig.tool("PreToolUse", "Write", {"file_path": str(file), "content": "y"}, **who)
    answer, _ = rig.call("claude-code", payload | {"cwd": str(folder)}, "check")

    assert refusal(answer)["error_type"] == "UNREAD_FILE"


# -- S6, S10, S11: locks, hashes and sessions --------------------------------------------------------------


@pytest.mark.parametrize("kind", ["folder", "file", "nested"])
def test_a_link_into_a_locked_folder_asks_for_its_lock(
    rig: HookRig, root: Path, tmp_path: Path, kind: str
) -> None:
    """finding S6: the file is where it is, whatever leads to it."""
    outside = tmp_path / "deliverable"
    (outside / "deep").mkdir(parents=True)
    (outside / "deep" / "a.md").write_text("theirs")
    if kind == "file":
        (root / "a.md").symlink_to(outside / "deep" / "a.md")
        path = root / "a.md"
    elif kind == "folder":
        (root / "link").symlink_to(outside)
        path = root / "link" / "deep" / "a.md"
    else:
        (root / "one").symlink_to("two")
        (root / "two").symlink_to(outside / "deep")
        path = root / "one" / "a.md"
    with DeliverableLock(outside, holder="builder-1"):
        answer = rig.ask("Write", {"file_path": str(path), "content": "x"}, tool_use_id="w")

    assert refusal(answer)["error_type"] == "LOCK_CONTENTION"


@pytest.mark.parametrize("tool", ["write_file", "edit_file", "delete_file", "move_file", "write_files"])
def test_the_hash_of_a_refusal_opens_no_tool(connect: Connect, root: Path, tool: str) -> None:
    """finding S10: each changing tool in turn, with the hash from its own refusal; and with another's."""
    client, other = connect(), connect()
    (root / "a.md").write_text("v1")
    client("read_text_file", path="a.md")
    (root / "a.md").write_text("v2")
    other("read_text_file", path="a.md")
    now = sha256(b"v2")

    arguments: dict[str, dict[str, Any]] = {
        "write_file": {"path": "a.md", "content": "mine", "expected_hash": now},
        "edit_file": {"path": "a.md", "edits": [{"oldText": "v2", "newText": "x"}], "expected_hash": now},
        "delete_file": {"path": "a.md", "expected_hash": now},
        "move_file": {"source": "a.md", "destination": "b.md", "expected_hash": now},
        "write_files": {"files": [{"path": "a.md", "content": "mine", "expected_hash": now}]},
    }
    refused = [client(tool, **arguments[tool]) for _ in range(3)]

    assert [answer.is_error for answer in refused] == [True] * 3
    assert (root / "a.md").read_text() == "v2"
    assert not (root / "b.md").exists()


# -- S13: switched-off hooks -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        '{"disableAllHooks": false, "disableAllHooks": true}',
        '\ufeff{"disableAllHooks": true}',
        '{"disable\\u0041llHooks": true}',
    ],
)
def test_no_spelling_of_the_switch_is_overlooked(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """finding S13: twice in one object, behind a byte-order mark, or with an escaped letter."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    install.carry_out(hook_file("claude-code", "project", str(root)))
    (root / ".claude" / "settings.json").write_text(text)

    found = [finding for finding in check_hooks(str(root)) if "claude" in finding.name]

    assert any(not finding.ok and "off" in finding.detail.lower() for finding in found), found


# -- S14: names of descriptors -----------------------------------------------------------------------------


def test_a_descriptor_of_another_process_is_no_way_out(root: Path, victim: Path) -> None:
    """finding S14: `/proc/PID/fd/N`, `/proc/PID/cwd` and `/dev/fd` are links that the kernel resolves itself."""
    code = "import os, sys; os.open(sys.argv[1], os.O_RDONLY); print(flush=True); sys.stdin.read()"
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(victim)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=victim,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        holder.stdout.readline()
        own_fd = os.open(victim, os.O_RDONLY)
        places = [f"/proc/{holder.pid}/fd/3", f"/proc/{holder.pid}/cwd", f"/proc/{holder.pid}/root{victim}"]
        for number, place in enumerate([*places, f"/proc/self/fd/{own_fd}", f"/dev/fd/{own_fd}"]):
            (root / f"link{number}").symlink_to(place)
            for name in (f"link{number}/key", f"link{number}/new"):
                with pytest.raises(NoclobberError):
                    FileGuard(root).read(name)
                with pytest.raises(OutsideWorkspaceError):
                    FileGuard(root).write(name, b"mine", expected=None)
        os.close(own_fd)
    finally:
        holder.stdin.close()
        holder.stdout.close()
        holder.wait(TIMEOUT_S)


# -- S20: small holes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [".lock", ".LOCK", ".Lock-Ledger.jsonl", ".lock.take.1"])
@pytest.mark.parametrize(
    "attack",
    [
        lambda client, name: client("create_directory", path=f"part/{name}"),
        lambda client, name: client("create_directory", path=f"part/{name}/deep"),
        lambda client, name: client("write_file", path=f"part/{name}/x", content="x"),
        lambda client, name: client("write_files", files=[{"path": f"part/{name}/x", "content": "x"}]),
        lambda client, name: client("move_file", source="folder", destination=f"part/{name}"),
        lambda client, name: client("move_file", source="file", destination=f"part/{name}"),
        lambda client, name: client("move_file", source="folder", destination=f"part/{name}/deep"),
    ],
)
def test_no_tool_stops_the_locking_of_a_folder(
    call: Call, root: Path, name: str, attack: Callable[[Call, str], Any]
) -> None:
    """finding S20: every tool that creates a name, in every case of it."""
    (root / "part").mkdir()
    (root / "folder").mkdir()
    (root / "file").write_text("x")

    attack(call, name)

    with DeliverableLock(root / "part", holder="next"):
        pass


@pytest.mark.parametrize("to", ["folder", "missing", "file"])
def test_a_linked_state_folder_is_followed_by_nobody(
    rig: HookRig, root: Path, victim: Path, connect: Connect, to: str
) -> None:
    """finding S20: hooks, library, MCP and command line; nothing appears where the link leads."""
    (root / ".noclobber").symlink_to(
        {"folder": victim, "missing": victim / "new", "file": victim / "key"}[to]
    )
    (root / "a").write_text("x")
    rig.read(root / "a")
    rig.write(root / "a", "y")
    connect()("write_file", path="a", content="z")
    use(root)
    run("status", "--root", str(root))
    run("ledger", "verify", "--root", str(root))


@pytest.mark.parametrize("place", [".claude", ".claude/settings.local.json"])
@pytest.mark.parametrize("words", [(), ("--uninstall",)])
def test_install_writes_through_no_link(root: Path, victim: Path, place: str, words: tuple[str, ...]) -> None:
    """finding S20: the settings file, or the folder around it, leads out of the project."""
    (victim / "settings.json").write_text("{}")
    before = picture(victim)
    if place == ".claude":
        (root / ".claude").symlink_to(victim)
    else:
        (root / ".claude").mkdir()
        (root / place).symlink_to(victim / "settings.json")

    done = run("install", "claude-code", "--root", str(root), *words)

    assert picture(victim) == before
    assert done.code != 0 or words
    (victim / "settings.json").unlink()


@pytest.mark.parametrize("mark", ['"Stop"', '"SessionEnd"', '"tool_name":"Read"', '"toolName":"view"'])
@pytest.mark.parametrize("damage", ["deep", "number", "cut off", "bytes"])
def test_no_word_in_an_event_that_cannot_be_read_lets_a_write_pass(
    rig: HookRig, root: Path, mark: str, damage: str
) -> None:
    """finding S20: a model chooses its parameters, and one of them can make an event too much for our reader."""
    key = mark.partition(":")[0]
    hostile = {"deep": "[" * 200_000 + "]" * 200_000, "number": "9" * 10_000, "cut off": "1", "bytes": "1"}
    event = f'{{"sessionId":"s","cwd":"{root}","toolName":"create","toolArgs":{{{key}:{hostile[damage]},'
    event += f'"x":{{{mark if ":" in mark else mark + ":1"}}},"path":"a","file_text":"x"}}}}'
    data = event.encode()[: -3 if damage == "cut off" else None]
    data += b"\xff" if damage == "bytes" else b""

    answer, _ = rig.call("copilot", data, "auto")

    is_readable = damage == "number"
    assert is_denied(answer) or is_readable
