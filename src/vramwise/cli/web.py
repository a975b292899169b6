"""`vramwise web`: the page and its API from this machine, or as a folder for any web server."""

from __future__ import annotations

import argparse
import os
import sys

from vramwise.errors import UsageError, clipped
from vramwise.files import shown_path

HELP = "the page and its JSON API from this machine, or as a static folder"
DEFAULT_PORT = 8317
PORTS = 65_535


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--port", metavar="N", help=f"where to listen (default: {DEFAULT_PORT}, or a free one where it is taken)"
    )
    parser.add_argument(
        "--host", metavar="ADDRESS", default="127.0.0.1",
        help="the address to listen at; anything but the default lets other machines ask",
    )  # fmt: skip
    parser.add_argument(
        "--host-name", metavar="NAME", action="append", default=[],
        help="a name by which it may be asked besides its own, behind a proxy; may be given several times",
    )  # fmt: skip
    parser.add_argument("--open", action="store_true", help="open the page in the browser")
    parser.add_argument(
        "--allow-files", metavar="DIR", action="append", default=[],
        help="models and files in this folder may be named; may be given several times (default: none)",
    )  # fmt: skip
    parser.add_argument("--mcp", action="store_true", help="answer the Model Context Protocol at /mcp too")
    parser.add_argument("--offline", action="store_true", help="ask no hub: the catalog and caches alone")
    parser.add_argument(
        "--static", metavar="DIR", help="write the page as a folder that needs no server of ours, and end"
    )
    parser.add_argument(
        "--runtime", metavar="FOLDER", help="with --static: Pyodide's files, instead of the npm package by its hash"
    )


def run(args: argparse.Namespace) -> int:
    """Serve until interrupted, or write the folder. Raises UsageError for a runtime without `--static`."""
    if args.static is not None:
        return _static(args)
    if args.runtime is not None:
        raise UsageError("--runtime is the runtime of --static DIR: the server answers by itself")
    from vramwise.web.server.serve import Serving, serve

    folders = tuple(_folder(one) for one in args.allow_files)
    asked = Serving(
        host=args.host, port=_port(args.port), falls_back=args.port is None, allowed=folders, names=args.host_name,
        mcp=args.mcp,
    )  # fmt: skip

    def ready(address: str) -> None:
        print(f"vramwise: {address}  (Ctrl-C ends it)", file=sys.stderr, flush=True)
        if args.open:
            import webbrowser

            webbrowser.open(address)

    serve(asked, ready)
    return 0


def _static(args: argparse.Namespace) -> int:
    if args.port is not None or args.allow_files or args.open or args.mcp:
        raise UsageError("--static DIR writes a folder and serves nothing: leave out the server's flags")
    from vramwise.web.static import write_static

    written = write_static(args.static, args.runtime)
    print(f"wrote {written.files:,} files, {written.bytes / 2**20:.1f} MiB, to {shown_path(args.static)}")
    if written.no_image:
        print(f"vramwise: without an image of the started program the page starts it itself, which takes some seconds: "
              f"{written.no_image}", file=sys.stderr)  # fmt: skip
    return 0


def _port(text: str | None) -> int:
    if text is None:
        return DEFAULT_PORT
    if not text.isdecimal() or len(text) > 5 or int(text) > PORTS:
        raise UsageError(f'--port: expected a number from 0 to {PORTS:,}, got "{clipped(text, 20)}"')
    return int(text)


def _folder(path: str) -> str:
    if not os.path.isdir(path):
        raise UsageError(f"--allow-files: {shown_path(path)} is no folder")
    return os.path.realpath(path)
