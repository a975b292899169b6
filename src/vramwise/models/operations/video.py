"""Operations of video denoisers as diffusers 0.42 runs them: norms and gates in fp32, positions on pairs."""

from __future__ import annotations

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.latents import quarter_turned, whole
from vramwise.records import record


@record(kw_only=True, eq=False)
class StepTable(Operation):
    """A learned table plus what the step's time makes, in fp32, as `pieces` views; `wide`: the time's are cast."""

    pieces: int
    wide: bool = True


@lowering(StepTable)
def step_table(run: Lowering, op: StepTable, temb: Tensor) -> tuple[Tensor, ...]:
    tape, (table,) = run.tape, run.parameters_of(op)
    width = whole(table.shape[-1])
    rows = tape.reshape(temb, temb.shape[0], whole(temb.shape[-1]) // width, width)
    summed = tape.add(table, tape.to(rows, "fp32") if op.wide else rows)
    return tape.chunk(summed, op.pieces, 1)


class NormedInFp32(Operation):
    """(norm(x.float()) · (1 + scale) + shift).type_as(x), or without scale and shift."""

    __slots__ = ()
    is_norm = True


@lowering(NormedInFp32)
def normed_in_fp32(run: Lowering, op: NormedInFp32, x: Tensor, *modulation: Tensor) -> Tensor:
    tape, weights = run.tape, [*run.parameters_of(op), None, None]
    wide = tape.to(x, "fp32")
    h = tape.layer_norm(wide, weights[0], weights[1])
    tape.record("locals", [wide], [])
    if modulation:
        scale, shift = modulation
        h = tape.add(tape.mul(h, tape.scale(scale, "add_scalar")), shift)
    return tape.to(h, x.dtype)


@record(kw_only=True, eq=False)
class GatedSumInFp32(Operation):
    """(x.float() + out · gate).type_as(x); `wide`: the other summand is cast first."""

    wide: bool = False


@lowering(GatedSumInFp32)
def gated_sum_in_fp32(run: Lowering, op: GatedSumInFp32, x: Tensor, out: Tensor, gate: Tensor) -> Tensor:
    tape = run.tape
    wide = tape.to(x, "fp32")
    product = tape.mul(tape.to(out, "fp32") if op.wide else out, gate)
    return tape.to(tape.add(wide, product), x.dtype)


class PairsWritten(Operation):
    """Positions on pairs side by side, each half worked out in fp32 and written into a new tensor."""

    __slots__ = ()


@lowering(PairsWritten)
def pairs_written(run: Lowering, op: PairsWritten, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    tape, half = run.tape, whole(x.shape[-1]) // 2
    pairs = tape.reshape(x, *x.shape[:-1], half, 2)
    halves = [tape.select(pairs, -1) for _ in range(2)]
    tables = [tape.step(table, -1, 2) for table in (cos, sin)]
    out = tape.like(x, requires_grad=False, op="empty_like")
    tape.record("empty_like", [x], [out])
    for _ in range(2):
        products = [tape.mul(one, table) for one, table in zip(halves, tables, strict=True)]
        summed = tape.add(*products)
        tape.record("locals", products, [])
        tape.record("copy_", [summed, out], [out])
    tape.record("locals", [x], [])
    return out


class NormedWhole(Operation):
    """diffusers' `RMSNorm` without a weight: the product with 1/rms is in fp32, then cast."""

    __slots__ = ()
    is_norm = True


@lowering(NormedWhole)
def normed_whole(run: Lowering, op: NormedWhole, x: Tensor) -> Tensor:
    tape = run.tape
    variance = tape.reduce("mean", tape.unary("pow", tape.to(x, "fp32")))
    product = tape.mul(x, tape.unary("rsqrt", tape.scale(variance, "add_scalar")))
    return tape.to(product, x.dtype)


class PairsTurnedWhole(Operation):
    """Positions on pairs side by side in fp32, all heads in one row, from tables of (batch, tokens, width)."""

    __slots__ = ()


@lowering(PairsTurnedWhole)
def pairs_turned_whole(run: Lowering, op: PairsTurnedWhole, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    tape = run.tape
    turned, real, imaginary = quarter_turned(tape, x)
    first = tape.mul(tape.to(x, "fp32"), cos)
    out = tape.to(tape.add(first, tape.mul(tape.to(turned, "fp32"), sin)), x.dtype)
    tape.record("locals", [x, turned, real, imaginary], [])
    return out


@record(kw_only=True, eq=False)
class TokenTables(Operation):
    """cos and sin (batch, tokens, `width`) in fp32 of every token's place."""

    width: int


@lowering(TokenTables)
def token_tables(run: Lowering, op: TokenTables, x: Tensor) -> tuple[Tensor, Tensor]:
    tape = run.tape
    cos, sin = (tape.new((*x.shape[:2], op.width), "fp32", op="cat") for _ in range(2))
    tape.record("cat", [], [cos, sin])
    return cos, sin


@record(kw_only=True, eq=False)
class GridTables(Operation):
    """cos and sin (1, tokens, 1, `width`) in fp32 for the places of a map divided into patches."""

    width: int
    patch: tuple[int, ...]


@lowering(GridTables)
def grid_tables(run: Lowering, op: GridTables, x: Tensor) -> tuple[Tensor, Tensor]:
    tape, tokens = run.tape, 1
    for side, piece in zip(x.shape[2:], op.patch, strict=True):
        tokens *= whole(side) // piece
    cos, sin = (tape.new((1, tokens, 1, op.width), "fp32", op="cat") for _ in range(2))
    tape.record("cat", [], [cos, sin])
    return cos, sin


class PairsAsComplex(Operation):
    """Pairs side by side as complex numbers times a table of those; what was cast has a name until it returns."""

    __slots__ = ()


@lowering(PairsAsComplex)
def pairs_as_complex(run: Lowering, op: PairsAsComplex, x: Tensor, table: Tensor) -> Tensor:
    tape, half = run.tape, whole(x.shape[-1]) // 2
    wide = tape.to(x, "fp32")
    turned = tape.view_as_complex(tape.reshape(wide, *x.shape[:-1], half, 2))
    product = tape.view_as_real(tape.mul(turned, tape.unsqueeze(table, 1)))
    out = tape.to(tape.reshape(product, *x.shape), x.dtype)
    tape.record("locals", [wide, product, x], [])
    return out


_ROWS_OF_POSITIONS = 4096
"""Positions and as many before zero that the class has tables for; both are kept on the card."""


@record(kw_only=True, eq=False)
class ComplexTables(Operation):
    """Complex positions (tokens, `width`) of an image's tokens, and of a text's as a view of the table of all.

    The table, that of negative positions, and a copy of the image's stay in caches of the class.
    """

    width: int


@lowering(ComplexTables)
def complex_tables(run: Lowering, op: ComplexTables, image: Tensor, text: Tensor) -> tuple[Tensor, ...]:
    tape = run.tape
    rows = (_ROWS_OF_POSITIONS, _ROWS_OF_POSITIONS, image.shape[1], image.shape[1])
    found = [tape.new((count, op.width), "complex64", op="cat") for count in rows]
    tape.record("cat", [], found)
    every, before, kept, of_image = found
    return of_image, tape.narrow(every, 0, text.shape[1]), before, kept
