"""Hugging Face's Model Memory Calculator and `accelerate estimate-memory`, reproduced beside the true counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from vramwise.formats.safetensors import WHOLE_NUMBERS, StoredTensor, StoredWeights
from vramwise.interop.huggingface_buffers import RELEASES, block_buffer_bytes, loads_with, shared_buffer_bytes
from vramwise.models import Block, Model, describe
from vramwise.models.operations.simple import Embedding
from vramwise.models.tensors_only import LAYER, is_buffer, part_of
from vramwise.models.type_facts import fact_value, has_fact
from vramwise.records import record

# commands/estimate.py of accelerate 1.15: sizes in fp32 over these.
_SMALLER_THAN_FP32 = {"float32": 1, "float16/bfloat16": 2, "int8": 4, "int4": 8}
_FP32_BYTES = 4
_INFERENCE_FACTOR = 1.2


@record
class CalculatorRow:
    """One dtype's row: what the tool prints, and the true size of the whole model's weights beside it.

    `training_bytes` is None where the tool prints N/A.
    """

    dtype: str
    largest_layer_bytes: float
    total_bytes: float
    training_bytes: float | None
    true_weights_bytes: float


@record
class AdamStages:
    """The tool's four stages of training with Adam, in bytes."""

    model: float
    gradient_calculation: float
    backward_pass: float
    optimizer_step: float


@record
class CalculatorTables:
    """Both tables of the tool, as it prints them with one release of transformers, and what they rest on."""

    transformers: str
    rows: tuple[CalculatorRow, ...]
    stages: dict[str, AdamStages]
    base_parameters: int
    true_parameters: int
    buffer_bytes: int
    inference_bytes: float
    """The tool's advice to add 20 % to the 16-bit size for inference."""

    def to_dict(self) -> dict[str, object]:
        return asdict(self)


def calculator(model: Model, transformers: str | None = None) -> CalculatorTables:
    r"""The tool's tables for a model, with a release of transformers (`4.37` or `5`; by default the oldest that fits).

    $$ total = 4 P_{base} + B,\quad largest = \max_{groups} (4 P_{group} + B_{group}) $$

    where: $P_{base}$ the parameters of the class that `AutoModel` chooses, which has no language-model head, $B$ the
    buffers that its modules register, groups a layer, BERT's embeddings, or any module without children. Other dtypes
    are the fp32 sizes divided by 2, 4 and 8. Training: fp32 4 × total; mixed precision 2 × total at its peak.

    Source: accelerate 1.15 `commands/estimate.py`, `utils/modeling.py` (`calculate_maximum_sizes`); buffers from the
    modeling files of transformers 4.37.2 and 5.23. Not counted by the tool: the head, activations, logits, the batch.
    """
    release = transformers or next(release for release in RELEASES if loads_with(model, release))
    base = base_model(model)
    blocks = list(_base_blocks(base))
    parameters = sum(_numel(parameters) for _, parameters in blocks)
    buffers = sum(block_buffer_bytes(base, block, release) for block, _ in blocks) + shared_buffer_bytes(base, release)
    total = float(_FP32_BYTES * parameters + buffers)
    largest = max(size for block, parts in blocks for size in _group_sizes(base, block, parts, release))
    return _tables(release, largest, total, parameters, model.num_parameters, buffers)


def _tables(release: str, largest: float, total: float, base: int, true: int, buffers: int) -> CalculatorTables:
    rows = tuple(
        CalculatorRow(
            dtype,
            largest / divisor,
            total / divisor,
            {"float32": 4 * total, "float16/bfloat16": 2 * total}.get(dtype),
            _FP32_BYTES * true / divisor,
        )
        for dtype, divisor in _SMALLER_THAN_FP32.items()
    )
    stages = {
        "float32": AdamStages(total, total, 2 * total, 4 * total),
        "float16/bfloat16": AdamStages(total, 1.5 * total, 2 * total, 2 * total),
    }
    advice = _INFERENCE_FACTOR * total / _SMALLER_THAN_FP32["float16/bfloat16"]
    return CalculatorTables(release, rows, stages, base, true, buffers, advice)


