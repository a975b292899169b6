"""What llama.cpp runs for Gemma 4's layers alone (src/models/gemma4.cpp)."""

from __future__ import annotations

from vramwise.models.operations.gemma import LayerSlice, RotaryByRow, ScaleByBufferInPlace
from vramwise.serving.llama_cpp.ggml.build import Build, ggml_lowering
from vramwise.serving.llama_cpp.ggml.tensors import OF_LAYER, Tensor, get_rows, like, permute, view


@ggml_lowering(RotaryByRow)
def rotary_by_row(b: Build, op: RotaryByRow, *turned: Tensor) -> tuple[Tensor, ...]:
    """Layers of the whole context read frequency factors of the file, which leave most columns as they are."""
    factors = b.rotary_factors() if "full" in op.table else ()
    return tuple(like("ROPE", x, b.positions_input(), *factors) for x in turned)


@ggml_lowering(ScaleByBufferInPlace)
def layer_scale(b: Build, op: ScaleByBufferInPlace, x: Tensor) -> Tensor:
    """The layer's scale is a weight of one value in the file."""
    return like("MUL", x, b.weight(1))


@ggml_lowering(LayerSlice)
def layer_slice(b: Build, op: LayerSlice, x: Tensor) -> Tensor:
    """A layer's embeddings of all tokens: a view of a copy that has them layer by layer (project_per_layer_inputs)."""
    key = "embeddings by layer"
    if key not in b.streams:
        b.streams[key] = Tensor("CONT", (x.ne[0], x.ne[2], x.ne[1], 1), sources=(permute(x, 0, 2, 1, 3),))
    of_all = b.streams[key]
    found = view(of_all, (*of_all.ne[:2], 1, 1), of_all.nb)
    if b.selected:
        found = get_rows(found, b.output_rows())
    found.mark = OF_LAYER
    return found
