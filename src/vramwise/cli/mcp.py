"""`vramwise mcp`: estimate, plan, fit, check and compare for a model's own use, on standard input and output."""

from __future__ import annotations

import argparse

HELP = "tools for a model (Model Context Protocol), on standard input and output"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--offline", action="store_true", help="ask no hub: the catalog and caches alone")


def run(args: argparse.Namespace) -> int:
    """Answer until the other side ends."""
    from vramwise.web.server.mcp import run_stdio

    run_stdio()
    return 0
