"""GET over HTTP with the standard library alone, through the proxies that the environment names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from http.client import HTTPMessage
from typing import IO, Any
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from vramwise.units import KIB

_CHUNK = 64 * KIB


class _StaysHere(HTTPRedirectHandler):
    """Leaves redirects to whoever asked."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:  # fmt: skip
        return None


class PlainAnswer:
    def __init__(self, answer: Any, status: int, headers: Mapping[str, str]) -> None:
        self._answer, self.status = answer, status
        self.headers = {name.lower(): value for name, value in headers.items()}

    def chunks(self) -> Iterator[bytes]:
        while chunk := self._answer.read1(_CHUNK):
            yield chunk

    def close(self) -> None:
        self._answer.close()


def plain_get(url: str, headers: Mapping[str, str], timeout_s: float) -> PlainAnswer:
    """The answer to a GET, whatever its status."""
    try:
        answer = build_opener(_StaysHere).open(Request(url, headers=dict(headers)), timeout=timeout_s)
    except HTTPError as refused:
        return PlainAnswer(refused, refused.code, dict(refused.headers.items()))
    return PlainAnswer(answer, answer.status, dict(answer.headers.items()))
