"""
What every adapter must keep, and what frameworks' own tools lose: one function for each scenario.

A scenario gets a driver and its folder, plays what happens (an agent's steps, and somebody else's saves in
between), and returns a verdict: whether everybody's work is there, in a few words for the table. For the
guarded tools the words of the refusal count as well: the exact 009 object, and one conflict in the ledger.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from noclobber import DeliverableLock, parse_stale
from noclobber.core.wire import parse_refusal
from noclobber.disk import steps
from tests.frameworks.driver import Call, FrameworkDriver, Received, Script, edit, read, write
from tests.frameworks.once_more import TooLateError
from tests.rigs.ledgers import recorded


class Verdict(NamedTuple):
    """How a scenario ended."""

    kept: bool
    """True if nobody's work was lost, and the model was told what it had to be told."""
    words: str
    """For the table: what was lost, or why nothing was."""
    is_late: bool = False
    """True if a program was too slow: nobody's work was lost, and the scenario did not come to its point."""

    def demand(self, whose: str = "") -> None:
        """Fail unless it was kept; `TooLateError` if that could not be seen."""
        if self.is_late:
            assert LOST not in self.words
            raise TooLateError(f"{whose}{self.words}")
        assert self.kept, f"{whose}{self.words}"


KEPT, LOST = "kept", "LOST"


def refused_as_stale(driver: FrameworkDriver, received: Received) -> bool:
    """True if the model received the exact 009 object."""
    found = parse_stale(driver.refusal(received.text))
    return found is not None and '"recovery_hint"' in received.text


def refused_as(driver: FrameworkDriver, received: Received, code: str) -> bool:
    """True if the model received the refusal with this code."""
    found = parse_refusal(driver.refusal(received.text))
    return found is not None and found[0] == code


def conflicts(root: Path) -> int:
    """How many conflicts are on record."""
    return sum(
        event["action_type"] == "MUTATION_CONFLICT"
        for event in recorded(root / ".noclobber" / "agent_trace.jsonl")
    )


def _save(path: Path, data: bytes) -> None:
    """Somebody else saves a file, as an editor does."""
    path.write_bytes(data)


def _stale_verdict(
    driver: FrameworkDriver, survived: bool, answer: Received, *, once: bool = True
) -> Verdict:
    if not survived:
        return Verdict(False, f"{LOST}: what somebody had saved")
    if not driver.guarded:
        return Verdict(True, KEPT)
    if driver.refuses_itself(answer.text):
        return Verdict(True, "refused by the framework itself")
    if not refused_as_stale(driver, answer):
        return Verdict(False, f"not told: {answer.text[:200]!r}")
    if once and conflicts(driver.root) != 1:
        return Verdict(False, f"{conflicts(driver.root)} conflicts on record instead of one")
    return Verdict(True, "refused: STALE_FILE")


# -- one agent ---------------------------------------------------------------------------------------------


def read_modify_write(driver: FrameworkDriver, root: Path) -> Verdict:
    """Nobody else is there: the write lands."""
    plan = root / "plan.md"
    plan.write_bytes(b"- one\n")
    received = driver.run(
        Script(
            lambda _: [read("plan.md")],
            lambda seen: [write("plan.md", driver.shown(seen[0].text) + "- two\n")],
        )
    )
    landed = plan.read_bytes() == b"- one\n- two\n"
    return Verdict(landed, "lands" if landed else f"{plan.read_bytes()!r} after {received[-1].text[:200]!r}")


def saved_in_between(driver: FrameworkDriver, root: Path) -> Verdict:
    """Somebody saves between the agent's read and its write."""
    plan = root / "plan.md"
    plan.write_bytes(b"- one\n")

    def then(seen: list[Received]) -> list[Call]:
        _save(plan, b"- one\n- theirs\n")
        return [write("plan.md", driver.shown(seen[0].text) + "- mine\n")]

    received = driver.run(Script(lambda _: [read("plan.md")], then))
    return _stale_verdict(driver, b"- theirs\n" in plan.read_bytes(), received[-1])


def refused_then_merged(driver: FrameworkDriver, root: Path) -> Verdict:
    """After the refusal the agent reads again and writes again: both changes are in the file."""
    plan = root / "plan.md"
    plan.write_bytes(b"- one\n")

    def stale(seen: list[Received]) -> list[Call]:
        _save(plan, b"- one\n- theirs\n")
        return [write("plan.md", driver.shown(seen[0].text) + "- mine\n")]

    driver.run(
        Script(
            lambda _: [read("plan.md")],
            stale,
            lambda _: [read("plan.md")],
            lambda seen: [write("plan.md", driver.shown(seen[-1].text) + "- mine\n")],
        )
    )
    found = plan.read_bytes()
    if b"- theirs\n" not in found:
        return Verdict(False, f"{LOST}: what somebody had saved")
    return Verdict(
        found == b"- one\n- theirs\n- mine\n", "both" if b"mine" in found else f"{LOST}: the agent's"
    )


