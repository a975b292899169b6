"""The way from hidden states to the loss, where it is not the library's own cross entropy.

shifted       the library's loss before transformers 4.50: a shifted copy of fp32 logits     loss/loss_utils.py
fused         one kernel over materialized logits, its gradient in their place          unsloth, Liger CE
one kernel    llm-foundry's default, flash-attn's: its gradient beside the logits     models/mpt/modeling_mpt.py
              compiled (torchtitan): the same of bf16 logits, and one statistic a row     components/loss.py
fused-linear  output layer and loss a tile at a time; gradients are made in forward          Liger 0.5 FLCE
chunked       logits exist, the loss upcasts an eighth at a time           torchtune 0.6, torchtitan before April 2026
              torchtitan since: output layer, loss and backward of an eighth, all in forward   components/loss.py
              torchtune with compile: upcast and loss of a chunk are one kernel     training/_compile.py compile_loss
              litgpt: 128 positions at a time, in the logits' dtype; RL: tiles of positions made again in backward
vocab-parallel  logits and loss divided over tensor parallel ranks
              Megatron: fp32 copy that becomes softmax, then gradient   core/tensor_parallel/cross_entropy.py
              Megatron's fused loss (compiled): backward works on one more copy   core/fusions/fused_cross_entropy.py
              else torch's loss_parallel on DTensors           torch 2.13 distributed/tensor/parallel/loss.py
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from vramwise.errors import ScenarioError
from vramwise.frameworks import framework_of
from vramwise.frameworks.versions import library_version, liger_version
from vramwise.models.autograd.size import Dim, product
from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import ITEM_BYTES, Storage, Tensor
from vramwise.models.model import Model
from vramwise.models.overrides import loss_of
from vramwise.models.step import BlockRun, Forward
from vramwise.models.type_facts import has_fact
from vramwise.training.activations.rewriting import recounted
from vramwise.training.recipe.settings import execution, sharded
from vramwise.training.resolved import ResolvedTrain
from vramwise.units import MIB

CHUNKS = 8  # torchtune modules/loss CEWithChunkedOutputLoss(num_output_chunks=8), torchtitan loss chunks
TILE_BYTES = (
    256 * MIB
)  # AgileRL algorithms/core/base.py: rows of a tile so that its fp32 logits take this, 128 to 4,096
TILE_ROWS = (128, 4096)
LABELS_SHIFTED_SINCE = (4, 50)  # transformers loss/loss_utils.py ForCausalLMLoss pads labels instead of slicing logits
LOSS_FUNCTION_SINCE = (4, 46)  # before, the modeling file upcasts `logits` in its own frame

LIGER_SUMS_IN_FP32_SINCE = (0, 6, 2)
LIGER_SUMS_IN_PLACE_SINCE = (0, 8, 3)
KERNEL = "cross_entropy_kernel"
"""Its gradient is new."""
IN_PLACE = "fused_cross_entropy"
"""Its gradient is written over the logits."""
COMPILED_SOFTMAX = "compiled_softmax_cross_entropy"
"""Its gradient is new, and made on a copy of what it keeps."""
COMPILED_CHUNKS = "compiled_chunks_cross_entropy"
"""Each chunk's gradient is new, and the chunk then goes."""

_OVER_ROWS_OF_LOGITS = frozenset({"causal-lm", "masked-lm", "shifted-lm", "fp32-lm", "seq2seq-lm"})

Build = Callable[[Tape, Tensor], None]


def upcasts(train: ResolvedTrain, model: Model) -> bool:
    """Whether the library's way to the loss makes fp32 logits of its own."""
    if train.loss_upcast is not None:
        return train.loss_upcast
    if not framework_of(train).trainer:
        return False
    return not has_fact("transformers", "loss_of_narrow_logits", model.config.model_type, library_version(train))


