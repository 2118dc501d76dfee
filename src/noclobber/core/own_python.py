"""
How we start a Python of our own: isolated (`-I`), so that neither the folder it is started in nor the
environment can put a module of theirs in the place of ours (finding S22).
"""

from __future__ import annotations

import os
import sys

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def own_command(*words: str) -> list[str]:
    """Return the command line of `noclobber WORDS`, by this very package: three words, and those."""
    return [sys.executable, "-I", f"{_PACKAGE}/__main__.py", *words]


def own_code(code: str, *words: str) -> list[str]:
    """Return the command line of a few lines of ours, which can import this very package."""
    at_the_end = f"import sys; sys.path.append({os.path.dirname(_PACKAGE)!r})"
    return [sys.executable, "-I", "-c", f"{at_the_end}\n{code}", *words]
