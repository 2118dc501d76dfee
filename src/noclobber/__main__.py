"""
`python -m noclobber` is the command line; so is this file by its path, which is how we start ourselves.

Nothing is imported from the folder that a command is called in (finding S22).
"""

import os
import sys

if not __package__:
    sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
elif not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:
    del sys.path[0]  # `-m` has put the present folder first: its `json.py` would be everybody's.

from noclobber.cli import EXIT_INTERRUPTED, main

code = main()
if code == EXIT_INTERRUPTED:
    # Python remembers an interrupt that went through exec() of a text, as in the import of a dataclass,
    # even if it was caught, and would end this process with the signal. Another exec() makes it forget.
    exec("")  # noqa: S102
sys.exit(code)