def is_compiled(train: ResolvedTrain) -> bool:
    """Whether a loss over whole logits, or over each rank's share of them, is compiled.

    transformers' classes work it out in their own forward, which is compiled as a whole (4.46 to 5.23; Trainer's
    `torch_compile` is accelerate's dynamo plug-in around the model).
    """
    if not train.compile or train.loss not in ("standard", "vocab-parallel"):
        return False
    own = framework_of(train)
    inside = own.classes == "as they are" and train.tensor_parallel_size == 1
    return "loss" in train.compiled if train.compiled else inside or own.loss.compiled(train)


def is_one_kernel(train: ResolvedTrain) -> bool:
    """Whether the loss has no place where logits become fp32, or not."""
    own = framework_of(train).loss
    tiles = train.loss == "chunked" and (own.chunks == "tiles" or (own.compiled_chunks and train.compile))
    standard = train.loss == "standard" and own.one_kernel
    in_place = train.loss == "vocab-parallel" and own.softmax_in_place
    return train.loss == "fused-linear" or tiles or standard or in_place or is_compiled(train)


def shifts_logits(train: ResolvedTrain) -> bool:
    """Whether the library's loss copies all logits but the last position's."""
    return framework_of(train).trainer and library_version(train) < LABELS_SHIFTED_SINCE


def with_loss(forward: Forward, train: ResolvedTrain, model: Model) -> Forward:
    """The forward pass with the scenario's way to the loss. Raises ScenarioError."""
    if not forward.runs or forward.runs[-1].name != "loss":
        return forward
    loss = forward.runs[-1]
    logits = loss.incoming[0]
    variant, own = train.loss, framework_of(train).loss
    if train.loss_upcast is False:
        forward = _without_fp32_outputs(forward)
        loss = forward.runs[-1]
        logits = loss.incoming[0]
    own_runs = train.loss_upcast is None and "loss" not in train.compiled
    if own_runs and loss_of(execution(train, model).kernels) is not None:  # the framework's own
        return forward
    if variant == "chunked" and model.head == "contrastive":
        raise ScenarioError(
            "train.loss", '"chunked" cuts logits of a vocabulary; this loss has none; expected standard'
        )
    if variant == "fused-linear":
        of_liger = "liger" in train.kernels or own.fused_linear_is_ligers
        sums = of_liger and LIGER_SUMS_IN_FP32_SINCE <= liger_version(train) < LIGER_SUMS_IN_PLACE_SINCE
        return _without_logits(forward, partial(fused_linear, sums_in_fp32=sums))
    if variant == "chunked":
        if own.chunks == "as they are":
            return _replaced(forward, partial(chunked, logits=logits, upcast=bool(train.loss_upcast)))
        if own.chunks_with_head(train):
            widened = train.loss_upcast is not False
            return _without_logits(forward, partial(looped, reduced=sharded(train), upcast=widened))
        if own.chunks == "tiles":
            return _without_logits(forward, tiled)
        if own.compiled_chunks and train.compile:
            return _replaced(forward, partial(in_one_kernel, logits=logits, op=COMPILED_CHUNKS))
        return _replaced(forward, partial(chunked, logits=logits, upcast=train.loss_upcast is not False))
    if variant == "vocab-parallel" and own.softmax_in_place:
        way = compiled_softmax if is_compiled(train) else softmax_in_place
        return _replaced(forward, partial(way, logits=logits))
    over_rows = (model.loss or model.head) in _OVER_ROWS_OF_LOGITS
    if (is_compiled(train) and over_rows) or (variant == "fused" and own.fused_is_compiled):
        return _replaced(forward, partial(in_one_kernel, logits=logits, op=KERNEL))
    if variant == "fused":
        return _replaced(forward, partial(fused, logits=logits, train=train, model=model))
    if variant == "standard" and own.one_kernel:
        return _replaced(forward, partial(in_one_kernel, logits=logits, op=KERNEL))
    if variant == "vocab-parallel" and _is_causal(loss):
        return _replaced(forward, partial(loss_parallel, logits=logits, upcast=train.loss_upcast is not False))
    if train.tensor_parallel_size > 1 and variant == "standard":
        whole = partial(gathered, logits=logits, ranks=train.tensor_parallel_size)
        return _replaced(forward, partial(whole, upcast=train.loss_upcast is not False))
    if shifts_logits(train) and _is_causal(loss):
        autocast = execution(train, model).autocast
        return _replaced(forward, partial(shifted, logits=logits, upcast=upcasts(train, model)), autocast=autocast)
    if train.loss_upcast is not None and variant == "standard" and over_rows:
        autocast = execution(train, model).autocast
        return _replaced(forward, partial(plain, logits=logits, upcast=train.loss_upcast), autocast=autocast)
    return forward


