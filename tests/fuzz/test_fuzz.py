"""Every reader of untrusted input, fuzzed for some seconds with a fixed seed; `make fuzz` goes on for minutes."""

from __future__ import annotations

import re

import pytest
from fuzz.targets import place, targets

from fuzz import engine
from noclobber.hosts import HOSTS
from noclobber.text import apply_patch

SEED = 20_261_116
MOST_INPUTS = {
    "host": 400,
    "hook": 60,
    "ledger": 150,
    "session memory": 100,
    "shell": 200,
    "recovery": 40,
    "lock file": 40,
    "git file": 100,
    "undo": 40,
    "mcp": 80,
    "gitignore": 100,
    "merge": 150,
    "commands": 60,
    "kept runs": 40,
} | {f"note {host}": 40 for host in HOSTS}
NAMES = [f"{kind} {host}" for kind in ("host", "hook") for host in HOSTS] + [
    "note", "lock", "ledger", "options", "patch", "shell", "search blocks", "claim", "turns", "session memory",
    "json", "json edit", *(f"note {host}" for host in HOSTS),
    "recovery", "lock file", "git file", "undo", "mcp", "merge", "gitignore", "answers",
    "commands", "expectations", "kept runs", "server address",
]  # fmt: skip


def test_every_reader_has_a_target() -> None:
    """N-fuzz: the list of the tests is the list of `make fuzz`."""
    with place() as where:
        assert [target.name for target in targets(where)] == NAMES


@pytest.mark.slow
@pytest.mark.wrong_errors  # It records what errors carry, and what is made up fits no schema.
@pytest.mark.parametrize("name", NAMES)
def test_no_input_makes_a_reader_fail_or_write_or_run_on(name: str) -> None:
    """N-fuzz: no traceback, no write outside the root, none let through by an error, bounded steps."""
    most = MOST_INPUTS.get(name) or MOST_INPUTS.get(name.split()[0]) or 400
    with place() as where:
        (target,) = [target for target in targets(where) if target.name == name]
        failure, tried, _ = engine.fuzz(target, SEED, most_inputs=most)
    assert failure is None, f"{failure.why}\ninput: {failure.data!r}"
    assert tried >= most


def test_the_fuzzer_finds_a_reader_that_fails_and_one_that_runs_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """N-fuzz: a fuzzer that cannot find anything proves nothing."""

    def fails(data: bytes) -> None:
        if b"\0" in data:
            raise KeyError("found")

    def runs_on_in_one_line(data: bytes) -> None:
        if b"{" in data:
            re.fullmatch("(?:a+)+b", "a" * 60)

    def runs_on(data: bytes) -> None:
        apply_patch.apply(
            "x\n" * (200_000 if b"{" in data else 1), [apply_patch.PatchHunk(None, ("y",), (), False)]
        )

    monkeypatch.setattr(engine, "MOST_COMPUTING_S", 0.5)
    for read in (fails, runs_on, runs_on_in_one_line):
        failure, _, _ = engine.fuzz(engine.Target("made up", read, [b"seed"]), SEED, most_inputs=3000)
        assert failure is not None


def test_a_patch_that_takes_an_empty_line_from_the_end_of_a_file_without_one_does_not_apply() -> None:
    """N-fuzz: found by it; this was an IndexError."""
    hunk = apply_patch.PatchHunk(None, ("",), (), True)
    assert apply_patch.apply("", [hunk._replace(below=None)]) is None
    assert apply_patch.apply("a\n", [apply_patch.PatchHunk("a", ("",), (), False)]) is None


def test_a_hook_whose_host_names_a_relative_folder_answers() -> None:
    """N-fuzz: found by it; the search for a folder that exists never ended, and a host lets pass what times out."""
    event = (
        b'{"session_id":"s","cwd":"%s","hook_event_name":"PreToolUse","tool_name":"Write","tool_input":%s}'
    )
    inside, outside = b'{"file_path":"a.txt","content":"x"}', b'{"file_path":"../../outside/n","content":"x"}'
    with place() as where:
        (target,) = [target for target in targets(where) if target.name == "hook claude-code"]
        # The first event settles which project the session belongs to.
        events = [
            event % (where.root.encode(), inside),
            event % (b"gone/x", inside),
            event % (b"gone/x", outside),
        ]
        failure, tried, _ = engine.fuzz(target._replace(seeds=events), SEED)
    assert failure is None, failure.why
    assert tried == 3


@pytest.mark.parametrize("more", ['"recovered_from":null', '"recovered_from":{"a":null}'])
def test_a_lock_that_names_no_former_holder_is_read(more: str) -> None:
    """N-fuzz, finding S15: found by it; `"recovered_from": null` was an AttributeError for whoever came by."""
    with place() as where:
        (target,) = [target for target in targets(where) if target.name == "lock file"]
        data = (target.seeds[1].decode()[:-1] + "," + more + "}").encode()
        lock = '{"deliverable_id":"d","holder":"h","pid":1,"acquired":"2026-01-01T00:00:00Z","lease_duration_s":60,'
        for each in (data, f"{lock}{more}}}".encode()):
            target.read(each)
