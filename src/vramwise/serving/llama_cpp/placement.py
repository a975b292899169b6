"""Which tensors lie on the GPU, which on the host.

Source: ggml-org/llama.cpp src/llama-model.cpp load_tensors: the token embedding stays on the host, layers go to the
GPU from the end, the output last; a tied embedding is loaded on both sides. `override_tensor`: any tensor goes where
the first rule that its name matches says (create_tensor; ikawrakow/ik_llama.cpp src/llama-load-tensors.cpp
get_context_for_tensor, which appends what --cpu-moe and --n-cpu-moe say to these rules).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from vramwise.memo import of_model
from vramwise.models import Model
from vramwise.records import record
from vramwise.serving.common.gguf.quantizer import TypedTensor, typed_tensors
from vramwise.serving.common.gguf.tensors import LOOKED_UP
from vramwise.serving.llama_cpp.cache import layer_cache_bytes
from vramwise.serving.llama_cpp.devices import HOST, layer_devices, split_points
from vramwise.serving.llama_cpp.settings import Plan

ROW_PADDING = 512
ALIGNMENT_BYTES = 128
_DEVICE = re.compile(r"CPU|[A-Za-z]+(?P<device>\d{1,3})")
_RULE = re.compile(rf"(?P<pattern>\S+)=(?:{_DEVICE.pattern})")
Rules = tuple[tuple[re.Pattern[str], int], ...]
"""What `override_tensor` says: a pattern of names, and the device of the tensors that have such."""


@record
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


@record
class Piece:
    """Tensors that go the same way: one, or all of a layer's alike. `largest` is the largest one's bytes."""

    name: str
    layer: int | None
    bytes: int
    padding: int
    largest: int
    unpacked: int
    dimensions: int


@lru_cache(maxsize=512)
def placement(model: Model, plan: Plan) -> Placement:
    """Where every tensor of the file goes."""
    rules = told_rules(plan)
    single = bool(rules) or plan.shares_tensors
    pieces = _pieces(model, plan.file_type, plan.imatrix, single)
    tied = not any(piece.name == "output" for piece in pieces)
    where = layer_devices(plan, _slot_sizes(model, plan, pieces, tied) if plan.splits_by_bytes else ())
    parts = split_points(plan.shares) if plan.shares else ()
    devices = [0] * plan.devices
    host = experts = unpacked = 0
    for piece in pieces:
        size, name, layer = piece.bytes, piece.name, piece.layer
        told = _first_match(piece, rules)
        if told is not None and told != HOST:
            _put(devices, piece, told, plan, ())
        elif name in LOOKED_UP:
            host += size
            if tied and name == "token_embd" and plan.output_on_gpu and told is None:
                _put(devices, piece, where[-1], plan, parts)
        elif told == HOST or not _on_gpu(piece, plan):
            host += size
            if name.endswith("_exps") and layer is not None and plan.on_gpu(layer):
                experts = max(experts, piece.largest)
        else:
            _put(devices, piece, where[-1] if layer is None else where[min(layer, plan.num_layers)], plan, parts)
            unpacked = max(unpacked, piece.unpacked)
    head = "token_embd" if tied else "output"
    output = sum(piece.bytes for piece in pieces if piece.name == head)
    return Placement(sum(p.bytes for p in pieces), tuple(devices), host, output, experts, unpacked, where)


@of_model
def _pieces(model: Model, file_type: str, imatrix: bool, single: bool) -> tuple[Piece, ...]:
    """Every tensor on its own, or a layer's experts and the rest of it in one piece each."""
    found: dict[object, Piece] = {}
    for index, typed in enumerate(typed_tensors(model, file_type, imatrix)):
        tensor = typed.tensor
        name, layer, dimensions = tensor.name, tensor.layer, len(tensor.shape)
        matrix = layer is not None and typed.type.block_size > 1 and dimensions == 2
        unpacked = 2 * tensor.numel if matrix else 0
        piece = Piece(name, layer, typed.bytes, _padding(typed), typed.bytes, unpacked, dimensions)
        key: object = index
        if not single and layer is not None:
            key = (layer, name.endswith("_exps"))
            piece = _joined(found.get(key), piece)
        found[key] = piece
    return tuple(found.values())


