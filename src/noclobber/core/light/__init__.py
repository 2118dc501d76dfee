"""
Substitutes for parts of the standard library that are slow to import.

A coding agent waits for a hook before and after each tool call, and each hook is a new process. Importing is
most of what such a process does. So the modules that a hook loads avoid a few slow imports. The figures are
CPU time of one process with all else loaded, where a bare interpreter takes 9 ms and a whole hook 18 to 20:

| instead of | a hook uses | saves |
|---|---|---|
| `typing` at run time | `TYPE_CHECKING = False`, and type imports below `if TYPE_CHECKING:` | 7.6 ms |
| `typing.NamedTuple` | `named_tuples.NamedTuple` | `typing`, and 1.3 ms for 15 classes |
| `json` | `json_text` | 5.8 ms (1.2 where `typing` is loaded) |
| `threading` | `RLock`, `allocate_lock` and `get_ident` of `_thread` | 2.5 ms |
| `hashlib` | `_sha256` or `_sha2`, by `disk.hashing.start_light()` | 2.5 ms |
| `re` | sets of characters, `str.partition`; `globs.fits` for `fnmatch` | 3.5 ms, and 0.5 a pattern |
| `contextlib`, `collections` | `try`; `deque` and `OrderedDict` of `_collections` | 3 ms |
| garbage collection | `gc.disable()` in `hook/start.py` | 1.1 to 1.6 ms |

Type checkers set `TYPE_CHECKING` to true whatever the code assigns, so they see the real types:

    TYPE_CHECKING = False
    if TYPE_CHECKING:
        from typing import Any, NamedTuple
    else:
        from noclobber.core.light.named_tuples import NamedTuple

Only modules that a hook or the landing of a guarded command loads do this. All others write
`from typing import TYPE_CHECKING`, and use `json`, `threading` and the rest as usual.
`tests/hook/test_start.py` runs a hook for each kind of event, and fails if one loads a slow module, or if a
module that none of them loads avoids `typing`.
"""
