"""The kernels in which MLX runs a layer, in words of its command encoder: arrays that each reads and makes.

An operation is one kernel that makes an array of its own, but for views, and for what it may write over: a norm, a sum,
a product of two and an activation take the place of an input that nothing else reads (array::is_donatable in
backend/common/binary.h, backend/metal/normalization.cpp). mlx-lm compiles an MLP's function with its product, so that
both are one kernel. Rotary positions make new arrays, for their input is a transposed view. Keys and values are written
into the cache's arrays.

Attention has one kernel where keys and values are as wide as each other and 64, 80 or 128 values wide; else scores are
an array, and so is the mask (0.26.0 to 0.32.4 backend/metal/scaled_dot_product_attention.cpp use_fallback, fast.cpp).
Latent attention hands its own scores of positions as the mask, and makes keys and values of every head from the cache
(mlx-lm 0.30.5 to 0.32.2 models/glm4_moe_lite.py, deepseek_v3.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from vramwise.models import Block, LayerCache, Operation
from vramwise.models.blocks import Value
from vramwise.models.operations.attention import AnyAttention, AnyRotary
from vramwise.models.operations.experts import ExpertMlps
from vramwise.models.operations.latent import Cached, LatentKey
from vramwise.models.operations.mixers import ChannelsFirst, ChannelsLast, Halves, PaddingZeroed
from vramwise.models.operations.norms import LayerNorm, RmsNorm
from vramwise.models.operations.routers import Router
from vramwise.models.operations.simple import (
    Activation,
    Add,
    Concatenate,
    Dropout,
    Heads,
    HeadsFirst,
    Linear,
    Multiply,
    Scale,
    Split,
    ToParameterDtype,
)
from vramwise.records import record
from vramwise.serving.common.storage import Storage

_VIEWS = Heads | HeadsFirst | Split | Cached | Halves | ToParameterDtype | Dropout | PaddingZeroed
_TURNED = ChannelsFirst | ChannelsLast
_OVER_INPUT = RmsNorm | LayerNorm | Add | Multiply | Activation | Scale
_FLAT = Linear | AnyAttention | Router | ExpertMlps
FUSED_HEADS = frozenset({64, 80, 128})
SORTED_FROM = 64  # mlx-lm 0.28.2 to 0.32.2 models/switch_layers.py SwitchGLU: do_sort


@record
class Array:
    """One array: `elements` are what the encoder counts of it, `bytes` what the allocator does."""

    id: tuple[str, object]
    elements: int
    bytes: int


@record
class Kernel:
    """What a kernel reads, and what it makes that no earlier array takes in."""

    reads: tuple[Array, ...]
    makes: tuple[Array, ...] = ()


@record
class Chunk:
    """Tokens of a prompt that run at once, behind how many others, and how the model's values are held."""

    tokens: int
    requests: int
    storage: Storage


