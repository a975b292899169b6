"""What flash-linear-attention and causal-conv1d keep and take, byte by byte against their own Python.

`tests/golden/fla_kernels.jsonl` holds what released packages hand to autograd and allocate around kernels that do
nothing (benchmarks/oracles/fla).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vramwise.kernels import kernels_for, kernels_named
from vramwise.kernels.flash_linear_attention import chunked, chunked_by_channel, gated_norm
from vramwise.kernels.megatron import of_length_1
from vramwise.models import describe
from vramwise.models.autograd.gradients import input_gradients
from vramwise.models.autograd.size import evaluate, with_rounded_axes
from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import Node, Tensor
from vramwise.models.blocks import Parameter
from vramwise.models.execution import Execution
from vramwise.models.lowering import Lowering
from vramwise.models.operations.delta_rule import GatedHeadNorm
from vramwise.models.operations.mixers import CausalConv1d
from vramwise.models.step import record_forward

GOLDEN = Path(__file__).parents[1] / "golden" / "fla_kernels.jsonl"
ROWS: list[dict[str, Any]] = [json.loads(line) for line in GOLDEN.read_text("utf-8").splitlines()]
MODELS: list[dict[str, Any]] = [
    json.loads(line) for line in GOLDEN.with_name("fla_models.jsonl").read_text("utf-8").splitlines()
]


def of_kind(*kinds: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    rows = [row for row in ROWS if row["kind"] in kinds]
    names = ["-".join([row["kind"], row["version"], row["dtype"], *map(str, row["sizes"])]) for row in rows]
    return pytest.mark.parametrize("row", rows, ids=names)


def run_of(row: dict[str, Any], dtype: str) -> Lowering:
    batch, sequence = row["sizes"][:2]
    reached = frozenset({64}) if sequence > 64 else frozenset[int]()
    return Lowering(Tape(), Execution(param_dtype=dtype), batch, sequence, reached)


def sliced(run: Lowering, heads: int, width: int, dtype: str) -> Tensor:
    """Heads of one part of a wider product."""
    tape = run.tape
    wide = tape.new((run.batch, run.sequence, heads * width + 8), dtype, requires_grad=True)
    part = tape.split(wide, [heads * width, 8])[0]
    return tape.view(part, run.batch, run.sequence, heads, width)


def whole(run: Lowering, heads: int, width: int, dtype: str) -> Tensor:
    return run.tape.new((run.batch, run.sequence, heads, width), dtype, requires_grad=True)


def check(row: dict[str, Any], node: Node, out: Tensor) -> None:
    kept = {id(storage): storage.nbytes for storage, _ in node.saved}
    made = {id(tensor.storage): tensor.storage.nbytes for tensor in node.outputs}
    own = sum(nbytes for owner, nbytes in row["saved"] if not owner)
    read = {id(t.storage) for t in node.inputs}
    assert sum(nbytes for key, nbytes in kept.items() if key not in read) == own
    weights = [n for owner, n in row["saved"] if owner == "weight"]
    assert len(kept) == len(row["saved"]) - len(weights)
    assert sum(made.values()) + node.workspace_bytes == row["forward"]
    gradients = sum(gradient.nbytes for gradient in input_gradients(node, out))
    assert gradients == row["gradients"]
    assert gradients + (node.backward_workspace_bytes or 0) == row["backward"]


@of_kind("delta_rule", "delta_rule_alone")
def test_the_rule(row: dict[str, Any]) -> None:
    dtype, (_, _, heads, values, width, value_width) = row["dtype"], row["sizes"]
    run, alone = run_of(row, dtype), row["kind"] == "delta_rule_alone"
    sizes = ((heads, width), (heads, width), (values, value_width))
    q, k, v = ((whole if alone else sliced)(run, n, wide, dtype) for n, wide in sizes)
    beta, decay = (
        run.tape.new((run.batch, run.sequence, values), kind, requires_grad=True) for kind in (dtype, "fp32")
    )
    out = chunked(run, q, k, v, beta, decay, normalizes=not alone)
    assert out.nbytes == row["out"]
    check(row, run.tape.nodes[-1], out)


def test_products_of_the_rule() -> None:
    """Each product of fla 0.5 ops/gated_delta_rule/chunk.py, a chunk of 64 rows and a head at a time.

    Backward makes w, u and the states again (`recompute_w_u_fwd`, `chunk_gated_delta_rule_fwd_h`).
    """
    rows, keys, values = 64, 32, 48
    again = [
        (rows, rows, keys), (rows, rows, values),  # w, u: the inverse times keys, and times values
        (rows, keys, values), (keys, rows, values),  # values corrected by the state, the state after the chunk
    ]  # fmt: skip
    rest = [
        (rows, keys, rows), (rows, keys, rows),  # keys and queries with keys
        (rows, keys, values), (rows, rows, values),  # queries read the state; values of the chunk
    ]  # fmt: skip
    of_products = [sum(2 * a * b * c for a, b, c in each) for each in (again, rest)]
    run = Lowering(Tape(), Execution(param_dtype="bf16"), 2, 3 * rows, frozenset({64}))
    q, v = (whole(run, 4, width, "bf16") for width in (keys, values))
    beta, decay = (run.tape.new((2, 3 * rows, 4), kind, requires_grad=True) for kind in ("bf16", "fp32"))
    chunked(run, q, q, v, beta, decay, normalizes=False)
    node = run.tape.nodes[-1]
    forward = 2 * 3 * 4 * sum(of_products)
    assert node.flops == forward
    assert node.backward_flops == 2 * 3 * 4 * of_products[0] + 2 * forward


@of_kind("kimi_rule")
def test_kimis_rule(row: dict[str, Any]) -> None:
    dtype, (_, _, heads, _, width, value_width) = row["dtype"], row["sizes"]
    run = run_of(row, dtype)
    q, k, v = (sliced(run, heads, wide, dtype) for wide in (width, width, value_width))
    beta = run.tape.new((run.batch, run.sequence, heads), dtype, requires_grad=True)
    decay = whole(run, heads, width, "fp32")
    out = chunked_by_channel(run, q, k, v, beta, decay)
    check(row, run.tape.nodes[-1], out)


@of_kind("l2_norm")
def test_the_length(row: dict[str, Any]) -> None:
    run = run_of(row, row["dtype"])
    out = of_length_1(run, whole(run, *row["sizes"][3:5], row["dtype"]))
    check(row, run.tape.nodes[-1], out)


@of_kind("gated_norm")
def test_the_norm(row: dict[str, Any]) -> None:
    (dtype, weights), (_, _, _, heads, _, width) = row["dtype"].split(), row["sizes"]
    run = run_of(row, weights)
    x, gate = (run.tape.new((run.batch, run.sequence, heads * width), dtype, requires_grad=True) for _ in range(2))
    weight = Parameter("norm.weight", (width,), "norm", "replicated")
    op = GatedHeadNorm(module="norm", inputs=(), outputs=(), parameters=(weight,))
    gated_norm(run, op, x, gate)
    node = next(node for node in run.tape.nodes if node.op == "fused_gated_rms_norm")
    check(row, node, node.outputs[0])


@of_kind("convolution")
def test_the_convolution(row: dict[str, Any]) -> None:
    dtype, (_, _, heads, values, width, value_width) = row["dtype"], row["sizes"]
    run, channels = run_of(row, dtype), 2 * heads * width + values * value_width
    x = run.tape.transpose(run.tape.new((run.batch, run.sequence, channels), dtype, requires_grad=True), 1, 2)
    weight = Parameter("conv1d.weight", (channels, 1, 4), "mixer", "column")
    op = CausalConv1d(function="silu", module="conv1d", inputs=(), outputs=(), parameters=(weight,))
    (override,) = kernels_named("causal-conv1d").overrides
    out = override.lowering(run, op, x)
    assert isinstance(out, Tensor)
    assert out.strides == x.strides
    check(row, run.tape.nodes[-1], out)


@pytest.mark.parametrize("row", MODELS, ids=lambda row: f"{row['config']['model_type']}-{row['precision']}")
def test_transformers_classes_around_them(row: dict[str, Any]) -> None:
    """The real classes of transformers 5.23 on released packages of both (benchmarks/oracles/fla/models.py)."""
    model, autocast = describe(row["config"]), "bf16" if row["precision"] == "bf16-mixed" else None
    names = ("flash-linear-attention", "causal-conv1d")
    kernels = kernels_for(names, model.config, tuple((name, (5, 23)) for name in names))
    dtype = "bf16" if row["precision"] == "bf16" else "fp32"
    execution = Execution(device="cpu", attention="eager", kernels=kernels, param_dtype=dtype, autocast=autocast)
    batch, sequence = row["batch"], row["sequence"]
    forward = record_forward(model, execution, batch=batch, sequence=sequence)
    assert evaluate(forward.saved_bytes, with_rounded_axes(batch=batch, sequence=sequence)) == row["bytes"]