def deleted_meanwhile(driver: FrameworkDriver, root: Path) -> Verdict:
    """Somebody deletes the file after the agent read it: the agent must not bring it back unknowingly."""
    plan = root / "plan.md"
    plan.write_bytes(b"- one\n")

    def then(seen: list[Received]) -> list[Call]:
        plan.unlink()
        return [write("plan.md", driver.shown(seen[0].text) + "- mine\n")]

    received = driver.run(Script(lambda _: [read("plan.md")], then))
    if plan.exists():
        return Verdict(False, f"{LOST}: the deletion")
    return _stale_verdict(driver, True, received[-1])


def created_meanwhile(driver: FrameworkDriver, root: Path) -> Verdict:
    """The agent looked and found no file; somebody creates it; the agent writes."""
    plan = root / "plan.md"

    def then(seen: list[Received]) -> list[Call]:
        _save(plan, b"- theirs\n")
        return [write("plan.md", "- mine\n")]

    received = driver.run(Script(lambda _: [read("plan.md")], then))
    return _stale_verdict(driver, plan.read_bytes() == b"- theirs\n", received[-1])


def stale_edit(driver: FrameworkDriver, root: Path) -> Verdict:
    """Somebody changes another line; an edit of a stale file is refused."""
    plan = root / "plan.md"
    plan.write_bytes(b"port = 80\nhost = old\n")

    def then(seen: list[Received]) -> list[Call]:
        _save(plan, b"port = 443\nhost = old\n")
        return [edit("plan.md", "host = old", "host = new on port 80")]

    received = driver.run(Script(lambda _: [read("plan.md")], then))
    if plan.read_bytes() == b"port = 443\nhost = new on port 80\n" and not driver.guarded:
        return Verdict(False, "lands unseen beside a change that it contradicts")
    return _stale_verdict(driver, b"port = 443" in plan.read_bytes(), received[-1])


# -- several agents ----------------------------------------------------------------------------------------


def two_agents(driver: FrameworkDriver, root: Path) -> Verdict:
    """Two subagents, or what the framework has instead, read one file and then both write it."""
    plan = root / "plan.md"
    plan.write_bytes(b"- one\n")
    both_have_read = threading.Barrier(2, timeout=60)

    def writes(line: str) -> Callable[[list[Received]], list[Call]]:
        def step(seen: list[Received]) -> list[Call]:
            both_have_read.wait()
            return [write("plan.md", driver.shown(seen[-1].text) + line)]

        return step

    lines = ("- a\n", "- b\n")
    scripts = [Script(lambda _: [read("plan.md")], writes(line), name=line[2]) for line in lines]
    received = driver.run_together(scripts)
    found = plan.read_bytes()
    if driver.guarded:
        answers = {
            line: each[1] for line, each in zip(lines, received, strict=True) if len(each) > 1
        }  # Each one's write; the read came first.
        return one_of_two(driver, found, answers, met=not both_have_read.broken)
    is_lost = not (b"- a\n" in found and b"- b\n" in found)
    return Verdict(not is_lost, f"{LOST}: one agent's line" if is_lost else KEPT)


def one_of_two(driver: FrameworkDriver, found: bytes, answers: dict[str, Received], *, met: bool) -> Verdict:
    """Judge what two agents left that both read before either wrote (if they `met`), and what each was told."""
    done = [line for line, answer in answers.items() if not _is_refusal(driver, answer)]
    if b"- one\n" not in found or any(line.encode() not in found for line in done):
        return Verdict(False, f"{LOST}: {found!r} is left, and {done} were told to be written")
    said = f"{found!r}, {[answer.text[:120] for answer in answers.values()]}"
    if not met:
        return Verdict(False, f"one agent waited for the other's read in vain: {said}", is_late=True)
    stale = [
        refused_as_stale(driver, answer)
        or driver.refuses_itself(answer.text)
        or driver.refuses_in_a_race(answer.text)
        for answer in answers.values()
    ]
    is_one_there = found in (b"- one\n- a\n", b"- one\n- b\n")
    if sorted(stale) == [False, True] and is_one_there:
        return Verdict(True, "one lands, one refused: STALE_FILE")
    busy = [refused_as(driver, answer, "FILE_BUSY") for answer in answers.values()]
    # The one that was let through took seconds to write, and the other one's patience was over.
    return Verdict(False, said, is_late=sorted(busy) == [False, True] and is_one_there)