def _is_causal(loss: BlockRun) -> bool:
    return any(node.op == "constant_pad_nd" for node in loss.nodes)


def makes_logits(train: ResolvedTrain) -> bool:
    """Whether all logits exist at once."""
    own = framework_of(train).loss
    tiles = train.loss == "chunked" and (own.chunks == "tiles" or own.chunks_with_head(train))
    return train.loss != "fused-linear" and not tiles


def replacing_logits(loss: BlockRun, train: ResolvedTrain, model: Model) -> Storage | None:
    """The fp32 copy that the modeling file puts in the place of the logits, as those before transformers 4.46 did.

    It is made of the logits themselves. What autocast widens on its way into a loss without such a line is a copy of
    their rows, or of what was made of them (a classifier's).
    """
    if not (makes_logits(train) and upcasts(train, model) and library_version(train) < LOSS_FUNCTION_SINCE):
        return None
    logits = loss.incoming[0]
    copies = (node for node in loss.nodes if node.op == "_to_copy" and node.inputs[0] is logits)
    return next((node.outputs[0].storage for node in copies if node.outputs[0].dtype == "fp32"), None)


def logits_held(train: ResolvedTrain, loss: BlockRun, model: Model) -> tuple[Dim, Dim]:
    """Bytes of logits that frames keep while the loss runs (beside what the loss itself made), and after it.

    Where the fp32 copy replaced them the outputs hold that.
    """
    logits = loss.incoming[0]
    if not makes_logits(train):
        return 0, 0
    if replacing_logits(loss, train, model) is not None:
        return 0, logits.numel * ITEM_BYTES["fp32"]
    return logits.nbytes, logits.nbytes


# -- building ----------------------------------------------------------------------------------------------


def _recorded(
    loss: BlockRun, action: Callable[[Tape], None], incoming: tuple[Tensor, ...], autocast: str | None = None
) -> BlockRun:
    tape = Tape(autocast=autocast)
    with tape.inside("loss"):
        action(tape)
    return replace(loss, nodes=tuple(tape.nodes), saved=tuple(tape.saved.items()), incoming=incoming)


def _replaced(forward: Forward, action: Callable[[Tape], None], autocast: str | None = None) -> Forward:
    *below, head, loss = forward.runs
    return recounted(replace(forward, runs=(*below, head, _recorded(loss, action, loss.incoming, autocast))))


def _without_fp32_outputs(forward: Forward) -> Forward:
    """The logits as the output layer makes them, where the module hands them out in fp32."""
    *below, head, loss = forward.runs
    if not head.nodes or head.nodes[-1].op != "outputs_to_fp32":
        return forward
    (logits,) = head.nodes[-1].inputs
    head = replace(head, nodes=head.nodes[:-1], outgoing=(logits,))
    return replace(forward, runs=(*below, head, replace(loss, incoming=(logits,))))


