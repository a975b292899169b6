"""Which tensors lie on the GPU, which on the host.

Source: ggml-org/llama.cpp src/llama-model.cpp load_tensors: the token embedding stays on the host, layers go to the
GPU from the end, the output last; a tied embedding is loaded on both sides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from vramwise.models import Model
from vramwise.serving.llama_cpp.quantizer import TypedTensor, typed_tensors
from vramwise.serving.llama_cpp.settings import Plan

ROW_PADDING = 512
_CPU_RULE = re.compile(r"^(?P<pattern>\S+)=CPU$")


@dataclass(frozen=True, slots=True)
class Placement:
    """Bytes of the file, of each side, and what the compute buffer may need copies of."""

    file_bytes: int
    gpu_bytes: int
    host_bytes: int
    output_bytes: int
    host_expert_bytes: int
    largest_unpacked_bytes: int


@lru_cache(maxsize=512)
def placement(model: Model, plan: Plan) -> Placement:
    """Where every tensor of the file goes."""
    tensors = typed_tensors(model, plan.file_type, plan.imatrix)
    patterns = _patterns(plan)
    tied = not any(t.tensor.name == "output" for t in tensors)
    gpu = host = experts = unpacked = 0
    for typed in tensors:
        size, name, layer = typed.bytes, typed.tensor.name, typed.tensor.layer
        if name == "token_embd":
            host += size
            gpu += size + _row_padding(typed) if tied and plan.output_on_gpu else 0
        elif not _on_gpu(typed, plan, patterns):
            host += size
            if name.endswith("_exps") and layer is not None and plan.on_gpu(layer):
                experts = max(experts, size)
        else:
            gpu += size + _row_padding(typed)
            if layer is not None and typed.type.block_size > 1 and len(typed.tensor.shape) == 2:
                unpacked = max(unpacked, 2 * typed.tensor.numel)
    head = "token_embd" if tied else "output"
    output = sum(t.bytes for t in tensors if t.tensor.name == head)
    return Placement(sum(t.bytes for t in tensors), gpu, host, output, experts, unpacked)


def _row_padding(typed: TypedTensor) -> int:
    """Quantized tensors end with a row of whole 512 weights (ggml-cuda MATRIX_ROW_PADDING)."""
    rest = typed.tensor.shape[-1] % ROW_PADDING if typed.type.block_size > 1 else 0
    return (ROW_PADDING - rest) // typed.type.block_size * typed.type.block_bytes if rest else 0


def _on_gpu(typed: TypedTensor, plan: Plan, patterns: tuple[re.Pattern[str], ...]) -> bool:
    tensor = typed.tensor
    if not plan.gpu_layers:
        return False
    if tensor.layer is None:
        return plan.output_on_gpu
    if not plan.on_gpu(tensor.layer):
        return False
    if tensor.name.endswith("_exps") and (plan.settings.cpu_moe or tensor.layer < (plan.settings.n_cpu_moe or 0)):
        return False
    path = f"blk.{tensor.layer}.{tensor.name}.weight"
    return not any(pattern.search(path) for pattern in patterns)


def _patterns(plan: Plan) -> tuple[re.Pattern[str], ...]:
    """Patterns of `override_tensor` that send tensors to the CPU; what is no such pattern is passed over."""
    found = []
    for rule in plan.settings.override_tensor:
        for piece in rule.split(","):
            match = _CPU_RULE.match(piece.strip().removeprefix("-ot ").strip('"'))
            if match:
                try:
                    found.append(re.compile(match["pattern"]))
                except re.error:
                    continue
    return tuple(found)
