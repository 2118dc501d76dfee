"""
What the calls of a workspace, a turn and a guard would load when they first need it.

`noclobber.lock.loaded_early` says why.
"""

from __future__ import annotations

import ctypes  # noqa: F401 - exchange-rename, leases of the C library, and more
import difflib  # noqa: F401
import fnmatch  # noqa: F401
import hashlib  # noqa: F401
import importlib.resources  # noqa: F401
import json  # noqa: F401
import re  # noqa: F401
import tomllib  # noqa: F401

from noclobber.core import options_file  # noqa: F401
from noclobber.disk.commit import moving, open_stores  # noqa: F401
from noclobber.guard import commands, facts, kept_versions, merging_commands, past_bytes, policies, shown  # noqa: F401
from noclobber.guard.tools import tool_list  # noqa: F401
from noclobber.ledger import line, root  # noqa: F401
from noclobber.lock import backend, git_exclude, loaded_early  # noqa: F401
from noclobber.text import gitignore, lines  # noqa: F401
