"""
Print the next version of a shared file: what a command of `torture.shell` reads, changes and writes.

    next_version.py FILE AGENT SERIAL LOG

Exit code 9 and nothing printed if the file is not there or not whole: somebody else is in the middle of a
save. The log gets the line `A` (torture/agents.py); it is outside of the project, so it stays whatever
becomes of the command.
"""

from __future__ import annotations

import os
import sys
from zlib import crc32

HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(HOME, "src"), HOME]

from torture import versions  # noqa: E402

NOT_WHOLE = 9


def main() -> int:
    """Print it."""
    path, agent, serial, log = sys.argv[1:]
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError:
        return NOT_WHOLE
    base = versions.parse(content)
    if not base.is_whole:
        return NOT_WHOLE
    new = versions.render(
        f"{agent}:{serial}",
        base.id,
        base.tags,
        slot=base.slot,
        counters={**base.counters, agent: int(serial)},
        padding_bytes=int(serial) * 37 % 900,
    )
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, f"A {serial} {base.id} 1 {crc32(content):08x}{len(content)}\n".encode())
    os.close(descriptor)
    sys.stdout.buffer.write(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
