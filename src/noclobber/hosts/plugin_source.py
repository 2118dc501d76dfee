"""
The plugins that opencode and Cline load, for this machine. Their programs are beside this file, one a host.
"""

from __future__ import annotations

import json
import os
import sys

MARK = "// Written by `noclobber install "
_COMMAND = 'const COMMAND = ["noclobber", "hook"]'
_BROKEN = 'const BROKEN = ""'
_SHELL = "const SHELL = null"


def source(host: str = "opencode", *, portable: bool = False) -> str:
    """Return a plugin's text for this machine, or for any that has `noclobber` on its path."""
    from noclobber.hosts.command_line import ASK, START, fallback

    python = os.path.realpath(sys.executable)
    words = ["noclobber", "hook"] if portable else ["/bin/sh", ASK, python, "-I", "-S", START]
    folder = os.path.dirname(os.path.abspath(__file__))
    with open(f"{folder}/{host}_plugin.js", encoding="utf-8") as file:
        program = file.read()
    assert program.count(_COMMAND) == program.count(_BROKEN) == 1
    program = program.replace(_COMMAND, f"const COMMAND = {json.dumps(words)}")
    # A plugin for any machine knows no paths, so there its commands are watched.
    if not portable:
        home = os.path.dirname(folder)
        files = {"PYTHON": python, "START": f"{home}/cli/shell_prefix.py", "FOLDER": f"{folder}/shell_env"}
        program = program.replace(_SHELL, f"const SHELL = {json.dumps(files)}")
    told = json.loads(fallback(host, "check"))["reason"]
    title = f"{MARK}{host}`; `noclobber install {host} --uninstall` removes it."
    return f"{title}\n{program.replace(_BROKEN, f'const BROKEN = {json.dumps(told)}')}"


def routes_shell(text: str) -> bool:
    """True if an installed plugin brings its host's shell to us."""
    return MARK in text and _SHELL not in text
