"""`python -m noclobber` is the command line."""

import sys

from noclobber.cli import EXIT_INTERRUPTED, main

code = main()
if code == EXIT_INTERRUPTED:
    # Python remembers an interrupt that went through exec() of a text, as in the import of a dataclass,
    # even if it was caught, and would end this process with the signal. Another exec() makes it forget.
    exec("")  # noqa: S102
sys.exit(code)
