"""The terms of a llama.cpp process by device: weights, caches, compute buffers, context and pool."""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.hardware import Gpu
from vramwise.intervals import around
from vramwise.models import Model
from vramwise.records import record
from vramwise.result import Node, Phase, Quantity
from vramwise.serving.common.answer import context_node, interval
from vramwise.serving.common.constants import constant
from vramwise.serving.common.gguf.quantizer import file_tensors
from vramwise.serving.llama_cpp.buffers import compute_node, device_name, host_node, output_node
from vramwise.serving.llama_cpp.cache import CacheBytes, cache_bytes
from vramwise.serving.llama_cpp.placement import Placement
from vramwise.serving.llama_cpp.settings import Plan, runs_itself

_KV_SOURCE = "llama.cpp src/llama-kv-cache.cpp"
_FILE_SOURCE = "llama.cpp src/llama-quant.cpp llama_tensor_get_type"


@record
class Extra:
    """What runs beside the model in the same process: its bytes on the devices and on the host."""

    node: Node
    host: Node | None = None


class Terms:
    """The terms of one estimate; `custom` leaves out what the tensors' types decide."""

    def __init__(
        self, model: Model, plan: Plan, placed: Placement, custom: bool, gpu: Gpu | None, extras: Sequence[Extra] = ()
    ) -> None:
        self.model, self.plan, self.placed, self.custom, self.gpu = model, plan, placed, custom, gpu
        self.cache: CacheBytes = cache_bytes(model, plan)
        inputs = {"gguf_quant": plan.file_type, "n_gpu_layers": plan.gpu_layers}
        on_devices = [0] * len(placed.device_bytes) if custom else placed.device_bytes  # the header alone tells them
        on_host = 0 if custom else placed.host_bytes
        self.gpu_weights = by_device("weights", on_devices, "Σ tensors on the GPU", inputs, _FILE_SOURCE)
        self.host_weights = Node("weights", on_host, "exact", formula="Σ tensors on the host", inputs=inputs,
                                 source=_FILE_SOURCE)  # fmt: skip
        self.compute = compute_node(model, plan, placed)
        self.host = host_node(model, plan, placed)
        self.output = output_node(model, plan)
        self.extras = tuple(extras)
        self.around = self._process(gpu)
        self.moments = self._phases()

    def _process(self, gpu: Gpu | None) -> tuple[Node, ...]:
        """Context of every device, and the pool in which cuBLAS products unpack weights."""
        many = self.plan.devices
        if not many:
            return ()
        context = context_node(gpu)
        if gpu is not None and not gpu.runs_cuda_code:  # Metal and SYCL products read quantized weights as they are
            return times(context, many), times(Node("runtime pool", 0, "exact"), many)
        share = constant("llama.cpp", "pool_share_of_largest_weight", (0,))
        largest = self.placed.largest_unpacked_bytes
        pool = Node("runtime pool", round(largest * share.expected), share.kind, round(largest * share.low),
                    round(largest * share.high), formula="largest quantized matrix of a layer in f16",
                    source=share.source)  # fmt: skip
        return times(context, many), times(pool, many)

    def cache_sides(self) -> tuple[list[int], list[int], int, int]:
        """KV cache and states by device, then those on the host."""
        devices = self.plan.devices
        kv, state = [0] * devices, [0] * devices
        kv_host = state_host = 0
        for layer, size in enumerate(self.cache.kv_by_layer):
            where = self.placed.device_of(layer) if self.plan.kv_on_gpu else -1
            if where < 0:
                kv_host += size
            else:
                kv[where] += size
        for layer, size in enumerate(self.cache.state_by_layer):
            where = self.placed.device_of(layer)
            if where < 0:
                state_host += size
            else:
                state[where] += size
        return self._cut(kv), self._cut(state), kv_host, state_host

    def _cut(self, sizes: list[int]) -> list[int]:
        """Split modes that cut heads cut their cache too; row keeps it whole with its layer."""
        if not self.plan.shares_tensors or self.plan.split_mode == "row":
            return sizes
        total, whole = sum(self.plan.shares), sum(sizes)
        cut = [int(whole * share / total) for share in self.plan.shares]
        return [whole - sum(cut[1:]), *cut[1:]]

    def cache_nodes(self, on_gpu: bool) -> list[Node]:
        """Keys and values, recurrent states, of one side."""
        cache, plan = self.cache, self.plan
        kv, state, kv_host, state_host = self.cache_sides()
        inputs = {"cells": cache.full_cells, "window_cells": cache.window_cells, "streams": plan.streams,
                  "cache_type_k": plan.type_k, "cache_type_v": plan.type_v}  # fmt: skip
        formula = "Σ cells × streams × (K row + V row)"
        nodes = [by_device("KV cache", kv if on_gpu else [kv_host], formula, inputs, _KV_SOURCE)]
        if sum(state) if on_gpu else state_host:
            source = "llama.cpp src/llama-memory-recurrent.cpp"
            nodes.append(by_device("recurrent state", state if on_gpu else [state_host],
                                   "Σ state elements × 4 × slots", {}, source))  # fmt: skip
        return nodes

    def _phases(self) -> tuple[Phase, ...]:
        """Load, context, prompt: on the GPUs, or on the host of a run on the CPU."""
        if not self.plan.devices:
            held = (self.host_weights, *self.cache_nodes(False), *(extra.host for extra in self.extras if extra.host))
            return (
                Phase("load", Node.group("load", (self.host_weights,))),
                Phase("running", Node.group("running", (*held, self.host, self.output))),
            )
        contexts, pool = self.around
        beside = tuple(extra.node for extra in self.extras if extra.node.bytes)
        held = (self.gpu_weights, *self.cache_nodes(True), self.compute, *beside, contexts)
        return (
            Phase("load", Node.group("load", (self.gpu_weights, contexts))),
            Phase("context", Node.group("context", held)),
            Phase("prompt", Node.group("prompt", (*held, pool))),
        )

    @property
    def needed(self) -> Node:
        """The largest moment, over all devices."""
        return self.moments[-1].components

    def device_needs(self) -> tuple[Quantity, ...]:
        """What each device needs in the largest moment."""
        many = self.plan.devices
        if many <= 1:
            return (interval(self.needed),)
        sums = [[0, 0, 0] for _ in range(many)]
        for node in self.needed.children:
            for device, part in enumerate(node.children):
                for index, size in enumerate((part.low, part.bytes, part.high)):
                    sums[device][index] += size
        return tuple(Quantity(*three) for three in sums)

    def quantities(self) -> dict[str, Quantity]:
        """The buffer lines; what needs the file's tensor types is left out for a custom mix."""
        found = {
            "params": Quantity.exact(self.model.num_parameters),
            "kv_cache_bytes": Quantity.exact(self.cache.kv_bytes),
            "host_buffer": around("host_buffer", interval(self.host), _cell(self.host, self.plan), self.host.bytes),
            "output_buffer": interval(self.output),
        }
        if self.plan.devices:
            found["compute_buffer"] = around(
                "compute_buffer", interval(self.compute), _cell(self.compute, self.plan), self.compute.bytes
            )
        if self.cache.state_bytes:
            found["recurrent_state_bytes"] = Quantity.exact(self.cache.state_bytes)
        if self.custom:
            return found
        found["weights"] = self._weights("weights", self.placed.file_bytes)
        found["weights_gpu"] = self._weights("weights_gpu", self.placed.gpu_bytes)
        found["weights_host"] = self._weights("weights_host", self.placed.host_bytes)
        found["total_needed"] = interval(self.needed)
        if self.plan.devices:
            found["nvidia_smi"] = interval(self.needed)
        return found

    def _weights(self, name: str, size: int) -> Quantity:
        """Exact where the file's header told its types: who quantizes chooses the mix that is called Q4_K_M."""
        quantity = Quantity.exact(size)
        return quantity if file_tensors(self.model) else around(name, quantity, "llama.cpp weights", size)


def _cell(buffer: Node, plan: Plan) -> str:
    """The formula is llama.cpp's, which other graphs than its own follow less: those of ollama's own engine."""
    if buffer.kind == "derived":
        return "llama.cpp buffers, replayed"
    return f"llama.cpp buffers, by formula{', in ollama' if runs_itself(plan.settings) else ''}"


def by_device(name: str, sizes: Sequence[int], formula: str, inputs: dict[str, object], source: str) -> Node:
    """An exact node, with a child for each of several devices."""
    parts = tuple(Node(device_name(i), size, "exact") for i, size in enumerate(sizes)) if len(sizes) > 1 else ()
    return Node(name, sum(sizes), "exact", formula=formula, inputs=inputs, source=source, children=parts)


def times(node: Node, many: int) -> Node:
    """The same on each of several devices."""
    if many == 1:
        return node
    parts = tuple(
        Node(device_name(i), node.bytes, node.kind, node.low, node.high, formula=node.formula, source=node.source)
        for i in range(many)
    )
    return Node.group(node.name, parts, formula=node.formula, source=node.source)
