"""
From a tool call to its answer. Knows no protocol: arguments in, blocks and structured content out.

Whatever happens inside comes out as an answer. A stale write is the 009 object as text and the 011 object
as structured content, and nothing else; another refusal of ours is its object in both places; an error
that the replaced server has, too, has that server's text. A bug of ours is one sentence, and its traceback
is on stderr.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from noclobber.core import wire
from noclobber.errors import NoclobberError, RefusalError, StaleFileError
from noclobber.mcp.arguments import checked
from noclobber.mcp.reference.os_errors import PlainError, bad_request, failed
from noclobber.mcp.tools import folders, listing, locks
from noclobber.mcp.tools import writing as files
from noclobber.mcp.tools.definition import TOOLS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from noclobber.mcp.connection import Memory

    Report = Callable[[int, int | None, str], None]
    """Tells how far the work is: done, of how many (None: nobody knows), what is being looked at."""
    Answer = tuple[list[dict[str, Any]], dict[str, Any]]
    """Content blocks and structured content."""
    Carry = Callable[[Memory, Mapping[str, Any], Report], Answer]

_CARRY_OUT: dict[str, Carry] = {
    "read_file": files.read_text_file,
    "read_text_file": files.read_text_file,
    "read_media_file": files.read_media_file,
    "read_multiple_files": files.read_multiple_files,
    "write_file": files.write_file,
    "edit_file": files.edit_file,
    "create_directory": folders.create_directory,
    "list_directory": listing.list_directory,
    "list_directory_with_sizes": listing.list_directory_with_sizes,
    "directory_tree": listing.directory_tree,
    "move_file": folders.move_file,
    "search_files": listing.search_files,
    "get_file_info": listing.get_file_info,
    "list_allowed_directories": listing.list_allowed_directories,
    "write_files": files.write_files,
    "delete_file": files.delete_file,
    "changes_since_read": files.changes_since_read,
    "lock_acquire": locks.lock_acquire,
    "lock_renew": locks.lock_renew,
    "lock_release": locks.lock_release,
    "lock_status": locks.lock_status,
}


class Outcome(NamedTuple):
    """What a client is told."""

    content: list[dict[str, Any]]
    structured: dict[str, Any] | None
    is_error: bool = False


def call(memory: Memory, name: str, arguments: Mapping[str, Any] | None, report: Report) -> Outcome:
    """Carry out one call. Raises nothing but what stops the thread."""
    try:
        tool = TOOLS.get(name)
        if tool is None:
            raise bad_request(f"MCP error -32602: Tool {name} not found")
        return Outcome(*_CARRY_OUT[name](memory, checked(tool, arguments), report))
    except PlainError as error:
        return _refused(error.text, error.refusal.to_refusal())
    except StaleFileError as error:
        return _refused(wire.to_json(error, "agent"), error.to_controller())
    except RefusalError as error:
        return _refused(_words(error), error.to_refusal())
    except OSError as error:
        told = failed(error.errno, "call", str(error.filename or ""))
        return _refused(told.text, told.refusal.to_refusal())
    except Exception as error:
        return _bug(name, error)


def _words(error: RefusalError) -> str:
    # An edit that does not fit is refused by the replaced server, too, and in these words.
    return error.message if error.code == "EDIT_MISMATCH" else wire.to_json(error)


def _refused(text: str, structured: dict[str, Any]) -> Outcome:
    return Outcome([{"type": "text", "text": _writable(text)}], structured, is_error=True)


def _writable(text: str) -> str:
    """A message may quote a name that is not UTF-8; the wire takes none such."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _bug(name: str, error: Exception) -> Outcome:
    import traceback

    traceback.print_exception(error, file=sys.stderr)
    said = (
        f"noclobber failed inside {name}: {type(error).__name__}. Whether anything was changed is not known: "
        "read the file before you go on. The server's stderr has the details."
    )
    kind = {"error_type": NoclobberError.code, "resolution": NoclobberError.resolution}
    return _refused(said, {**kind, "file_path": "", "message": said, "details": {}})
