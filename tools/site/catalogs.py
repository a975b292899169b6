"""Reference pages of what is known by name: models, GPUs, engines, frameworks, each with its source."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from itertools import pairwise
from typing import Any

from reference import row, table

from vramwise.cli.models import context_and_weights
from vramwise.engines import engines
from vramwise.frameworks import framework_named
from vramwise.hardware import gpus
from vramwise.scenario.names import FRAMEWORKS
from vramwise.sources.catalog import catalog
from vramwise.units import gib


def pages() -> dict[str, str]:
    """Every page by its path."""
    return {
        "reference/models.md": _models(),
        "reference/gpus.md": _gpus(),
        "reference/engines.md": _engines(),
        "reference/frameworks.md": _frameworks(),
    }


def _models() -> str:
    found = catalog("")
    rows = []
    for one in found:
        positions, weights = context_and_weights(one)
        rows.append(row(f"`{one.id}`", one.model_type, f"{positions:,}" if positions else "", weights, one.source))
    return (
        f"# Which models are known by name?\n\n{len(found):,} checkpoints, offline. Any other model is a folder, a "
        "`config.json`, a GGUF file or a hub's name ([where models come from](../where-models-come-from.md)); "
        "[model types](../model-types.md) says how exact each architecture is. `vramwise models QUERY` looks "
        "for one.\n\n" + table(("name", "type", "context", "weights", "read in"), rows)
    )


def _gpus() -> str:
    def figure(value: float | None, decimals: int = 0) -> str:
        return "" if value is None else f"{value:,.{decimals}f}"

    rows = [
        row(
            f"`{gpu.id}`", gpu.name, figure(gpu.memory_nominal_gb),
            figure(None if gpu.usable_bytes is None else gib(gpu.usable_bytes), 2), figure(gpu.bandwidth_gb_s),
            figure(gpu.dense_tflops("bf16")), gpu.source,
        )
        for gpu in gpus("")
    ]  # fmt: skip
    return (
        f"# Which cards are known by name?\n\n{len(rows)} accelerators; `usable` is what a process may take of "
        f"what the "
        "driver reports. Rates are dense TFLOPS with fp32 accumulation; an empty cell is not known. `vramwise "
        "gpus NAME` "
        "says more, with its rule.\n\n" + table(("id", "name", "sold GB", "usable GiB", "GB/s", "bf16", "source"), rows)
    )


def _engines() -> str:
    parts = [
        "# What is known of each engine?\n\nFacts that tell engines apart, from their records in "
        "`src/vramwise/engines`; "
        "the files and versions in which they were read stand there. [Serving](../serving.md) says what follows.\n\n"
    ]
    parts += [f"## {one.title}\n\n{_about('engines', one.name)}\n\n{_facts(one)}" for one in engines()]
    return "".join(parts)


def _frameworks() -> str:
    parts = [
        "# What does each framework do unasked?\n\nDefaults where a scenario says nothing, and where a "
        "framework differs "
        "from a plain loop, from the records in `src/vramwise/frameworks`. [Training](../training.md) says what "
        "follows.\n\n"
    ]
    for name in FRAMEWORKS:
        record = framework_named(name)
        rows = [row(f"`{one.when}`" if one.when else "always", f"`{one.key}`", f"`{one.value}`", one.source)
                for one in record.defaults]  # fmt: skip
        stated = table(("when", "key", "value", "read in"), rows) if rows else ""
        parts.append(f"## {record.title or name}\n\n{_about('frameworks', name)}\n\n{stated}{_facts(record)}")
    return "".join(parts)


def _about(package: str, name: str) -> str:
    """The first sentence of a record's file."""
    module = import_module(f"vramwise.{package}.{name.replace('-', '_').replace('.', '_')}")
    return (inspect.getdoc(module) or "").split("\n\n")[0]


_NOT_SHOWN = {"name", "title", "defaults", "log", "shortages", "serving"}
"""Fields whose tables stand elsewhere on the page, and how logs are recognised."""


def _facts(record: Any) -> str:
    """Every field that is not as in a record that says nothing, with what the field means."""
    meaning = _field_texts(type(record))
    rows = []
    for one in dataclasses.fields(record):
        value = getattr(record, one.name)
        default = one.default if one.default_factory is dataclasses.MISSING else one.default_factory()
        if one.name not in _NOT_SHOWN and value != default and value not in ((), "", None):
            rows.append(row(f"`{one.name}`", _said(value), meaning.get(one.name, "")))
    return table(("fact", "value", "what it says"), rows) if rows else ""


@cache
def _field_texts(cls: type) -> dict[str, str]:
    """What stands below each field of a record."""
    (body,) = (node for node in ast.walk(ast.parse(inspect.getsource(cls))) if isinstance(node, ast.ClassDef))
    return {
        field.target.id: " ".join(said.value.value.split())
        for field, said in pairwise(body.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        and isinstance(said, ast.Expr) and isinstance(said.value, ast.Constant)
    }  # fmt: skip


def _said(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"`{key}`: {_said(one)}" for key, one in value.items())
    if isinstance(value, tuple | list | set | frozenset):
        return ", ".join(map(_said, value))
    if dataclasses.is_dataclass(value):
        inner = ((one.name, getattr(value, one.name), one.default) for one in dataclasses.fields(value))
        return "; ".join(f"{name}: {_said(got)}" for name, got, default in inner if got != default)
    if callable(value):
        return (inspect.getdoc(value) or value.__name__.strip("_").replace("_", " ")).split("\n")[0]
    pattern = getattr(value, "pattern", None)
    return f"`{pattern or value}`"
