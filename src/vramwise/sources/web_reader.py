"""Parts of files over HTTP with bounds: bytes, time, redirects; a server that ignores Range is left before its body.

What goes along to another host is nothing secret, and https is not left for http.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol, TypeVar
from urllib.parse import urljoin, urlsplit

from vramwise.errors import SourceError, clipped
from vramwise.records import record
from vramwise.sources.browser_http import IN_BROWSER
from vramwise.units import format_bytes

MOST_REDIRECTS = 5
LONGEST_PAUSE_S = 2
"""What a server may ask to be waited for; longer is said instead."""
CONNECT_S = 4.0
WHOLE_ANSWER = 3
"""Times the waiting for a single read that a whole answer may take."""
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_PASSING = frozenset({502, 503, 504})
_RATE_LIMIT = 429
_SECRET = frozenset({"authorization", "cookie"})
_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")

T = TypeVar("T")


class Unreachable(SourceError):
    """A host that cannot be asked now: another one may be."""


class Refused(Exception):
    """An answer with a status that is no success; `headers` have lower-case names."""

    def __init__(self, status: int, headers: Mapping[str, str]) -> None:
        super().__init__(status)
        self.status, self.headers = status, headers


class _Interrupted(Exception):
    pass


class Answer(Protocol):
    """What a server sends back, its body not read yet."""

    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    def chunks(self) -> Iterator[bytes]: ...
    def close(self) -> None: ...


Send = Callable[[str, Mapping[str, str], float], Answer]
"""A GET of an address with headers and seconds for each wait, which follows no redirect."""


@record
class Page:
    """An answer's bytes, the headers of all answers on the way, and the size of the whole file where it was said."""

    content: bytes
    headers: Mapping[str, str]
    whole_bytes: int | None


