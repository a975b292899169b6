"""Questions to Prometheus or VictoriaMetrics (HTTP API v1), each with a deadline and a largest answer."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode, urlsplit, urlunsplit

from vramwise.errors import SourceError, UsageError, clipped
from vramwise.hardware.machine.exporter_page import OK, NoAnswerError, answer_at, is_address, shown_address
from vramwise.records import record
from vramwise.units import MIB

LARGEST_ANSWER: Final = 64 * MIB
LONGEST_LABEL: Final = 4096
"""A value of a label, which may be a command line; a longer one is cut."""
_NEVER_SMALLER: Final = (401, 403, 404)
"""Statuses that a smaller question would get too."""


@record
class Series:
    """One element of a vector: its labels and its value."""

    labels: Mapping[str, str]
    value: float


class TooMuchError(SourceError):
    """A question that the server did not answer in time or in size: half of it may be answered."""


class RefusedError(SourceError):
    """A question that the server does not understand."""


@record
class Prometheus:
    """A server by the address under which its `/api/v1` stands; a name and password in the address are sent to it."""

    address: str
    timeout_s: float
    token: str | None = None

    @property
    def shown(self) -> str:
        """The address without what is secret."""
        return shown_address(self.address).rstrip("/")

    def instant(self, query: str, at_s: float) -> list[Series]:
        """The vector of a query at a time. Raises TooMuchError, or SourceError where it is no use to ask for less."""
        data = self._data("query", {"query": query, "time": f"{at_s:.3f}", "timeout": f"{self.timeout_s:g}s"})
        if not isinstance(data, dict) or data.get("resultType") != "vector" or not isinstance(data.get("result"), list):
            raise SourceError(f"{self.shown}: {_NO_API}")
        return [series for one in data["result"] if (series := _series(one)) is not None]

    def metric_names(self, pattern: str, start_s: float, end_s: float) -> list[str]:
        """The names of metrics that match a regular expression and have samples in the window."""
        asked = {"match[]": f'{{__name__=~"{pattern}"}}', "start": f"{start_s:.0f}", "end": f"{end_s:.0f}"}
        return self._words("label/__name__/values", asked)

    def label_names(self, metric: str, start_s: float, end_s: float) -> list[str]:
        """The names of the labels that a metric has in the window."""
        return self._words("labels", {"match[]": metric, "start": f"{start_s:.0f}", "end": f"{end_s:.0f}"})

    def _words(self, path: str, asked: Mapping[str, str]) -> list[str]:
        data = self._data(path, asked)
        if not isinstance(data, list):
            raise SourceError(f"{self.shown}: {_NO_API}")
        return [word for word in data if isinstance(word, str)]

    def _data(self, path: str, asked: Mapping[str, str]) -> object:
        parts = urlsplit(self.address)
        place = f"{parts.path.rstrip('/')}/api/v1/{path}"
        try:
            page = answer_at(
                urlunsplit((parts.scheme, parts.netloc, place, urlencode(asked), "")), self.timeout_s, LARGEST_ANSWER,
                self.token,
            )  # fmt: skip
        except NoAnswerError as problem:
            raise TooMuchError(str(problem)) from None
        try:
            answer = json.loads(page.text)
        except (ValueError, RecursionError):
            answer = None
        if isinstance(answer, dict) and answer.get("status") == "success":
            return answer.get("data")
        if page.status in _NEVER_SMALLER or not isinstance(answer, dict) or "error" not in answer:
            said = f"answers {page.status} {clipped(page.reason)}; " if page.status != OK else ""
            if page.status // 100 == 5:
                raise TooMuchError(f"{self.shown}: answers {page.status} {clipped(page.reason)}")
            raise SourceError(f"{self.shown}: {said}{_NO_API}")
        kind = RefusedError if answer.get("errorType") == "bad_data" else TooMuchError
        raise kind(f"{self.shown}: {clipped(str(answer['error']), 200)}")


_NO_API = "this is no Prometheus API: expected an address such as http://localhost:9090 (VictoriaMetrics: :8428)"


def server_at(address: str, timeout_s: float, token: str | None = None) -> Prometheus:
    """The server at an address. Raises UsageError for what is none."""
    if not is_address(address):
        raise UsageError("--prometheus: an address begins with http:// or https://")  # it may hold a password
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError:
        parts = None
    if parts is None or not parts.hostname:
        raise UsageError(f"--prometheus: {shown_address(address)} is no address, expected one as http://localhost:9090")
    return Prometheus(urlunsplit((parts.scheme, parts.netloc, parts.path, "", "")), timeout_s, token)


def _series(one: object) -> Series | None:
    """An element of a vector; None for one that is damaged, or whose value is no number."""
    if not isinstance(one, dict) or not isinstance(one.get("metric"), dict):
        return None
    try:
        value = float(one["value"][1])
    except (KeyError, IndexError, TypeError, ValueError):
        return None
    labels = {str(key)[:LONGEST_LABEL]: str(text)[:LONGEST_LABEL] for key, text in one["metric"].items()}
    return Series(labels, value) if math.isfinite(value) else None
