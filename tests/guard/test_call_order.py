"""Calls of one turn that change one file wait for each other."""

from __future__ import annotations

import threading
from pathlib import Path

from noclobber import Edit, Workspace


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
