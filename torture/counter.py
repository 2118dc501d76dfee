"""
64 agents, one counter, 100 increments each, through the controller: the end must be exactly 6 400.

The smallest program that loses updates everywhere else: read a number, add one, write it. Each agent is a
process with a turn and an `AgentController`; nobody waits in line, and whoever is refused reads again. The
ledger must agree with the file: one MUTATION for each increment, and its chain must verify.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from noclobber.guard.controller import Attempt
    from noclobber.guard.turn import Turn

AGENTS = 64
INCREMENTS = 100
LIMIT_S = 300.0
NAME = "counter.txt"
PATIENT = 1_000_000  # Attempts. The limit is time; an agent that gives up would prove nothing.


def run(args: argparse.Namespace, *, agents: int = AGENTS, increments: int = INCREMENTS) -> bool:
    """Run it and print one line; True if the counter and the ledger are exactly right."""
    from noclobber.guard.workspace import Workspace

    with tempfile.TemporaryDirectory(prefix="noclobber-counter-", dir=args.folder) as root:
        with open(os.path.join(root, NAME), "w") as file:
            file.write("0")
        begun_s = time.monotonic()
        complaints = _agents(root, args.seed, agents, increments)
        took_s = time.monotonic() - begun_s
        with open(os.path.join(root, NAME)) as file:
            counted = file.read()
        with Workspace(root) as workspace:
            events = [event["action_type"] for event in workspace.ledger.events()]
            verified = workspace.ledger.verify()
    landed, refused = events.count("MUTATION"), events.count("MUTATION_CONFLICT")
    wanted = agents * increments
    if counted != str(wanted):
        complaints.append(f"the counter says {counted}")
    if landed != wanted:
        complaints.append(f"the ledger has {landed} writes")
    print(
        f"\ncounter: {agents} agents × {increments} = {counted} (wanted {wanted}) in {took_s:.0f} s;"
        f" {refused} refused and retried; ledger of {verified.event_count} events verifies"
    )
    for complaint in complaints:
        print(f"MISSED: counter: {complaint}")
    return not complaints


def _agents(root: str, seed: int, agents: int, increments: int) -> list[str]:
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    deadline_s = time.monotonic() + LIMIT_S
    command = [sys.executable, "-m", "torture.counter", root, str(increments), str(deadline_s)]
    processes = [
        subprocess.Popen([*command, str(seed * 1000 + number)], cwd=home, stderr=subprocess.PIPE)
        for number in range(agents)
    ]
    complaints = []
    try:
        for number, process in enumerate(processes):
            try:
                _, said = process.communicate(timeout=max(1.0, deadline_s + 10 - time.monotonic()))
            except subprocess.TimeoutExpired:
                complaints.append(f"agent {number} was still at it after {LIMIT_S:.0f} s")
                continue
            if process.returncode:
                last = said.decode(errors="replace").strip().splitlines()[-1:]
                complaints.append(f"agent {number} ended with {process.returncode}: {last}")
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.communicate()
    return complaints


def count(root: str, increments: int, deadline_s: float, seed: int) -> None:
    """One agent: add one, so many times."""
    from noclobber.guard.controller import AgentController
    from noclobber.guard.workspace import Workspace

    chance = random.Random(seed)
    with Workspace(root) as workspace:
        for _ in range(increments):
            if time.monotonic() > deadline_s:
                sys.exit("out of time")
            with workspace.turn(agent_id=f"counter-{seed}") as turn:

                def step(attempt: Attempt, turn: Turn = turn) -> object:
                    seen = attempt.fresh or turn.read_file(NAME)
                    return turn.write_file(NAME, str(int(seen.text) + 1))

                AgentController(turn, max_attempts=PATIENT, max_busy=PATIENT, rng=chance).run(step)


if __name__ == "__main__":
    count(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
