"""
The plugin that opencode loads, for this machine. Its program is `opencode_plugin.js`, beside this file.
"""

from __future__ import annotations

import json
import os
import sys

MARK = "// Written by `noclobber install opencode`; `noclobber install opencode --uninstall` removes it."
_COMMAND = 'const COMMAND = ["noclobber", "hook"]'
_BROKEN = 'const BROKEN = ""'


def source(*, portable: bool = False) -> str:
    """Return the plugin's text for this machine, or for any that has `noclobber` on its path."""
    from noclobber.hosts.command_line import fallback
    from noclobber.hosts.hook_entries import START

    words = ["noclobber", "hook"] if portable else [os.path.realpath(sys.executable), "-I", "-S", START]
    with open(f"{os.path.dirname(os.path.abspath(__file__))}/opencode_plugin.js", encoding="utf-8") as file:
        program = file.read()
    assert program.count(_COMMAND) == program.count(_BROKEN) == 1
    program = program.replace(_COMMAND, f"const COMMAND = {json.dumps(words)}")
    told = json.loads(fallback("opencode", "check"))["reason"]
    return f"{MARK}\n{program.replace(_BROKEN, f'const BROKEN = {json.dumps(told)}')}"
