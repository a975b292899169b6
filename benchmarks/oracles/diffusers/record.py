"""What one call of a Diffusers component holds: its real class on fake CUDA tensors, without gradients.

    python benchmarks/oracles/diffusers/record.py CASES.jsonl > tests/golden/diffusers_components.jsonl

A case: {"class": "FluxTransformer2DModel", "config": {...}, "dtype": "bf16", "call": "forward",
"inputs": {name: shape}}.
A row is the case with the class's parameters, and the bytes above weights and inputs at the fullest moment. Needs
diffusers beside torch; no card, no weights. `--live` adds what lived then, largest first.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import Any

import diffusers
import torch
import transformers

from vramwise.dryrun.card import Card
from vramwise.dryrun.events import FREE, MARK, TAKE, Life, Log
from vramwise.dryrun.session import Session, watching

_CARD = Card("NVIDIA H100 80GB HBM3", 80 << 30, (9, 0))
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "int64": torch.int64}
_SHOWN = 14


def made(case: dict[str, Any]) -> torch.nn.Module:
    """The class with random weights that are never written."""
    kind = getattr(diffusers, case["class"], None) or getattr(transformers, case["class"])
    if hasattr(kind, "from_config"):
        return kind.from_config(case["config"])
    return kind(kind.config_class(**case["config"]))


def loaded(model: torch.nn.Module, dtype: torch.dtype) -> torch.nn.Module:
    """As `from_pretrained(torch_dtype=…)` leaves it: tables that no file holds, and some modules, stay in fp32."""
    stay = getattr(model, "_keep_in_fp32_modules", None) or [] if hasattr(model, "from_config") else []
    held = model.state_dict()
    for path, module in model.named_modules():
        for leaf, one in (*module._parameters.items(), *module._buffers.items()):
            name = f"{path}.{leaf}" if path else leaf
            if one is None or name not in held or any(word in name.split(".") for word in stay):
                continue
            if leaf in module._parameters:
                module._parameters[leaf] = torch.nn.Parameter(one.to(dtype), requires_grad=False)
            elif one.is_floating_point():
                module._buffers[leaf] = one.to(dtype)
    return model


def given(shape: Any, dtype: str) -> Any:
    """A tensor of a shape; `["int64", 2, 77]` names its dtype; a table of tensors; anything else as it is."""
    if isinstance(shape, dict):
        return {name: given(one, dtype) for name, one in shape.items()}
    if not isinstance(shape, list) or (shape and isinstance(shape[0], list)):
        return [[tuple(one) for one in row] for row in shape] if isinstance(shape, list) else shape
    if shape and isinstance(shape[0], str):
        dtype, shape = shape[0], shape[1:]
    return torch.zeros(shape, dtype=_DTYPES[dtype], device="cuda")


def recorded(case: dict[str, Any], *, live: bool) -> dict[str, Any]:
    """The case's row."""
    session = Session(_CARD, stacks=live)
    with watching(session), torch.no_grad():
        model = loaded(made(case).to("cuda"), _DTYPES[case["dtype"]]).eval()
        for switch in case.get("switches", ()):
            getattr(model, switch)()
        inputs = {name: given(shape, case["dtype"]) for name, shape in case["inputs"].items()}
        session.watcher.mark("call")
        out = getattr(model, case.get("call", "forward"))(**inputs)
        session.watcher.mark("")
        del out
        parameters = sum(one.numel() for one in model.parameters())
        buffers = sum(model.get_buffer(name).numel() for name in model.state_dict() if not _is_parameter(model, name))
    lived, peak, left = fullest(session.watcher.log)
    row = {
        **case,
        "torch": torch.__version__,
        "diffusers": diffusers.__version__,
        "parameters": parameters,
        "buffers": buffers,
    }
    row["live_bytes"], row["left_bytes"] = peak, left
    if live:
        found = Counter[tuple[Any, ...]]()
        for one in lived:
            line = next((f"{f[0].rpartition('/')[2]}:{f[1]}" for f in one.stack), "")
            found[one.size, one.operation, one.module, line] += 1
        largest = sorted(found.items(), key=lambda item: -item[0][0] * item[1])[:_SHOWN]
        row["live"] = [[count, *what] for what, count in largest]
    return row


def _is_parameter(model: torch.nn.Module, name: str) -> bool:
    module, _, leaf = name.rpartition(".")
    return leaf in model.get_submodule(module)._parameters


def fullest(log: Log) -> tuple[list[Life], int, int]:
    """What the call made and lived at its fullest moment, its bytes in steps of 512, and what is left after it."""
    alive: dict[int, Life] = {}
    lived: list[Life] = []
    now = peak = 0
    calling = False
    for kind, what in log.events:
        if kind == MARK:
            calling = what == "call"
            if not calling and peak:
                break
        elif kind == TAKE and calling:
            alive[what] = log.lives[what]
            now += rounded(log.lives[what].size)
            if now > peak:
                peak, lived = now, list(alive.values())
        elif kind == FREE and what in alive:
            now -= rounded(alive.pop(what).size)
    return lived, peak, now


def rounded(size: int) -> int:
    """As torch's allocator counts it."""
    return -(-size // 512) * 512


def main() -> None:
    """Rows of all cases of the files named."""
    paths = [path for path in sys.argv[1:] if not path.startswith("--")]
    for path in paths:
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                print(json.dumps(recorded(json.loads(line), live="--live" in sys.argv)), flush=True)


if __name__ == "__main__":
    main()
