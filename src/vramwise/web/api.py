"""`answer(name, body)`: the whole API, `POST /api/v1/NAME`, without a web framework.

The local server, the MCP server and the page in the browser (Pyodide) ask the same function, so that all give the same
bytes as the command line. An error is a table too: `{"error": {"kind", "message", "exit_code"}}`, with `path` where it
is one key of a scenario that is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from vramwise.errors import ScenarioError, UnknownNameError, UsageError, VramwiseError, clipped, nearest, printable
from vramwise.scenario.files import parse_json

ANSWERS = {
    "estimate": ("estimates", "the result of a scenario, as `vramwise estimate --json` prints it"),
    "result": ("estimates", "the same without suggestions, for a page that redraws"),
    "suggestions": ("estimates", "what to change, each with what is needed then"),
    "plan": ("jobs", "what to change, or how many of which GPUs, so that a scenario fits"),
    "dry-run": ("jobs", "a scenario's steps by the real class on fake tensors, where torch is installed"),
    "fit": ("jobs", "which models of the catalog run and train on a machine"),
    "check": ("jobs", "whether a command or a scenario fits, in one word"),
    "batch": ("jobs", "many scenarios at once"),
    "export": ("jobs", "a scenario as the command or file of a tool"),
    "compare": ("files", "an engine's start-up log beside its estimate"),
    "oom": ("files", "why a run went out of memory"),
    "profile": ("files", "where the time of a profiler trace went"),
    "read": ("files", "a file of any of these kinds, and what the command for it says"),
    "door": ("views", "how a model is run, fine-tuned and trained on a card"),
    "cards": ("views", "a scenario on every usual card"),
    "grid": ("views", "a scenario over the values of two keys"),
    "difference": ("views", "two scenarios side by side, term by term"),
    "nearest": ("measured", "the measured cases nearest to a scenario, with their errors"),
    "accuracy": ("measured", "all measured cases, and the table of errors"),
    "words": ("sharing", "a scenario as command line, TOML, JSON, address and badge"),
    "models": ("catalogs", "models whose names hold a query"),
    "hub": ("catalogs", "models of the Hugging Face Hub whose names hold a query"),
    "gpus": ("catalogs", "accelerators whose names hold a query"),
    "keys": ("catalogs", "every key of a scenario: kind, choices, default, owners, help"),
    "version": ("catalogs", "the program's version and the names that it answers"),
    "schema": ("catalogs", "JSON Schema of a scenario, a result or a measured case"),
}
"""Names with the module of `vramwise.web.answers` that has a function of that name, and one line of help."""

DEEPEST = 64
"""Tables and lists inside one another; no scenario and no config.json comes near."""


def answer(name: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to `body`, or a table with `error`; never raises for what a body may hold."""
    try:
        return _answer(name, body)
    except VramwiseError as problem:
        return {"error": _described(problem)}
    except RecursionError:
        return {"error": _described(UsageError("nested too deeply"))}
    except Exception as problem:  # one body's bug must not end the page or the server
        what = f"internal error: {type(problem).__name__} {clipped(str(problem), 200)}"
        return {"error": {"kind": "InternalError", "message": what, "exit_code": VramwiseError.exit_code}}


def answer_text(name: str, body_json: str) -> str:
    """`answer` from JSON text to JSON text, which ends with a line break as a command's output does."""
    try:
        body = parse_json(body_json)
    except (ValueError, RecursionError) as problem:
        why = "nested too deeply" if isinstance(problem, RecursionError) else clipped(str(problem), 200)
        return _text({"error": _described(UsageError(f"the body is no JSON: {why}"))})
    return _text(answer(name, body))


def _answer(name: str, body: object) -> dict[str, Any]:
    if name not in ANSWERS:
        close = nearest(clipped(str(name)), ANSWERS) or list(ANSWERS)
        raise UnknownNameError("name of the API", str(name), close)
    if not isinstance(body, Mapping):
        raise UsageError("the body: expected a table (a JSON object)")
    _refuse_depth(body)
    module = import_module(f"vramwise.web.answers.{ANSWERS[name][0]}")
    asked: Callable[[Mapping[str, object]], dict[str, object]] = getattr(module, function_of(name))
    return asked(body)


def function_of(name: str) -> str:
    """The function that answers a name, in the name's module."""
    return name.replace("-", "_")


def _refuse_depth(body: object) -> None:
    """Raises UsageError for a body nested so deeply that later readers would not stand it."""
    layer, depth = [body], 0
    while layer:
        depth += 1
        if depth > DEEPEST:
            raise UsageError(f"the body: nested more than {DEEPEST} levels deep")
        inner: list[object] = []
        for one in layer:
            inner += one.values() if isinstance(one, Mapping) else one if isinstance(one, list | tuple) else ()
        layer = inner


def _described(problem: VramwiseError) -> dict[str, Any]:
    message = printable(" ".join(str(problem).splitlines()))
    table: dict[str, object] = {
        "kind": type(problem).__name__, "message": message, "exit_code": problem.exit_code,
    }  # fmt: skip
    if isinstance(problem, ScenarioError) and problem.path:
        table["path"] = problem.path
    if isinstance(problem, UnknownNameError):
        table["matches"] = problem.matches
    return table


def _text(table: dict[str, Any]) -> str:
    return json.dumps(table) + "\n"
