"""Each way to the loss on a tape: what it makes, keeps and works with (which one runs: loss.py)."""

from __future__ import annotations

from vramwise.models.autograd.size import Dim, product
from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import Tensor
from vramwise.units import MIB

CHUNKS = 8  # torchtune modules/loss CEWithChunkedOutputLoss(num_output_chunks=8), torchtitan loss chunks
TILE_BYTES = (
    256 * MIB
)  # AgileRL algorithms/core/base.py: rows of a tile so that its fp32 logits take this, 128 to 4,096
TILE_ROWS = (128, 4096)
ROWS = 2048  # CELOSS_PARALLEL_SIZE of ms-swift 4.6 examples/train/sequence_parallel

KERNEL = "cross_entropy_kernel"
"""Its gradient is new."""
IN_PLACE = "fused_cross_entropy"
"""Its gradient is written over the logits."""
COMPILED_SOFTMAX = "compiled_softmax_cross_entropy"
"""Its gradient is new, and made on a copy of what it keeps."""
COMPILED_CHUNKS = "compiled_chunks_cross_entropy"
"""Each chunk's gradient is new, and the chunk then goes."""


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


def fused(tape: Tape, logits: Tensor, upcast: bool, shift: bool) -> None:
    """As the library up to the loss, which is then one kernel that writes the gradient over its input."""
    wide = tape.to(logits, "fp32") if upcast else logits
    x = tape.clone_contiguous(tape.narrow(wide, 1, wide.shape[1])) if shift else wide
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


def by_rows(tape: Tape, logits: Tensor, upcast: bool) -> None:
    """Log-probabilities of some rows at a time; the logits are kept, and their whole gradient is new in backward.

    ms-swift 4.6 sequence_parallel/utils.py ChunkedCrossEntropyLoss: `save_for_backward(logits, labels)`, then
    `empty_like(logits)` that is filled by as many rows again. `upcast`: accelerate has handed them out in fp32.
    """
    wide = tape.to(logits, "fp32") if upcast else logits
    tape.record("chunk_of_logits", [wide], [tape.new((ROWS, logits.shape[-1]), "fp32", op="log-probabilities")])
    in_one_kernel(tape, wide, KERNEL)


def chunked(tape: Tape, logits: Tensor, upcast: bool) -> None:
    """All logits, an eighth of them at a time in fp32; log-probabilities of every chunk are kept."""
    dtype = "fp32" if upcast else logits.dtype
    vocabulary = logits.shape[-1]
    assert isinstance(vocabulary, int)
    part = _rows(logits), -(-vocabulary // CHUNKS)
    chunk = tape.new(part, "fp32", op="chunk of logits")
    if upcast:
        tape.record("chunk_of_logits", [logits], [chunk])
    kept = [tape.new(part, dtype, op="log-probabilities") for _ in range(CHUNKS)]
    inputs = [logits, chunk] if upcast else [logits]
    saves = [(one, "log-probabilities") for one in kept]
    tape.record("chunked_cross_entropy", inputs, [_loss_of(tape, logits), *kept], saves)


def _rows(x: Tensor) -> Dim:
    return product(x.shape[:-1])


def _loss_of(tape: Tape, x: Tensor) -> Tensor:
    return tape.new((), "fp32", requires_grad=x.requires_grad, op="loss")
