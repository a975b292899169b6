"""DeBERTa 1 and 2 as transformers 5.23 runs them: scores of contents beside scores of contents against distances."""

from __future__ import annotations

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Aside, Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.activations import apply_activation
from vramwise.models.operations.attention import Attention, AttentionStyle, attention_dropout
from vramwise.records import record


def token_mask(run: Lowering) -> Tensor:
    """The mask of tokens (b, s): made once as fp32 ones where none is passed."""
    if "token mask" not in run.tables:
        kind = "int64" if run.execution.padding else "fp32"
        run.tables["token mask"] = (run.tape.new((run.batch, run.sequence), kind, op="ones"),)
    return run.tables["token mask"][0]


class TimesMask(Operation):
    __slots__ = ()


@lowering(TimesMask)
def times_mask(run: Lowering, op: TimesMask, x: Tensor) -> Tensor:
    """A product with the mask of tokens in the dtype of `x`, which backward keeps."""
    return run.tape.mul(x, run.tape.to(run.tape.unsqueeze(token_mask(run), -1), x.dtype))


# -- distances -----------------------------------------------------------------------------------------


@record(kw_only=True, eq=False)
class DistanceTable(Operation):
    read: bool

    @property
    def has_gradients(self) -> bool:
        return self.read


@lowering(DistanceTable)
def distance_table(run: Lowering, op: DistanceTable) -> Tensor:
    """The table of distances itself, or its layer norm where it has one; no gradient where no score reads it."""
    table, *norm = (p if op.read else run.tape.detached(p) for p in run.parameters_of(op))
    return run.tape.layer_norm(table, *norm) if norm else table


@record(kw_only=True, eq=False)
class DistancesWithin(Operation):
    chunk_size: int


@lowering(DistancesWithin)
def distances_within(run: Lowering, op: DistancesWithin, table: Tensor) -> Tensor:
    """Rows of the distances that this sequence has, as a batch of one: no leaf, so that autocast casts it anew."""
    farthest, tape = op.chunk_size, run.tape
    rows = 2 * (farthest if farthest in run.windows_reached else run.sequence)
    return tape.unsqueeze(tape.unleafed(tape.narrow(table, 0, rows)), 0)


class DistancesAll(Operation):
    __slots__ = ()


@lowering(DistancesAll)
def distances_all(run: Lowering, op: DistancesAll, table: Tensor) -> Tensor:
    """Every row, as a batch of one."""
    return run.tape.unsqueeze(run.tape.unleafed(table), 0)


class LinearAside(Aside):
    __slots__ = ()


@lowering(LinearAside)
def linear_aside(run: Lowering, op: LinearAside, x: Tensor) -> tuple[()]:
    """A projection that is computed and not read: it leaves nothing for backward."""
    tape = run.tape
    tape.linear(*(tape.detached(part) for part in tape.autocast_low(x, *run.parameters_of(op))))
    return ()


# -- version 1 -----------------------------------------------------------------------------------------


@record(kw_only=True, eq=False)
class BiasedQkv(Operation):
    num_heads: int


@lowering(BiasedQkv)
def biased_qkv(run: Lowering, op: BiasedQkv, fused: Tensor) -> tuple[Tensor, ...]:
    """Each head's q, k, v beside each other, biases on q and v."""
    tape, width = run.tape, op.outputs[0].width
    split = tape.view(fused, *fused.shape[:-1], op.num_heads, 3 * width)
    q, k, v = tape.chunk(tape.transpose(split, 1, 2), 3)
    biases = (tape.transpose(tape.view(bias, 1, 1, op.num_heads, width), 1, 2) for bias in run.parameters_of(op))
    return tape.add(q, next(biases)), k, tape.add(v, next(biases))


DEBERTA = AttentionStyle("deberta")


@DEBERTA.path("eager")
def _eager_deberta(run: Lowering, op: Attention, q: Tensor, k: Tensor, v: Tensor, *distances: Tensor) -> Tensor:
    """Queries divided by a scalar tensor, scores filled where a table of pairs says so."""
    tape = run.tape
    q = tape.div(q, tape.new((), q.dtype, op="sqrt"))
    scores = tape.matmul(q, tape.transpose(k, 2, 3))
    biases = [
        _gathered(run, _against_distances(run, op, kind, q if kind == "c2p" else k, rows), kind)
        for kind, rows in zip(op.compared, distances, strict=True)
    ]
    scores = tape.masked_fill(_added(run, scores, biases), _pairs(run, q, k))
    weights = tape.dropout(tape.softmax(scores), attention_dropout(run, op.dropout))
    return tape.contiguous(tape.transpose(tape.matmul(weights, v), 1, 2))


