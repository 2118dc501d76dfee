"""The table of scenarios: what happens to one agent in one project. Every host is run through all of them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from noclobber import Workspace
from tests.e2e.calls import Edit, Read, Shell, Write
from tests.e2e.driver import HostDriver
from tests.e2e.project import Project
from tests.e2e.story import FAILED, LANDED, REFUSED, Stage, Story

FIRST = "hello\nworld\n"
THEIRS = "hello\nworld\na person's line\n"


def save_keeping_its_date(file: Path, content: str) -> None:
    """Save as `rsync -t`, `git` on a coarse clock or a careless tool does: with the old date."""
    dates = file.stat()
    file.write_text(content)
    os.utime(file, ns=(dates.st_atime_ns, dates.st_mtime_ns))


def stale_edit(stage: Stage) -> Story:
    """009-FR-004, 009-FR-006: their line survives, and the model gets the object."""
    file = stage.file(FIRST)
    yield Read(file)
    file.write_text(THEIRS)
    told = yield Edit(file, "hello", "HELLO")
    stage.assert_refused(told, file, FIRST, THEIRS)
    assert file.read_text() == THEIRS
    stage.assert_record(file, REFUSED)


def stale_write(stage: Stage) -> Story:
    """009-FR-005: nor does a whole-file write land; the host goes by dates, if at all, and we go by content."""
    file = stage.file(FIRST)
    yield Read(file)
    save_keeping_its_date(file, THEIRS)
    told = yield Write(file, "mine\n")
    stage.assert_refused(told, file, FIRST, THEIRS)
    assert file.read_text() == THEIRS
    stage.assert_record(file, REFUSED)


def recover(stage: Stage) -> Story:
    """009-FR-007, 011-SC-004: one event for the conflict; after a new read the same edit lands, and a write."""
    file = stage.file(FIRST)
    yield Read(file)
    file.write_text(THEIRS)
    told = yield Edit(file, "hello", "HELLO")
    stage.assert_refused(told, file, FIRST, THEIRS)
    assert "a person's line" in (yield Read(file))
    stage.assert_landed((yield Edit(file, "hello", "HELLO")))
    assert file.read_text() == THEIRS.replace("hello", "HELLO")
    stage.assert_landed((yield Write(file, "mine\n")))
    assert file.read_text() == "mine\n"
    stage.assert_record(file, REFUSED, LANDED, LANDED)


def plain_work(stage: Stage) -> Story:
    """009-SC-002, ruling 10: read, edit, edit, write, shell, and nothing is refused or warned about."""
    file = stage.file(FIRST)
    shown = yield Read(file)
    assert "hello" in shown
    stage.assert_landed((yield Edit(file, "hello", "HELLO")))
    stage.assert_landed((yield Edit(file, "world", "WORLD")))
    yield Shell(
        f"cat {file}"
    )  # What it shows is not asserted: a busy Qwen Code loses a short command's output.
    stage.assert_landed((yield Write(file, "all mine\n")))
    stage.assert_landed((yield Edit(file, "all mine", "ALL MINE")))
    assert file.read_text() == "ALL MINE\n"
    stage.assert_record(file, LANDED, LANDED, LANDED, LANDED)


def new_file(stage: Stage) -> Story:
    """009-SC-002: a file that the agent made needs no read before it is edited."""
    file = stage.path()
    stage.assert_landed((yield Write(file, "n1\nn2\n")))
    stage.assert_landed((yield Edit(file, "n1", "N1")))
    assert file.read_text() == "N1\nn2\n"
    stage.assert_record(file, LANDED, LANDED)


def deleted_and_created_again(stage: Stage) -> Story:
    """finding H5: who saw it, and finds it gone, is refused once; who then looked and found nothing may create it."""
    file = stage.file(FIRST)
    yield Read(file)
    file.unlink()
    told = yield Write(file, "mine\n")
    stage.assert_refused(told, file, FIRST, "DELETED")
    assert not file.exists()
    yield Read(file)
    stage.assert_landed((yield Write(file, "mine\n")))
    assert file.read_text() == "mine\n"
    stage.assert_record(file, REFUSED, LANDED)


def own_deletion(stage: Stage) -> Story:
    """finding H5: what the agent itself removed by a command it can create again, after a look at most."""
    file = stage.file(FIRST)
    yield Read(file)
    yield Shell(f"rm {file}")
    yield Read(file)
    stage.assert_landed((yield Write(file, "mine\n")))
    stage.assert_landed((yield Edit(file, "mine", "MINE")))
    assert file.read_text() == "MINE\n"
    stage.assert_record(file, LANDED, LANDED, LANDED)


def partial_reread(stage: Stage) -> Story:
    """ruling 2, finding H7: a part does not end a conflict, and the model is told so; parts that make the whole do."""
    lines = [f"line {number}" for number in range(1, 21)]
    file = stage.file("\n".join(lines) + "\n")
    first = file.read_text()
    yield Read(file)
    theirs = first.replace("line 15", "a person's line 15")
    file.write_text(theirs)
    stage.assert_refused((yield Edit(file, "line 3", "LINE 3")), file, first, theirs)
    yield Read(file, 1, 5)
    refusal = stage.assert_refused((yield Edit(file, "line 3", "LINE 3")), file, first, theirs)
    assert "20 lines" in refusal.beside, refusal
    yield Read(file, 6, 15)
    stage.assert_landed((yield Edit(file, "line 3", "LINE 3")))
    assert file.read_text() == theirs.replace("line 3", "LINE 3")
    stage.assert_record(file, REFUSED, REFUSED, LANDED)


def parallel_edits(stage: Stage) -> Story:
    """finding H9: the edits of one message are one agent's; both land, and neither is a conflict."""
    file, other = stage.file(FIRST), stage.file(FIRST, ".other.txt")
    yield [Read(file), Read(other)]
    told = yield [
        Edit(file, "hello", "HELLO"),
        Edit(file, "world", "WORLD"),
        Edit(other, "hello", "HELLO"),
    ]
    for one in told:
        stage.assert_landed(one)
    assert (file.read_text(), other.read_text()) == ("HELLO\nWORLD\n", "HELLO\nworld\n")
    stage.assert_record(file, LANDED, LANDED)
    stage.assert_record(other, LANDED)


