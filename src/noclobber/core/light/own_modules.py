"""
Find our own modules with two system calls each.

Python looks a module up in every way that there is: half of the time that it takes to load one of ours. They
are all in one folder, next to their compiled forms. Where they are not, or a compiled form is missing or
older than the source, Python's own way is taken.
"""

from __future__ import annotations

import _frozen_importlib_external as _external
import _imp
import marshal
import sys
from posix import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType
    from typing import Any

PREFIX = "noclobber."
HEADER_BYTES = 16


class _Loader(_external.SourceFileLoader):
    def __init__(self, name: str, path: str, compiled: str, sign: bytes) -> None:
        super().__init__(name, path)
        self._compiled, self._sign = compiled, sign

    def get_code(self, fullname: str) -> CodeType | None:
        try:
            with open(self._compiled, "rb", buffering=0) as file:
                content = file.readall()
        except OSError:
            content = b""
        if content[:HEADER_BYTES] != self._sign:
            return super().get_code(fullname)
        code: CodeType = marshal.loads(memoryview(content)[HEADER_BYTES:])  # noqa: S302 - as Python does
        _imp._fix_co_filename(code, self.path)  # type: ignore[attr-defined]
        return code


class _Finder:
    def __init__(self) -> None:
        self._kind: Any = type(__spec__)
        self._sign = _external.MAGIC_NUMBER + bytes(4)
        self._suffix = f".{sys.implementation.cache_tag}.pyc"

    def find_spec(self, name: str, path: Sequence[str] | None, target: object = None) -> Any:
        if not name.startswith(PREFIX) or not path:
            return None
        tail, folder = name.rpartition(".")[2], path[0]
        below = ""
        try:
            status = stat(f"{folder}/{tail}.py")
        except OSError:
            below, folder, tail = f"{folder}/{tail}", f"{folder}/{tail}", "__init__"
            try:
                status = stat(f"{folder}/{tail}.py")
            except OSError:
                return None
        around = f"{sys.pycache_prefix}{folder}" if sys.pycache_prefix else f"{folder}/__pycache__"
        compiled, source = f"{around}/{tail}{self._suffix}", f"{folder}/{tail}.py"
        times = (int(status.st_mtime) & 0xFFFFFFFF).to_bytes(4, "little")
        sign = self._sign + times + (status.st_size & 0xFFFFFFFF).to_bytes(4, "little")
        spec = self._kind(name, _Loader(name, source, compiled, sign), origin=source, is_package=bool(below))
        if below:
            spec.submodule_search_locations.append(below)
        spec.has_location, spec.cached = True, compiled
        return spec


def use() -> None:
    """Find our modules this way from now on, in this process."""
    is_plain = not sys.flags.optimize and sys.implementation.cache_tag
    if is_plain and not any(type(finder) is _Finder for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
