"""What vLLM's classes and kernels add to the checkpoint's weights: rows that no checkpoint fills, padded experts,
unpacked latent projections."""

from __future__ import annotations

from math import prod

from vramwise.memo import of_model
from vramwise.models import Block, Model
from vramwise.models.operations.attention import Attention
from vramwise.models.operations.simple import Linear
from vramwise.models.type_facts import has_fact
from vramwise.result import Node
from vramwise.serving.common.storage import Storage
from vramwise.serving.common.weights import Layout
from vramwise.serving.vllm.expert_padding import expert_padding
from vramwise.serving.vllm.widened import widened_weights
from vramwise.units import MIB

# platforms/cuda.py get_valid_backends imports every backend for latent attention, whichever is taken; not in 0.26.0
FLASHINFER_MLA_VERSIONS, FLASHINFER_MLA_BYTES = ((0, 12), (0, 26)), 128 * MIB
ABSORBED_VERSIONS = ((0, 7), (0, 8))  # 0.7 multiplies latent up-projections into query and output weights

_FLASHINFER_MLA = "vLLM 0.12.0 to 0.22.0 v1/attention/backends/mla/flashinfer_mla.py: made when the module is imported"
_WHOLE = "vLLM 0.6.6 to 0.33.0 models/intern_vit.py _init_attn, internvl.py _init_mlp1, idefics3.py connector"
_MLA = "vLLM attention/backends/mla: process_weights_after_loading"
_STACKED = "vLLM 0.19.0 to 0.33.0 models/gemma4.py Gemma4Attention: QKVParallelLinear"


@of_model
def extra_weights(
    model: Model,
    storage: Storage,
    layout: Layout,
    version: tuple[int, ...],
    capability: float | None,
    stage: int,
    gfx: str = "",
) -> tuple[Node, ...]:
    """Nodes beside the tensors of the checkpoint on one rank of a stage; `gfx` is the architecture of an AMD card."""
    start, stop = layout.stages.spans(model.num_layers)[stage]
    layers = list(model.layers())[start:stop]
    padding = expert_padding(layers, storage, layout, version, capability, gfx)
    latent = sum(_latent_copies(block, storage, layout, version) for block in layers)
    nodes = []
    stacked = sum(_unfilled_rows(block, storage, layout, model.config.model_type, version) for block in layers)
    if stacked:
        nodes.append(Node("unfilled keys and values", stacked, "derived",
                          formula="Σ heads of a rank × head size × hidden size, as the queries are stored",
                          source=_STACKED))  # fmt: skip
    if _imports_flashinfer_mla(model, version):
        nodes.append(Node("FlashInfer work space", FLASHINFER_MLA_BYTES, "exact", source=_FLASHINFER_MLA))
    if padding is not None:
        nodes.append(padding)
    if latent:
        nodes.append(
            Node("latent projections", latent, "derived", formula="up-projections unpacked or multiplied in",
                 source=_MLA)
        )  # fmt: skip
    return (*nodes, *widened_weights(model, layers, storage, layout, version, capability))


def _unfilled_rows(
    block: Block, storage: Storage, layout: Layout, model_type: str, version: tuple[int, ...]
) -> int:  # fmt: skip
    """Bytes of key and value rows that the stacked projection of a rank has and the checkpoint has not.

    Where keys are values too, the values have rows of their own; layers that read the keys of earlier ones have rows
    for both until `own_keys_alone`.
    """
    attention = next(block.operations(Attention), None)
    if attention is None or not has_fact("vllm", "stacks_queries_keys_values", model_type, version):
        return 0
    made = {op.module.rpartition(".")[2]: op for op in block.operations(Linear)}
    missing = [name for name in ("k_proj", "v_proj") if name not in made]
    if "q_proj" not in made or (len(missing) == 2 and has_fact("vllm", "own_keys_alone", model_type, version)):
        return 0
    query, ranks = made["q_proj"].parameters[0], layout.cut.tensor_parallel_size
    rows = len(missing) * max(1, attention.num_key_value_heads // ranks) * attention.inputs[1].width
    rule, shape = storage.rule_for(query), (rows, query.shape[1])
    if rule is None or not rows:
        return prod(shape) * storage.bytes_per_element
    return sum(size for _, size in rule.tensors_for(shape))


def towers_kept_whole(model: Model, storage: Storage, layout: Layout, version: tuple[int, ...]) -> tuple[Node, ...]:
    """What a rank holds of towers beside its share: attention whose heads do not divide, projectors of some types."""
    ranks = layout.cut.tensor_parallel_size
    if ranks == 1:
        return ()
    projectors = has_fact("vllm", "whole_projector", model.config.model_type, version)
    added = 0
    for block in (block for block in model.blocks if block.modality != "text"):
        uneven = any(op.num_heads % ranks for op in block.operations(Attention))
        for op in block.operations(Linear):
            for parameter in op.parameters:
                attends = uneven and "attn" in parameter.module
                if attends or (projectors and parameter.part == "projector"):
                    added += parameter.numel - prod(layout.cut.shape(parameter, inputs_first=op.inputs_first))
    size = added * storage.bytes_per_element
    formula = "Σ (parameter − its share of a rank) × dtype"
    return (Node("towers kept whole", size, "derived", formula=formula, source=_WHOLE),) if size else ()


def _imports_flashinfer_mla(model: Model, version: tuple[int, ...]) -> bool:
    first, last = FLASHINFER_MLA_VERSIONS
    return first <= version < last and model.has_latent_cache


def _latent_copies(block: Block, storage: Storage, layout: Layout, version: tuple[int, ...]) -> int:
    """Latent attention: since 0.8 a 16-bit copy of a quantized up-projection; 0.7 keeps the absorbed products."""
    latent = next((cache for cache in block.caches if cache.kind == "latent"), None)
    attention = next(block.operations(Attention), None)
    if latent is None or attention is None or version < ABSORBED_VERSIONS[0]:
        return 0
    heads: int = -(-attention.num_heads // layout.cut.tensor_parallel_size)
    size = storage.bytes_per_element
    key, value = attention.inputs[1].width - latent.rope_dim, attention.inputs[2].width
    if version >= ABSORBED_VERSIONS[1]:
        return heads * (key + value) * latent.latent_dim * size if storage.quantization is not None else 0
    query = _query_input(block)
    hidden = next(iter(block.inputs.values())).width
    return heads * (latent.latent_dim * (query + hidden) + latent.rope_dim * query) * size


def _query_input(block: Block) -> int:
    """Width that the query's up-projection reads: the query's own latent where there is one."""
    for op in block.operations(Linear):
        if op.module.rpartition(".")[2] in ("q_b_proj", "q_proj"):
            return op.inputs[0].width
    return next(iter(block.inputs.values())).width
