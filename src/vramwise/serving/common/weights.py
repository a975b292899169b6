"""Bytes of the weights on one rank: every tensor, fused, cut and stored as the engine holds it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

from vramwise.errors import ScenarioError
from vramwise.memo import of_model
from vramwise.models import Block, Model, Parameter
from vramwise.models.allocator import block_bytes
from vramwise.models.lengths import rope_scaling, rope_scaling_of, stated_positions, text_config
from vramwise.models.operations.attention import AnyRotary
from vramwise.models.operations.simple import Linear
from vramwise.models.parallel_cut import WHOLE, ParallelCut, key_value_rows
from vramwise.models.type_facts import ANY, has_fact
from vramwise.records import record
from vramwise.serving.common.storage import Storage

Tensors = list[tuple[Parameter, tuple[int, ...]]]


@record
class Stages:
    """How layers are dealt out to pipeline stages.

    Left-over layers go to the stages before the last (vLLM 0.33.0 distributed/utils.py get_pp_indices), to the last
    where `last_first` (SGLang 0.5.23, the same file); `partition` says it outright.
    """

    count: int = 1
    partition: tuple[int, ...] = ()
    last_first: bool = False

    def spans(self, num_layers: int) -> tuple[tuple[int, int], ...]:
        """First and last + 1 layer of each stage. Raises ScenarioError for a partition that is none of these layers."""
        ends = tuple(accumulate(self._sizes(num_layers)))
        return tuple(zip((0, *ends[:-1]), ends, strict=True))

    def _sizes(self, num_layers: int) -> Sequence[int]:
        if self.partition and self.count > 1:
            if len(self.partition) != self.count or sum(self.partition) != num_layers:
                stated = "+".join(str(layers) for layers in self.partition)
                expected = f"{self.count} numbers that make {num_layers}"
                raise ScenarioError("serve.pipeline_layer_partition", f"expected {expected}, got {stated}")
            return self.partition
        sizes = [num_layers // self.count] * self.count
        for extra in range(num_layers % self.count):
            sizes[max(self.count - (1 if self.last_first else 2) - extra, 0)] += 1
        return sizes


ONE_STAGE = Stages()
_UNSTATED_POSITIONS = 8192  # vLLM model_executor/models/llama.py: getattr(config, "max_position_embeddings", 8192)


@record
class Layout:
    """How a model is spread over GPUs and packed into tensors.

    `fused`: linear layers that read the same input are one tensor (q, k, v; gate, up), as engines load them.
    `host_bytes`: weights of layers that a rank leaves in host memory, whole tensors until there are so many bytes.
    """

    cut: ParallelCut = WHOLE
    stages: Stages = ONE_STAGE
    fused: bool = False
    host_bytes: int = 0

    @property
    def pipeline_parallel_size(self) -> int:
        return self.stages.count


@record
class StageWeights:
    """One pipeline stage on one rank.

    `by_part`: exact bytes of the tensors; `rounding`: what the allocator adds to them; `layers`: first and last + 1.
    `largest_linear_elements`: elements of the largest quantized layer on this rank (some kernels unpack it whole).
    `host_bytes`: tensors of its layers that lie in host memory, in none of the others.
    """

    by_part: tuple[tuple[str, int], ...]
    rounding: int
    layers: tuple[int, int]
    largest_linear_elements: int
    host_bytes: int = 0

    @property
    def tensor_bytes(self) -> int:
        return sum(size for _, size in self.by_part)

    @property
    def total(self) -> int:
        return self.tensor_bytes + self.rounding


@of_model
def stage_weights(model: Model, storage: Storage, layout: Layout) -> tuple[StageWeights, ...]:
    """Bytes of every pipeline stage on one rank of tensor and expert parallelism.

    Σ bytes(cut(parameter)); quantized weights with their scales and zero points. Buffers and workspaces are not
    counted.
    """
    spans = layout.stages.spans(model.num_layers)
    first_layer = next((i for i, block in enumerate(model.blocks) if block.layer is not None), 0)
    stages = [_Sum() for _ in spans]
    held: list[set[str]] = [set() for _ in spans]
    position = -1
    for index, block in enumerate(model.blocks):
        position += block.layer is not None
        stage = _stage(spans, position, index < first_layer, block.layer is None)
        for tensor in _tensors(block, layout, held[stage]):
            is_moved = block.layer is not None and stages[stage].host_bytes < layout.host_bytes
            stages[stage].add(tensor, storage, moved=is_moved)
    return tuple(stage.finished(span) for stage, span in zip(stages, spans, strict=True))


class _Sum:
    def __init__(self) -> None:
        self.parts: dict[str, int] = {}
        self.rounding = 0
        self.largest = 0
        self.host_bytes = 0
        self._known: dict[tuple[object, ...], tuple[tuple[int, ...], int, int]] = {}

    def add(self, tensor: tuple[Parameter, tuple[int, ...]], storage: Storage, *, moved: bool) -> None:
        sizes, rounding, elements = self._sizes(*tensor, storage)
        self.largest = max(self.largest, elements)
        if moved:
            self.host_bytes += sum(sizes)
            return
        part = tensor[0].part
        self.parts[part] = self.parts.get(part, 0) + sum(sizes)
        self.rounding += rounding

    def _sizes(
        self, parameter: Parameter, shape: tuple[int, ...], storage: Storage
    ) -> tuple[tuple[int, ...], int, int]:
        """Bytes of a weight's tensors, what the allocator adds to them, and elements of a quantized one.

        Weights of one part and shape are stored alike, unless the checkpoint goes by their names.
        """
        named = parameter.name if storage.goes_by_names else ""
        key = parameter.part, parameter.shape, shape, parameter.is_linear, parameter.tied_to is None, named
        found = self._known.get(key)
        if found is None:
            rule = storage.rule_for(parameter)
            sizes: tuple[int, ...] = (_product(shape) * storage.bytes_per_element,)
            if rule is not None:
                sizes = tuple(size for _, size in rule.tensors_for(shape))
            elements = 0 if rule is None else _product(shape if len(shape) == 2 else shape[1:])
            self._known[key] = found = sizes, sum(block_bytes(size) - size for size in sizes), elements
        return found

    def finished(self, span: tuple[int, int]) -> StageWeights:
        return StageWeights(tuple(self.parts.items()), self.rounding, span, self.largest, self.host_bytes)


def _tensors(block: Block, layout: Layout, held: set[str]) -> Tensors:
    """The block's tensors on one rank that the stage does not hold yet (layers may share theirs, as ALBERT's do).

    With `fused`, layers with one input are stacked by rows.
    """
    key_values = key_value_rows(block) if layout.cut.tensor_parallel_size > 1 else {}
    tensors: Tensors = []
    stacked: dict[tuple[int, bool], int] = {}
    for op in block.ops:
        for parameter in op.parameters:
            if parameter.name in held:
                continue
            if parameter.tied_to is not None and not (layout.pipeline_parallel_size > 1 and parameter.part == "head"):
                continue
            # The engines that fuse layers serve Qwen2.5-Omni's thinker alone (vLLM 0.8 models/registry.py).
            if layout.fused and parameter.part == "speech":
                continue
            held.add(parameter.name)
            made = key_values.get(parameter.module)
            shape = layout.cut.shape(parameter, inputs_first=op.inputs_first, key_values=made)
            if layout.fused and isinstance(op, Linear) and parameter.shard == "column":
                key = (op.inputs[0].id, len(shape) == 1)
                place = stacked.get(key)
                if place is not None:
                    first, before = tensors[place]
                    tensors[place] = first, (before[0] + shape[0], *before[1:])
                    continue
                stacked[key] = len(tensors)
            tensors.append((parameter, shape))
    return tensors


def _product(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def _stage(spans: tuple[tuple[int, int], ...], position: int, before: bool, outside: bool) -> int:
    if before:
        return 0
    if outside:
        return len(spans) - 1
    return next((i for i, (start, stop) in enumerate(spans) if start <= position < stop), len(spans) - 1)


def has_multimodal_rope(model: Model) -> bool:
    """Whether positions have a time, a height and a width: by the config, or by its type where it leaves RoPE out."""
    return "mrope_section" in rope_scaling(model) or has_fact(ANY, "three_positions", model.config.model_type)


def rope_cache_bytes(model: Model, bytes_per_element: int, multimodal_factor: int = 1) -> int:
    """Tables of cosines and sines that an engine makes once: Σ positions · rotary_dim · dtype over distinct tables.

    `multimodal_factor`: times the positions that tables of multimodal RoPE (`mrope_section`) hold.
    Source: vLLM model_executor/layers/rotary_embedding; Llama-3-8B and Llama-3.1-8B logs agree to the last digit.
    """
    factor = multimodal_factor if has_multimodal_rope(model) else 1
    elements = sum(rope_positions(model, table) * width for table, width in _rope_tables(model))
    return bytes_per_element * factor * elements


@of_model
def _rope_tables(model: Model) -> tuple[tuple[str, int], ...]:
    """Name and width of each table that some layer reads."""
    tables: dict[tuple[str, int], None] = {}
    for block in model.layers():
        for op in block.operations(AnyRotary):
            tables[op.table, op.rotary_dim or op.outputs[0].width] = None
    return tuple(tables)


@lru_cache(maxsize=512)
def rope_positions(model: Model, table: str = "") -> int:
    """Rows of a rotary table: positions of the config or its class, or original positions · factor for YaRN.

    Long RoPE keeps a short and a long table: original + extended positions.
    """
    config = text_config(model)
    positions = stated_positions(config) or _UNSTATED_POSITIONS
    scaling = rope_scaling_of(model, table)
    kind = str(scaling.get("rope_type") or scaling.get("type") or "")
    original = scaling.get("original_max_position_embeddings") or config.get("original_max_position_embeddings")
    original = original if isinstance(original, int) and original > 0 else None
    factor = scaling.get("factor")
    factor = factor if isinstance(factor, int | float) and factor > 0 else None
    if kind in ("yarn", "deepseek_yarn") and isinstance(factor, int | float):
        return round((original if isinstance(original, int) else positions) * factor)
    if kind in ("longrope", "su") and isinstance(original, int):
        return positions + original
    if kind in ("linear", "dynamic") and isinstance(factor, int | float):
        return round(positions * factor)
    return positions
