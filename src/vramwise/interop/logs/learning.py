"""What an engine's log teaches of the machine that it ran on: the terms that one printed line determines each."""

from __future__ import annotations

import json
from hashlib import sha256

from vramwise.errors import UsageError
from vramwise.estimation import terms_asked
from vramwise.interop.logs.comparison import Comparison
from vramwise.interop.logs.reading import Printed
from vramwise.result import Node, Result
from vramwise.site import Asked
from vramwise.site.run import TERMS, Run, Term
from vramwise.sources.portable import portable_scenario

_EXPORTED = ("weights", "kv_cache_bytes", "kv_cache_tokens", "activation_peak", "non_torch", "cuda_graph")


def run_of_log(comparison: Comparison) -> tuple[Run, tuple[str, ...]]:
    """The run of a log with the terms that it determines, and why others are not.

    vLLM prints what lies outside torch and what graph capture took, SGLang graphs and what its ranks' communicators
    took; each line is one term. Graphs are kept as a ratio to what the estimate has, which is what carries over to
    other sizes of the same type of model. Raises UsageError where the log names no card.
    """
    if comparison.asked.gpu is None:
        raise UsageError("the log does not say which card it ran on: add --gpu NAME to calibrate")
    result, asked = terms_asked(comparison.asked)
    terms: list[Term] = []
    unlearned: list[str] = []
    reading = comparison.reading
    if comparison.asked.serve.engine_version is None:
        asked = {}
        unlearned.append("the log does not say the engine's version: add --set engine_version=VERSION")
    elif not asked:
        unlearned.append(f"nothing that {reading.engine} prints is one term that only measurements give")
    for name, printed in (
        ("non_torch", reading.printed.get("non_torch")), ("cuda_graphs", reading.printed.get("cuda_graph")),
        ("communicators", reading.communicators),
    ):  # fmt: skip
        if name not in asked:
            continue
        if printed is None:
            unlearned.append(f"{TERMS[name]}: the log does not print it")
        elif name == "cuda_graphs":
            graphs = _captured(result)
            if graphs is None:
                unlearned.append("CUDA graphs: capture frees other memory too, so that its line does not say them")
            elif printed.value > 0:
                terms.append(_term(asked[name], reading.version, printed, graphs.bytes))
        elif printed.value >= 0:
            terms.append(_term(asked[name], reading.version, printed, 1))
    numbers = {name: reading.printed[name] for name in _EXPORTED if name in reading.printed}
    return Run(
        id=_id(comparison), command="compare", gpu=str(result.capacity.gpu) if result.capacity else "",
        terms=tuple(terms), scenario=portable_scenario(comparison.asked),
        measured={name: round(printed.value) for name, printed in numbers.items()},
        precision={name: round(printed.precision) for name, printed in numbers.items() if printed.precision >= 1},
    ), tuple(unlearned)  # fmt: skip


def _term(asked: Asked, version: str | None, printed: Printed, unit: int) -> Term:
    return Term(
        asked.term, asked.program, version or asked.version or "", printed.value / unit, printed.precision / unit,
        asked.of, asked.ranks,
    )  # fmt: skip


def _captured(result: Result) -> Node | None:
    """The graphs, where they are all that the line of capture counts."""
    for phase in reversed(result.phases):
        node = phase.components.find("CUDA graphs")
        if node is not None:
            graphs = node.children[0] if node.children else node
            printed = result.quantities.get("cuda_graph")
            return graphs if graphs.bytes and printed is not None and printed.expected == graphs.bytes else None
    return None


def _id(comparison: Comparison) -> str:
    """The same for the same log, whatever it is called."""
    lines = [(name, printed.value, printed.line) for name, printed in sorted(comparison.reading.printed.items())]
    settings = comparison.reading.settings
    return sha256(json.dumps([settings, lines], sort_keys=True, default=str).encode()).hexdigest()[:12]