def fifty_parallel_calls(driver: FrameworkDriver, root: Path) -> Verdict:
    """One step of an asynchronous agent with 50 edits of one file: every edit that succeeded is in the file."""
    lines = [f"line {number:02} -" for number in range(50)]
    plan = root / "plan.md"
    plan.write_text("\n".join(lines) + "\n")
    edits = [edit("plan.md", line, line.replace("-", "done")) for line in lines]
    received = driver.run_async(Script(lambda _: [read("plan.md")], lambda _: edits))
    found = plan.read_text()
    told_done = [each for each in received[1:] if not _is_refusal(driver, each)]
    missing = [each for each in told_done if each.call.new not in found]
    if len(found.splitlines()) != 50:
        return Verdict(False, f"{LOST}: {50 - len(found.splitlines())} lines")
    if missing:
        return Verdict(False, f"{LOST}: {len(missing)} of {len(told_done)} edits that were reported as made")
    if len(told_done) == 50:
        return Verdict(True, "50 of 50 land")
    why = _first_refusal(driver, received)
    is_ours = parse_stale(driver.refusal(why)) is not None or parse_refusal(driver.refusal(why)) is not None
    said = "our guard" if is_ours else "the framework itself"
    refusals = [each for each in received[1:] if _is_refusal(driver, each)]
    is_late = all(refused_as(driver, each, "FILE_BUSY") for each in refusals)  # Patience was over.
    return Verdict(not is_ours, f"{len(told_done)} of 50 land, {said} refuses the others", is_late)


def _is_refusal(driver: FrameworkDriver, received: Received) -> bool:
    if received.is_error or driver.refuses_itself(received.text):
        return True
    text = driver.refusal(received.text)
    return parse_stale(text) is not None or parse_refusal(text) is not None or text.startswith("Error")


def _first_refusal(driver: FrameworkDriver, received: list[Received]) -> str:
    return next(each.text for each in received if _is_refusal(driver, each))


def cancelled(driver: FrameworkDriver, root: Path) -> Verdict:
    """The run is cancelled in the middle of a write: the file is old or new, and the ledger says which."""
    plan = root / "plan.md"
    plan.write_bytes(b"- one\n")
    reached = threading.Event()

    async def play() -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(
            driver.arun(Script(lambda _: [read("plan.md")], lambda _: [write("plan.md", "- new\n" * 1000)]))
        )

        def observe(step: str) -> None:
            if step == "verified" and not reached.is_set():
                reached.set()
                asked = threading.Event()
                loop.call_soon_threadsafe(task.cancel)
                loop.call_soon_threadsafe(asked.set)
                asked.wait(10)

        steps.observer = observe
        try:
            await task
        except asyncio.CancelledError:
            pass
        finally:
            steps.observer = None

    asyncio.run(play())
    found = plan.read_bytes()
    if not reached.is_set():
        return Verdict(False, "the write never came to its middle", is_late=found == b"- one\n")
    landed = [
        event
        for event in recorded(root / ".noclobber" / "agent_trace.jsonl")
        if event["action_type"] == "MUTATION"
    ]
    if found == b"- new\n" * 1000:
        return Verdict(len(landed) == 1, "landed whole, on record" if landed else "landed, not on record")
    is_old = found == b"- one\n" and not landed
    return Verdict(
        is_old, "not written" if is_old else f"{LOST}: {len(found)} bytes, {len(landed)} on record"
    )


def resumed(driver: FrameworkDriver, root: Path) -> Verdict:
    """A run is resumed in a new process after the file changed: the model remembers the old version."""
    plan = root / "plan.md"
    plan.write_bytes(b"- one\n")
    driver.run(Script(lambda _: [read("plan.md")]), thread="thread-1")
    _save(plan, b"- one\n- theirs\n")
    driver.restart()
    received = driver.run(
        Script(lambda _: [write("plan.md", "- one\n- mine\n")], name="r"), thread="thread-1"
    )
    if plan.read_bytes() != b"- one\n- theirs\n":
        return Verdict(False, f"{LOST}: what somebody had saved")
    if not driver.guarded:
        return Verdict(True, KEPT)
    if driver.refuses_itself(received[-1].text):
        return Verdict(True, "refused by the framework itself")
    told = refused_as_stale(driver, received[-1]) or refused_as(driver, received[-1], "UNREAD_FILE")
    return Verdict(told, "refused: read first" if told else f"not told: {received[-1].text[:200]!r}")


# -- kinds of files ----------------------------------------------------------------------------------------