def calculator_of_files(files: StoredWeights, *, has_head: bool) -> CalculatorTables:
    """The tool's tables for a model of which only the files' headers are known.

    Groups are what the tool keeps whole: the tensors of one module, and where transformers' classes name their layers
    (`_no_split_modules`), a numbered layer of a stack. `has_head`: AutoModel has none, timm's models have. Numbers
    that count (`num_batches_tracked`) keep their width. Buffers that no file holds are not counted. Source: accelerate
    1.15 utils/modeling.py `calculate_maximum_sizes`, `get_max_layer_size`.
    """
    own = [one for one in files.tensors if has_head or part_of(one.name) != "head"]
    sizes: dict[str, int] = {}
    for tensor in own:
        layer = LAYER.match(tensor.name) if not has_head else None
        group = layer[0] if layer else tensor.name.rpartition(".")[0] or tensor.name
        sizes[group] = sizes.get(group, 0) + _fp32_size(tensor)
    parents = {name.rsplit(".", depth)[0] for name in sizes for depth in range(1, name.count(".") + 1)}
    largest = max((size for name, size in sizes.items() if name not in parents), default=0)
    buffers = sum(_fp32_size(tensor) for tensor in own if is_buffer(tensor.name))
    values = sum(tensor.numel for tensor in own if not is_buffer(tensor.name))
    true = sum(tensor.numel for tensor in files.tensors if not is_buffer(tensor.name))
    return _tables("", float(largest), float(sum(sizes.values())), values, true, buffers)


def _fp32_size(tensor: StoredTensor) -> int:
    return tensor.bytes if tensor.dtype in WHOLE_NUMBERS else _FP32_BYTES * tensor.numel


def base_model(model: Model) -> Model:
    """The model that `AutoModel` builds where it has parts that the model with a head lacks (BERT's pooler)."""
    bare = fact_value("transformers", "bare_class", model.config.model_type)
    if bare is None or model.head == "none":
        return model
    return describe({**model.config.values, "architectures": [bare]}, model.id)


def _base_blocks(model: Model) -> Iterator[tuple[Block, list[tuple[str, int]]]]:
    """Blocks with the names and sizes of their parameters, the head's and tied ones left out."""
    roots = {block.name.split(".")[0] for block in model.layers()}
    met: set[str] = set()
    for block in model.blocks:
        has_head = "logits" in block.outputs
        own = {parameter.name: parameter for parameter in block.parameters if parameter.name not in met}
        met |= own.keys()
        yield (
            block,
            [
                (parameter.name, parameter.numel)
                for parameter in own.values()
                if parameter.tied_to is None and not (has_head and parameter.name.split(".")[0] not in roots)
            ],
        )


def _group_sizes(model: Model, block: Block, parameters: list[tuple[str, int]], release: str) -> Iterator[int]:
    """Sizes of what the tool keeps together: a layer, BERT's embeddings, else each module's own tensors."""
    kind = model.config.model_type
    embeds = block.has(Embedding)
    whole_layer = block.layer is not None and not has_fact("accelerate", "layers_in_pieces", kind)
    if whole_layer or (embeds and has_fact("accelerate", "embeddings_in_one", kind)):
        yield _FP32_BYTES * _numel(parameters) + block_buffer_bytes(model, block, release)
        return
    modules: dict[str, int] = {}
    for name, numel in parameters:
        module = name.rpartition(".")[0]
        modules[module] = modules.get(module, 0) + numel
    scale = block_buffer_bytes(model, block, release) if embeds and len(modules) == 1 else 0
    yield from (_FP32_BYTES * numel + scale for numel in modules.values())


def _numel(parameters: list[tuple[str, int]]) -> int:
    return sum(numel for _, numel in parameters)