@dataclass
class Lowered:
    """The kernels of one layer.

    `keys`: tokens whose keys its attention reads; `room`: those that its cache holds, and `old_room` did before this
    chunk; `given`: what the layer before made.
    """

    block: Block
    chunk: Chunk
    keys: int
    room: int
    old_room: int
    given: Array | None = None
    kernels: list[Kernel] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._rows = self.chunk.tokens * self.chunk.requests
        self._size = self.chunk.storage.bytes_per_element
        self._root: dict[int, Array] = {}
        self._width: dict[int, int] = {}
        self._cached: set[int] = set()
        self._readers: dict[int, int] = {}
        for value in self.block.inputs.values():
            self._root[value.id] = self._array(value.id, value.width)
            self._width[value.id] = value.width
        if self.given is not None and self.block.inputs:
            self._root[next(iter(self.block.inputs.values())).id] = self.given
        self._multiplied = {value.id for op in self.block.computing if isinstance(op, Multiply) for value in op.inputs}
        self._count_readers()
        for op in self.block.computing:
            self._add(op)

    @property
    def result(self) -> Array | None:
        """What the next layer is given."""
        return next((self._root[value.id] for value in self.block.outputs.values() if value.id in self._root), None)

    @property
    def _cache(self) -> LayerCache | None:
        return next((cache for cache in self.block.caches if cache.kind not in ("none", "recurrent")), None)

    def _count_readers(self) -> None:
        """How many kernels read each value: views read none, and are the value that they show."""
        self._shown: dict[int, int] = {}
        for op in self.block.computing:
            shown = [self._shown.get(value.id, value.id) for value in op.inputs]
            if isinstance(op, _VIEWS | _TURNED) or self._is_compiled(op):
                for place, value in enumerate(op.outputs):
                    self._shown[value.id] = shown[min(place, len(shown) - 1)]
                continue
            for read in set(shown):
                self._readers[read] = self._readers.get(read, 0) + 1

    def _is_compiled(self, op: Operation) -> bool:
        """An activation whose product with another array is the same kernel."""
        return isinstance(op, Activation) and any(value.id in self._multiplied for value in op.outputs)

    def _array(self, name: object, width: int, rows: int | None = None) -> Array:
        elements = width * (self._rows if rows is None else rows)
        return Array((self.block.name, name), elements, elements * self._size)

    def _add(self, op: Operation) -> None:
        reads = [self._root[value.id] for value in op.inputs]
        if isinstance(op, _VIEWS | _TURNED) or self._is_compiled(op):
            for place, value in enumerate(op.outputs):
                self._root[value.id] = reads[min(place, len(reads) - 1)]
                self._width[value.id] = self._own_width(op, value)
                if isinstance(op, Cached):
                    self._cached.add(value.id)
        elif isinstance(op, ExpertMlps):
            self._experts(op, reads[0])
        elif isinstance(op, AnyAttention):
            self._attention(op, reads)
        elif isinstance(op, LatentKey | Concatenate) and self._is_latent:
            self._name(op.outputs[0], reads[0], self._own_width(op, op.outputs[0]))
        else:
            self._plain(op, reads)

    @property
    def _is_latent(self) -> bool:
        return self._cache is not None and self._cache.kind == "latent"

    def _name(self, value: Value, array: Array, width: int) -> None:
        self._root[value.id], self._width[value.id] = array, width

    def _own_width(self, op: Operation, value: Value) -> int:
        """Values a token, of all heads where the dataflow states one head's."""
        if isinstance(op, _FLAT) or not op.inputs:
            return value.width * value.places
        first = op.inputs[op.outputs.index(value) if isinstance(op, AnyRotary) else 0]
        if isinstance(op, Heads):
            return self._width[first.id]
        each = first.width * first.places
        return self._width[first.id] * value.width * value.places // max(1, each)

    def _plain(self, op: Operation, reads: list[Array]) -> None:
        weights = tuple(self._weights(op))
        makes = []
        for value in op.outputs:
            width = self._own_width(op, value)
            over = self._over(op, reads, width)
            if over is None:
                rows = self.keys * self.chunk.requests if self._reads_cache(op) else None
                over = self._array(value.id, width, rows)
                makes.append(over)
            self._name(value, over, width)
        self.kernels.append(Kernel((*reads, *weights), tuple(makes)))

    def _reads_cache(self, op: Operation) -> bool:
        return any(value.id in self._cached for value in op.inputs)

    def _over(self, op: Operation, reads: list[Array], width: int) -> Array | None:
        """The input that an operation writes over: one that it alone reads, as large as what it makes."""
        if not isinstance(op, _OVER_INPUT):
            return None
        given = {value.id for value in self.block.inputs.values()}
        for value, read in zip(op.inputs, reads, strict=True):
            shown = self._shown.get(value.id, value.id)
            if shown not in given and self._readers.get(shown) == 1 and read.elements == width * self._rows:
                return read
        return None

    def _weights(self, op: Operation) -> Iterator[Array]:
        """The encoder counts elements: packed words, scales and biases of quantized weights."""
        for parameter in op.parameters:
            rule = self.chunk.storage.rule_for(parameter)
            elements = parameter.numel
            if rule is not None:
                words = parameter.numel * rule.bits // 32
                elements = words + 2 * parameter.numel // max(1, rule.group_size)
            yield Array((self.block.name, parameter.name), elements, 0)

    def _attention(self, op: Operation, reads: list[Array]) -> None:
        value, cache, rows = op.outputs[0], self._cache, self._rows
        held = []
        if cache is not None:
            held = list(self._held(cache))
            self.kernels.append(Kernel((*reads[1:], *held), tuple(self._old(cache))))
        heads = self._width[op.inputs[0].id] // max(1, op.inputs[0].width)
        made = self._array(value.id, value.width)
        if not self._is_fused(cache):
            scores = heads * rows * self.keys
            mask = Array((self.block.name, f"mask of {value.id}"), rows * self.keys, rows * self.keys)
            if self._is_latent:
                mask = Array(mask.id, scores, scores * self._size)
            of_keys = Array((self.block.name, f"scores of {value.id}"), scores, scores * self._size)
            self.kernels.append(Kernel((reads[0], *held), (mask,)))
            self.kernels.append(Kernel((reads[0], *held, *reads[1:]), (of_keys,)))
            self.kernels.append(Kernel((of_keys, mask)))
            self.kernels.append(Kernel((of_keys,)))
            self.kernels.append(Kernel((of_keys, *held, *reads[1:]), (made,)))
        else:
            self.kernels.append(Kernel((reads[0], *held), (made,)))
        self._name(value, made, value.width)

    def _is_fused(self, cache: LayerCache | None) -> bool:
        if cache is None or cache.kind == "latent":
            return False
        return cache.key_head_dim == cache.value_head_dim and cache.key_head_dim in FUSED_HEADS

    def _held(self, cache: LayerCache) -> Iterable[Array]:
        """Keys and values of a request's whole room; they are counted as the cache."""
        for name, width in (("keys", _key_width(cache)), ("values", _value_width(cache))):
            yield Array((self.block.name, name), width * self.room * self.chunk.requests, 0)

    def _old(self, cache: LayerCache) -> Iterable[Array]:
        """The arrays from which a cache grew: they go when the kernel that copies them is done."""
        elements = (_key_width(cache) + _value_width(cache)) * self.old_room * self.chunk.requests
        if elements:
            yield Array((self.block.name, "old"), elements, elements * self._size)

    def _experts(self, op: ExpertMlps, given: Array) -> None:
        hidden, inner, chosen = op.inputs[0].width, op.inner_width, op.experts_per_token
        weights = tuple(self._weights(op))
        picked, up, gate, down, back = (
            self._array(f"{name} of {op.outputs[0].id}", chosen * width)
            for name, width in (("rows", hidden), ("up", inner), ("gate", inner), ("down", hidden), ("back", hidden))
        )
        made = self._array(op.outputs[0].id, hidden)
        sort = self._rows * chosen >= SORTED_FROM
        first = picked if sort else given
        steps = [Kernel((given,), (picked,))] if sort else []
        steps += [Kernel((first, *weights[:1]), (up,)), Kernel((first, *weights[:1]), (gate,)), Kernel((up, gate))]
        steps += [Kernel((up, *weights[1:]), (down,))]
        steps += [Kernel((down,), (back,))] if sort else []
        steps += [Kernel((back if sort else down,), (made,))]
        self.kernels += steps
        self._name(op.outputs[0], made, hidden)


def _key_width(cache: LayerCache) -> int:
    return cache.latent_dim if cache.kind == "latent" else cache.num_key_value_heads * cache.key_head_dim


def _value_width(cache: LayerCache) -> int:
    return cache.rope_dim if cache.kind == "latent" else cache.num_key_value_heads * cache.value_head_dim
