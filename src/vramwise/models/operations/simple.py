"""Operations that most models have: look-ups, products, sums, activations, views.

Index tensors that come with a batch or that the library makes from it.
"""

from __future__ import annotations

from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tensor import StorageKind, Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.activations import apply_activation, xielu
from vramwise.records import record


def input_tensor(run: Lowering, name: str, buffer_rows: int | None = None) -> Tensor:
    """The index tensor `name`; `buffer_rows` is the length of the module's buffer where it is a view of one."""
    if name not in run.streams:
        run.streams[name] = _made(run, name, buffer_rows)
    return run.streams[name]


def _made(run: Lowering, name: str, buffer_rows: int | None) -> Tensor:
    """input_ids, attention_mask, encoder_input_ids, labels: the batch.

    decoder_input_ids: labels shifted right, a new tensor. position_ids: one row for the batch, of a buffer where
    `buffer_rows` says so. token_type_ids: BERT's, gathered once and expanded. counted_position_ids and
    counted_token_type_ids: RoBERTa's, one row a sequence.
    narrowed_token_type_ids: BigBird's, a view of a buffer. text_…: without the tokens of images before it.
    """
    batch, sequence = run.batch, run.sequence
    if name.startswith("text_"):
        name, sequence = name.removeprefix("text_"), text_length(run)
    if name in ("input_ids", "labels", "attention_mask"):
        return _ids(run, batch, sequence, name, "input")
    if name == "encoder_input_ids":
        return _ids(run, batch, run.source, name, "input")
    if name.startswith("encoder_position"):
        return _ids(run, batch if name.endswith("rows") else 1, run.source, name)
    if name == "narrowed_token_type_ids" and buffer_rows is not None:
        row = run.tape.narrow(_ids(run, 1, buffer_rows, name, "buffer"), -1, sequence)
        return run.tape.expand(row, batch, sequence)
    if buffer_rows is not None:
        return run.tape.narrow(_ids(run, 1, buffer_rows, name, "buffer"), -1, sequence)
    if name == "token_type_ids":
        return run.tape.expand(_ids(run, 1, sequence, "gather"), batch, sequence)
    is_shared = name == "position_ids" and not run.execution.positions_by_row
    return _ids(run, 1 if is_shared else batch, sequence, name)


def text_length(run: Lowering) -> Dim:
    """Tokens of a sequence that are no image's."""
    images = run.execution.images
    return run.sequence if images is None else run.sequence - images.per_sequence * images.tokens


def _ids(run: Lowering, rows: Dim, columns: Dim, op: str, kind: StorageKind = "activation") -> Tensor:
    return run.tape.new((rows, columns), "int64", kind=kind, op=op)


_TOKENS = frozenset({"input_ids", "encoder_input_ids", "decoder_input_ids"})


@record(kw_only=True, eq=False)
class Embedding(Operation):
    ids: str
    buffer_rows: int | None = None

    @property
    def embeds_inputs(self) -> bool:
        return self.ids in _TOKENS


@lowering(Embedding)
def embedding(run: Lowering, op: Embedding) -> Tensor:
    (weight,) = run.parameters_of(op)
    ids = input_tensor(run, op.ids, op.buffer_rows)
    result = run.tape.embedding(ids, weight)
    if run.execution.lora is None:
        return result
    from vramwise.models.operations.adapters import with_embedding_adapter

    return with_embedding_adapter(run, op, ids, result)


class Hold(Operation):
    __slots__ = ()


@lowering(Hold)
def hold(run: Lowering, op: Hold, x: Tensor) -> Tensor:
    """Parameters that a module owns and that others use under another name."""
    return x


@record(kw_only=True, eq=False)
class Named(Operation):
    """Values that a Python frame still has names for; `beside_loss`: the frame that calls the loss."""

    only_names = True

    beside_loss: bool = False


@lowering(Named)
def named(run: Lowering, op: Named, *values: Tensor) -> tuple[Tensor, ...]:
    names = [*values, *run.named_in.pop(op.module, ())]
    run.tape.record("locals beside the loss" if op.beside_loss else "locals", names, [])
    return ()


@record(kw_only=True, eq=False)
class Linear(Operation):
    """`is_turned`: the class multiplies by a view of its weight, of which autocast keeps no copy."""

    is_turned: bool = False


@lowering(Linear)
def linear(run: Lowering, op: Linear, x: Tensor) -> Tensor:
    return _adapted(run, op, x, base_product(run, op, x))


def base_product(run: Lowering, op: Linear, x: Tensor) -> Tensor:
    """A linear layer without what adapters add to it."""
    weight, *bias = run.parameters_of(op)
    if run.execution.quantizes(op.parameters[0]):
        # bitsandbytes 0.50 nn/modules.py Linear4bit.forward: the input in the compute dtype, the answer in its own.
        return run.tape.to(run.tape.linear(run.tape.to(x, weight.dtype), weight, *bias), x.dtype)
    if op.is_turned:
        return run.tape.rows_times(x, run.tape.unleafed(run.tape.transpose(weight, 0, 1)))
    return run.tape.linear(x, weight, *bias)


class Conv1dLinear(Operation):
    __slots__ = ()
    inputs_first = True


@lowering(Conv1dLinear)
def conv1d_linear(run: Lowering, op: Conv1dLinear, x: Tensor) -> Tensor:
    weight, bias = run.parameters_of(op)
    result = run.tape.conv1d_linear(x, weight, bias)
    return _adapted(run, op, x, result)