class WebReader:
    """Reads from one host, `host` in messages, with the same headers every time."""

    def __init__(self, send: Send, host: str, headers: Mapping[str, str], timeout_s: float) -> None:
        self._send, self.host, self._headers, self._timeout_s = send, host, dict(headers), timeout_s

    def reach(self, url: str) -> None:
        """Raises Unreachable soon where nobody takes a connection: a firewall that drops it says nothing for minutes.

        Through a proxy that is the proxy's to find out.
        """
        if IN_BROWSER:
            return
        from socket import create_connection
        from urllib.request import getproxies

        if getproxies():
            return
        parts = urlsplit(url)
        place = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        limit = min(CONNECT_S, self._timeout_s)
        try:
            within(limit, lambda: create_connection(place, limit).close())
        except TimeoutError:
            raise Unreachable(f"{self.host} did not answer within {limit:g} seconds") from None
        except OSError as problem:
            raise self._fault(problem) from None

    def whole(self, url: str, what: str, most_bytes: int) -> Page:
        """A small answer. Raises SourceError for a longer one, Refused for another status."""
        page = self._tried_twice(url, what, None, most_bytes + 1)
        if len(page.content) > most_bytes:
            raise SourceError(f"{what}: is larger than {format_bytes(most_bytes, 'MiB', 0)}")
        return page

    def part(self, url: str, what: str, start: int, stop: int) -> Page:
        """The bytes from `start` to before `stop`, fewer where the file ends. Raises as `whole`."""
        return self._tried_twice(url, what, start, stop - start)

    def _tried_twice(self, url: str, what: str, start: int | None, count: int) -> Page:
        try:
            return self._in_time(url, what, start, count)
        except _Interrupted:
            pass
        except Refused as refused:
            wait = pause_s(refused.headers)
            if refused.status == _RATE_LIMIT and wait is not None and wait <= LONGEST_PAUSE_S:
                time.sleep(wait)
            elif refused.status not in _PASSING:
                raise
        try:
            return self._in_time(url, what, start, count)
        except _Interrupted as problem:
            raise SourceError(f"{what}: {self.host} ended the connection twice before all was sent") from problem

    def _in_time(self, url: str, what: str, start: int | None, count: int) -> Page:
        """In a thread of its own: a server that sends a byte now and then never lets a socket's own limit pass."""
        limit = WHOLE_ANSWER * self._timeout_s
        ends = time.monotonic() + limit
        try:
            return within(limit, lambda: self._asked(url, what, start, count, ends))
        except (SourceError, Refused, _Interrupted):
            raise
        except TimeoutError:
            raise Unreachable(f"{self.host} did not answer in full within {limit:g} seconds") from None
        except Exception as problem:
            raise self._fault(problem) from None

    def _fault(self, problem: Exception) -> Exception:
        kind, text = type(problem).__name__, clipped(str(problem), 120)
        if "Timeout" in kind or "timed out" in text:
            return Unreachable(f"{self.host} did not answer within {self._timeout_s:g} seconds")
        if kind in ("RemoteProtocolError", "ReadError", "IncompleteRead", "ChunkedEncodingError", "RemoteDisconnected",
                    "ConnectionResetError", "ProtocolError"):  # fmt: skip
            return _Interrupted()
        reason = getattr(problem, "reason", problem)
        why = clipped(str(getattr(reason, "strerror", None) or reason), 120)
        return Unreachable(f"{self.host} cannot be reached ({why or kind})")

    def _asked(self, url: str, what: str, start: int | None, count: int, ends: float) -> Page:
        headers = {**self._headers, "Accept-Encoding": "identity"}
        if start is not None:
            headers["Range"] = f"bytes={start}-{start + count - 1}"
        seen: dict[str, str] = {}
        for _ in range(MOST_REDIRECTS + 1):
            answer = self._send(url, headers, self._timeout_s)
            try:
                seen |= answer.headers
                if answer.status not in _REDIRECTS:
                    return self._page(answer, what, start, count, seen, ends)
                url, headers = self._redirected(url, answer.headers.get("location", ""), headers, what)
            finally:
                answer.close()
        raise SourceError(f"{what}: {self.host} redirects without an end")

    def _redirected(self, url: str, to: str, headers: dict[str, str], what: str) -> tuple[str, dict[str, str]]:
        old, new = urlsplit(url), urlsplit(urljoin(url, to))
        if new.scheme not in ("http", "https") or (old.scheme, new.scheme) == ("https", "http"):
            raise SourceError(f"{what}: {self.host} sends to {clipped(new.scheme, 20) or 'no'}:, expected https")
        if (old.scheme, old.hostname, old.port) != (new.scheme, new.hostname, new.port):
            headers = {name: value for name, value in headers.items() if name.lower() not in _SECRET}
        return new.geturl(), headers

    def _page(
        self, answer: Answer, what: str, start: int | None, count: int, seen: Mapping[str, str], ends: float
    ) -> Page:  # fmt: skip
        length = _whole(answer.headers.get("content-length"))
        whole = length
        if start is not None and answer.status == 416:  # the file ends before
            return Page(b"", seen, None)
        if start is not None and answer.status == 200 and (start > 0 or length is None or length > count):
            size = "" if length is None else f" ({format_bytes(length, 'MiB', 0)})"
            raise SourceError(
                f"{what}: {self.host} ignores Range and would send the whole file{size}: it was left before that; "
                "download the file and give its path"
            )
        if answer.status == 206:
            place = _CONTENT_RANGE.match(answer.headers.get("content-range", ""))
            if start is None or place is None or int(place[1]) != start:
                raise SourceError(f"{what}: {self.host} sends another part than was asked for")
            whole = _whole(place[2])
        elif answer.status != 200:
            raise Refused(answer.status, seen)
        if answer.headers.get("content-encoding", "identity") not in ("identity", ""):
            raise SourceError(f"{what}: {self.host} sends it compressed, which was not asked for")
        content = _bounded(answer, count, ends)
        if length is not None and len(content) < min(length, count):
            raise _Interrupted
        return Page(content, seen, whole)


def pause_s(headers: Mapping[str, str]) -> int | None:
    """Seconds that Retry-After asks to wait, where it says them."""
    return _whole(headers.get("retry-after"))


def within(seconds: float, work: Callable[[], T]) -> T:
    """What `work` returns or raises; TimeoutError where that takes longer, and its thread is left behind."""
    if IN_BROWSER:  # which has no threads, and limits the request itself
        return work()
    from threading import Thread  # over a network alone

    found: list[T] = []
    failed: list[Exception] = []

    def run() -> None:
        try:
            found.append(work())
        except Exception as problem:
            failed.append(problem)

    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if failed:
        raise failed[0]
    if not found:
        raise TimeoutError
    return found[0]


def _bounded(answer: Answer, count: int, ends: float) -> bytes:
    content = bytearray()
    for chunk in answer.chunks():
        content += chunk
        if len(content) >= count:
            break
        if time.monotonic() > ends:
            raise TimeoutError
    return bytes(content[:count])


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.strip().isdecimal() and len(text) < 20 else None