def crlf(stage: Stage) -> Story:
    """finding H10: line ends of the other kind are no alarm, edit after edit, and a stale edit is still refused."""
    file = stage.file(b"hello\r\nworld\r\nlast\r\n")
    yield Read(file)
    stage.assert_landed((yield Edit(file, "hello", "HELLO")))
    stage.assert_landed((yield Edit(file, "world", "WORLD")))
    ours = file.read_bytes()
    assert ours.replace(b"\r\n", b"\n") == b"HELLO\nWORLD\nlast\n"
    theirs = ours + b"a person's line\r\n"
    file.write_bytes(theirs)
    stage.assert_refused((yield Edit(file, "last", "LAST")), file, ours, theirs)
    assert file.read_bytes() == theirs
    stage.assert_record(file, LANDED, LANDED, REFUSED)


def not_utf8(stage: Stage) -> Story:
    """finding H13: whatever the host makes of such bytes is its own doing, and not somebody else's."""
    file = stage.file("caf\u00e9\nworld\nlast\n".encode("latin-1"))
    yield Read(file)
    if "not_utf8" in stage.driver.limits:
        before = file.read_bytes()
        assert not stage.driver.is_success((yield Edit(file, "world", "WORLD")))
        assert file.read_bytes() == before
        stage.assert_record(file)
        return
    stage.assert_landed((yield Edit(file, "world", "WORLD")))
    stage.assert_landed((yield Edit(file, "last", "LAST")))
    ours = file.read_bytes()
    assert ours.endswith(b"\nWORLD\nLAST\n")
    theirs = ours + b"a person's line\n"
    file.write_bytes(theirs)
    stage.assert_refused((yield Edit(file, "LAST", "last")), file, ours, theirs)
    assert file.read_bytes() == theirs
    stage.assert_record(file, LANDED, LANDED, REFUSED)


