"""Every reader of untrusted input, fuzzed for some seconds with a fixed seed; `make fuzz` goes on for minutes."""

from __future__ import annotations

import pytest
from fuzz.targets import place, targets

from fuzz import engine
from noclobber.hosts import HOSTS
from noclobber.text import apply_patch

SEED = 20_261_116
MOST_INPUTS = {"host": 400, "hook": 60, "ledger": 150, "session memory": 100, "shell": 200}
NAMES = [f"{kind} {host}" for kind in ("host", "hook") for host in HOSTS] + [
    "note", "lock", "ledger", "options", "patch", "shell", "search blocks", "claim", "turns", "session memory",
    "json", "json edit",
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


def test_the_fuzzer_finds_a_reader_that_fails_and_one_that_runs_on() -> None:
    """N-fuzz: a fuzzer that cannot find anything proves nothing."""

    def fails(data: bytes) -> None:
        if b"\0" in data:
            raise KeyError("found")

    def runs_on(data: bytes) -> None:
        apply_patch.apply(
            "x\n" * (200_000 if b"{" in data else 1), [apply_patch.PatchHunk(None, ("y",), (), False)]
        )

    for read in (fails, runs_on):
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
