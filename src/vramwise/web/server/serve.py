"""Running the server: one socket, bound before anything else so that a taken port is said at once."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import tempfile
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from vramwise.errors import UsageError, clipped
from vramwise.records import record, replace
from vramwise.web.server.guards import LOOPBACK

NEEDS = "vramwise web needs FastAPI and uvicorn: pip install 'vramwise[web]'; --static DIR needs neither"
MOST_CONNECTIONS = 1000
_BACKLOG = 512


@record
class Serving:
    """How the server is run; `limit_s` and `long_limit_s` of one answer, `most_bytes` of a body."""

    host: str = "127.0.0.1"
    port: int = 0
    falls_back: bool = False
    """Whether a free port is taken where `port` is not free."""
    allowed: Sequence[str] = ()
    names: Sequence[str] = ()
    """Names under which it may be asked besides its own: a proxy's."""
    mcp: bool = False
    limit_s: float = 30.0
    long_limit_s: float = 600.0
    most_bytes: int = 4 << 30
    body_s: float = 60.0
    processes: int = 0
    """Of each kind that answers; 0: as many as there are cores."""


def serve(asked: Serving, ready: Callable[[str], None]) -> None:
    """Serve until interrupted; `ready` is told the address. Raises UsageError where that cannot begin."""
    try:
        uvicorn = import_module("uvicorn")
        import_module("fastapi")
    except ImportError:
        raise UsageError(NEEDS) from None
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(_bound(asked))
        own = stack.enter_context(tempfile.TemporaryDirectory(prefix="vramwise-web-"))
        os.environ["TMPDIR"] = own  # of the answering processes: what is uploaded is gone with it
        tempfile.tempdir = own
        asked = replace(asked, allowed=(*asked.allowed, own))
        server = uvicorn.Server(_config(uvicorn, asked))
        logging.getLogger("uvicorn.error").addFilter(_is_news)
        name = f"[{asked.host}]" if ":" in asked.host else asked.host
        ready(f"http://{name}:{listening.getsockname()[1]}/")
        server.run(sockets=[listening])


def _is_news(record: logging.LogRecord) -> bool:
    """That open questions were left at the end is what Ctrl-C asks for."""
    return not str(record.msg).startswith("Cancel %s running task(s)")


def _config(uvicorn: Any, asked: Serving) -> Any:
    from vramwise.web.server.app import create_app
    from vramwise.web.server.guards import Guards
    from vramwise.web.server.workers import Answering

    answering = Answering(asked.allowed, asked.limit_s, asked.long_limit_s, asked.processes or os.cpu_count() or 1)
    hosts = {*LOOPBACK, *(name.lower() for name in asked.names)}
    abroad = asked.host not in LOOPBACK
    if abroad:
        hosts |= {asked.host.lower(), socket.gethostname().lower()}
    app = Guards(create_app(answering, mcp=asked.mcp), hosts, asked.most_bytes, asked.body_s, by_address=abroad)
    return uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, proxy_headers=False, ws="none", lifespan="on",
        limit_concurrency=MOST_CONNECTIONS, timeout_keep_alive=30, timeout_graceful_shutdown=0,
        h11_max_incomplete_event_size=65536,
    )  # fmt: skip


def _bound(asked: Serving) -> socket.socket:
    listening = socket.socket(socket.AF_INET6 if ":" in asked.host else socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((asked.host, asked.port))
        listening.listen(_BACKLOG)
        return listening
    except OSError as problem:
        listening.close()
        if asked.falls_back and problem.errno == errno.EADDRINUSE:
            return _bound(replace(asked, port=0, falls_back=False))
        where = f"{clipped(asked.host)} port {asked.port}"
        raise UsageError(
            f"cannot listen at {where}: {problem.strerror or problem}; --port 0 takes a free one"
        ) from None
