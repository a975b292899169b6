"""Norms as transformers 5.23 runs them: some are one kernel, most are written in Python."""

from __future__ import annotations

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.records import record


@record(kw_only=True, eq=False)
class RmsNorm(Operation):
    is_norm = True

    style: str = "llama"


@lowering(RmsNorm)
def rms_norm(run: Lowering, op: RmsNorm, x: Tensor) -> Tensor:
    """The norms written in Python: fp32 inside; where the cast back happens is the family's `style`."""
    tape, style = run.tape, op.style
    if style == "unweighted-factor":
        return unweighted(run, x)
    weights = run.parameters_of(op)
    dtype = x.dtype
    h = x if style == "own-dtype" else tape.to(x, "fp32")
    variance = tape.scale(tape.reduce("mean", tape.unary("pow", h)), "add_scalar")
    if style == "gemma4":  # the root is a power too, and a norm of values has no weight
        normalized = tape.mul(h, tape.unary("pow", variance))
        return tape.to(tape.mul(normalized, tape.to(weights[0], "fp32")) if weights else normalized, dtype)
    normalized = tape.mul(x if style == "t5" else h, tape.unary("rsqrt", variance))
    if style == "gemma":
        scale = tape.scale(tape.to(weights[0], "fp32"), "add_scalar")
        return tape.to(tape.mul(normalized, scale), dtype)
    if style == "fp32-product":
        return tape.to(tape.mul(weights[0], normalized), dtype)
    if style == "fp32-weight":
        return tape.to(tape.mul(tape.to(weights[0], "fp32"), normalized), dtype)
    if style == "unweighted":
        return tape.to(normalized, dtype)
    if style == "t5":  # cast to the weight's dtype, where that has 16 bits
        dtype = weights[0].dtype if weights[0].dtype != "fp32" else normalized.dtype
    return tape.mul(weights[0], tape.to(normalized, dtype))


@record(kw_only=True, eq=False)
class LayerNorm(Operation):
    is_norm = True

    style: str = "torch"


@lowering(LayerNorm)
def layer_norm(run: Lowering, op: LayerNorm, x: Tensor) -> Tensor:
    """torch's kernel, unless the family's `style` says what surrounds or replaces it."""
    tape, style = run.tape, op.style
    weights = [*run.parameters_of(op), None, None]
    if style == "fp32":
        return tape.to(tape.layer_norm(tape.to(x, "fp32"), weights[0], weights[1]), x.dtype)
    if style == "one-plus-weight":
        return _layer_norm_one_plus(run, x, *weights[:2])
    if style == "low-precision":
        return _layer_norm_low_precision(run, x, *weights[:2])
    if style == "python":
        return _layer_norm_in_python(run, x, weights[0])
    if style == "deberta":
        return _deberta_layer_norm(run, x, *weights[:2])
    if style == "per-head":
        heads = [tape.narrow(x, 1, 1) for _ in op.parameters]
        return tape.cat([tape.layer_norm(h, w, None) for h, w in zip(heads, weights, strict=False)], 1)
    return tape.layer_norm(x, weights[0], weights[1])


def _layer_norm_one_plus(run: Lowering, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """`NemotronLayerNorm1P`: operands cast by hand, the kernel itself outside autocast."""
    tape = run.tape
    assert weight is not None
    scale = tape.scale(weight, "add_scalar")
    autocast, tape.autocast = tape.autocast, None
    try:
        # The class asks whether autocast is on without naming a device, which means CUDA.
        if autocast and tape.device == "cuda":
            x, scale = tape.to(x, autocast), tape.to(scale, autocast)
            bias = tape.to(bias, autocast) if bias is not None else None
        return tape.layer_norm(x, scale, bias)
    finally:
        tape.autocast = autocast


def _layer_norm_low_precision(run: Lowering, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """llm-foundry's `LPLayerNorm`: operands cast to autocast's dtype, the kernel outside autocast."""
    tape = run.tape
    autocast, tape.autocast = tape.autocast, None
    try:
        if autocast:
            x = tape.to(x, autocast)
            weight, bias = (p if p is None else tape.to(p, autocast) for p in (weight, bias))
        return tape.layer_norm(x, weight, bias)
    finally:
        tape.autocast = autocast


def _deberta_layer_norm(run: Lowering, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """`DebertaLayerNorm`: in fp32, divided by a root; cast back before weight and bias."""
    tape = run.tape
    assert weight is not None
    assert bias is not None
    h = tape.to(x, "fp32")
    mean = tape.reduce("mean", h)
    variance = tape.reduce("mean", tape.unary("pow", tape.add(h, mean)))
    root = tape.unary("sqrt", tape.scale(variance, "add_scalar"))
    normalized = tape.to(tape.div(tape.add(h, mean), root), x.dtype)
    return tape.add(tape.mul(weight, normalized), bias)


def _layer_norm_in_python(run: Lowering, x: Tensor, weight: Tensor | None) -> Tensor:
    """`CohereLayerNorm`: fp32, the difference from the mean taken twice."""
    tape = run.tape
    assert weight is not None
    h = tape.to(x, "fp32")
    mean = tape.reduce("mean", h)
    variance = tape.reduce("mean", tape.unary("pow", tape.add(h, mean)))
    normalized = tape.mul(tape.add(h, mean), tape.unary("rsqrt", tape.scale(variance, "add_scalar")))
    return tape.to(tape.mul(tape.to(weight, "fp32"), normalized), x.dtype)


def unweighted(run: Lowering, x: Tensor) -> Tensor:
    """`x · rsqrt(mean(x²) + ε)`, the factor in fp32 and cast to x's dtype."""
    tape = run.tape
    squares = tape.reduce("mean", tape.unary("pow", tape.to(x, "fp32")))
    return tape.mul(x, tape.to(tape.unary("rsqrt", tape.scale(squares, "add_scalar")), x.dtype))