def _adapted(run: Lowering, op: Operation, x: Tensor, result: Tensor) -> Tensor:
    """A product with what an adapter adds to it, where it has one."""
    if run.execution.lora is None:
        return result
    from vramwise.models.operations.adapters import with_adapter

    return with_adapter(run, op, x, result)


class ToFp32(Operation):
    __slots__ = ()


@lowering(ToFp32)
def to_fp32(run: Lowering, op: ToFp32, x: Tensor) -> Tensor:
    return run.tape.to(x, "fp32")


class Add(Operation):
    __slots__ = ()


@lowering(Add)
def add(run: Lowering, op: Add, a: Tensor, b: Tensor) -> Tensor:
    return run.tape.add(a, b)


class AddInPlace(Operation):
    __slots__ = ()


@lowering(AddInPlace)
def add_in_place(run: Lowering, op: AddInPlace, a: Tensor, b: Tensor) -> Tensor:
    return run.tape.add_(a, b)


class AddBias(Operation):
    __slots__ = ()


@lowering(AddBias)
def add_bias(run: Lowering, op: AddBias, x: Tensor) -> Tensor:
    """A bias that the class adds itself: autocast does not cast it, so it widens the sum."""
    return run.tape.add(x, *run.parameters_of(op))


class Multiply(Operation):
    __slots__ = ()


@lowering(Multiply)
def multiply(run: Lowering, op: Multiply, a: Tensor, b: Tensor) -> Tensor:
    return run.tape.mul(a, b)


class ScaleBy(Operation):
    __slots__ = ()


@lowering(ScaleBy)
def scale_by(run: Lowering, op: ScaleBy, x: Tensor) -> Tensor:
    """A product with a parameter."""
    return run.tape.mul(x, *run.parameters_of(op))


class Scale(Operation):
    __slots__ = ()


@lowering(Scale)
def scale(run: Lowering, op: Scale, x: Tensor) -> Tensor:
    return run.tape.scale(x)


class ScaleByBuffer(Operation):
    __slots__ = ()


@lowering(ScaleByBuffer)
def scale_by_buffer(run: Lowering, op: ScaleByBuffer, x: Tensor) -> Tensor:
    """A buffer in the parameters' dtype, as gemma's `embed_scale`."""
    return run.tape.mul(x, run.tape.new((), run.execution.param_dtype, kind="buffer", op="buffer"))


class Clamp(Operation):
    __slots__ = ()


@lowering(Clamp)
def clamp(run: Lowering, op: Clamp, x: Tensor) -> Tensor:
    return run.tape.unary("clamp", x)


class ClampInPlace(Operation):
    __slots__ = ()


@lowering(ClampInPlace)
def clamp_(run: Lowering, op: ClampInPlace, x: Tensor) -> Tensor:
    return run.tape.clamp_(x)


@record(kw_only=True, eq=False)
class Activation(Operation):
    is_module = True

    function: str


@lowering(Activation)
def activation(run: Lowering, op: Activation, x: Tensor) -> Tensor:
    return apply_activation(run.tape, op.function, x)


class Xielu(Operation):
    __slots__ = ()


@lowering(Xielu)
def xielu_activation(run: Lowering, op: Xielu, x: Tensor) -> Tensor:
    positive, negative = run.parameters_of(op)
    return xielu(run.tape, x, positive, negative)


@record(kw_only=True, eq=False)
class Dropout(Operation):
    is_module = True

    p: float


@lowering(Dropout)
def dropout(run: Lowering, op: Dropout, x: Tensor) -> Tensor:
    return run.tape.dropout(x, op.p) if run.execution.dropout else x


@record(kw_only=True, eq=False)
class Split(Operation):
    pieces: tuple[int, ...]


@lowering(Split)
def split(run: Lowering, op: Split, x: Tensor) -> tuple[Tensor, ...]:
    return run.tape.split(x, op.pieces)


@record(kw_only=True, eq=False)
class Heads(Operation):
    num_heads: int


@lowering(Heads)
def heads(run: Lowering, op: Heads, x: Tensor) -> Tensor:
    num_heads = op.num_heads
    return run.tape.view(x, *x.shape[:-1], num_heads, op.outputs[0].width)


class FirstToken(Operation):
    __slots__ = ()


@lowering(FirstToken)
def first_token(run: Lowering, op: FirstToken, x: Tensor) -> Tensor:
    return run.tape.select(x, 1)


class HeadsFirst(Operation):
    __slots__ = ()


@lowering(HeadsFirst)
def heads_first(run: Lowering, op: HeadsFirst, x: Tensor) -> Tensor:
    return run.tape.transpose(x, 1, 2)


class Concatenate(Operation):
    __slots__ = ()


@lowering(Concatenate)
def concatenate(run: Lowering, op: Concatenate, *pieces: Tensor) -> Tensor:
    """Joined along the last axis."""
    return run.tape.cat(pieces)


class ToParameterDtype(Operation):
    __slots__ = ()


@lowering(ToParameterDtype)
def to_parameter_dtype(run: Lowering, op: ToParameterDtype, x: Tensor) -> Tensor:
    """The cast to the dtype of the next layer's weight, which undoes autocast's."""
    return run.tape.to(x, run.execution.param_dtype)