def large(stage: Stage) -> Story:
    """finding H7: more lines than a host shows at once; an edit needs no more than a look, a conflict all the parts."""
    first = "".join(f"line {number:04}\n" for number in range(1, 3001))
    file = stage.file(first)
    yield Read(file, 1, 1000)
    stage.assert_landed((yield Edit(file, "line 0007", "LINE 7")))
    ours = file.read_text()
    theirs = ours.replace("line 2990", "a person's line")
    file.write_text(theirs)
    stage.assert_refused((yield Edit(file, "line 0008", "LINE 8")), file, ours, theirs)
    for at in range(1, 3001, 1000):
        yield Read(file, at, 1000)
    stage.assert_landed((yield Edit(file, "line 0008", "LINE 8")))
    assert file.read_text() == theirs.replace("line 0008", "LINE 8")
    stage.assert_record(file, LANDED, REFUSED, LANDED)


def huge(stage: Stage) -> Story:
    """009-SC-002: megabytes are hashed, not shown; a look at ten lines is enough for an edit of one."""
    first = "".join(f"line {number:06}\n" for number in range(1, 200_001))
    file = stage.file(first)
    yield Read(file, 1, 10)
    stage.assert_landed((yield Edit(file, "line 000007", "LINE 7")))
    ours = first.replace("line 000007", "LINE 7")
    assert file.read_text() == ours
    theirs = ours.replace("line 199999", "a person's line")
    file.write_text(theirs)
    stage.assert_refused((yield Edit(file, "line 000008", "LINE 8")), file, ours, theirs)
    assert file.read_text() == theirs
    stage.assert_record(file, LANDED, REFUSED)


def younger_than_a_second(stage: Stage) -> Story:
    """finding H13: a file that was made a moment ago may be read in part and edited; its date proves nothing."""
    file = stage.file("hello\nworld\nlast\n")
    yield Read(file, 1, 2)
    stage.assert_landed((yield Edit(file, "hello", "HELLO")))
    other = stage.file("one\ntwo\n", ".other.txt")
    yield Read(other)
    save_keeping_its_date(other, "ONE\ntwo\n")
    stage.assert_refused((yield Edit(other, "two", "TWO")), other, "one\ntwo\n", "ONE\ntwo\n")
    assert (file.read_text(), other.read_text()) == ("HELLO\nworld\nlast\n", "ONE\ntwo\n")
    stage.assert_record(file, LANDED)
    stage.assert_record(other, REFUSED)


def failed_edit(stage: Stage) -> Story:
    """finding H8: an edit that the host could not carry out is no write, and keeps no other writer out."""
    file = stage.file(FIRST)
    yield Read(file)
    told = yield Edit(file, "nobody wrote this", "x")
    assert not stage.driver.is_success(told), told
    stage.assert_record(file)
    with Workspace(stage.project.root, wait_s=0.5) as workspace, workspace.turn(agent_id="other") as turn:
        turn.read_file(file)
        turn.write_file(file, THEIRS)
    stage.assert_refused((yield Edit(file, "hello", "HELLO")), file, FIRST, THEIRS)
    yield Read(file)
    stage.assert_landed((yield Edit(file, "hello", "HELLO")))
    assert file.read_text() == THEIRS.replace("hello", "HELLO")
    stage.assert_record(file, LANDED, REFUSED, LANDED)


def subagents(stage: Stage) -> Story:
    """R-turn, finding H12: what a subagent writes, the main agent has not seen."""
    file = stage.file(FIRST)
    yield Read(file)
    yield from stage.delegate([Read(file), Edit(file, "hello", "HELLO")])
    assert file.read_text() == "HELLO\nworld\n"
    stage.assert_refused((yield Edit(file, "world", "WORLD")), file, FIRST, "HELLO\nworld\n")
    yield Read(file)
    stage.assert_landed((yield Edit(file, "world", "WORLD")))
    assert file.read_text() == "HELLO\nWORLD\n"
    stage.assert_record(file, LANDED, REFUSED, LANDED)
    agents = [event["identity"]["agent_id"] for event in stage.events(file)]
    assert agents[0] != agents[1] == agents[2], agents


