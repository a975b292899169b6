"""A scenario in the words that people pass on: command, file, address, badge."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from vramwise import svg
from vramwise.colours import verdict_colour
from vramwise.scenario import Scenario
from vramwise.scenario.settings import Settings, kinds_of
from vramwise.scenario.words import command_of
from vramwise.units import format_bytes
from vramwise.verdict import percent
from vramwise.web.bodies import Body, only, scenario_in, table_in

_TABLES = ("train", "serve", "generate")


def words(body: Body) -> dict[str, Any]:
    """`{"scenario", "labels"}`: `command` (null for a model that is a table), `toml`, `json`, `address`, `badge`, …

    `picture` is the answer as SVG, with `labels` for the program's own words (`{"weights": "…"}`); `tools` are those
    that `export` writes it for, by name with what they are called.
    """
    from vramwise.cli.screens.answer_picture import answer_picture
    from vramwise.estimation import estimate
    from vramwise.interop.export.tools import tools_for

    only(body, "scenario", "labels")
    scenario = scenario_in(body)
    labels = {key: str(one) for key, one in table_in(body, "labels").items()} if body.get("labels") is not None else {}
    table = stated(scenario)
    result = estimate(scenario)
    command = command_of(scenario)
    need = format_bytes(int(result.needed.expected))
    verdict = result.verdict
    judged = "" if verdict is None else f", {verdict.word} ({percent(verdict.probability)})"
    card = "" if result.capacity is None or not result.capacity.gpu else f" on {result.capacity.gpu}"
    said = f"needs {need}{judged}{card}"
    return {
        "command": command,
        "toml": "\n".join(toml_lines(table)) + "\n",
        "json": json.dumps(table, indent=2) + "\n",
        "address": address_of(table),
        "markdown": f"![{result.model.id} {said}](vramwise-badge.svg)" + (f"  \n`{command}`" if command else "") + "\n",
        "badge": badge(need, "" if verdict is None else verdict.word),
        "picture": answer_picture(result, labels),
        "text": f"{result.model.id}: {said}",
        "tools": {tool.name: tool.title for tool in tools_for(scenario)},
    }


_NOT_JUDGED = "#57606a"
_SIGN_WIDTH, _PADDING = 6.8, 10
"""Of 12 px DejaVu Sans, Verdana and their like, on an average; the text is stretched to it."""


def badge(need: str, word: str) -> str:
    """What stands in a README: the need, and the verdict's word on its colour (white on it: WCAG AA)."""
    left, right = "vramwise", f"{need} · {word}" if word else need
    widths = [round(len(text) * _SIGN_WIDTH) + 2 * _PADDING for text in (left, right)]
    whole = sum(widths)
    grey, colour = "#24292f", verdict_colour(word) if word else _NOT_JUDGED
    parts = [
        svg.box(0, 0, whole, 22, colour, radius=4), svg.box(0, 0, widths[0], 22, grey, radius=4),
        svg.box(widths[0] - 4, 0, 4, 22, grey),
    ]  # fmt: skip
    parts += [
        svg.text(start + _PADDING, 15, text, fill="#fff", length=width - 2 * _PADDING)
        for start, width, text in ((0, widths[0], left), (widths[0], widths[1], right))
    ]
    return svg.document(whole, 22, parts, title=f"{left}: {right}", font="Verdana,DejaVu Sans,sans-serif", ground="")


def stated(scenario: Scenario) -> dict[str, Any]:
    """What was stated of a scenario, without the defaults, as a file holds it."""
    table = {"model": scenario.model, "task": scenario.task, **_stated(scenario)}
    settings = _stated(scenario.settings)
    name = "serve" if scenario.task == "load" else scenario.task
    return {**table, name: settings} if settings else table


def _stated(settings: Settings) -> dict[str, object]:
    kinds = kinds_of(type(settings))
    given = {key: getattr(settings, key) for key in kinds if key in settings.explicit}
    return {key: kinds[key].to_json(value) for key, value in given.items() if value is not None}


def address_of(table: Mapping[str, object]) -> str:
    """What stands behind `#` in the page's address: `model=…&task=…&train.micro_batch_size=2`."""
    flat: dict[str, str] = {}
    for key, value in table.items():
        if key in _TABLES and isinstance(value, Mapping):
            flat |= {f"{key}.{inner}": _in_address(one) for inner, one in value.items()}
        else:
            flat[key] = _in_address(value)
    return urlencode(flat, quote_via=quote, safe="/:,@")


def _in_address(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ",".join(value)
    return json.dumps(value, separators=(",", ":"))


def toml_lines(table: Mapping[str, object], path: tuple[str, ...] = ()) -> Iterator[str]:
    """A table as TOML: its values first, then the tables in it. A key without a value is left out."""
    inner = {key: value for key, value in table.items() if isinstance(value, Mapping) and value}
    for key, value in table.items():
        if key not in inner and value is not None:
            yield f"{_key(key)} = {_value(value)}"
    for key, value in inner.items():
        yield ""
        yield f"[{'.'.join(map(_key, (*path, key)))}]"
        yield from toml_lines(value, (*path, key))


def _key(key: str) -> str:
    plain = key.isascii() and key.replace("_", "").replace("-", "").isalnum()
    return key if plain else _text(key)


def _value(value: object) -> str:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        pairs = (f"{_key(key)} = {_value(one)}" for key, one in value.items() if one is not None)
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list):
        return f"[{', '.join(_value(one) for one in value if one is not None)}]"
    return json.dumps(value)  # numbers and truth values are the same in both


def _text(text: str) -> str:
    return json.dumps(text).replace("\x7f", "\\u007f")