def _without_logits(forward: Forward, build: Callable[[Tape, Tensor, Tensor], None]) -> Forward:
    """Output layer and loss as one: the head ends at the hidden states that the output layer reads."""
    *below, head, loss = forward.runs
    products = [i for i, node in enumerate(head.nodes) if node.primitive.product == "rows"]
    module = head.nodes[products[-1]].module
    first = next(i for i, node in enumerate(head.nodes) if node.module == module)
    group = head.nodes[first:]
    made = {id(output) for node in group for output in node.outputs}
    read = [t for node in group for t in node.inputs if id(t) not in made]
    hidden = next(t for t in read if not t.is_parameter and t.ndim > 1)
    weight = next(t for t in read if t.is_parameter and t.ndim == 2)
    shortened = replace(head, nodes=head.nodes[:first], outgoing=(hidden,))
    fused = _recorded(loss, lambda tape: build(tape, hidden, weight), (hidden,))
    return recounted(replace(forward, runs=(*below, shortened, fused)))


def _rows(x: Tensor) -> Dim:
    return product(x.shape[:-1])


def _loss_of(tape: Tape, x: Tensor) -> Tensor:
    return tape.new((), "fp32", requires_grad=x.requires_grad, op="loss")


# -- variants ----------------------------------------------------------------------------------------------


def plain(tape: Tape, logits: Tensor, upcast: bool) -> None:
    """Cross entropy over every position, of fp32 logits or of the logits as they are."""
    wide = tape.to(logits, "fp32") if upcast else logits
    rows = tape.view(wide, -1, wide.shape[-1])
    tape.cross_entropy(rows, tape.new((rows.shape[0],), "int64", op="labels"))


def gathered(tape: Tape, logits: Tensor, ranks: int, upcast: bool) -> None:
    """Logits of all tensor-parallel ranks, gathered before an ordinary cross entropy, mostly in fp32."""
    width = logits.shape[-1]
    whole = tape.new((*logits.shape[:-1], width * ranks), logits.dtype, requires_grad=logits.requires_grad, op="gather")
    tape.record("all_gather", [logits], [whole])
    plain(tape, whole, upcast)
    tape.record("locals", [whole], [])


def loss_parallel(tape: Tape, logits: Tensor, upcast: bool = True) -> None:
    """Cross entropy over logits cut along the vocabulary: log-softmax and both backward steps as eager operations.

    Forward holds the fp32 logits, the shifted ones and their exponentials; backward the log-probabilities, a gradient
    of the loss, exponentials and their sum (16 bytes a local logit), and log-softmax has nothing left to do. Without
    `upcast` all are in the logits' dtype.
    """
    wide = tape.to(logits, "fp32") if upcast else logits
    rows = tape.view(wide, -1, wide.shape[-1])
    shifted_rows = tape.new(rows.shape, wide.dtype, op="sub")
    tape.record("sub", [rows], [shifted_rows])
    exponentials = tape.new(rows.shape, wide.dtype, op="exp")
    tape.record("exp", [shifted_rows], [exponentials])
    kept = tape.new(rows.shape, wide.dtype, requires_grad=rows.requires_grad, op="log_softmax")
    tape.record("parallel_log_softmax", [rows, shifted_rows], [kept], [(kept, "result")])
    target = tape.new((rows.shape[0],), "int64", op="labels")
    tape.record("parallel_nll_loss", [kept, target], [_loss_of(tape, kept)], [(kept, "self"), (target, "target")])
    tape.record("locals", [wide], [])


def shifted(tape: Tape, logits: Tensor, upcast: bool) -> None:
    """Logits, mostly in fp32, a contiguous copy of all positions but the last, cross entropy; a frame keeps both."""
    wide = tape.to(logits, "fp32") if upcast else logits
    copy = tape.clone_contiguous(tape.narrow(wide, 1, wide.shape[1]))
    rows = tape.view(copy, -1, copy.shape[-1])
    target = tape.new((rows.shape[0],), "int64", op="labels")
    tape.cross_entropy(rows, target)
    tape.record("locals", [wide, copy], [])