def _joined(one: Piece | None, other: Piece) -> Piece:
    if one is None:
        return other
    return Piece(
        one.name, one.layer, one.bytes + other.bytes, one.padding + other.padding, max(one.largest, other.largest),
        max(one.unpacked, other.unpacked), 0,
    )  # fmt: skip


def _put(devices: list[int], piece: Piece, device: int, plan: Plan, parts: tuple[float, ...]) -> None:
    """Bytes to one device, or, of a matrix with a split mode that cuts matrices, to each by its share."""
    size = piece.bytes + piece.padding
    if not (
        parts and plan.shares_tensors and (piece.dimensions == 2 or (piece.dimensions > 2 and plan.split_mode != "row"))
    ):
        devices[max(device, 0)] += size
        return
    done = 0
    for index, point in enumerate(parts):
        upto = size if index == len(parts) - 1 else int(size * point)
        devices[index] += upto - done
        done = upto


def _slot_sizes(model: Model, plan: Plan, pieces: tuple[Piece, ...], tied: bool) -> tuple[int, ...]:
    """Bytes of each layer with its cache, and of the output."""
    sizes = [*layer_cache_bytes(model, plan), 0]
    for piece in pieces:
        if piece.layer is not None:
            sizes[min(piece.layer, plan.num_layers - 1)] += piece.bytes
        elif piece.name == ("token_embd" if tied else "output"):
            sizes[-1] += piece.bytes
    return tuple(sizes)


def _padding(typed: TypedTensor) -> int:
    """What a tensor takes of a device's buffer beyond its bytes: the next one begins at a multiple of 128 bytes
    (ggml_backend_cuda_buffer_type_get_alignment, ggml_tallocr_alloc).
    """
    row = padding_bytes(typed)
    return row + -(typed.bytes + row) % ALIGNMENT_BYTES


def padding_bytes(typed: TypedTensor) -> int:
    """Quantized tensors end with a row of whole 512 weights (ggml-cuda.cu MATRIX_ROW_PADDING)."""
    rest = typed.tensor.shape[-1] % ROW_PADDING if typed.type.block_size > 1 else 0
    return (ROW_PADDING - rest) // typed.type.block_size * typed.type.block_bytes if rest else 0


def _on_gpu(piece: Piece, plan: Plan) -> bool:
    if not plan.gpu_layers:
        return False
    if piece.layer is None:
        return plan.output_on_gpu
    if not plan.on_gpu(piece.layer):
        return False
    return not (piece.name.endswith("_exps") and plan.sends_experts(piece.layer))


def _first_match(piece: Piece, rules: Rules) -> int | None:
    return told_device(piece.name, piece.layer, rules)


def told_device(name: str, layer: int | None, rules: Rules) -> int | None:
    """The device of the first rule that the tensor's name matches."""
    if not rules:
        return None
    path = f"{name}.weight" if layer is None else f"blk.{layer}.{name}.weight"
    return next((device for pattern, device in rules if pattern.search(path)), None)


def told_rules(plan: Plan) -> Rules:
    """The rules of `override_tensor` in order; what is no rule, or names a device that is not there, is passed over."""
    found = []
    for match in filter(None, map(_RULE.fullmatch, _rules(plan.settings.override_tensor))):
        pattern, device = _compiled(match["pattern"]), int(match["device"] or HOST)
        if pattern is not None and device < plan.devices:
            found.append((pattern, device))
    return tuple(found)


def unread_rules(plan: Plan) -> Iterator[tuple[str, str]]:
    """Rules that llama.cpp refuses, and why: no PATTERN=DEVICE, no regular expression, a device that is not there."""
    for rule in _rules(plan.settings.override_tensor):
        pattern, _, device = rule.rpartition("=")
        found = _DEVICE.fullmatch(device)
        if not pattern or _compiled(pattern) is None:
            yield rule, "is no PATTERN=DEVICE"
        elif found is None or int(found["device"] or HOST) >= plan.devices:
            yield rule, "names no device of this run"


def _rules(override_tensor: tuple[str, ...]) -> list[str]:
    pieces = (piece for text in override_tensor for piece in text.split(",") if piece.strip())
    return [piece.strip().removeprefix("-ot ").strip('"') for piece in pieces]


def _compiled(pattern: str) -> re.Pattern[str] | None:
    try:
        return re.compile(pattern)
    except re.error:
        return None
