"""Calls of one turn that change one file wait for each other."""

from __future__ import annotations

import threading
from pathlib import Path

from noclobber import Edit, Workspace
from noclobber.disk import steps
from tests.rigs.ledgers import recorded


def test_parallel_edits_of_one_turn_all_land(root: Path) -> None:
    """N-frameworks: the agent's own write is nothing that it has not seen."""
    lines = [f"line {number:02} -" for number in range(16)]
    (root / "plan.md").write_text("\n".join(lines) + "\n")
    failed: list[BaseException] = []
    with Workspace(root) as workspace, workspace.turn() as turn:
        turn.read_file("plan.md")
        start = threading.Barrier(len(lines))

        def one(line: str) -> None:
            start.wait()
            try:
                turn.edit_file("plan.md", [Edit(line, line.replace("-", "done"))])
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=one, args=(line,)) for line in lines]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failed == []
    assert (root / "plan.md").read_text().count("done") == 16


def test_a_turn_that_ends_during_a_write_waits_for_it(root: Path) -> None:
    """N-frameworks: a cancelled run ends its turn in the middle of a commit; what lands is on record."""
    (root / "plan.md").write_bytes(b"old\n")
    ending: list[threading.Thread] = []
    with Workspace(root) as workspace:
        turn = workspace.turn()

        def observe(step: str) -> None:
            if step == "verified" and not ending:
                begun = threading.Event()

                def end() -> None:
                    begun.set()
                    turn.end()

                ending.append(threading.Thread(target=end))
                ending[0].start()
                begun.wait()
                ending[0].join(0.2)  # It may end before the write only if it does not wait.

        steps.observer = observe
        try:
            turn.write_file("plan.md", b"new\n")
        finally:
            steps.observer = None
        ending[0].join()
        assert not turn.context.is_open
    assert [event["action_type"] for event in recorded(root / ".noclobber" / "agent_trace.jsonl")] == [
        "MUTATION"
    ]
