"""What a command prints, within bounds."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noclobber.shell.output import PIECE_BYTES, BoundedOutput, communicate
from tests.rigs.commands import python
from tests.shell.test_process import is_available

PIPE = subprocess.PIPE


def talk(*argv: str, stdin: bytes = b"", timeout_s: float | None = None) -> tuple[bytes, bytes, int]:
    """Run a command to its end, or until its time is over."""
    with subprocess.Popen(argv, stdin=PIPE, stdout=PIPE, stderr=PIPE) as process:
        out, err = communicate(process, stdin, timeout_s=timeout_s, when_late=process.kill)
        return out, err, process.returncode


@given(pieces=st.lists(st.binary(max_size=300)), max_bytes=st.integers(2, 200))
def test_the_first_and_the_last_bytes_are_kept_and_the_rest_is_counted(
    pieces: list[bytes], max_bytes: int
) -> None:
    """Finding S31: in whatever pieces they come."""
    output = BoundedOutput(max_bytes)
    for piece in pieces:
        output.add(piece)
    everything, half = b"".join(pieces), max_bytes // 2
    if len(everything) <= half * 2:
        assert output.whole() == everything
    else:
        missing = f"\n[… {len(everything) - half * 2} bytes are left out …]\n".encode()
        assert output.whole() == everything[:half] + missing + everything[-half:]


def test_what_is_held_does_not_grow_with_what_is_printed() -> None:
    """Finding S31."""
    output = BoundedOutput(1000)
    for _ in range(100):
        output.add(b"x" * PIECE_BYTES)
        assert len(output._head) + len(output._tail) <= 1000 + 2 * PIECE_BYTES


def test_input_and_both_outputs_flow_at_once() -> None:
    """N-shell: more than a pipe holds, in each direction."""
    data = bytes(range(256)) * 8192
    assert talk("sh", "-c", "tee /dev/stderr", stdin=data) == (data, data, 0)


def test_a_command_that_does_not_read_its_input_ends() -> None:
    """N-shell, bad input."""
    assert talk("sh", "-c", "exec <&-; echo done", stdin=b"x" * (1 << 20)) == (b"done\n", b"", 0)


@pytest.mark.parametrize("command", ["echo out; exec sleep 600", "echo out; exec sleep 600 >&- 2>&- <&-"])
def test_a_command_whose_time_is_over_is_ended(command: str) -> None:
    """N-shell: also one that has closed its output; what it had printed is kept."""
    began_s = time.monotonic()
    assert talk("sh", "-c", command, timeout_s=0.5) == (b"out\n", b"", -9)
    assert time.monotonic() - began_s < 300


@pytest.mark.skipif(not is_available(), reason="no namespaces here")
def test_a_command_that_prints_without_end_does_not_fill_the_memory(root: Path) -> None:
    """Finding S31: 700 MB of output took 2.2 GB."""
    done = python(
        """if True:
        import resource, sys
        from noclobber import Workspace
        with Workspace(sys.argv[1]).turn() as turn:
            turn.run("true")
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            done = turn.run("head -c 300000000 /dev/zero; echo end")
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            print(grown < 96 * 1024, done.stdout.endswith(b"end\\n"), b"bytes are left out" in done.stdout)
        """,
        str(root),
    )
    assert done.out == "True True True\n", done.err
