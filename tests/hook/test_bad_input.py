"""For no input, and for no failure of ours, does a write pass unchecked; and nothing of ours blocks a read."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noclobber.guard import claims, outcome, outside, policies
from noclobber.guard.recording import Recorder
from noclobber.hook import main, session_memory, session_notes
from noclobber.hook.session_memory import SessionMemory
from noclobber.hook.turn import HookTurn
from noclobber.hosts import HOSTS
from noclobber.text.host_edits import HostEdits
from tests.rigs.hooks import HookRig, is_denied, refusal

SLOWLY = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)

OBJECTS = st.dictionaries(st.text(max_size=8), JSON, max_size=3)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Made-up payloads name made-up folders; what is relative must not end up in this checkout."""
    before = os.getcwd()
    os.chdir(tmp_path_factory.mktemp("elsewhere"))
    yield
    os.chdir(before)


@pytest.fixture
def stale(rig: HookRig, root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that the session has read and that somebody has changed since: nobody may write it."""
    monkeypatch.setattr(claims, "PATIENCE_S", 0.0)
    file = root / "a.txt"
    file.write_text("hello\n")
    for host in HOSTS:
        rig.call(host, read_note(host, rig, file))
    file.write_text("theirs\n")
    return file


def read_note(host: str, rig: HookRig, file: Path) -> dict[str, Any]:
    """A read of the whole file, as each host tells about it."""
    root = str(rig.root)
    shown = {"content": "hello\n", "startLine": 1, "numLines": 2, "totalLines": 2}
    given = {"file_path": str(file)}
    if host == "claude-code":
        return rig.tool("PostToolUse", "Read", given, tool_response={"file": shown})
    if host == "codex":
        return rig.tool("PostToolUse", "Bash", {"command": "cat a.txt"}, tool_response="hello\n")
    if host == "qwen":
        return rig.tool("PostToolUse", "read_file", given, tool_response={"llmContent": "hello\n"})
    if host == "gemini":
        return rig.tool("AfterTool", "read_file", given, tool_response={"llmContent": "hello\n"})
    if host == "cursor":
        return {
            "hook_event_name": "beforeReadFile",
            "conversation_id": "s1",
            "cwd": root,
            "file_path": str(file),
            "content": "hello\n",
        }
    if host == "copilot":
        return {
            "sessionId": "s1",
            "cwd": root,
            "toolName": "view",
            "toolArgs": {"path": str(file)},
            "toolResult": {"resultType": "success", "textResultForLlm": "hello\n"},
        }
    if host == "cline":
        call = {
            "tool": "read_files",
            "sessionID": "s1",
            "callID": "r",
            "args": {"files": [{"path": str(file)}]},
        }
        output = [{"query": str(file), "result": "1 | hello", "success": True}]
        return {"ev": "after", "directory": root, "input": call, "output": output}
    display = {"text": "hello", "lineStart": 1, "lineEnd": 1, "totalLines": 1, "truncated": False}
    return {
        "ev": "after",
        "directory": root,
        "input": {"tool": "read", "sessionID": "s1", "callID": "r", "args": {"filePath": str(file)}},
        "output": {"metadata": {"display": display}},
    }


def assert_told_only(answer: dict[str, Any]) -> None:
    """A read that is not remembered goes ahead, and the model is told that it does not count."""
    assert not is_denied(answer)
    assert "could not remember" in json.dumps(answer)


def stale_write(host: str, rig: HookRig, file: Path) -> dict[str, Any]:
    """A whole-file write, or a patch, as each host asks about it."""
    root = str(rig.root)
    given = {"file_path": str(file), "content": "mine\n"}
    if host == "claude-code":
        return rig.tool("PreToolUse", "Write", given, tool_use_id="w")
    if host == "codex":
        patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-hello\n+x\n*** End Patch\n"
        return rig.tool("PreToolUse", "apply_patch", {"command": patch}, tool_use_id="w", turn_id="t")
    if host == "qwen":
        return rig.tool("PreToolUse", "write_file", given)
    if host == "gemini":
        return rig.tool("BeforeTool", "write_file", given)
    if host == "cursor":
        return {
            "hook_event_name": "preToolUse",
            "conversation_id": "s1",
            "cwd": root,
            "tool_name": "Write",
            "tool_input": given,
        }
    if host == "copilot":
        return {
            "sessionId": "s1",
            "cwd": root,
            "toolName": "create",
            "toolArgs": {"path": str(file), "file_text": "mine\n"},
        }
    return {
        "ev": "before",
        "directory": root,
        "input": {"tool": "write", "sessionID": "s1", "callID": "w"},
        "output": {"args": {"filePath": str(file), "content": "mine\n"}},
    }


@pytest.mark.parametrize("host", HOSTS)
def test_the_stale_write_is_refused_as_it_stands(rig: HookRig, stale: Path, host: str) -> None:
    """The ground that the rest of this file stands on."""
    assert refusal(rig.call(host, stale_write(host, rig, stale), "check")[0])["error_type"] == "STALE_FILE"


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("duty", ["check", "auto"])
def test_json_that_is_cut_anywhere_is_refused(rig: HookRig, stale: Path, host: str, duty: str) -> None:
    """N-hook, N-input, finding D13: every prefix of the event, and the code is one of ours."""
    whole = json.dumps(stale_write(host, rig, stale)).encode()
    for length in range(0, len(whole), 7):
        answer, code = rig.call(host, whole[:length], duty)
        assert refusal(answer)["error_type"] == "HOOK_FAILED", whole[:length]
        assert code == 0


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not json",
        b"[]",
        b"null",
        b'"text"',
        b"\xff\xfe{}",
        b"{" * 100_000,
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b"{}{}",
        b"NaN",
    ],
    ids=lambda data: repr(data[:8]),
)
def test_what_is_no_event_is_refused_where_a_write_waits_and_ignored_where_none_does(
    rig: HookRig, host: str, data: bytes
) -> None:
    """N-hook, N-input: not JSON, deeply nested, not an object."""
    assert is_denied(rig.call(host, data, "check")[0])
    assert not is_denied(rig.call(host, data, "note")[0])


@pytest.mark.parametrize("host", HOSTS)
@SLOWLY
@given(data=st.data())
def test_no_member_of_the_wrong_type_lets_a_stale_write_through(
    rig: HookRig, stale: Path, host: str, data: st.DataObject
) -> None:
    """N-hook, N-input, fuzzed: any member but the tool's name becomes anything at all."""
    payload = stale_write(host, rig, stale)
    places = []

    def walk(value: Any, trail: tuple[Any, ...]) -> None:
        for key, member in value.items():
            if key not in ("tool_name", "toolName", "tool", "ev"):
                places.append((*trail, key))
            if isinstance(member, dict):
                walk(member, (*trail, key))

    walk(payload, ())
    for *trail, key in data.draw(st.lists(st.sampled_from(places), min_size=1, max_size=3)):
        value: Any = payload
        for step in trail:
            value = value.get(step) if isinstance(value, dict) else None
        if isinstance(value, dict) and key in value:
            if data.draw(st.booleans()):
                value[key] = data.draw(JSON)
            else:
                del value[key]

    answer, _ = rig.call(host, payload, "check")

    if not is_denied(answer):
        # Then it is not a write of that file by that session any more.
        assert _is_another_call(host, payload, rig, stale), payload
    assert stale.read_text() == "theirs\n"


def _is_another_call(host: str, payload: Any, rig: HookRig, stale: Path) -> bool:
    from noclobber.hosts import load

    event = load(host).read({**payload, **load(host).CHECK_EVENT})
    same_session = (event.session_id, event.agent_id) == ("s1", "main")
    paths = {os.path.realpath(os.path.join(event.cwd or ".", action.path)) for action in event.actions}
    return event.trouble is None and (not same_session or str(stale) not in paths)


def write_note(host: str, rig: HookRig, file: Path) -> dict[str, Any]:
    """A write that was carried out, as each host tells about it."""
    payload = stale_write(host, rig, file)
    if host in ("cline", "opencode"):
        call = {**payload["input"], "args": payload["output"]["args"]}
        return {**payload, "ev": "after", "input": call, "output": {"output": "done", "metadata": {}}}
    if host == "copilot":
        return {**payload, "toolResult": {"resultType": "success", "textResultForLlm": "done"}}
    after = {"cursor": "postToolUse", "gemini": "AfterTool"}.get(host, "PostToolUse")
    return {**payload, "hook_event_name": after, "tool_response": {"llmContent": "done"}, "duration_ms": 3}


def fields_of(value: Any, trail: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every field of an event, the nested ones too."""
    if not isinstance(value, dict):
        return []
    return [found for key in value for found in ((*trail, key), *fields_of(value[key], (*trail, key)))]


def replaced(value: Any, trail: tuple[str, ...], new: Any) -> Any:
    """The event with another value in one field."""
    return {**value, trail[0]: replaced(value[trail[0]], trail[1:], new)} if trail else new


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("kind", [read_note, write_note])
@SLOWLY
@given(data=st.data())
def test_a_note_passes_whatever_is_in_any_of_its_fields(
    rig: HookRig, stale: Path, host: str, kind: Any, data: st.DataObject
) -> None:
    """N-hook, N-input, fuzzed: nothing of ours blocks what nobody asks about, and nothing crashes."""
    payload = kind(host, rig, stale)
    field = data.draw(st.sampled_from(fields_of(payload)))
    if field[-1] in ("hook_event_name", "ev", "toolResult"):
        return  # Those make it another event.

    answer, code = rig.call(host, replaced(payload, field, data.draw(OBJECTS)), "note")

    assert not is_denied(answer)
    assert code == 0
    assert tracebacks(rig) == []


@pytest.mark.parametrize("host", HOSTS)
@SLOWLY
@given(data=st.data())
def test_a_check_with_an_object_in_any_field_is_answered_and_never_crashes(
    rig: HookRig, stale: Path, host: str, data: st.DataObject
) -> None:
    """N-hook, N-input, fuzzed: a field that a write needs and that is an object is a refusal."""
    payload = stale_write(host, rig, stale)
    field = data.draw(st.sampled_from(fields_of(payload)))
    event = replaced(payload, field, data.draw(OBJECTS))

    answer, code = rig.call(host, event, "check")

    assert code == 0
    assert is_denied(answer) or _is_another_call(host, event, rig, stale), event
    assert tracebacks(rig) == []


@pytest.mark.parametrize("duration_ms", [10**400, -1, True, "3"])
def test_a_duration_that_cannot_be_one_is_ignored(rig: HookRig, stale: Path, duration_ms: Any) -> None:
    """N-input: a number of four hundred digits is JSON, and no float."""
    payload = read_note("claude-code", rig, stale)

    assert rig.call("claude-code", {**payload, "duration_ms": duration_ms}, "note") == ({}, 0)
    assert tracebacks(rig) == []


def tracebacks(rig: HookRig) -> list[Any]:
    """What the log says of failures that nobody foresaw: those have a traceback."""
    log = rig.runtime / "noclobber" / "hook.log"
    lines = log.read_text().splitlines() if log.exists() else []
    return [entry["traceback"] for line in lines if "traceback" in (entry := json.loads(line))]


@pytest.mark.parametrize(
    "path", ["/a\0b", "a\0", "\udcff", "", "x" * 5000, "/" + "y/" * 3000 + "z", "/dev/null/x"]
)
def test_paths_that_lead_nowhere_are_refused_with_a_reason(rig: HookRig, root: Path, path: str) -> None:
    """N-hook, N-input: NUL, not UTF-8, empty, too long. What the host makes of a path, we cannot know."""
    answer = rig.ask("Write", {"file_path": path, "content": "x"}, tool_use_id="w")
    assert refusal(answer)["resolution"] in ("CHANGE_REQUEST", "ASK_A_PERSON")


def test_a_newline_in_a_path_is_a_path(rig: HookRig, root: Path) -> None:
    """N-hook, N-input: unusual, and allowed."""
    file = root / 'a\n"b".txt'
    file.write_text("x\n")
    rig.read(file)
    file.write_text("theirs\n")
    assert refusal(rig.write(file, "mine"))["details"]["path"] == str(file)


@pytest.mark.slow
def test_a_hundred_megabytes_are_read_and_judged(rig: HookRig, stale: Path) -> None:
    """N-hook, N-input: large, whole and cut."""
    payload = rig.tool(
        "PreToolUse", "Write", {"file_path": str(stale), "content": "x" * (100 << 20)}, tool_use_id="w"
    )
    whole = json.dumps(payload).encode()
    assert refusal(rig.call("claude-code", whole, "check")[0])["error_type"] == "STALE_FILE"
    assert refusal(rig.call("claude-code", whole[:-5], "check")[0])["error_type"] == "HOOK_FAILED"


def test_more_than_anybody_means_is_refused(rig: HookRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-hook, N-input: without an end."""
    monkeypatch.setattr(main, "MOST_BYTES", 1000)
    assert is_denied(rig.call("claude-code", b" " * 2_000_000 + b"{}", "check")[0])


@pytest.mark.parametrize("name", ["PreToolUseV2", "", 7, None])
def test_an_event_that_we_do_not_know_is_judged_if_a_write_waits(
    rig: HookRig, stale: Path, name: int | str | None
) -> None:
    """N-hook, N-input: a future version of the host calls it by another name."""
    payload = {**stale_write("claude-code", rig, stale), "hook_event_name": name}
    assert is_denied(rig.call("claude-code", payload, "check")[0])
    assert not is_denied(rig.call("claude-code", payload, "note")[0])


def test_members_that_we_do_not_know_are_left_alone(rig: HookRig, stale: Path) -> None:
    """Future versions of a payload are fine."""
    payload = {**stale_write("claude-code", rig, stale), "schema": 9, "tool": {"v": [1]}, "more": None}
    assert refusal(rig.call("claude-code", payload, "check")[0])["error_type"] == "STALE_FILE"


# -- failures of our own ---------------------------------------------------------------------------------------


FAILURES = [
    RuntimeError("a bug"),
    OSError(5, "input/output error"),
    KeyError("x"),
    MemoryError(),
    RecursionError(),
    ValueError("v"),
]
PARTS = [
    (policies, "decide"),
    (outside, "look_at"),
    (outside, "foresee"),
    (outside, "call_key"),
    (claims, "acquire"),
    (Recorder, "prepare"),
    (SessionMemory, "recall"),
    (SessionMemory, "keep"),
    (SessionMemory, "__enter__"),
    (session_memory, "open_runtime"),
    (session_notes, "open_runtime"),
    (HookTurn, "__init__"),
]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part[1])
@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
def test_whatever_fails_inside_the_write_is_refused_and_the_read_is_not(
    rig: HookRig, root: Path, monkeypatch: pytest.MonkeyPatch, part: tuple[Any, ...], failure: BaseException
) -> None:
    """N-hook: a bug of ours refuses writes, says what to do, is logged, and never blocks a read."""
    file = root / "fresh.txt"

    def fail(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr(part[0], part[1], fail)

    answer = rig.ask("Write", {"file_path": str(file), "content": "x"}, tool_use_id="w")
    assert refusal(answer)["message"]
    file.write_text("x")
    assert not is_denied(rig.read(file))
    assert rig.told("Write", {"file_path": str(file), "content": "x"}, tool_use_id="w") == {}
    before_read = rig.tool("PreToolUse", "Read", {"file_path": str(file)})
    assert rig.call("claude-code", before_read)[0] == {}
    for name in ("SessionStart", "Stop", "SessionEnd", "UserPromptSubmit"):
        assert rig.call("claude-code", rig.event(name), "note")[0] == {}


def test_the_event_and_the_error_are_logged(
    rig: HookRig, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-hook."""
    monkeypatch.setattr(policies, "decide", lambda facts: 1 / 0)
    rig.ask("Write", {"file_path": str(root / "x"), "content": "x"}, tool_use_id="w")

    [line] = (rig.runtime / "noclobber" / "hook.log").read_text().splitlines()
    entry = json.loads(line)
    assert (entry["host"], entry["event"], entry["tool"]) == ("claude-code", "PreToolUse", "Write")
    assert "ZeroDivisionError" in entry["error"]
    assert "test_bad_input" in entry["traceback"]
    assert rig.kinds() == ["MUTATION_REFUSED"]


@pytest.mark.parametrize("how", ["file", "link", "open", "somebody else's"])
def test_a_runtime_folder_that_is_not_ours_alone_is_not_used(
    rig: HookRig, root: Path, how: str, is_root: bool
) -> None:
    """N-hook, N-input: owned by someone else, open to everybody, or not a folder at all."""
    folder = rig.runtime / "noclobber"
    if how == "file":
        folder.write_text("")
    elif how == "link":
        (rig.runtime / "elsewhere").mkdir(mode=0o700)
        folder.symlink_to(rig.runtime / "elsewhere")
    elif how == "open":
        folder.mkdir()
        folder.chmod(0o777)
    elif is_root:
        folder.mkdir(mode=0o700)
        os.chown(folder, 65534, 65534)
    else:
        pytest.skip("only root can give a folder away")
    file = root / "a.txt"
    file.write_text("x")

    assert_told_only(rig.read(file))
    refused = refusal(rig.write(file, "y"))
    assert refused["error_type"] == "HOOK_FAILED"
    assert str(folder) in refused["file_path"]
    assert "0700" in refused["message"]
    assert file.read_text() == "x"


def test_a_runtime_folder_that_belongs_to_somebody_else_is_not_even_tried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_root: bool
) -> None:
    """`sudo -E` keeps $XDG_RUNTIME_DIR; the folder under the temporary one is taken then."""
    if not is_root:
        pytest.skip("only root can give a folder away")
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, 65534, 65534)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(theirs))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert session_memory.runtime_folder() == f"{tmp_path}/noclobber-{os.geteuid()}"


def test_a_full_runtime_folder_refuses_writes_and_makes_the_session_read_again(
    rig: HookRig, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-hook, N-input: what could not be kept counts as not known, also when there is space again."""
    file = root / "a.txt"
    file.write_text("x\n")
    real = SessionMemory._write

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(SessionMemory, "_write", full)
    assert_told_only(rig.read(file))
    assert refusal(rig.write(file, "y\n"))["error_type"] in ("HOOK_FAILED", "UNREAD_FILE")
    monkeypatch.setattr(SessionMemory, "_write", real)

    assert refusal(rig.write(file, "y\n"))["error_type"] == "UNREAD_FILE"
    rig.read(file)
    assert rig.write(file, "y\n") == {}


def test_a_process_that_cannot_write_a_byte_refuses(rig: HookRig, root: Path) -> None:
    """A full disk as the kernel says it, in a process of its own."""
    file = root / "a.txt"
    file.write_text("x\n")
    payload = rig.tool("PreToolUse", "Write", {"file_path": str(file), "content": "y"}, tool_use_id="w")
    rig.process("claude-code", rig.event("SessionStart"), "note")

    done = rig.process(
        "claude-code", payload, "check", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    )

    assert done.returncode == 2 or is_denied(json.loads(done.stdout))


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b'{"path":1}', b"\0" * 50, b'{"path":"x","seen":[1],"noted":{}}']
)
def test_a_damaged_record_means_read_again(rig: HookRig, root: Path, damage: bytes) -> None:
    """Unreadable state never passes for "nothing was read"."""
    file = root / "a.txt"
    file.write_text("x\n")
    rig.read(file)
    [agent] = [entry for entry in (rig.runtime / "noclobber").iterdir() if entry.is_dir()]
    [record] = agent.glob("f*")
    record.write_bytes(damage)

    assert refusal(rig.write(file, "y\n"))["error_type"] == "UNREAD_FILE"
    rig.read(file)
    assert rig.write(file, "y\n") == {}


def test_half_a_claim_is_a_claim(rig: HookRig, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged claim holds for as long as a whole one may."""
    file = root / "a.txt"
    file.write_text("x\n")
    rig.write(file, "y\n")
    claim = claims.acquire(str(root), str(file), "other", "call")
    with open(claim.file, "w") as broken:
        broken.write('["')

    assert claims.check(str(root), str(file)) is not None
    os.utime(claim.file, (1, 1))
    assert claims.check(str(root), str(file)) is None


def test_a_hook_whose_package_is_broken_refuses_by_its_exit_code(
    rig: HookRig, root: Path, tmp_path: Path
) -> None:
    """N-hook: even if nothing of ours can be imported."""
    import shutil
    import subprocess
    import sys

    from noclobber.hosts.hook_entries import START

    package = tmp_path / "lib" / "noclobber"
    shutil.copytree(
        os.path.dirname(os.path.dirname(START)), package, ignore=shutil.ignore_patterns("__pycache__")
    )
    (package / "guard" / "policies.py").write_text("this is not Python\n")
    payload = rig.tool("PreToolUse", "Write", {"file_path": str(root / "x"), "content": "y"}, tool_use_id="w")
    for duty, code in (("check", (0, 2)), ("note", (0,))):
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(package / "hook" / "start.py"), "claude-code", duty],
            input=json.dumps(payload).encode(),
            capture_output=True,
            env={"XDG_RUNTIME_DIR": str(rig.runtime)},
            timeout=60,
        )
        assert done.returncode in code
        if duty == "check":
            assert done.returncode == 2 or is_denied(json.loads(done.stdout))
    (package / "hook" / "main.py").write_text("1 / 0\n")
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(package / "hook" / "start.py"), "claude-code", "check"],
        input=b"{}",
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 2
    told = done.stderr.decode()
    assert "noclobber doctor" in told
    assert "noclobber install claude-code --uninstall" in told  # finding U4: the way out.
    assert str(package / "hook" / "start.py") in told  # For when `noclobber` itself does not run any more.
    assert "refused" in told


def test_a_refusal_because_the_hook_failed_says_how_to_work_without_it(rig: HookRig) -> None:
    """finding U4: what the model is told names the repair and the way out, for the host that asked."""
    for host in HOSTS:
        told = refusal(rig.call(host, b"not json", "check")[0])
        assert told["error_type"] == "HOOK_FAILED"
        assert "`noclobber doctor`" in told["message"]
        assert f"`noclobber install {host} --uninstall`" in told["message"]


@SLOWLY
@given(text=st.text(), old=st.text(min_size=1, max_size=4), new=st.text(max_size=4))
def test_an_outcome_is_foreseen_only_where_it_is_certain(text: str, old: str, new: str) -> None:
    """N-foresight: if the old text stands exactly once, the outcome is that of a plain replacement."""
    from noclobber.core.actions import Action
    from noclobber.core.values import Edit

    before = text.encode("utf-8", "replace")
    foreseen = outcome.foresee(Action("edit", "f", change=HostEdits((Edit(old, new),))), before)
    plain = before.decode().removeprefix("\ufeff").replace("\r\n", "\n")
    plain_old = old.encode("utf-8", "replace").decode()
    if old != plain_old or "\r" in old + new:
        return
    if plain.count(old) != 1 or plain.find(old, plain.find(old) + 1) >= 0:
        assert foreseen == outcome.UNKNOWN_OUTCOME
    else:
        assert foreseen.plain == outcome.plain_hash(plain.replace(old, new).encode("utf-8", "replace"))
