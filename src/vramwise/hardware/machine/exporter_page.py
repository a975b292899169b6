"""A page over HTTP, an exporter's or Prometheus's: one deadline, a bounded answer, no other host, no password shown."""

from __future__ import annotations

import base64
from http.client import HTTPException, HTTPMessage
from threading import Thread
from typing import IO
from urllib.error import HTTPError, URLError
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from vramwise.errors import SourceError, clipped
from vramwise.records import record
from vramwise.units import MIB

TIMEOUT_S = 5.0
OK = 200
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
    page = answer_at(address, TIMEOUT_S, LARGEST_PAGE)
    if page.status != OK:
        raise SourceError(f"{shown_address(address)}: answers {page.status} {clipped(page.reason)}")
    return page.text


@record
class Page:
    """What a server answered; `text` is also there where `status` says that something was wrong."""

    status: int
    reason: str
    text: str


def answer_at(address: str, timeout_s: float, most_bytes: int, token: str | None = None) -> Page:
    """What stands at an address; `token` is sent as a bearer's. Raises SourceError, at the latest after `timeout_s`.

    Raises NoAnswerError.
    """
    found: list[Page | Exception] = []

    def ask() -> None:
        try:
            found.append(_asked(address, timeout_s, most_bytes, token))
        except Exception as problem:
            found.append(problem)

    # A socket's timeout begins anew with every byte: a thread that is left behind has one end, whatever arrives.
    asking = Thread(target=ask, daemon=True)
    asking.start()
    asking.join(timeout_s)
    where = shown_address(address)
    if not found:
        raise NoAnswerError(f"{where}: no whole answer within {timeout_s:g} seconds")
    if isinstance(found[0], Exception):
        kind = NoAnswerError if _is_late(found[0]) else SourceError
        raise kind(f"{where}: {_why(found[0], timeout_s)}") from None
    return found[0]


class NoAnswerError(SourceError):
    """A server that took longer than it may, or sent more."""


def _asked(address: str, timeout_s: float, most_bytes: int, token: str | None) -> Page:
    parts = urlsplit(address)
    request = Request(urlunsplit((parts.scheme, _host(parts), parts.path, parts.query, "")))
    if token is not None:
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    elif parts.username is not None:
        secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        request.add_unredirected_header("Authorization", f"Basic {base64.b64encode(secret.encode()).decode()}")
    try:
        with build_opener(_SameHost).open(request, timeout=timeout_s) as answer:
            return Page(OK, "", _text(answer, most_bytes))
    except HTTPError as refusal:
        with refusal:
            return Page(refusal.code, str(refusal.reason), _text(refusal, most_bytes))


def _text(answer: IO[bytes], most_bytes: int) -> str:
    content = answer.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise NoAnswerError(f"an answer of more than {most_bytes // MIB} MiB")
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


def _is_late(problem: Exception) -> bool:
    reason = problem.reason if isinstance(problem, URLError) else problem
    return isinstance(reason, TimeoutError | NoAnswerError)


def _why(problem: object, timeout_s: float) -> str:
    if isinstance(problem, SourceError):
        return str(problem)
    if isinstance(problem, URLError):
        problem = problem.reason
    if isinstance(problem, TimeoutError):
        return f"no answer within {timeout_s:g} seconds"
    if isinstance(problem, OSError):
        return clipped(problem.strerror or str(problem))
    if isinstance(problem, HTTPException):
        return f"what answers there speaks no HTTP ({type(problem).__name__})"
    return "is no address"
