"""`noclobber ledger show` and `tail`: what the filters let through, and what follows."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from noclobber.ledger import AgentTraceLedger
from tests.rigs.commands import environment, noclobber_command, run
from tests.rigs.ledgers import event, filled_ledger


@pytest.fixture(params=["from the root", "absolute"])
def ledger(root: Path, request: pytest.FixtureRequest) -> Iterator[AgentTraceLedger]:
    """With paths as they are written now (ruling 27), and as earlier versions wrote them."""
    with filled_ledger(root, "" if request.param == "from the root" else f"{root}/") as ledger:
        yield ledger


def shown(root: Path, *words: str) -> list[int]:
    done = run("ledger", "show", "--jsonl", *words, cwd=root)
    assert (done.code, done.err) == (0, "")
    return [json.loads(line)["seq"] for line in done.out.splitlines()]


def test_filters_by_file_agent_kind_and_time(ledger: AgentTraceLedger, root: Path) -> None:
    """R-ledger: any of one kind, all of different kinds."""
    assert shown(root) == [1, 2, 3, 4, 5]
    assert shown(root, "--file", "docs/plan.md") == [1, 2]
    assert shown(root, "--file", "plan.md") == [1, 2]  # The end of a path.
    assert shown(root, "--file", "docs") == [1, 2, 4]  # A folder; and where a file was moved to counts.
    assert shown(root, "--file", "*.py") == [3, 4]
    assert shown(root, "--file", "lan.md") == []
    assert shown(root, "--file", f"{root}/docs/plan.md") == [1, 2]
    assert shown(root, "--file", f"{root}/src/*") == [3, 4]
    assert shown(root, "--file", "./docs/plan.md", "--file", "src") == [1, 2, 3, 4]
    assert shown(root, "--agent", "ben") == [2]
    assert shown(root, "--agent", "b*") == [2]
    assert shown(root, "--kind", "mutation") == [1, 4]
    assert shown(root, "--kind", "*CONFLICT", "--kind", "lock_*") == [2, 5]
    assert shown(root, "--agent", "ana", "--file", "src") == [3, 4]
    assert shown(root, "--since", "2027-01-15T08:02:00Z") == [3, 4, 5]
    assert shown(root, "--since", "2027-01-15T09:02:00+01:00") == [3, 4, 5]
    assert shown(root, "--until", "2027-01-15 08:02") == [1, 2]
    assert shown(root, "--since", "2027-01-15", "--until", "2027-01-15T08:01") == [1]


def test_an_age_counts_from_now(root: Path) -> None:
    """R-ledger: `--since 2h`."""
    (root / ".noclobber").mkdir()
    with AgentTraceLedger(root / ".noclobber" / "agent_trace.jsonl") as ledger:
        ledger.append(event("MUTATION", "/x", "ana"))
    assert shown(root, "--since", "10m") == shown(root, "--since", "1w") == [1]
    assert shown(root, "--until", "10m") == shown(root, "--since", "0s") == []


def test_show_is_a_table_for_people(ledger: AgentTraceLedger, root: Path) -> None:
    """R-ledger: who, what and when on a line; the number of events below."""
    lines = run("ledger", "show", cwd=root).out.splitlines()
    path = list(ledger.events())[1]["payload"]["target_file"]  # As it is on record.
    assert lines[0].split() == ["SEQ", "TIME", "KIND", "OUTCOME", "AGENT", "ABOUT"]
    assert lines[2].split() == [
        "2", "2027-01-15T08:01:00Z", "MUTATION_CONFLICT", "STALE_FILE", "ben", "s", path,
    ]  # fmt: skip
    assert lines[-1] == "5 events"


def test_tail_takes_the_last_of_those_that_pass(ledger: AgentTraceLedger, root: Path) -> None:
    """R-ledger: filters first, then the number."""
    done = run("ledger", "tail", "-n", "1", "--agent", "ana", "--jsonl", cwd=root)
    assert [json.loads(line)["seq"] for line in done.out.splitlines()] == [4]


def test_follow_shows_what_is_appended_also_after_the_file_was_begun_anew(
    ledger: AgentTraceLedger, root: Path
) -> None:
    """R-ledger: as it happens."""
    with subprocess.Popen(
        noclobber_command("ledger", "tail", "-n", "1", "-f", "--kind", "mutation", "--jsonl"),
        cwd=root, stdout=subprocess.PIPE, text=True, env=environment(),
    ) as tail:  # fmt: skip
        assert json.loads(tail.stdout.readline())["seq"] == 4
        ledger.append(event("MUTATION_CONFLICT", "/not/this", "ana"))
        ledger.append(event("MUTATION", "/this", "ana"))
        assert json.loads(tail.stdout.readline())["payload"]["target_file"] == "/this"
        (root / ".noclobber" / "agent_trace.jsonl").rename(root / "old.jsonl")
        ledger.append(event("MUTATION", "/that", "ana"))
        assert json.loads(tail.stdout.readline())["payload"]["target_file"] == "/that"
        tail.send_signal(signal.SIGINT)
        assert tail.wait(60) == 0
