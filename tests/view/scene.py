"""A project in which something of everything has happened: for the browser tests and the screenshots."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from noclobber import DeliverableLock, StaleFileError, Workspace
from noclobber.shell import runs

PLAN = "# Plan\n\n- call Ada\n- write the tests\n- ship it\n"


@contextmanager
def busy_project(root: Path) -> Iterator[Workspace]:
    """Two agents and an outsider on shared files, a lock, a kept version, a refused command."""
    (root / "src").mkdir(parents=True)
    (root / "docs").mkdir()
    (root / "docs" / "plan.md").write_text(PLAN)
    (root / "src" / "app.py").write_text("def main():\n    return 1\n")
    with ExitStack() as stack:
        workspace = stack.enter_context(Workspace(root))
        builder = stack.enter_context(
            workspace.turn(agent_id="builder-1", session_id="4f2a91c3-77aa", host="claude-code")
        )
        reviewer = stack.enter_context(
            workspace.turn(agent_id="reviewer", session_id="9b1c77d0-12ff", host="codex")
        )
        merging = stack.enter_context(
            workspace.turn(agent_id="writer", session_id="c0ffee11-9a", host="opencode", on_stale="merge")
        )
        builder.read_file("docs/plan.md")
        merging.read_file("docs/plan.md")
        reviewer.read_file("docs/plan.md")
        builder.write_file("docs/plan.md", PLAN.replace("- call Ada", "- call Ada first"))
        merging.write_file("docs/plan.md", PLAN + "- tell everybody\n")
        refuse(reviewer, "docs/plan.md", PLAN.replace("ship it", "wait"))
        builder.read_file("src/app.py")
        builder.write_file("src/app.py", "def main():\n    return 2\n")
        reviewer.read_file("src/app.py")
        reviewer.write_file("src/app.py", "def main():\n    return 3\n")
        (root / "src" / "app.py").write_text("def main():\n    return 'by hand'\n")
        refuse(builder, "src/app.py", "def main():\n    return 4\n")
        kept_version(root, "plan.md", b"# Plan\n\n- a line that was saved late\n")
        refused_run(root)
        (root / "release").mkdir()
        stack.enter_context(DeliverableLock(root / "release", holder="builder-1", lease_duration_s=1800))
        yield workspace


def refuse(turn: object, path: str, content: str) -> None:
    """Write what must be refused as stale."""
    try:
        turn.write_file(path, content)  # type: ignore[attr-defined]
    except StaleFileError:
        return
    raise AssertionError("this write was expected to be refused")


def kept_version(root: Path, name: str, content: bytes) -> None:
    """Put a version aside, as a commit does with one that was written to after it had been replaced."""
    folder = root / ".noclobber" / "kept"
    folder.mkdir(exist_ok=True)
    replaced = next(iter(_first_before(root, name)))
    (folder / f"kept-00ab-{replaced}~{name}").write_bytes(content)


def _first_before(root: Path, name: str) -> Iterator[str]:
    from noclobber.ledger.history import landed_writes

    for write in landed_writes(str(root)):
        if write.path.endswith(name):
            yield write.before


def refused_run(root: Path) -> None:
    """Keep a command that was refused, with what it would have done."""
    folder = runs.made(str(root))
    (Path(folder.upper) / "docs").mkdir()
    (Path(folder.upper) / "docs" / "plan.md").write_text("# Plan\n\n* call Ada first\n")
    argv = ["sed", "-i", "s/^-/*/", "docs/plan.md"]
    folder.note("job", {"argv": argv, "cwd": str(root), "agent_id": "builder-1"})
    folder.note("refused", {"code": "STALE_FILE", "error": {}, "others": []})
    folder.close()
