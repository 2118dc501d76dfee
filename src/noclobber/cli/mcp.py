"""
`noclobber mcp ROOT…`: guarded file tools for any MCP client, on stdio or on loopback HTTP.

The SDK is an extra (`pip install 'noclobber[mcp]'`) and slow to import, so it is imported when the server
starts.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

TOKEN_VARIABLE = "NOCLOBBER_MCP_TOKEN"  # noqa: S105 - the variable's name, not a token

EXAMPLES = """\
examples:
  noclobber mcp ~/project                     on stdin and stdout, as MCP clients start it
  noclobber mcp ~/project ~/notes --strict    two roots; every change must say what it expects
  noclobber mcp ~/project --http 8765         on http://127.0.0.1:8765/mcp, with a token

docs/mcp.md has configurations to paste.
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command's arguments."""
    from noclobber.cli.parsing import FoldedHelp

    parser.formatter_class = FoldedHelp
    parser.epilog = EXAMPLES
    parser.add_argument("roots", nargs="*", metavar="ROOT", help="a folder that the tools may use")
    parser.add_argument(
        "--http",
        nargs="?",
        type=_port,
        const=0,
        metavar="PORT",
        help="serve HTTP on 127.0.0.1 instead of stdio; without a port, on a free one",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="refuse a change of an existing file that does not say which version it expects",
    )
    parser.add_argument(
        "--no-client-roots",
        action="store_true",
        help="use the roots given here even if the client names a part of them",
    )
    parser.add_argument(
        "--allow-run",
        action="store_true",
        help="offer a tool that runs shell commands, as one transaction each",
    )
    parser.add_argument(
        "--durable", action="store_true", help="flush to the disk before a write counts as done"
    )


def run(args: Namespace) -> int:
    """Serve until the client disconnects."""
    from noclobber.cli import EXIT_REFUSED, EXIT_USAGE
    from noclobber.errors import MissingFileError
    from noclobber.mcp.roots import from_arguments

    try:
        roots = from_arguments(args.roots)
    except MissingFileError:
        print("Error: None of the specified directories are accessible", file=sys.stderr)
        return EXIT_USAGE
    if args.http is not None and not roots.shown:
        print("noclobber: name at least one ROOT to serve over HTTP.", file=sys.stderr)
        return EXIT_USAGE
    try:
        from noclobber.mcp.server import FileServer
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("noclobber"):
            raise
        print(
            f"noclobber: the MCP server needs the extra 'mcp' ({error.name} is missing). "
            "Install it with: pip install 'noclobber[mcp]' (in a checkout: pip install '.[mcp]')",
            file=sys.stderr,
        )
        return EXIT_REFUSED
    server = FileServer(
        roots,
        strict=args.strict,
        client_roots=not args.no_client_roots,
        durable=args.durable,
        one_process=args.http is None,
        allow_run=args.allow_run,
    )
    from noclobber.cli import other_machines

    for root in roots.shown:
        if said := other_machines.warning(root):
            print(f"noclobber: not promised: {said}", file=sys.stderr)
    # 90,000 objects of the SDK, which stay. To look through them takes 49 ms, in the middle of some call.
    gc.freeze()
    return _stdio(server) if args.http is None else _http(server, args.http)


def _stdio(server: object) -> int:
    import anyio

    from noclobber.cli.terminal import is_terminal
    from noclobber.mcp.server import FileServer, serve_stdio

    assert isinstance(server, FileServer)
    shown = ", ".join(server.roots.shown) or "none yet; waiting for the client to name them"
    print(f"noclobber: guarded file tools on stdio; roots: {shown}", file=sys.stderr)
    if is_terminal(sys.stdin):
        print(
            "noclobber: an MCP client starts this command and talks to it; docs/mcp.md has configurations to "
            "paste. Ctrl-C ends it.",
            file=sys.stderr,
        )
    anyio.run(serve_stdio, server)
    return 0


def _http(server: object, port: int) -> int:
    import secrets
    import socket

    from noclobber.mcp.http import serve
    from noclobber.mcp.server import FileServer

    assert isinstance(server, FileServer)
    token = os.environ.get(TOKEN_VARIABLE) or secrets.token_urlsafe(32)
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(128)  # Before the address is printed: a client may connect at once.
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
    print(f"noclobber: guarded file tools on {url}", file=sys.stderr)
    if TOKEN_VARIABLE not in os.environ:
        print(f"noclobber: send the header 'Authorization: Bearer {token}'", file=sys.stderr, flush=True)
    serve(server, token, listener)
    return 0


def _port(text: str) -> int:
    from argparse import ArgumentTypeError

    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise ArgumentTypeError(f"{text!r} is not a port; use 0 to 65535")
    return int(text)