FORMATTER = """
import glob, re, sys
for name in sys.argv[1:] or glob.glob("*.fmt.py"):
    with open(name) as file:
        text = file.read()
    spaced = re.sub("(?m)^([a-z0-9]+) *= *", r"\\1 = ", text)
    if spaced != text:
        with open(name, "w") as file:
            file.write(spaced)
"""
"""What the user's formatter does, run in the project: it puts spaces round each `=` in files called `*.fmt.py`."""


def add_formatter(driver: HostDriver, project: Project) -> None:
    """Have the host run the user's formatter after each write, beside our hooks."""
    script = project.home / "formatter.py"
    script.write_text(FORMATTER)
    driver.add_hook(project, f"{shlex.quote(sys.executable)} -I -S {shlex.quote(str(script))}")


def formatted(text: str) -> str:
    """Return what the formatter makes of a text."""
    return re.sub("(?m)^([a-z0-9]+) *= *", r"\1 = ", text)


def _six_edits(stage: Stage, file: Path, then: Callable[[], object]) -> Story:
    yield Read(file)
    for number in range(1, 7):
        told = yield Edit(file, f"v{number} = 0", f"v{number}=1")
        if "formatter" in stage.driver.limits and not stage.driver.is_success(told):
            assert "error_type" not in told, told  # The host's own refusal, and none of ours.
            yield Read(file)
            told = yield Edit(file, f"v{number} = 0", f"v{number}=1")
        stage.assert_landed(told)
        assert "STALE_FILE" not in told, told
        then()
    assert file.read_text() == "".join(f"v{number} = 1\n" for number in range(1, 7))
    assert stage.project.record(file).count(LANDED) == 6
    assert set(stage.project.record(file)) <= {LANDED, FAILED}


def formatter_by_hook(stage: Stage) -> Story:
    """finding H6: a formatter that the user's own hook runs after each edit; seven calls, and no alarm."""
    file = stage.file("".join(f"v{number} = 0\n" for number in range(1, 7)), ".fmt.py")
    yield from _six_edits(stage, file, lambda: None)


def formatter_by_editor(stage: Stage) -> Story:
    """finding H6: the same by an editor that formats what has changed on disk, a moment after the host is done."""
    file = stage.file("".join(f"v{number} = 0\n" for number in range(1, 7)), ".ed.py")
    yield from _six_edits(stage, file, lambda: file.write_text(formatted(file.read_text())))


def formatter_and_stranger(stage: Stage) -> Story:
    """finding H6: a formatter is no cover for a stranger; what a person saves between two edits is not written over."""
    file = stage.file("v1 = 0\nv2 = 0\n", ".fmt.py")
    yield Read(file)
    yield Edit(file, "v1 = 0", "v1=1")
    assert formatted(file.read_text()) == "v1 = 1\nv2 = 0\n"
    theirs = "v1 = 1\nv2 = 0\nperson = 1\n"
    file.write_text(theirs)
    assert not stage.driver.is_success((yield Write(file, "v1 = 2\nv2 = 2\n")))
    assert file.read_text() == theirs
    yield Read(file)
    yield Edit(file, "v2 = 0", "v2=2")
    assert file.read_text() == "v1 = 1\nv2 = 2\nperson = 1\n"


def _stale_command(stage: Stage, command: str, file: Path, first: str = FIRST, theirs: str = THEIRS) -> Story:
    """A command that would write over what a person has saved since the agent read it: refused at every level."""
    yield Read(file)
    file.write_text(theirs)
    stage.assert_command_refused((yield Shell(command)), file, first, theirs)
    assert file.read_text() == theirs
    stage.assert_record(file, REFUSED)


def stale_sed(stage: Stage) -> Story:
    """N-shell: `sed -i` on a stale file."""
    file = stage.file(FIRST)
    yield from _stale_command(stage, f"sed -i s/hello/HELLO/ {file}", file)