def fused(tape: Tape, logits: Tensor, train: ResolvedTrain, model: Model) -> None:
    """As the library up to the loss, which is then one kernel that writes the gradient over its input."""
    wide = tape.to(logits, "fp32") if upcasts(train, model) else logits
    x = wide
    if shifts_logits(train):
        x = tape.clone_contiguous(tape.narrow(wide, 1, wide.shape[1]))
    in_one_kernel(tape, x, IN_PLACE)
    tape.record("locals", [wide], [])


def in_one_kernel(tape: Tape, logits: Tensor, op: str) -> None:
    """One kernel over the logits as they are, which keeps them; `op` decides where its gradient goes."""
    statistics = tape.new((_rows(logits),), "fp32", op="logsumexp")
    saves = [(logits, "logits"), (statistics, "logsumexp")]
    tape.record(op, [logits], [_loss_of(tape, logits), statistics], saves)


def softmax_in_place(tape: Tape, logits: Tensor) -> None:
    """An fp32 copy of the logits, on which everything happens in place; its gradient is cast to the logits' dtype."""
    in_one_kernel(tape, tape.to(logits, "fp32"), IN_PLACE)


def compiled_softmax(tape: Tape, logits: Tensor) -> None:
    """Softmax on an fp32 copy of the logits; backward copies it, works on that and writes a gradient in their dtype.

    Each of Megatron's four functions is a graph of its own. Forward's write over what they are given; in
    `calculate_gradients` the write at the labels' places comes before other uses, so Inductor makes it in a new tensor
    (core 0.16 fusions/fused_cross_entropy.py, core/jit.py jit_fuser; torch 2.13's code for it).
    """
    softmax = tape.new(logits.shape, "fp32", op="softmax")
    tape.record(COMPILED_SOFTMAX, [logits], [_loss_of(tape, logits), softmax], [(softmax, "result")])


