"""
The same calls to the reference server and to ours: the same answers; what it refuses, we refuse in our words.

Where npm is there the reference server is asked; everywhere, what it answered when it was last asked is in
`data/mcp/reference.json`. `NOCLOBBER_RECORD=1` writes that file anew.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.rigs import mcp_cases

pytest.importorskip("mcp", reason="the extra 'mcp' is not installed")

from bench.mcp_peer import INSPECTOR, Peer, Unavailable, our_command, package_program, reference_command

from noclobber.mcp.tools import REFERENCE, TOOLS
from tests.rigs.mcp import CheckedPeer, check_answer

RECORDED = Path(__file__).parents[1] / "data" / "mcp" / "reference.json"
LISTED = Path(__file__).parents[1] / "data" / "mcp" / "tools.json"


@pytest.fixture(scope="session")
def reference() -> list[str]:
    """The command that starts the reference server."""
    try:
        return reference_command()
    except Unavailable as reason:
        pytest.skip(f"no reference server: {reason}")


Played = tuple[list[dict[str, Any]], dict[str, str]]


@pytest.fixture(scope="session")
def played(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Played]:
    """Plays a scene with the reference server or with ours: once, because a server's start is not free."""

    @cache
    def play_once(who: str, scene: str) -> Played:
        command = reference_command() if who == "reference" else our_command()
        return play(command, scene, tmp_path_factory.mktemp("mcp").resolve() / "scene")

    return play_once


def play(command: list[str], scene: str, folder: Path) -> Played:
    """Make a scene's calls; return the answers, and what is on the disk afterwards."""
    places = mcp_cases.build(folder)
    answers = []
    before = os.umask(0o022)  # New files' modes are compared: they must not depend on who runs the tests.
    try:
        client = CheckedPeer if command == our_command() else Peer
        peer = client([*command, places["root"], places["two"]])
    finally:
        os.umask(before)
    with peer:
        for tool, arguments in mcp_cases.SCENES[scene]:
            params = {"name": tool}
            if arguments is not None:
                params["arguments"] = mcp_cases.filled(arguments, places)
            answer = peer.request("tools/call", params)
            answers.append(mcp_cases.normalised(answer["result"], places))
    return answers, mcp_cases.tree(folder)


def differences(scene: str, theirs: list[Any], ours: list[Any]) -> list[str]:
    """Say which calls were answered differently."""
    calls = mcp_cases.SCENES[scene]
    assert len(theirs) == len(ours) == len(calls)
    return [
        f"{tool} {arguments}\n  reference: {json.dumps(one)}\n  ours:      {json.dumps(two)}"
        for (tool, arguments), one, two in zip(calls, theirs, ours, strict=True)
        if one != two and not (one["isError"] and two["isError"])
    ]


@pytest.mark.parametrize("scene", mcp_cases.SCENES)
def test_answers_and_outcomes_are_those_of_the_reference_server(
    scene: str, reference: list[str], played: Callable[[str, str], Played]
) -> None:
    """N-mcp: a drop-in superset. Also compared: every file, link and mode afterwards."""
    theirs, their_tree = played("reference", scene)
    ours, our_tree = played("ours", scene)

    assert not differences(scene, theirs, ours)
    assert our_tree == their_tree


@pytest.mark.parametrize("scene", mcp_cases.SCENES)
def test_answers_are_those_that_the_reference_server_gave_when_it_was_recorded(
    scene: str, played: Callable[[str, str], Played]
) -> None:
    """N-mcp: the same where npm is missing."""
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    ours, our_tree = played("ours", scene)

    assert not differences(scene, recorded[scene]["answers"], ours)
    assert our_tree == recorded[scene]["tree"]


@pytest.mark.parametrize("scene", mcp_cases.SCENES)
def test_the_recording_is_what_the_reference_server_answers(
    scene: str, reference: list[str], played: Callable[[str, str], Played]
) -> None:
    """A recording that nobody can trust proves nothing."""
    theirs, tree = played("reference", scene)
    if os.environ.get("NOCLOBBER_RECORD"):
        known = json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.exists() else {}
        known[scene] = {"answers": theirs, "tree": tree}
        RECORDED.write_text(json.dumps(known, indent=0, sort_keys=True) + "\n", encoding="utf-8")
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))

    assert not differences(scene, recorded[scene]["answers"], theirs)
    assert recorded[scene]["tree"] == tree


