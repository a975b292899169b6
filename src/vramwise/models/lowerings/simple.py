"""Operations that most models have: look-ups, products, sums, activations, views."""

from __future__ import annotations

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Op
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.lowerings.activations import apply_activation, xielu
from vramwise.models.lowerings.adapters import with_adapter
from vramwise.models.lowerings.inputs import input_tensor


@lowering("embedding")
def embedding(run: Lowering, op: Op) -> Tensor:
    (weight,) = run.parameters_of(op)
    ids = input_tensor(run, op.settings["ids"], op.settings.get("buffer_rows"))
    return run.tape.embedding(ids, weight)


@lowering("hold")
def hold(run: Lowering, op: Op, x: Tensor) -> Tensor:
    """Parameters that a module owns and that others use under another name."""
    return x


@lowering("linear")
def linear(run: Lowering, op: Op, x: Tensor) -> Tensor:
    weight, *bias = run.parameters_of(op)
    if run.execution.quantizes(op.parameters[0]):
        # bitsandbytes 0.50 nn/modules.py Linear4bit.forward: the input in the compute dtype, the answer in its own.
        result = run.tape.to(run.tape.linear(run.tape.to(x, weight.dtype), weight, *bias), x.dtype)
    else:
        result = run.tape.linear(x, weight, *bias)
    return with_adapter(run, op, x, result)


@lowering("conv1d_linear")
def conv1d_linear(run: Lowering, op: Op, x: Tensor) -> Tensor:
    weight, bias = run.parameters_of(op)
    result = run.tape.conv1d_linear(x, weight, bias)
    return with_adapter(run, op, x, result)


@lowering("add")
def add(run: Lowering, op: Op, a: Tensor, b: Tensor) -> Tensor:
    return run.tape.add(a, b)


@lowering("add_in_place")
def add_in_place(run: Lowering, op: Op, a: Tensor, b: Tensor) -> Tensor:
    return run.tape.add_(a, b)


@lowering("add_bias")
def add_bias(run: Lowering, op: Op, x: Tensor) -> Tensor:
    """A bias that the class adds itself: autocast does not cast it, so it widens the sum."""
    return run.tape.add(x, *run.parameters_of(op))


@lowering("multiply")
def multiply(run: Lowering, op: Op, a: Tensor, b: Tensor) -> Tensor:
    return run.tape.mul(a, b)


@lowering("scale_by")
def scale_by(run: Lowering, op: Op, x: Tensor) -> Tensor:
    """A product with a parameter."""
    return run.tape.mul(x, *run.parameters_of(op))


@lowering("scale")
def scale(run: Lowering, op: Op, x: Tensor) -> Tensor:
    return run.tape.scale(x)


@lowering("scale_by_buffer")
def scale_by_buffer(run: Lowering, op: Op, x: Tensor) -> Tensor:
    """A buffer in the parameters' dtype, as gemma's `embed_scale`."""
    return run.tape.mul(x, run.tape.new((), run.execution.param_dtype, kind="buffer", op="buffer"))


@lowering("clamp")
def clamp(run: Lowering, op: Op, x: Tensor) -> Tensor:
    return run.tape.unary("clamp", x)


@lowering("clamp_")
def clamp_(run: Lowering, op: Op, x: Tensor) -> Tensor:
    return run.tape.clamp_(x)


@lowering("activation")
def activation(run: Lowering, op: Op, x: Tensor) -> Tensor:
    return apply_activation(run.tape, op.settings["function"], x)


@lowering("xielu")
def xielu_activation(run: Lowering, op: Op, x: Tensor) -> Tensor:
    positive, negative = run.parameters_of(op)
    return xielu(run.tape, x, positive, negative)


@lowering("dropout")
def dropout(run: Lowering, op: Op, x: Tensor) -> Tensor:
    return run.tape.dropout(x, op.settings["p"]) if run.execution.dropout else x


@lowering("split")
def split(run: Lowering, op: Op, x: Tensor) -> tuple[Tensor, ...]:
    return run.tape.split(x, op.settings["pieces"])


@lowering("heads")
def heads(run: Lowering, op: Op, x: Tensor) -> Tensor:
    num_heads = op.settings["num_heads"]
    return run.tape.view(x, *x.shape[:-1], num_heads, op.outputs[0].width)


@lowering("first_token")
def first_token(run: Lowering, op: Op, x: Tensor) -> Tensor:
    return run.tape.select(x, 1)


@lowering("heads_first")
def heads_first(run: Lowering, op: Op, x: Tensor) -> Tensor:
    return run.tape.transpose(x, 1, 2)


@lowering("concatenate")
def concatenate(run: Lowering, op: Op, *pieces: Tensor) -> Tensor:
    """Joined along the last axis."""
    return run.tape.cat(pieces)


@lowering("to_parameter_dtype")
def to_parameter_dtype(run: Lowering, op: Op, x: Tensor) -> Tensor:
    """The cast to the dtype of the next layer's weight, which undoes autocast's."""
    return run.tape.to(x, run.execution.param_dtype)
