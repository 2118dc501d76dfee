"""
The command line on what came with a folder, and what its options name.

Every command that shows or uses the ledger gets one that somebody made up. It may say anything, and end with
any documented code: no traceback, nothing on the terminal that is not text, nothing written outside.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import zlib
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from fuzz.engine import Target
from noclobber import StaleFileError, Workspace
from noclobber.cli import main
from noclobber.cli import run as run_command
from noclobber.core.project import LEDGER_NAME
from noclobber.errors import NoclobberError
from noclobber.ledger import line
from noclobber.postgres import address
from noclobber.shell import runs

if TYPE_CHECKING:
    from fuzz.targets import Place

RUN_ID = "6afb5918-3120-5665d1"
CODES = (0, 1, 2, 3, 75)


def _the_same_every_time(ledger: bytes) -> bytes:
    """Return a ledger with times and ids of its own: what a seed finds today it must find tomorrow."""
    after, lines = line.START, []
    for number, text in enumerate(ledger.splitlines()):
        event = json.loads(text.decode())
        for member in ("seq", "time", "prev_hash", "hash"):
            del event[member]
        event["workspace_id"] = "0" * 32
        event["identity"] |= {"turn_id": "0" * 16, "call_id": f"{'0' * 16}/{number}"}
        sealed, after = line.seal(line.encode("", event), after, f"2027-01-15T08:00:0{number}.000000Z")
        lines.append(sealed)
    return b"".join(lines)


class Commands:
    """A project with a ledger, and the commands that read it."""

    def __init__(self, where: Place) -> None:
        self.where = where
        self.root = f"{os.path.dirname(where.root)}/commanded"

    def seed(self) -> bytes:
        """Return a real ledger, with everything that a turn leaves there."""
        self._project()
        with Workspace(self.root) as workspace, workspace.turn(agent_id="x", session_id="s") as turn:
            turn.read_file("a.txt")
            turn.write_file("a.txt", b"two\n")
            turn.write_file("new.txt", b"new\n")
            turn.read_file("sub/b.txt")
            turn.move_file("sub/b.txt", "c.txt")
            turn.delete_file("new.txt")
            Path(self.root, "a.txt").write_text("theirs\n")
            with suppress(StaleFileError):
                turn.write_file("a.txt", b"three\n")
        return _the_same_every_time(Path(self.root, ".noclobber", LEDGER_NAME).read_bytes())

    def _project(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        os.makedirs(f"{self.root}/sub")
        for each in ("a.txt", "sub/b.txt"):
            Path(self.root, each).write_text("hello\n")
        os.mkdir(f"{self.root}/.noclobber", 0o700)

    def ledger(self, data: bytes) -> None:
        """Call one of the commands; which one depends on the input."""
        self._project()
        Path(self.root, ".noclobber", LEDGER_NAME).write_bytes(data)
        here, file = ("--root", self.root), f"{self.root}/a.txt"
        commands: tuple[tuple[str, ...], ...] = (
            ("status", *here),
            ("status", *here, "--json"),
            ("ledger", "show", *here),
            ("ledger", "show", *here, "--json"),
            ("ledger", "verify", *here, "--files"),
            *(("ledger", "export", *here, "--format", how) for how in ("csv", "agent-trace", "otlp")),
            ("blame", file),
            ("diff", file),
            ("undo", *here, "--agent", "x", "--dry-run"),
            ("undo", *here, "--agent", "x"),
            ("versions", "list", *here),
            ("commit", "--mine", *here, "--agent", "x", "-m", "m"),
            ("doctor", self.root),
        )
        self.call(commands[zlib.crc32(data) % len(commands)])
        self.where.check()

    def call(self, words: tuple[str, ...]) -> None:
        """Call it, and look at what it said."""
        said, complained = io.StringIO(), io.StringIO()
        with redirect_stdout(said), redirect_stderr(complained):
            code = main(words)
        assert code in CODES, f"{words}: exit code {code}"
        assert "internal error" not in complained.getvalue(), f"{words}: {complained.getvalue()}"
        shown = complained.getvalue() + ("" if {"--json", "export"} & {*words} else said.getvalue())
        unclean = [each for each in shown if not each.isprintable() and each not in "\n\t"]
        assert not unclean, f"{words}: {unclean[:5]} on the terminal"

    def expectations(self, data: bytes) -> None:
        """What `noclobber run --expect-file` names."""
        path = f"{self.where.root}/expected"
        Path(path).write_bytes(data)
        with suppress(ValueError):
            run_command._expectations(path)

    def kept_run(self, data: bytes) -> None:
        """What a refused command left, or somebody packed: what it was, and why it was refused."""
        self._project()
        above = f"{self.root}/.noclobber/run"
        for each in (above, f"{above}/{RUN_ID}", f"{above}/{RUN_ID}/upper"):
            os.mkdir(each, 0o700)
        job, _, refused = data.partition(b"\x1e")
        Path(above, RUN_ID, "job.json").write_bytes(job)
        Path(above, RUN_ID, "refused.json").write_bytes(refused)
        for words in (("list",), ("show", RUN_ID), ("list", "--json"), ("show", RUN_ID, "--json")):
            self.call(("run", "--root", self.root, *words))
        runs.tidy(self.root)
        self.where.check()


def _address(data: bytes) -> None:
    """On this machine, or where the server proves who it is; and no secret in an error."""
    text = data.decode("utf-8", "surrogateescape").replace("\0", "")
    options, said = {}, ""
    try:
        options = address.connection_options(text)
    except NoclobberError as error:
        said = str(error)
    assert "hunter2" not in said, said
    if not options:
        return
    assert address.is_this_machine(options) or options["sslmode"] == "verify-full"


def command_targets(where: Place) -> list[Target]:
    """What the command line reads."""
    commands = Commands(where)
    kept = b'{"argv":["sh","-c","x"],"cwd":"/p","agent_id":"a"}\x1e{"code":"STALE_FILE","error":{}}'
    addresses = [
        b"postgresql://me@db.example:5432/noclobber?sslmode=verify-full",
        b"postgresql://me:hunter2@db.example/noclobber",
        b"host=/run/postgresql dbname=noclobber user=me connect_timeout=3",
        b"service=prod sslmode=verify-full hostaddr=127.0.0.1 sslpassword=hunter2",
    ]
    return [
        Target("commands", commands.ledger, [commands.seed()]),
        Target("expectations", commands.expectations, [b'{"a.txt": "%s"}' % (b"0" * 64)]),
        Target("kept runs", commands.kept_run, [kept]),
        Target("server address", _address, addresses),
    ]