def test_every_tool_of_the_reference_server_is_there_with_all_its_parameters() -> None:
    """N-mcp: the 14 tools, same names and parameters; what is added is optional."""
    listed = json.loads(LISTED.read_text(encoding="utf-8"))

    assert [tool["name"] for tool in listed] == [tool.name for tool in REFERENCE]
    for theirs in listed:
        ours = TOOLS[theirs["name"]]
        assert ours.title == theirs["title"]
        assert ours.annotations == theirs["annotations"]
        assert ours.parameters.get("required") == theirs["inputSchema"].get("required")
        for name, schema in theirs["inputSchema"]["properties"].items():
            assert _shape(ours.parameters["properties"][name]) == _shape(schema), (theirs["name"], name)
        added = set(ours.parameters["properties"]) - set(theirs["inputSchema"]["properties"])
        assert added <= {"expected_hash", "observation_id", "lock_id"}


def test_the_recorded_tools_are_what_the_reference_server_lists(reference: list[str], root: Path) -> None:
    """The list that the test above relies on. Descriptions are left out: ours are our own."""
    with Peer([*reference, str(root)]) as peer:
        tools = peer.request("tools/list")["result"]["tools"]
    kept = [
        {key: _shape(tool[key]) for key in ("name", "title", "annotations", "inputSchema")} for tool in tools
    ]
    if os.environ.get("NOCLOBBER_RECORD"):
        LISTED.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")

    assert json.loads(LISTED.read_text(encoding="utf-8")) == kept


def _shape(schema: Any) -> Any:
    """A schema without words."""
    if not isinstance(schema, dict):
        return schema
    return {key: _shape(value) for key, value in schema.items() if key != "description"}


# -- with a client that is not ours ------------------------------------------------------------------


@pytest.fixture(scope="session")
def inspector() -> list[str]:
    """The command that runs the official inspector from the shell."""
    try:
        return [*package_program(INSPECTOR), "--cli"]
    except Unavailable as reason:
        pytest.skip(f"no inspector: {reason}")


def inspect(inspector: list[str], root: Path, *words: str) -> dict[str, Any]:
    """Run one inspector call against ours."""
    source = str(Path(__file__).parents[2] / "src")
    command = [*inspector, "-e", f"PYTHONPATH={source}", *our_command(), str(root), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_the_official_inspector_lists_and_calls_our_tools(inspector: list[str], root: Path) -> None:
    """N-mcp: driven by the official Inspector from the shell."""
    (root / "plan.md").write_text("v1\n")

    listed = inspect(inspector, root, "--method", "tools/list")
    read = inspect(
        inspector,
        root,
        "--method",
        "tools/call",
        "--tool-name",
        "read_text_file",
        "--tool-arg",
        "path=plan.md",
    )

    assert [tool["name"] for tool in listed["tools"]] == list(TOOLS)
    check_answer("read_text_file", read["content"], read["structuredContent"], is_error=False)
    assert read["content"][0]["text"] == "v1\n"
    assert read["structuredContent"]["sha256"]


def test_the_official_inspector_sees_a_refusal_whole(inspector: list[str], root: Path) -> None:
    """Its SDK checks even an error's structured content against the tool's output schema."""
    (root / "plan.md").write_text("v2\n")
    call = ["--method", "tools/call", "--tool-name", "write_file", "--tool-arg", "path=plan.md"]

    refused = inspect(inspector, root, *call, "content=mine", f"expected_hash={'0' * 64}")

    check_answer("write_file", refused["content"], refused["structuredContent"], is_error=True)
    assert refused["isError"]
    assert refused["structuredContent"]["error_type"] == "STALE_FILE"
    assert json.loads(refused["content"][0]["text"])["details"]["baseline_hash"] == "0" * 64
    assert (root / "plan.md").read_text() == "v2\n"
