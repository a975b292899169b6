"""What llama.cpp runs for Gemma 4's layers alone (src/models/gemma4.cpp)."""

from __future__ import annotations

from vramwise.models.operations.gemma import RotaryByRow, ScaleByBufferInPlace
from vramwise.serving.llama_cpp.ggml.build import Build, ggml_lowering
from vramwise.serving.llama_cpp.ggml.tensors import Tensor, like


@ggml_lowering(RotaryByRow)
def rotary_by_row(b: Build, op: RotaryByRow, *turned: Tensor) -> tuple[Tensor, ...]:
    """Layers of the whole context read frequency factors of the file, which leave most columns as they are."""
    factors = b.rotary_factors() if "full" in op.table else ()
    return tuple(like("ROPE", x, b.positions_input(), *factors) for x in turned)


@ggml_lowering(ScaleByBufferInPlace)
def layer_scale(b: Build, op: ScaleByBufferInPlace, x: Tensor) -> Tensor:
    """The layer's scale is a weight of one value in the file."""
    return like("MUL", x, b.weight(1))
