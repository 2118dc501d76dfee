"""
`noclobber view`: a live page about a project, on this machine only.

Prints a link and serves until Ctrl-C, which is the normal end. A browser is opened if there is one and a
person is at the terminal; with `--no-browser`, or without one, the link is all there is.
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
  noclobber view --token-file ~/.noclobber-view  the same token each time, for Prometheus (/metrics)

Whoever has the link may look at the project and confirm actions. It works on this machine only.
"""

MOST_TOKEN_BYTES = 200
LEAST_TOKEN_LETTERS = 20


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
        "--token-file", metavar="FILE", help="take the token from this file; it is made if there is none"
    )


def run(args: Namespace) -> int:
    """Serve until Ctrl-C."""
    from noclobber.view.live import Live
    from noclobber.view.server import ViewServer

    root = root_of(args)
    token = _token(os.path.expanduser(args.token_file)) if args.token_file else None
    live = Live(root)
    server = ViewServer(live, args.port, token)
    try:
        live.start()
        _tell(args, server, root)
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        pass
    finally:
        live.stop()
        server.server_close()
    return EXIT_OK


def _tell(args: Namespace, server: ViewServer, root: str) -> None:
    if args.json:
        print_json({"root": root, "url": server.link(), "port": server.port, "pid": os.getpid()})
        return
    print(f"{visible(root)}\n{server.link()}\nCtrl-C ends.", flush=True)
    if not args.no_browser and is_terminal():
        _open(server)


def _open(server: ViewServer) -> None:
    """Open the page, unless the only browser would take over this terminal."""
    import threading
    import webbrowser

    has_windows = sys.platform == "darwin" or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )
    if not has_windows:
        print("There is no browser here: open the link in one on this machine.", flush=True)
        return

    def work() -> None:  # It may wait for the browser, which waits for the page.
        try:
            opened = webbrowser.open(server.link_for_browser())
        except (webbrowser.Error, OSError):
            opened = False
        if not opened:
            print("No browser could be started: open the link yourself.", flush=True)

    threading.Thread(target=work, name="noclobber-view-browser", daemon=True).start()


def _token(path: str) -> str:
    """Return the token that a file holds; a new one is made if there is none. Nobody else may read it."""
    import secrets
    import stat

    from noclobber.errors import BadRequestError

    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o600)
        with open(descriptor, "w") as file:
            file.write(f"{secrets.token_urlsafe(32)}\n")
    except FileExistsError:
        pass
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as opened:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise BadRequestError(
                path, f"{path} must be a file of yours that nobody else may read: chmod 600."
            )
        token = opened.read(MOST_TOKEN_BYTES).decode("ascii", "replace").strip()
    if len(token) < LEAST_TOKEN_LETTERS or not all(letter.isalnum() or letter in "-_" for letter in token):
        raise BadRequestError(
            path,
            f"{path} has no token: {LEAST_TOKEN_LETTERS} letters and digits or more. Remove it.",
        )
    return token
