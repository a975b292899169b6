"""An exporter's page over HTTP: one deadline, a bounded answer, no other host, no password in a message."""

from __future__ import annotations

import base64
from http.client import HTTPException, HTTPMessage
from threading import Thread
from typing import IO
from urllib.error import HTTPError, URLError
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from vramwise.errors import SourceError, clipped
from vramwise.units import MIB

TIMEOUT_S = 5.0
LARGEST_PAGE = 4 * MIB
"""A page of eight GPUs with forty counters is a hundredth of this."""


def is_address(place: str) -> bool:
    """Whether a place is a page and no file."""
    return place.lower().startswith(("http://", "https://"))


def shown_address(address: str) -> str:
    """Scheme, host and path: a user's name, password and query are nobody's to read in a log."""
    try:
        parts = urlsplit(address)
        return clipped(urlunsplit((parts.scheme, _host(parts), parts.path, "", "")), 200)
    except ValueError:
        return "the address"


def page_at(address: str) -> str:
    """The text of a page. Raises SourceError in one line, at the latest after TIMEOUT_S."""
    found: list[str | Exception] = []

    def ask() -> None:
        try:
            found.append(_asked(address))
        except Exception as problem:
            found.append(problem)

    # A socket's timeout begins anew with every byte: a thread that is left behind has one end, whatever arrives.
    asking = Thread(target=ask, daemon=True)
    asking.start()
    asking.join(TIMEOUT_S)
    where = shown_address(address)
    if not found:
        raise SourceError(f"{where}: no whole answer within {TIMEOUT_S:g} seconds")
    if isinstance(found[0], Exception):
        raise SourceError(f"{where}: {_why(found[0])}") from None
    return found[0]


def _asked(address: str) -> str:
    parts = urlsplit(address)
    request = Request(urlunsplit((parts.scheme, _host(parts), parts.path, parts.query, "")))
    if parts.username is not None:
        secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        request.add_unredirected_header("Authorization", f"Basic {base64.b64encode(secret.encode()).decode()}")
    with build_opener(_SameHost).open(request, timeout=TIMEOUT_S) as answer:
        content: bytes = answer.read(LARGEST_PAGE + 1)
    if len(content) > LARGEST_PAGE:
        raise SourceError(f"an answer of more than {LARGEST_PAGE // MIB} MiB: no exporter's page")
    return content.decode("utf-8", "replace")


class _SameHost(HTTPRedirectHandler):
    """Follows a redirect to another page of the same host and port only."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        old, new = urlsplit(req.full_url), urlsplit(newurl)
        if (old.scheme, old.netloc) != (new.scheme, new.netloc):
            fp.close()
            there = clipped(new.netloc.rpartition("@")[2], 100)
            raise SourceError(f"sends to another host ({there}): give that address")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _host(parts: SplitResult) -> str:
    """Host and port. Raises ValueError for a port that is none."""
    _ = parts.port
    return parts.netloc.rpartition("@")[2]


def _why(problem: object) -> str:
    if isinstance(problem, SourceError):
        return str(problem)
    if isinstance(problem, HTTPError):
        problem.close()
        return f"answers {problem.code} {clipped(str(problem.reason))}"
    if isinstance(problem, URLError):
        problem = problem.reason
    if isinstance(problem, TimeoutError):
        return f"no answer within {TIMEOUT_S:g} seconds"
    if isinstance(problem, OSError):
        return clipped(problem.strerror or str(problem))
    if isinstance(problem, HTTPException):
        return f"what answers there speaks no HTTP ({type(problem).__name__})"
    return "is no address"
