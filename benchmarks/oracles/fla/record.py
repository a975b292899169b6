"""What autograd keeps and what the Python of released packages allocates around kernels that do nothing, as rows.

python record.py --packages fla_core-0.6.0 --version 0.6.0 >> ../../../tests/golden/fla_kernels.jsonl
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import stand_ins
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
DELTA = [
    # batch, tokens, key heads, value heads, width of keys, of values
    (1, 128, 2, 4, 128, 128), (2, 192, 4, 4, 128, 128), (1, 100, 2, 6, 128, 64), (3, 40, 1, 2, 64, 128),
    (1, 256, 2, 2, 96, 192), (2, 320, 1, 3, 256, 32), (1, 64, 16, 48, 128, 128),
]  # fmt: skip
KIMI = [(1, 128, 2, 2, 128, 128), (2, 100, 3, 3, 128, 128), (3, 40, 2, 2, 64, 64), (1, 320, 4, 4, 128, 128)]
NORMS = [(1, 128, 4, 4, 128, 128), (2, 40, 1, 3, 64, 64), (1, 100, 2, 2, 32, 192)]
CONVOLUTIONS = [(1, 128, 2, 4, 16, 32), (2, 40, 1, 3, 8, 24)]


class Live(TorchDispatchMode):
    """Bytes of storages that were made within and are alive, and the most of them at once."""

    def __init__(self) -> None:
        super().__init__()
        self.made: dict[int, tuple[StorageWeakRef, int]] = {}
        self.known: set[int] = set()
        self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        read = {t.untyped_storage()._cdata for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)}
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in read and storage._cdata not in self.known:
                    self.made[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
        self.most = max(self.most, self.bytes())
        return result

    def bytes(self) -> int:
        self.made = {key: one for key, one in self.made.items() if not one[0].expired()}
        return sum(nbytes for _, nbytes in self.made.values())


def measured(run: Callable[..., Any], inputs: dict[str, torch.Tensor]) -> dict[str, Any]:
    """One forward and backward pass: what is kept, and the most that is alive of what they made."""
    owners = {tensor.untyped_storage()._cdata: name for name, tensor in inputs.items()}
    saved: dict[int, list[Any]] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        saved.setdefault(storage._cdata, [owners.get(storage._cdata, ""), storage.nbytes()])
        return tensor

    forward = Live()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), forward:
        out = run(**inputs)
    before = forward.bytes()
    gradient = torch.ones_like(out)
    backward = Live()
    backward.known = set(owners)
    wanted = [tensor for tensor in inputs.values() if tensor.requires_grad]
    with backward:
        gradients = torch.autograd.grad(out, wanted, gradient)
    return {
        "saved": sorted(saved.values()), "out": out.nbytes, "forward": forward.most, "kept": before,
        "backward": backward.most, "gradients": sum(one.nbytes for one in gradients),
    }  # fmt: skip


def tensor(shape: tuple[int, ...], dtype: str) -> torch.Tensor:
    return torch.zeros(shape, dtype=DTYPES[dtype]).requires_grad_()


def sliced(batch: int, tokens: int, heads: int, width: int, dtype: str) -> torch.Tensor:
    """Heads of one part of a wider product, as the models split them off."""
    wide = torch.zeros(batch, tokens, heads * width + 8, dtype=DTYPES[dtype])
    return wide[..., 8:].view(batch, tokens, heads, width).requires_grad_()


def delta_rule(version: str) -> Iterator[tuple[Any, str, Callable[..., Any], dict[str, torch.Tensor]]]:
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule

    def run(**given: torch.Tensor) -> Any:
        return chunk_gated_delta_rule(**given, use_qk_l2norm_in_kernel=True)[0]

    grouped = tuple(map(int, version.split("."))) >= (0, 5)
    for sizes in DELTA:
        b, s, heads, values, k, v = sizes
        if heads != values and not grouped:
            continue
        for dtype in DTYPES:
            q, keys = (sliced(b, s, heads, k, dtype) for _ in range(2))
            yield sizes, dtype, run, {
                "q": q, "k": keys, "v": sliced(b, s, values, v, dtype), "g": tensor((b, s, values), "fp32"),
                "beta": tensor((b, s, values), dtype),
            }  # fmt: skip


def delta_rule_alone(version: str) -> Iterator[tuple[Any, str, Callable[..., Any], dict[str, torch.Tensor]]]:
    """Queries and keys of length 1, one for every head of values, as Megatron hands them over."""
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule

    def run(**given: torch.Tensor) -> Any:
        return chunk_gated_delta_rule(**given)[0]

    for b, s, _, values, k, v in DELTA:
        for dtype in DTYPES:
            sizes, rows = (b, s, values, values, k, v), (b, s, values)
            yield sizes, dtype, run, {
                "q": tensor((*rows, k), dtype), "k": tensor((*rows, k), dtype), "v": tensor((*rows, v), dtype),
                "g": tensor(rows, "fp32"), "beta": tensor(rows, dtype),
            }  # fmt: skip


def l2_norm(version: str) -> Iterator[tuple[Any, str, Callable[..., Any], dict[str, torch.Tensor]]]:
    from fla.modules.l2norm import l2norm

    for b, s, _, heads, k, v in NORMS:
        for dtype in DTYPES:
            yield (b, s, heads, heads, k, v), dtype, lambda x: l2norm(x), {"x": tensor((b, s, heads, k), dtype)}


def kimi_rule(version: str) -> Iterator[tuple[Any, str, Callable[..., Any], dict[str, torch.Tensor]]]:
    from fla.ops.kda import chunk_kda

    def run(**given: torch.Tensor) -> Any:
        return chunk_kda(**given, use_qk_l2norm_in_kernel=True)[0]

    for sizes in KIMI:
        b, s, heads, _, k, v = sizes
        for dtype in DTYPES:
            q, keys = (sliced(b, s, heads, k, dtype) for _ in range(2))
            yield sizes, dtype, run, {
                "q": q, "k": keys, "v": sliced(b, s, heads, v, dtype), "g": tensor((b, s, heads, k), "fp32"),
                "beta": tensor((b, s, heads), dtype),
            }  # fmt: skip


def gated_norm(version: str) -> Iterator[tuple[Any, str, Callable[..., Any], dict[str, torch.Tensor]]]:
    from fla.modules import FusedRMSNormGated

    for sizes in NORMS:
        b, s, _, heads, _, v = sizes
        for dtype in DTYPES:
            for weights in {dtype, "fp32"}:
                norm = FusedRMSNormGated(v, dtype=DTYPES[weights])

                def run(x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor, norm: Any = norm) -> Any:
                    return norm(x.reshape(-1, x.shape[-1]), gate.reshape(-1, x.shape[-1]))

                shape = (b, s, heads, v)
                yield sizes, f"{dtype} {weights}", run, {
                    "x": tensor(shape, dtype), "gate": tensor(shape, dtype), "weight": norm.weight,
                }  # fmt: skip


def convolution(version: str) -> Iterator[tuple[Any, str, Callable[..., Any], dict[str, torch.Tensor]]]:
    from causal_conv1d import causal_conv1d_fn

    def run(x: torch.Tensor, weight: torch.Tensor) -> Any:
        return causal_conv1d_fn(x.transpose(1, 2), weight, activation="silu").transpose(1, 2)

    for sizes in CONVOLUTIONS:
        b, s, heads, values, k, v = sizes
        channels = 2 * heads * k + values * v
        for dtype in DTYPES:
            yield sizes, dtype, run, {"x": tensor((b, s, channels), dtype), "weight": tensor((channels, 4), dtype)}


KINDS = {
    "delta_rule": delta_rule,
    "delta_rule_alone": delta_rule_alone,
    "l2_norm": l2_norm,
    "kimi_rule": kimi_rule,
    "gated_norm": gated_norm,
    "convolution": convolution,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--packages", required=True, help="folder with the released package, unpacked")
    parser.add_argument("--version", required=True)
    parser.add_argument("--kinds", nargs="+", default=["delta_rule", "gated_norm"], choices=KINDS)
    given = parser.parse_args()
    sys.path.insert(0, given.packages)
    stand_ins.install()
    if given.kinds != ["convolution"]:
        stand_ins.as_on_a_card()
    for kind in given.kinds:
        for sizes, dtype, run, inputs in KINDS[kind](given.version):
            row = {"version": given.version, "kind": kind, "sizes": sizes, "dtype": dtype}
            print(json.dumps(row | measured(run, inputs), separators=(",", ":")))


if __name__ == "__main__":
    main()
