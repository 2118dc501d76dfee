"""
`noclobber view`: a live page about a project, on this machine only.

Prints a link and serves until Ctrl-C, which is the normal end. A browser is opened if there is one and a
person is at the terminal; with `--no-browser`, or without one, the link is all there is. It lets one browser
in; then the next one is printed.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from noclobber.cli import EXIT_OK
from noclobber.cli.parsing import add_root, root_of
from noclobber.cli.terminal import add_json, is_terminal, print_json, visible

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from noclobber.view.server import ViewServer

EXAMPLES = """\
examples:
  noclobber view                                 open the page of this project
  noclobber view --no-browser --port 7007        print the link only, with a port of your choice
  noclobber view --token-file ~/.noclobber-view  leave the token in a file, for Prometheus (/metrics)

The link works once, on this machine only. Whoever opens it may look at the project and confirm actions.
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options."""
    from argparse import ArgumentTypeError

    def port(text: str) -> int:
        if text.isascii() and text.isdigit() and len(text) < 6 and int(text) < 65536:
            return int(text)
        raise ArgumentTypeError(f"takes a number from 0 to 65535, not {text!r}")

    add_root(parser)
    add_json(parser)
    parser.add_argument("--port", type=port, default=0, metavar="PORT", help="default: any free one")
    parser.add_argument("--no-browser", action="store_true", help="only print the link")
    parser.add_argument(
        "--token-file", metavar="FILE", help="write the token of this start into this file, for programs"
    )


def run(args: Namespace) -> int:
    """Serve until Ctrl-C."""
    from noclobber.view.live import Live
    from noclobber.view.server import ViewServer

    root = root_of(args)
    live = Live(root)
    server = ViewServer(live, args.port)
    try:
        if args.token_file:
            _leave_token(os.path.expanduser(args.token_file), server.access.token)
        live.start()
        _tell(args, server, root)
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        pass
    finally:
        live.stop()
        server.server_close()
        server.access.remove_file()
    return EXIT_OK


def _tell(args: Namespace, server: ViewServer, root: str) -> None:
    if args.json:
        print_json({"root": root, "url": server.access.link(), "port": server.port, "pid": os.getpid()})
        return

    def next_link() -> str:
        return server.access.link(lambda: print(f"That link was used. The next: {next_link()}", flush=True))

    print(f"{visible(root)}\n{next_link()}\nThe link works once. Ctrl-C ends.", flush=True)
    if not args.no_browser and is_terminal():
        _open(server)


def _open(server: ViewServer) -> None:
    """Open the page, unless the only browser would take over this terminal."""
    import threading
    import webbrowser
    from urllib.parse import quote

    has_windows = sys.platform == "darwin" or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )
    if not has_windows:
        print("There is no browser here: open the link in one on this machine.", flush=True)
        return

    def work() -> None:  # It may wait for the browser, which waits for the page.
        try:
            opened = webbrowser.open(f"file://{quote(server.access.file_for_browser())}")
        except (webbrowser.Error, OSError):
            opened = False
        if not opened:
            print("No browser could be started: open the link yourself.", flush=True)

    threading.Thread(target=work, name="noclobber-view-browser", daemon=True).start()


def _leave_token(path: str, token: str) -> None:
    """Write the token into a file of the user's that nobody else may read: an earlier one's, or a new one."""
    import stat

    from noclobber.errors import BadRequestError
    from noclobber.view.access import TOKEN_BEGINS

    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with open(os.open(path, flags, 0o600), "r+b", buffering=0) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise BadRequestError(
                path, f"{path} must be a file of yours that nobody else may read: chmod 600."
            )
        if file.read(len(TOKEN_BEGINS)) not in (b"", TOKEN_BEGINS.encode()):
            raise BadRequestError(
                path,
                f"{path} holds something else than a token of noclobber. Remove it, or name another file.",
            )
        file.seek(0)
        file.truncate()
        file.write(f"{token}\n".encode())