def _against_distances(run: Lowering, op: Attention, kind: str, x: Tensor, rows: Tensor) -> Tensor:
    """(b, h, s, d) times the projected distances (1, r, h·d): (b, h, s, r)."""
    tape, heads = run.tape, op.num_heads
    rows = tape.transpose(tape.view(rows, 1, rows.shape[1], heads, x.shape[-1]), 1, 2)
    if kind == "p2c":
        rows = tape.div_(rows, tape.new((), "fp32", op="sqrt"))
    return tape.matmul(x, tape.transpose(rows, 2, 3))


# -- version 2 -----------------------------------------------------------------------------------------


DEBERTA_V2 = AttentionStyle("deberta_v2")


@DEBERTA_V2.path("eager")
def _eager_deberta_v2(run: Lowering, op: Attention, q: Tensor, k: Tensor, v: Tensor, *distances: Tensor) -> Tensor:
    """As version 1 with the heads folded into the batch and the keys divided."""
    tape = run.tape
    batch, heads, s, d = q.shape
    pairs = _pairs(run, q, k)
    q, k, v = (tape.view(tape.contiguous(x), batch * heads, x.shape[2], d) for x in (q, k, v))
    scaled = tape.div(tape.transpose(k, 1, 2), tape.new((), q.dtype, op="sqrt"))
    scores = tape.matmul(q, scaled)
    biases = []
    for kind, rows in zip(op.compared, distances, strict=True):
        rows = tape.transpose(tape.view(rows, 1, rows.shape[1], heads, d), 1, 2)
        rows = tape.repeat_rows(tape.view(tape.contiguous(rows), heads, rows.shape[2], d), batch)
        compared = tape.matmul(q if kind == "c2p" else k, tape.transpose(rows, 1, 2))
        gathered = _gathered(run, compared, kind)
        biases.append(tape.div(gathered, tape.new((), gathered.dtype, op="sqrt")))
    scores = tape.view(_added(run, scores, biases), batch, heads, s, s)
    weights = tape.dropout(tape.softmax(tape.masked_fill(scores, pairs)), attention_dropout(run, op.dropout))
    mixed = tape.matmul(tape.view(weights, batch * heads, s, s), v)
    return tape.contiguous(tape.transpose(tape.view(mixed, batch, heads, s, d), 1, 2))


@record(kw_only=True, eq=False)
class MixedWithNeighbours(Operation):
    function: str
    p: float


@lowering(MixedWithNeighbours)
def mixed_with_neighbours(run: Lowering, op: MixedWithNeighbours, x: Tensor, residual: Tensor) -> Tensor:
    """`ConvLayer`: the embeddings convolved, filled in place where there is no token, normed with the residual."""
    tape = run.tape
    weight, bias, *norm = run.parameters_of(op)
    h = tape.conv1d(tape.contiguous(tape.permute(x, 0, 2, 1)), weight, bias, 1)
    h = tape.contiguous(tape.permute(h, 0, 2, 1))
    absent = tape.unsqueeze(tape.new((run.batch, run.sequence), "bool", op="_to_copy"), -1)
    tape.record("masked_fill_", [h, absent], [h], [(absent, "mask")])
    h = apply_activation(tape, op.function, tape.dropout(h, op.p))
    summed = tape.add(residual, h)
    return times_mask(run, TimesMask(), tape.to(tape.layer_norm(summed, *norm), summed.dtype))


# -- both ----------------------------------------------------------------------------------------------


def _gathered(run: Lowering, compared: Tensor, kind: str) -> Tensor:
    """The score of each pair's distance out of those of every distance, by a table of pairs made here."""
    tape, s = run.tape, compared.shape[-2]
    pairs = tape.new((*(1,) * (compared.ndim - 2), s, s), "int64", op="clamp")
    found = tape.gather(compared, tape.expand(pairs, *compared.shape[:-2], s, s))
    return tape.transpose(found, -1, -2) if kind == "p2c" else found


def _added(run: Lowering, scores: Tensor, biases: list[Tensor]) -> Tensor:
    """scores + (0 + first bias, the second added in place)."""
    if not biases:
        return scores
    tape = run.tape
    bias = tape.scale(biases[0], "add_scalar")
    for other in biases[1:]:
        bias = tape.add_(bias, other)
    return tape.add(scores, bias)


def _pairs(run: Lowering, q: Tensor, k: Tensor) -> Tensor:
    return run.tape.new((run.batch, 1, q.shape[2], k.shape[2]), "bool", op="bitwise_not")
