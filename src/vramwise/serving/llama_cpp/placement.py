"""Which tensors lie on the GPU, which on the host.

Source: ggml-org/llama.cpp src/llama-model.cpp load_tensors: the token embedding stays on the host, layers go to the
GPU from the end, the output last; a tied embedding is loaded on both sides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from vramwise.models import Model
from vramwise.serving.llama_cpp.cache import layer_cache_bytes
from vramwise.serving.llama_cpp.devices import HOST, layer_devices, split_points
from vramwise.serving.llama_cpp.quantizer import TypedTensor, typed_tensors
from vramwise.serving.llama_cpp.settings import Plan

ROW_PADDING = 512
_CPU_RULE = re.compile(r"^(?P<pattern>\S+)=CPU$")


@dataclass(frozen=True, slots=True)
class Placement:
    """Bytes of the file, of each device and of the host, and what the compute buffer may need copies of."""

    file_bytes: int
    device_bytes: tuple[int, ...]
    host_bytes: int
    output_bytes: int
    host_expert_bytes: int
    largest_unpacked_bytes: int
    layer_devices: tuple[int, ...]

    @property
    def gpu_bytes(self) -> int:
        return sum(self.device_bytes)

    @property
    def output_device(self) -> int:
        """The device that works out the logits: that of the output, or of the last layer on a GPU."""
        return max(self.layer_devices, default=HOST)

    def device_of(self, layer: int | None) -> int:
        """Device of a layer; None and layers behind the last (for multi-token prediction) go with the output."""
        last = len(self.layer_devices) - 1
        return self.layer_devices[last if layer is None else min(layer, last)]


@lru_cache(maxsize=512)
def placement(model: Model, plan: Plan) -> Placement:
    """Where every tensor of the file goes."""
    tensors = typed_tensors(model, plan.file_type, plan.imatrix)
    patterns = _patterns(plan)
    tied = not any(t.tensor.name == "output" for t in tensors)
    where = layer_devices(plan, _slot_sizes(model, plan, tensors, tied) if plan.splits_by_bytes else ())
    parts = split_points(plan.shares) if plan.shares else ()
    devices = [0] * plan.devices
    host = experts = unpacked = 0
    for typed in tensors:
        size, name, layer = typed.bytes, typed.tensor.name, typed.tensor.layer
        if name == "token_embd":
            host += size
            if tied and plan.output_on_gpu:
                _put(devices, size + _row_padding(typed), where[-1], typed, plan, parts)
        elif not _on_gpu(typed, plan, patterns):
            host += size
            if name.endswith("_exps") and layer is not None and plan.on_gpu(layer):
                experts = max(experts, size)
        else:
            device = where[-1] if layer is None else where[min(layer, plan.num_layers)]
            _put(devices, size + _row_padding(typed), device, typed, plan, parts)
            if layer is not None and typed.type.block_size > 1 and len(typed.tensor.shape) == 2:
                unpacked = max(unpacked, 2 * typed.tensor.numel)
    head = "token_embd" if tied else "output"
    output = sum(t.bytes for t in tensors if t.tensor.name == head)
    return Placement(sum(t.bytes for t in tensors), tuple(devices), host, output, experts, unpacked, where)


def _put(devices: list[int], size: int, device: int, typed: TypedTensor, plan: Plan, parts: tuple[float, ...]) -> None:
    """Bytes to one device, or, of a matrix with a split mode that cuts matrices, to each by its share."""
    shape = typed.tensor.shape
    cut = plan.shares_tensors and len(shape) > 1 and (plan.split_mode != "row" or len(shape) == 2)
    if not cut:
        devices[max(device, 0)] += size
        return
    done = 0
    for index, point in enumerate(parts):
        upto = size if index == len(parts) - 1 else int(size * point)
        devices[index] += upto - done
        done = upto


def _slot_sizes(model: Model, plan: Plan, tensors: tuple[TypedTensor, ...], tied: bool) -> tuple[int, ...]:
    """Bytes of each layer with its cache, and of the output."""
    sizes = [*layer_cache_bytes(model, plan), 0]
    for typed in tensors:
        layer = typed.tensor.layer
        if layer is not None:
            sizes[min(layer, plan.num_layers - 1)] += typed.bytes
        elif typed.tensor.name == ("token_embd" if tied else "output"):
            sizes[-1] += typed.bytes
    return tuple(sizes)


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
