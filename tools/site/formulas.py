"""A reference page of what every part of an answer is made of, read off answers: it cannot say anything else."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any

from reference import row, table

import vramwise
from vramwise.utilization import conventions

ASKED: dict[str, dict[str, Any]] = {
    "training": {"model": "llama-3.1-8b", "task": "train", "gpu": "h100-sxm-80gb"},
    "LoRA": {"model": "llama-3.1-8b", "task": "train", "gpu": "h100-sxm-80gb", "train": {"method": "lora"}},
    "QLoRA": {"model": "llama-3.1-8b", "task": "train", "gpu": "rtx-4090", "train": {
        "method": "qlora", "quantization": "nf4", "checkpointing": "full"}},
    "ZeRO-3": {"model": "llama-3.1-8b", "task": "train", "gpu": "h100-sxm-80gb", "num_gpus": 8, "train": {
        "framework": "deepspeed", "zero_stage": 3}},
    "Megatron": {"model": "llama-3.1-8b", "task": "train", "gpu": "h100-sxm-80gb", "num_gpus": 8, "train": {
        "framework": "megatron", "tensor_parallel_size": 4, "pipeline_parallel_size": 2, "num_microbatches": 8}},
    "vLLM": {"model": "llama-3.1-8b", "task": "serve", "gpu": "h100-sxm-80gb", "serve": {"engine": "vllm"}},
    "SGLang": {"model": "llama-3.1-8b", "task": "serve", "gpu": "h100-sxm-80gb", "serve": {"engine": "sglang"}},
    "llama.cpp": {"model": "llama-3.1-8b", "task": "serve", "gpu": "rtx-4090", "serve": {
        "engine": "llama.cpp", "gguf_quant": "Q4_K_M", "n_ctx": 8192}},
    "generate": {"model": "llama-3.1-8b", "task": "generate", "gpu": "rtx-4090"},
}  # fmt: skip
"""One question of each way of answering; more of them would add numbers and few parts."""
KINDS = {
    "exact": "counted to the byte, held against the real thing in a test",
    "derived": "follows from sources that were read, not from a count",
    "calibrated": "fitted to measurements; carries an interval",
    "assumed": "neither; carries a wide interval",
    "measured": "read off this machine or its site file",
}


def pages() -> dict[str, str]:
    """The page by its path."""
    return {"reference/formulas.md": _page()}


def _page() -> str:
    found: dict[tuple[str, str, str, str], dict[str, None]] = {}
    inputs: dict[tuple[str, str, str, str], dict[str, None]] = {}
    for name, scenario in ASKED.items():
        for node in _nodes(vramwise.estimate(scenario).to_dict()):
            key = node["name"], node["kind"], _without_numbers(node), node.get("source") or ""
            found.setdefault(key, {})[name] = None
            inputs.setdefault(key, {}).update(dict.fromkeys(node.get("inputs") or {}))
    rows = [
        row(f"`{part}`", kind, formula, ", ".join(inputs[part, kind, formula, source]),
            source, ", ".join(of))
        for (part, kind, formula, source), of in sorted(found.items())
    ]  # fmt: skip
    return (
        "# What every part is made of\n\n"
        "Bytes of one GPU, or a count of values times the bytes of one. The rows are read off answers to "
        f"{len(ASKED)} questions ({', '.join(ASKED)}); `vramwise estimate … --explain PATH` and `--json` print the "
        "same with the numbers of your own, and below activations every saved value with its shape. What is in no row "
        "is not counted: other processes on the card, what a program of your own keeps, and what a note of the answer "
        "names. Errors are measured: [accuracy](../accuracy.md).\n\n"
        + table(("kind", "what it means"), [row(f"`{kind}`", words) for kind, words in KINDS.items()])
        + "\n"
        + table(("part", "kind", "formula", "inputs", "source", "in answers about"), rows)
        + "\n## FLOPs of a training step, by the formulas that others use\n\n"
        f"FLOPs per token. {_symbols()}\n\n"
        + table(
            ("name", "formula", "N", "attention", "counts recomputation", "used by", "source"),
            [
                row(
                    f"`{one.name}`",
                    one.formula,
                    one.parameters,
                    one.attention,
                    "yes: HFU" if one.counts_recomputation else "no: MFU",
                    one.used_by,
                    one.source,
                )
                for one in conventions.CONVENTIONS
            ],
        )
    )


def _nodes(answer: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Every part of every moment that has bytes, without the single values that are saved (`block · mm.input`)."""
    for phase in answer["phases"]:
        waiting = [phase["components"]]
        while waiting:
            node = waiting.pop()
            waiting += node.get("children") or []
            if node["bytes"] and node["name"] != phase["name"] and " · " not in node["name"]:
                yield node


def _without_numbers(node: Mapping[str, Any]) -> str:
    """The formula, with sizes of the model that was asked about as such: N for what has thousands."""
    if not node.get("formula"):
        return "the sum of its parts" if node.get("children") else "as the source says"
    return re.sub(r"of layer \d+", "of a layer", re.sub(r"\b\d{1,3}(?:,\d{3})+\b", "N", node["formula"]))


def _symbols() -> str:
    return (
        " ".join((inspect.getdoc(conventions.Sizes) or "").split()) + " s is the sequence, L, h, H, Q and V are the "
        "layers, hidden size, heads, head size and vocabulary."
    )