def fused_linear(tape: Tape, hidden: Tensor, weight: Tensor, sums_in_fp32: bool = True) -> None:
    """Tiles of about tokens · hidden logits; gradients of hidden states and weight exist from forward on.

    A tile has tokens / ⌈vocabulary / hidden⌉ rows (rounded up to a power of two, which is not counted). A trained
    weight's gradient grows by one tile's product at a time: `sums_in_fp32` makes it, and an fp32 copy of it, anew
    (Liger 0.6.2 to 0.8.2 ops/fused_linear_cross_entropy.py `mm(...).float()`; 0.8.1 and 0.8.2 add in place to an fp32
    sum alone). 0.6.1 added it in place (`addmm`), and since 0.8.3 a GPU of capability 8.0 does again.
    """
    vocabulary, width = weight.shape
    assert isinstance(vocabulary, int)
    assert isinstance(width, int)
    tile_width = -(-vocabulary // -(-vocabulary // width))
    tile = tape.new((_rows(hidden), tile_width), hidden.dtype, op="tile of logits")
    tape.record("tile_of_logits", [hidden, weight], [tile])
    saves, read = [], [hidden, weight, tile]
    if hidden.requires_grad:
        saves.append((tape.new(hidden.shape, hidden.dtype, op="gradient of hidden states"), "gradient"))
    if weight.requires_grad:
        saves.append((tape.new(weight.shape, hidden.dtype, op="gradient of the output layer"), "gradient"))
        if sums_in_fp32 and weight.dtype == hidden.dtype != "fp32":
            made = [tape.new(weight.shape, dtype, op="gradient of a tile") for dtype in (hidden.dtype, "fp32")]
            tape.record("gradient_of_a_tile", [tile, hidden], made)
            read += made
    outputs = [_loss_of(tape, hidden), *(tensor for tensor, _ in saves)]
    tape.record("fused_linear_cross_entropy", read, outputs, saves)


def looped(tape: Tape, hidden: Tensor, weight: Tensor, reduced: bool, upcast: bool = True) -> None:
    """An eighth of the positions at a time through output layer, loss and backward of both, before forward is over.

    A chunk holds its logits, their log-probabilities and two fp32 gradients of them, then both 16-bit ones and the
    weight's gradient. Hidden states' gradient is summed up in fp32 and kept in their own dtype, a trained weight's in
    its own; under FSDP (`reduced`) that sum is in fp32, and a copy of it is reduced at last (torchtitan 0.3
    components/loss.py ChunkedLossWrapper; torch 2.13 fsdp/_fully_shard/_fsdp_param.py to_accumulated_grad_if_needed).
    Without `upcast` log-probabilities and their gradients are in the logits' dtype.
    """
    vocabulary = weight.shape[0]
    assert isinstance(vocabulary, int)
    chunk = _rows(hidden), -(-vocabulary // CHUNKS)
    sums = [tape.new(hidden.shape, "fp32", op="sum of gradients")]
    of_weight, copies = [], []
    if weight.requires_grad:
        sums.append(tape.new(weight.shape, "fp32" if reduced else hidden.dtype, op="sum of gradients"))
        of_weight = [tape.new(weight.shape, hidden.dtype, op="gradient of a chunk")]
        copies = [tape.new(weight.shape, "fp32", op="gradient to reduce")] if reduced else []
    tape.record("sums_of_gradients", [hidden], sums)
    logits = tape.new(chunk, hidden.dtype, op="chunk of logits")
    inside = "fp32" if upcast else hidden.dtype
    wide = [tape.new(chunk, inside, op=name) for name in ("log-probabilities", "gradient", "gradient")]
    tape.record("chunk_of_logits", [hidden, weight], [logits, *wide])
    narrow = tape.new(chunk, hidden.dtype, op="gradient")
    tape.record("gradient_of_a_tile", [logits], [narrow, *of_weight])
    tape.record("sums_of_gradients", [*sums, logits], copies)  # a variable names a chunk's logits until the next ones
    gradient = tape.new(hidden.shape, hidden.dtype, op="gradient of hidden states")
    saves = [(gradient, "gradient")] if hidden.requires_grad else []
    outputs = [_loss_of(tape, hidden), *(tensor for tensor, _ in saves)]
    tape.record("fused_linear_cross_entropy", [hidden, weight, *sums], outputs, saves)


def tiled(tape: Tape, hidden: Tensor, weight: Tensor) -> None:
    """Tiles of 256 MiB of fp32 logits, made again one at a time in backward; the hidden states are kept."""
    vocabulary = weight.shape[0]
    assert isinstance(vocabulary, int)
    rows = min(max(TILE_BYTES // (4 * vocabulary), TILE_ROWS[0]), TILE_ROWS[1])
    tile = tape.new((rows, vocabulary), "bf16", op="tile of logits")
    wide = tape.new((rows, vocabulary), "fp32", op="tile of logits")
    tape.record("tile_of_logits", [hidden, weight], [tile, wide])
    tape.record("tiled_log_probabilities", [hidden, weight, tile, wide], [_loss_of(tape, hidden)], [(hidden, "hidden")])


def chunked(tape: Tape, logits: Tensor, upcast: bool) -> None:
    """All logits, an eighth of them at a time in fp32; log-probabilities of every chunk are kept."""
    dtype = "fp32" if upcast else logits.dtype
    vocabulary = logits.shape[-1]
    assert isinstance(vocabulary, int)
    chunk = tape.new((_rows(logits), -(-vocabulary // CHUNKS)), "fp32", op="chunk of logits")
    if upcast:
        tape.record("chunk_of_logits", [logits], [chunk])
    kept = tape.new(logits.shape, dtype, op="log-probabilities")
    inputs = [logits, chunk] if upcast else [logits]
    tape.record("chunked_cross_entropy", inputs, [_loss_of(tape, logits), kept], [(kept, "log-probabilities")])
