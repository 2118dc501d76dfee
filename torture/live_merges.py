"""
Agents on shared files, with and without merging: what is lost, and how many writes are refused.

Every agent has lines of its own in every file and raises the numbers in them, by whole-file writes and by
edits in turn; a person appends lines with a program that has never heard of us. At the end every number
must be the last one that was acknowledged, and every appended line must be there once. A refused write is
tried again.

Now and then every agent also counts up one number that they share (ruling 29). Two that write the same number
are two, so at the end it must be as high as they counted. Its refusals are in the nature of it, and are not
counted.

    python -m torture.live_merges        AGENTS=8 WRITES=200
"""

from __future__ import annotations

import multiprocessing
import os
import random
import re
import sys
import tempfile
import time
from typing import Any, NamedTuple

from noclobber import Edit, StaleFileError, Workspace

FILES = 3
SLOTS = 4  # Lines of each agent in each file.
COUNTS = 4  # Of so many writes, one is followed by counting in the line that all share.


class Tally(NamedTuple):
    """What came of one run."""

    writes: int
    refused: int
    lost: int
    appended_lost: int
    miscounted: int


def run(root: str, *, agents: int, writes: int, on_stale: str) -> Tally:
    """Let them work, then count."""
    for number in range(FILES):
        with open(f"{root}/shared-{number}.md", "wb") as file:
            file.write(_text(agents))
    with open(f"{root}/counter.md", "wb") as file:
        file.write(b"# The counter of all\ncounted 0\nThe end of it\n")
    context = multiprocessing.get_context("spawn")
    refused, stop = context.Value("i", 0), context.Event()
    acknowledged = context.Array("i", agents * FILES * SLOTS)
    workers = [
        context.Process(target=_agent, args=(root, number, agents, writes, on_stale, refused, acknowledged))
        for number in range(agents)
    ]
    person = context.Process(target=_person, args=(root, stop))
    for process in (*workers, person):
        process.start()
    for process in workers:
        process.join()
    stop.set()
    person.join()
    if any(process.exitcode for process in (*workers, person)):
        raise RuntimeError("a process failed; see above")
    counts = [acknowledged[at] for at in range(agents * FILES * SLOTS)]
    with open(f"{root}/counter.md", "rb") as file:
        counted = int(file.read().split()[6])
    due = agents * len(range(0, writes, COUNTS))
    return Tally(agents * writes, refused.value, *_lost(root, agents, counts), abs(due - counted))


def _text(agents: int) -> bytes:
    lines = []
    for slot in range(SLOTS):
        for agent in range(agents):
            lines.append(f"## Section {slot} of agent {agent}\n")
            lines.append(f"agent {agent} slot {slot} number 0\n")
            lines.append(f"End of section {slot} of agent {agent}.\n")
    return "".join(lines).encode()


def _agent(
    root: str, me: int, agents: int, writes: int, on_stale: Any, refused: Any, acknowledged: Any
) -> None:
    dice = random.Random(me)
    ws = Workspace(root, on_stale=on_stale, versions="off")
    for count in range(writes):
        file, slot = dice.randrange(FILES), dice.randrange(SLOTS)
        place = (file * agents + me) * SLOTS + slot
        while not _raise_number(ws, f"shared-{file}.md", me, slot, by_edit=count % 2 == 0):
            with refused.get_lock():
                refused.value += 1
        acknowledged[place] += 1
        while count % COUNTS == 0 and not _raised(ws, "counter.md", me, rb"counted (\d+)\n", by_edit=False):
            pass


def _raise_number(ws: Workspace, name: str, me: int, slot: int, *, by_edit: bool) -> bool:
    return _raised(ws, name, me, rb"agent %d slot %d number (\d+)\n" % (me, slot), by_edit=by_edit)


def _raised(ws: Workspace, name: str, me: int, pattern: bytes, *, by_edit: bool) -> bool:
    with ws.turn(agent_id=f"agent-{me}") as turn:
        content = turn.read_file(name).content
        line = re.search(pattern, content)
        assert line is not None, f"{pattern!r} is gone"
        new = line[0].replace(b" %s\n" % line[1], b" %d\n" % (int(line[1]) + 1))
        time.sleep(random.uniform(0, 0.003))  # An agent thinks. So others get between its read and its write.
        try:
            if by_edit:
                turn.edit_file(name, [Edit(line[0], new)])
            else:
                turn.write_file(name, content.replace(line[0], new))
        except StaleFileError:
            return False
    return True


def _person(root: str, stop: Any) -> None:
    counts = [0] * FILES
    while not stop.is_set():
        file = random.randrange(FILES)
        with open(f"{root}/shared-{file}.md", "ab", buffering=0) as opened:
            opened.write(b"person line %d of file %d\n" % (counts[file], file))
        counts[file] += 1
        stop.wait(0.01)
    with open(f"{root}/person", "w", encoding="utf-8") as told:
        told.write(" ".join(map(str, counts)))


def _lost(root: str, agents: int, acknowledged: list[int]) -> tuple[int, int]:
    lost = appended_lost = 0
    with open(f"{root}/person", encoding="utf-8") as told:
        counts = [int(each) for each in told.read().split()]
    for file in range(FILES):
        with open(f"{root}/shared-{file}.md", "rb") as opened:
            content = opened.read()
        for me in range(agents):
            for slot in range(SLOTS):
                found = re.findall(rb"agent %d slot %d number (\d+)\n" % (me, slot), content)
                lost += found != [b"%d" % acknowledged[(file * agents + me) * SLOTS + slot]]
        for number in range(counts[file]):
            appended_lost += content.count(b"person line %d of file %d\n" % (number, file)) != 1
    return lost, appended_lost


def main() -> int:
    """Run it with and without merging, and compare."""
    agents, writes = int(os.environ.get("AGENTS", "8")), int(os.environ.get("WRITES", "200"))
    tallies = {}
    for on_stale in ("refuse", "merge"):
        with tempfile.TemporaryDirectory(prefix="noclobber-live-") as root:
            tallies[on_stale] = run(root, agents=agents, writes=writes, on_stale=on_stale)
        tally = tallies[on_stale]
        print(
            f'on_stale = "{on_stale}": {tally.writes} writes, {tally.refused} refused, '
            f"{tally.lost} numbers lost, {tally.appended_lost} appended lines lost, "
            f"{tally.miscounted} miscounted",
            flush=True,
        )
    share = tallies["merge"].refused / max(1, tallies["refuse"].refused)
    print(f"refusals with merging: {share:.1%} of those without (bar: 5 %)")
    lost = sum(tally.lost + tally.appended_lost + tally.miscounted for tally in tallies.values())
    return 1 if lost or share > 0.05 else 0


if __name__ == "__main__":
    sys.exit(main())
