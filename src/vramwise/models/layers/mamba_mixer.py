"""Mamba's mixer (arXiv 2312.00752): a short convolution and a selective scan; a state that does not grow."""

from __future__ import annotations

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.layers.short_convolution import short_convolution
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.mixers import ChannelsFirst, ChannelsLast, Halves, PaddingZeroed, SelectiveScan, scanned
from vramwise.models.operations.simple import ToParameterDtype
from vramwise.records import record


@record
class Mamba:
    """Sizes and switches of a mixer; `norm`: the style of norms on the time step, B and C, with weights or without."""

    inner: int
    state: int
    rank: int
    kernel: int
    bias: bool
    conv_bias: bool
    function: str
    norm: str = ""


def low_rank(c: Config, key: str = "time_step_rank") -> int:
    """Width between the two projections of the time step; "auto" is hidden_size / 16, rounded up."""
    return -(-c.hidden_size // 16) if c.get(key, "auto") == "auto" else c.size(key)


def mixer(b: BlockBuilder, x: Value, s: Mamba, module: str = "mixer") -> Value:
    """out(scan(conv(h), dt, B, C) · act(gate)), where (h, gate) = in(x) and (dt, B, C) are projections of conv(h)."""
    inner, state, rank, width = s.inner, s.state, s.rank, x.width
    b.part = "mixer"
    h = b.unary(ChannelsFirst(), b.linear(b.unary(PaddingZeroed(), x), f"{module}.in_proj", 2 * inner, bias=s.bias))
    h, gate = b.op(Halves(), module, [h], [inner, inner])
    h = short_convolution(b, h, f"{module}.conv1d", s.kernel, function=s.function, bias=s.conv_bias)
    convolved = h = b.unary(PaddingZeroed(), b.unary(ChannelsLast(), h))
    pieces = b.linear(h, f"{module}.x_proj", rank + 2 * state, shard="row")
    time_step, inward, outward = b.split(pieces, [rank, state, state])
    if s.norm:
        named = zip(("dt", "b", "c"), (time_step, inward, outward), strict=True)
        time_step, inward, outward = (b.rms_norm(y, f"{module}.{n}_layernorm", style=s.norm) for n, y in named)
    time_step = b.unary(ChannelsFirst(), b.linear(time_step, f"{module}.dt_proj", inner))
    parameters = [
        b.parameter(f"{module}.dt_proj", "bias", (inner,), shard="column"),
        b.parameter(module, "A_log", (inner, state), shard="column"),
        b.parameter(module, "D", (inner,), shard="column"),
    ]
    (h,) = b.op(
        SelectiveScan(), module, [b.unary(ChannelsFirst(), h), time_step, inward, outward, gate], [inner], parameters
    )
    b.keep(LayerCache("recurrent", conv_state_elements=inner * s.kernel, state_elements=inner * state))
    h = b.unary(ToParameterDtype(), b.unary(ChannelsLast(), h))
    out = b.linear(h, f"{module}.out_proj", width, bias=s.bias, shard="row")
    b.still_named_in(module, gate, convolved, time_step, inward, outward, h)
    return out


def mixer_by_heads(b: BlockBuilder, x: Value, s: Mamba, heads: int, module: str) -> Value:
    """Zamba's: the projections of the convolution's result, the time step and the scan are cut into heads."""
    d = s.inner // heads
    b.part = "mixer"
    h = b.linear(b.unary(PaddingZeroed(), x), f"{module}.in_proj", 2 * s.inner, bias=s.bias)
    h, gate = b.op(AlternatingHalves(num_heads=heads), module, [h], [s.inner, s.inner])
    h = short_convolution(b, h, f"{module}.conv1d", s.kernel, function=s.function, bias=s.conv_bias)
    h = b.unary(ChannelsFirst(), b.unary(PaddingZeroed(), b.unary(ChannelsLast(), h)))
    shapes = {
        "x_proj_weight": (heads, s.rank + 2 * s.state, d), "dt_proj_weight": (heads, d, s.rank),
        "dt_proj_bias": (heads, d), "A_log": (heads, d, s.state), "D": (heads, d),
    }  # fmt: skip
    parameters = [b.parameter(module, name, shape, shard="column") for name, shape in shapes.items()]
    (h,) = b.op(ScanByHead(num_heads=heads), module, [h, gate], [s.inner], parameters)
    b.keep(LayerCache("recurrent", conv_state_elements=s.inner * s.kernel, state_elements=s.inner * s.state))
    return b.linear(h, f"{module}.out_proj", x.width, bias=s.bias, shard="row")


# -- as transformers 5.23 runs it -------------------------------------------------------------------------
# mamba-ssm's fused scan (`selective_scan_fn`), which takes its place where that package is installed, keeps far less.


@record(kw_only=True, eq=False)
class AlternatingHalves(Operation):
    num_heads: int


@lowering(AlternatingHalves)
def alternating_halves(run: Lowering, op: AlternatingHalves, x: Tensor) -> tuple[Tensor, Tensor]:
    """Channels of the mixer and of its gate, which alternate: (b, h·d, s), a copy, and (h, b, d, s), a view."""
    tape, heads = run.tape, op.num_heads
    pairs = tape.transpose(x, 1, 2)
    pairs = tape.view(pairs, x.shape[0], x.shape[2] // 2, 2, x.shape[1])
    mixed, gate = tape.chunk(pairs, 2, 2)
    gate = tape.reshape(gate, x.shape[0], heads, -1, x.shape[1])
    return tape.contiguous(tape.squeeze(mixed, 2)), tape.transpose(gate, 0, 1)


@record(kw_only=True, eq=False)
class ScanByHead(Operation):
    package = "mamba-ssm"

    num_heads: int


@lowering(ScanByHead)
def scan_by_head(run: Lowering, op: ScanByHead, x: Tensor, gate: Tensor) -> Tensor:
    """(b, h·d, s) -> (b, s, h·d) in the layer's dtype."""
    tape, heads = run.tape, op.num_heads
    project, widen, bias, a_log, skip = run.parameters_of(op)
    state = a_log.shape[-1]
    x = tape.transpose(tape.reshape(x, x.shape[0], heads, -1, x.shape[-1]), 0, 1)
    projected = tape.matmul(tape.unsqueeze(tape.unleafed(project), 1), x)
    pieces = [widen.shape[-1], state, state]
    time_step, inward, outward = tape.split(tape.transpose(projected, -1, -2), pieces)
    time_step = tape.matmul(tape.unsqueeze(tape.unleafed(widen), 1), tape.transpose(time_step, -1, -2))
    bias = tape.to(bias, "fp32")
    a = tape.unary("neg", tape.unary("exp", tape.to(a_log, "fp32")))
    outputs = []
    for _ in range(heads):
        own = tape.to(tape.select(bias, 0), time_step.dtype)
        head = (tape.select(part, 0) for part in (skip, inward, outward, gate))
        step, rates = tape.select(time_step, 0), tape.select(a, 0)
        outputs.append(scanned(run, tape.select(x, 0), step, rates, own, *head))
    return tape.to(tape.transpose(tape.cat(outputs, 1), 1, 2), run.hidden_dtype)
