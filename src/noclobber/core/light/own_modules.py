"""
Load what a short process needs, quickly.

Python looks a module up in every way that there is: half of the time that it takes to load one of ours. They
are all in one folder, next to their compiled forms, so four system calls do. Where they are not, or a
compiled form is missing or older than the source, Python's own way is taken. The same for the few modules of
the standard library that a hook needs, whose folders Python would list first.

It imports nothing that has to be looked for, not even `__future__`, because `hook/start.py` loads it before
anything else.
"""

import _frozen_importlib
import _frozen_importlib_external as _external
import _imp
import marshal
import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType
    from typing import Any

PACKAGE, PREFIX = "noclobber", "noclobber."
DYNAMIC = ("_blake2", "_ctypes", "_json", "_sha256", "_xxsubinterpreters", "fcntl", "mmap", "select")
FUTURE = "__future__"
HEADER_BYTES = 16
MOST_BYTES = 1 << 16  # What is larger is read by Python. More would be mapped and unmapped each time.


class _Loader(_external.SourceFileLoader):
    def __init__(self, name: str, path: str, compiled: str, sign: bytes) -> None:
        super().__init__(name, path)
        self._compiled, self._sign = compiled, sign

    def get_code(self, fullname: str) -> "CodeType | None":
        try:
            descriptor = posix.open(self._compiled, posix.O_RDONLY | posix.O_CLOEXEC)
            try:
                content = posix.read(descriptor, MOST_BYTES)
            finally:
                posix.close(descriptor)
        except OSError:
            content = b""
        if content[:HEADER_BYTES] != self._sign or len(content) == MOST_BYTES:
            return super().get_code(fullname)
        code: CodeType = marshal.loads(memoryview(content)[HEADER_BYTES:])  # noqa: S302 - as Python does
        _imp._fix_co_filename(code, self.path)  # type: ignore[attr-defined]
        return code


class _Finder:
    def __init__(self) -> None:
        self._sign = _external.MAGIC_NUMBER + bytes(4)
        self._suffix = f".{sys.implementation.cache_tag}.pyc"
        self._above = [__file__.rpartition("/noclobber/core/light/")[0]]
        self._dynamic = next((folder for folder in sys.path if folder.endswith("/lib-dynload")), "")

    def find_spec(self, name: str, path: "Sequence[str] | None", target: object = None) -> "Any":
        if name.startswith(PREFIX):
            return self._found(name, path[0]) if path else None
        if name == PACKAGE:
            return self._found(name, self._above[0])
        if name == FUTURE and self._dynamic:
            return self._found(name, self._dynamic.rpartition("/")[0])
        if name in DYNAMIC and self._dynamic and name not in sys.builtin_module_names:
            return self._extension(name)
        return None

    def _found(self, name: str, folder: str) -> "Any":
        tail = name.rpartition(".")[2]
        below = ""
        try:
            status = posix.stat(f"{folder}/{tail}.py")
        except OSError:
            below, folder, tail = f"{folder}/{tail}", f"{folder}/{tail}", "__init__"
            try:
                status = posix.stat(f"{folder}/{tail}.py")
            except OSError:
                return None
        around = f"{sys.pycache_prefix}{folder}" if sys.pycache_prefix else f"{folder}/__pycache__"
        compiled, source = f"{around}/{tail}{self._suffix}", f"{folder}/{tail}.py"
        times = (int(status.st_mtime) & 0xFFFFFFFF).to_bytes(4, "little")
        sign = self._sign + times + (status.st_size & 0xFFFFFFFF).to_bytes(4, "little")
        loader = _Loader(name, source, compiled, sign)
        spec = _frozen_importlib.ModuleSpec(name, loader, origin=source, is_package=bool(below))
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations.append(below)
        spec.has_location, spec.cached = True, compiled
        return spec

    def _extension(self, name: str) -> "Any":
        path = f"{self._dynamic}/{name}{_imp.extension_suffixes()[0]}"
        try:
            posix.stat(path)
        except OSError:
            return None
        spec = _frozen_importlib.ModuleSpec(name, _external.ExtensionFileLoader(name, path), origin=path)
        spec.has_location = True
        return spec


def use() -> None:
    """Find our modules this way from now on, in this process."""
    is_plain = not sys.flags.optimize and sys.implementation.cache_tag
    if is_plain and not any(type(finder) is _Finder for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Mapping:
    """What `os.environ` needs of the class that it is made from. The rest comes from there, if it is used."""

    def get(self, key: str, default: object = None) -> object:
        try:
            return self[key]  # type: ignore[index]
        except KeyError:
            return default

    def __contains__(self, key: str) -> bool:
        return self.get(key) is not None

    def __getattr__(self, name: str) -> object:
        from _collections_abc import MutableMapping

        found = getattr(MutableMapping, name)
        return found.__get__(self) if hasattr(found, "__get__") else found


def _check_methods(*given: object) -> object:
    from _collections_abc import _check_methods  # type: ignore[attr-defined]

    return _check_methods(*given)


def load_os() -> None:
    """Load `os` without the classes that it takes from `_collections_abc`: they are most of what it costs."""
    if "os" in sys.modules or "_collections_abc" in sys.modules:
        return
    light: Any = type(sys)("_collections_abc")
    light.MutableMapping, light.Mapping = _Mapping, (dict, _Mapping)  # The second is for `isinstance` only.
    light._check_methods = _check_methods
    sys.modules["_collections_abc"] = light
    try:
        import os as os
    except ImportError:  # Of a version that needs more of them.
        sys.modules.pop("os", None)
    finally:
        del sys.modules["_collections_abc"]  # Whoever imports it later gets the real one.
