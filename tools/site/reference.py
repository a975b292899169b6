"""Reference pages from the code itself: keys of a scenario, the result, the command line, the Python functions."""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import textwrap
from collections.abc import Iterator
from typing import Any

import vramwise
from vramwise.cli.main import COMMANDS, command_parser
from vramwise.result import COUNTS, FRACTIONS, QUANTITIES
from vramwise.result_schema import result_schema
from vramwise.scenario import scenario_schema
from vramwise.scenario.definition import TABLES, Scenario
from vramwise.scenario.nested import nested_tables
from vramwise.scenario.settings import ownership_of, title_of

_LARGEST = 2**53 - 1
"""The largest whole number of JSON's readers: no bound that a person would meet."""


def pages() -> dict[str, str]:
    """Every page by its path."""
    return {
        "reference/keys.md": _keys(),
        "reference/result.md": _result(),
        "reference/commands.md": _commands(),
        "reference/python.md": _python(),
    }


def row(*cells: str) -> str:
    """A row of a table."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|').replace(chr(10), ' ') for cell in cells)} |\n"


def table(head: tuple[str, ...], rows: Iterator[str] | list[str]) -> str:
    """A table with its head."""
    return row(*head) + row(*["---"] * len(head)) + "".join(rows) + "\n"


def _keys() -> str:
    schema: Any = scenario_schema()["properties"]
    parts = [
        "# Which settings are there, and what happens without them?\n\n"
        "Keys of a scenario file, of `vramwise.estimate(…)` and, with dashes, flags of `vramwise estimate`. Without a "
        "default, the engine, the framework or the model decides; `--json` shows what it came to. "
        "[Scenario files](../scenarios.md) has the nested tables.\n\n"
    ]
    for name, cls in {"": Scenario, **TABLES}.items():
        properties = schema if not name else schema[name]["properties"]
        parts.append(f"## {f'The table `{name}`' if name else 'Model, task, hardware'}\n\n")
        owners = ownership_of(cls)
        rows = []
        for key, said in properties.items():
            if key in TABLES or (key in nested_tables(cls) and key not in owners):
                continue
            whose = ", ".join(dict.fromkeys(title_of(owner) or owner.needs for owner in owners[key].owners))
            default = f"`{said['default']}`" if "default" in said else ""
            rows.append(row(f"`{key}`", _allowed(said), default, whose, said["description"]))
        parts.append(table(("key", "values", "default", "whose", "what it says"), rows))
    return "".join(parts)


def _allowed(said: Any) -> str:
    """What a key takes, in the words of its schema."""
    if "enum" in said:
        return ", ".join(f"`{one}`" for one in said["enum"])
    if "anyOf" in said:
        return " or ".join(dict.fromkeys(filter(None, (_allowed(one) for one in said["anyOf"]))))
    if said.get("type") == "array":
        return f"list of {_allowed(said['items'])}"
    kind = said.get("type", "")
    if kind in ("null", ["object", "null"]):
        return ""
    name = {"integer": "whole number", "number": "number", "boolean": "true, false", "string": "text"}.get(
        kind, "table" if kind == "object" else str(kind)
    )
    bounds = [f"{sign} {said[key]:,}" for key, sign in (("minimum", "≥"), ("maximum", "≤"))
              if key in said and abs(said[key]) < _LARGEST]  # fmt: skip
    return " ".join([name, *bounds])


def _result() -> str:
    import json

    schema: Any = result_schema()
    unit = {
        **dict.fromkeys(QUANTITIES, "bytes"), **dict.fromkeys(COUNTS, "count"),
        **dict.fromkeys(FRACTIONS, "number"), "oom": "true, false",
    }  # fmt: skip
    kinds = [row(f"`{key}`", "yes" if key in schema["required"] else "", _shape(said))
             for key, said in schema["properties"].items()]  # fmt: skip
    return (
        "# What does an answer hold?\n\nWhat `--json` prints, `Result.to_dict()` returns and the API answers. "
        "Bytes are "
        "whole numbers; nothing is formatted. `vramwise schema result` prints the schema itself.\n\n"
        + table(("key", "always there", "what it is"), kinds)
        + "## Quantities\n\nEach with `low`, `expected` and `high`, per GPU (the worst rank); `host_memory` is "
        "a node's, "
        "`tokens_per_second` the whole job's. [Counters](../concepts/counters.md) tells them apart.\n\n"
        + table(("name", "unit"), [row(f"`{name}`", unit[name]) for name in QUANTITIES])
        + "## Schema\n\n```json\n"
        + json.dumps({**schema, "properties": {**schema["properties"], "quantities": "as above"}}, indent=1)
        + "\n```\n"
    )


def _shape(said: Any) -> str:
    if "properties" in said:
        return "table: " + ", ".join(f"`{key}`" for key in said["properties"])
    if said.get("type") == "array":
        return f"list of {_shape(said['items'])}"
    kind = said.get("const", said.get("type", "table"))
    return "text or nothing" if isinstance(kind, list) else str(kind)


def _commands() -> str:
    parts = [
        "# What does each command take?\n\nThe output of `vramwise COMMAND --help`; `vramwise estimate --help "
        "all` lists "
        "[every key](keys.md) as a flag. Exit codes: 0 done (fits, or fits tightly), 2 usage, 3 does not fit, 4 "
        "model or "
        "file not reachable, 1 anything else.\n\n"
    ]
    width = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "100"
    for name in COMMANDS:
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
            command_parser(name).parse(["--help"])
        parts.append(f"## vramwise {name}\n\n```text\n{said.getvalue().rstrip()}\n```\n\n")
    os.environ.pop("COLUMNS")
    if width is not None:
        os.environ["COLUMNS"] = width
    return "".join(parts)


def _python() -> str:
    parts = [
        "# How do I ask from Python?\n\nEverything that `import vramwise` offers. Each is imported when it is "
        "first asked "
        "for, so that the import itself takes milliseconds.\n\n"
    ]
    for name in vramwise.__all__:
        if name.startswith("__"):
            continue
        found = getattr(vramwise, name)
        parts.append(f"## vramwise.{name}\n\n```python\n{_signature(name, found)}\n```\n\n{_doc(found)}\n\n")
        if inspect.isclass(found):
            parts += [f"### {name}.{method}\n\n```python\n{_signature(method, one)}\n```\n\n{_doc(one)}\n\n"
                      for method, one in _methods(found)]  # fmt: skip
    return "".join(parts)


def _signature(name: str, found: Any) -> str:
    if isinstance(found, property):
        return name
    if inspect.isclass(found):
        names = list(getattr(found, "__annotations__", {}))
        return textwrap.fill(f"{name}({', '.join(names)})", 96, subsequent_indent="    ")
    return textwrap.fill(f"{name}{inspect.signature(found)}", 96, subsequent_indent="    ")


def _doc(found: Any) -> str:
    return inspect.getdoc(found) or ""


def _methods(found: Any) -> list[tuple[str, Any]]:
    own = [(name, one) for name, one in vars(found).items() if not name.startswith("_") and getattr(one, "__doc__", "")]
    kinds = (staticmethod, classmethod)
    opened = [(name, one.__func__ if isinstance(one, kinds) else one) for name, one in own]
    return [(name, one) for name, one in opened if inspect.isfunction(one) or isinstance(one, property)]