def stale_heredoc(stage: Stage) -> Story:
    """N-shell: a heredoc over a stale file; after a look it lands, and is the agent's own version."""
    file = stage.file(FIRST)
    command = f"cat > {file} <<'EOF'\nmine\nEOF"
    yield from _stale_command(stage, command, file)
    yield Read(file)
    yield Shell(command)
    assert file.read_text() == "mine\n"
    yield from _edit_after_own_command(stage, file, "mine", "MINE")
    stage.assert_record(file, REFUSED, LANDED, LANDED)


def _edit_after_own_command(stage: Stage, file: Path, old: str, new: str) -> Story:
    """An edit of what the agent's own command has changed: none of our refusals. A host may have one of its own."""
    told = yield Edit(file, old, new)
    if not stage.driver.is_success(told) and "error_type" not in told:
        yield Read(file)
        told = yield Edit(file, old, new)
    stage.assert_landed(told)


def stale_git_checkout(stage: Stage) -> Story:
    """N-shell: `git checkout` that would take away what a person has saved."""
    folder = stage.path("")
    folder.mkdir()
    file = folder / "plan.txt"
    file.write_text("committed\n")
    name = ["-c", "user.name=x", "-c", "user.email=x@y"]
    for words in (["init", "-q"], ["add", "-A"], [*name, "commit", "-qm", "x"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    file.write_text(FIRST)
    yield from _stale_command(stage, f"cd {folder} && git checkout -- plan.txt", file)


def stale_script(stage: Stage) -> Story:
    """N-shell: nobody can tell what a script writes. Guarded: nothing lands. Watched: told, and kept."""
    file = stage.file(FIRST)
    script = stage.file(
        f"open({str(file)!r}, 'w').write('mine')\nopen({str(file)!r} + '2', 'w').write('x')\n", ".py"
    )
    yield Read(file)
    theirs = f"{stage.name}: a person's\n"
    file.write_text(theirs)
    told = yield Shell(f"python3 {script}")
    if stage.is_guarded():
        stage.assert_command_refused(told, file, FIRST, theirs)
        assert file.read_text() == theirs
        assert not Path(f"{file}2").exists()
        stage.assert_record(file, REFUSED)
        return
    # Codex and Cline give their models what a hook adds in a message of its own, beside the result.
    assert any("MUTATION_RACE" in said and file.name in said for said in stage.heard()), told
    assert file.read_text() == "mine"
    assert theirs.encode() in stage.project.kept()
    stage.assert_record(file, ("MUTATION_RACE", "RACED"))


def own_formatter(stage: Stage) -> Story:
    """
    finding H6: the agent formats what it has edited, by a command of its own.

    Guarded: the file is the agent's own, and the next edit lands. Watched: nobody can tell whether somebody saved it
    while the command ran, so it must be read (009-FR-004, finding H19), and the agent is told why.
    """
    file = stage.file("v1 = 0\nv2 = 0\n", ".own")
    script = stage.project.home / "formatter.py"
    yield Read(file)
    stage.assert_landed((yield Edit(file, "v1 = 0", "v1=1")))
    yield Shell(f"python3 -I -S {script} {file}")
    assert file.read_text() == "v1 = 1\nv2 = 0\n"
    if not stage.is_guarded():
        told = yield Edit(file, "v2 = 0", "v2=2")
        refusal = stage.assert_refused(told, file, "v1=1\nv2 = 0\n", "v1 = 1\nv2 = 0\n")
        assert "your own command" in refusal.beside, refusal
        yield Read(file)
    yield from _edit_after_own_command(stage, file, "v2 = 0", "v2=2")
    assert [kind for kind in stage.project.record(file) if kind not in (FAILED, REFUSED)] == [LANDED] * 3


SCENARIOS: dict[str, Callable[[Stage], Story]] = {
    scenario.__name__: scenario
    for scenario in (
        *(stale_edit, stale_write, recover, plain_work, new_file),
        *(deleted_and_created_again, own_deletion, partial_reread, parallel_edits),
        *(crlf, not_utf8, large, huge, younger_than_a_second, failed_edit, subagents),
        *(formatter_by_hook, formatter_by_editor, formatter_and_stranger),
        *(stale_sed, stale_heredoc, stale_git_checkout, stale_script, own_formatter),
    )
}