def _edited(
    driver: FrameworkDriver, root: Path, before: bytes, after: bytes, look: Call | None = None
) -> Verdict:
    file = root / "file.txt"
    file.write_bytes(before)
    received = driver.run(
        Script(lambda _: [look or read("file.txt")], lambda _: [edit("file.txt", "host = old", "host = new")])
    )
    found = file.read_bytes()
    if found == after:
        return Verdict(True, KEPT)
    if found == before:
        return Verdict(False, f"not edited: {received[-1].text[:200]!r}")
    return Verdict(False, f"{LOST}: bytes that the edit did not name")


def crlf(driver: FrameworkDriver, root: Path) -> Verdict:
    """An edit keeps Windows line endings."""
    return _edited(driver, root, b"a = 1\r\nhost = old\r\nb = 2\r\n", b"a = 1\r\nhost = new\r\nb = 2\r\n")


def byte_order_mark(driver: FrameworkDriver, root: Path) -> Verdict:
    """An edit keeps a byte-order mark."""
    return _edited(driver, root, b"\xef\xbb\xbfa = 1\nhost = old\n", b"\xef\xbb\xbfa = 1\nhost = new\n")


def not_utf8(driver: FrameworkDriver, root: Path) -> Verdict:
    """An edit keeps bytes that are not UTF-8."""
    return _edited(driver, root, b"name = M\xfcller\nhost = old\n", b"name = M\xfcller\nhost = new\n")


def empty_file(driver: FrameworkDriver, root: Path) -> Verdict:
    """An empty file is a version like any other: somebody fills it, and the agent's write is refused."""
    plan = root / "plan.md"
    plan.write_bytes(b"")

    def then(seen: list[Received]) -> list[Call]:
        _save(plan, b"- theirs\n")
        return [write("plan.md", "- mine\n")]

    received = driver.run(Script(lambda _: [read("plan.md")], then))
    return _stale_verdict(driver, plan.read_bytes() == b"- theirs\n", received[-1])


def large_file(driver: FrameworkDriver, root: Path) -> Verdict:
    """An edit of a file of 2 MiB."""
    filling = b"".join(b"%07d of many lines that say nothing\n" % number for number in range(50_000))
    return _edited(
        driver, root, b"host = old\n" + filling, b"host = new\n" + filling, driver.read_part("file.txt")
    )


# -- where an agent may write ------------------------------------------------------------------------------


def outside(driver: FrameworkDriver, root: Path) -> Verdict:
    """A path that leads out of the workspace."""
    beside = root.parent / "beside.txt"
    beside.write_bytes(b"not yours\n")
    received = driver.run(Script(lambda _: [write("../beside.txt", "mine\n")]))
    if beside.read_bytes() != b"not yours\n":
        return Verdict(False, f"{LOST}: a file outside of the workspace")
    told = _is_refusal(driver, received[-1])
    return Verdict(
        told or not driver.guarded, "refused" if told else f"not told: {received[-1].text[:200]!r}"
    )


def locked_deliverable(driver: FrameworkDriver, root: Path) -> Verdict:
    """Somebody else holds the deliverable's lock."""
    folder = root / "deliverable"
    folder.mkdir()
    (folder / "report.md").write_bytes(b"- one\n")
    with DeliverableLock(folder, holder="somebody-else"):
        received = driver.run(
            Script(
                lambda _: [read("deliverable/report.md")],
                lambda seen: [write("deliverable/report.md", driver.shown(seen[0].text) + "- mine\n")],
            )
        )
    if (folder / "report.md").read_bytes() != b"- one\n":
        return Verdict(False, f"{LOST}: a locked file was written")
    if not driver.guarded:
        return Verdict(True, KEPT)
    told = refused_as(driver, received[-1], "LOCK_CONTENTION")
    return Verdict(told, "refused: LOCK_CONTENTION" if told else f"not told: {received[-1].text[:200]!r}")


SCENARIOS: dict[str, Callable[[FrameworkDriver, Path], Verdict]] = {
    scenario.__name__: scenario
    for scenario in (
        read_modify_write,
        saved_in_between,
        refused_then_merged,
        deleted_meanwhile,
        created_meanwhile,
        stale_edit,
        two_agents,
        fifty_parallel_calls,
        cancelled,
        resumed,
        crlf,
        byte_order_mark,
        not_utf8,
        empty_file,
        large_file,
        outside,
        locked_deliverable,
    )
}

ONLY_GUARDED = {"cancelled": "the moment inside a commit is noclobber's own"}
"""Scenarios that cannot be played with a framework's own tools."""


def as_json(name: str, mode: str, verdict: Verdict) -> str:
    """One line for the table's file."""
    return json.dumps({"scenario": name, "mode": mode, "kept": verdict.kept, "words": verdict.words})
