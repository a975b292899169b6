"""The weights of one rank of vLLM, with the tables, copies and buffers that it keeps beside them."""

from __future__ import annotations

from math import prod

from vramwise.formats.quantization_config import HEAD_IN_FILES
from vramwise.models import Model
from vramwise.models.lengths import text_config
from vramwise.models.type_facts import has_fact
from vramwise.result import Node
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.common.constants import constant
from vramwise.serving.common.layouts import engine_layout, engine_weights, rotary_tables
from vramwise.serving.common.storage import Storage
from vramwise.serving.common.versions import Version, version_of
from vramwise.serving.common.weight_nodes import heaviest_stage
from vramwise.serving.vllm.extras import extra_weights, towers_kept_whole
from vramwise.serving.vllm.pooling import heads_left_out
from vramwise.serving.vllm.towers import towers_left_out
from vramwise.units import MIB

# rotary_embedding/mrope.py, 0.8.5 to 0.33.0 (since Qwen2.5-VL came): four times the positions, for the time index
# of long videos
MROPE_VERSION, MROPE_FACTOR = (0, 7, 2), 4
STREAMS_FOR_DRAFTS_ALONE = (0, 27)
HEADS_IN_FILES_VERSION = (0, 29)  # model_loader/weight_tying.py, in 0.29.0 and not in 0.28.0
LEAST_BATCHED_TOKENS = 2048  # the API server's default on most cards


def vllm_weights(
    model: Model, settings: ServeSettings, storage: Storage, capability: float | None, stage: int | None = None,
    gfx: str = "",
) -> Node:  # fmt: skip
    """Tensors of the checkpoint and of a GGUF file, of the heaviest stage where none is named; without the towers that
    nothing may come for, and the head where nothing is sampled."""
    version, layout = version_of(settings.engine_version), engine_layout(settings)
    chosen = heaviest_stage(model, storage, layout) if stage is None else stage
    left_out = towers_left_out(model, settings)
    whole = towers_kept_whole(model, storage, layout, version) if chosen == 0 and not left_out else ()
    wide = has_fact("vllm", "fp32_rotary_tables", model.config.model_type, version)
    beside = (
        *rotary_tables(model, 4 if wide else storage.bytes_per_element, _positions_factor(model, version)),
        *extra_weights(model, storage, layout, version, capability, chosen, gfx),
        *whole,
        *_layer_inputs(model, settings, storage),
        *_streams_for_drafts(model, settings, storage, version),
        *_head_of_the_files(model, settings, storage, version),
        _buffers(version),
    )
    absent = left_out | heads_left_out(model, settings)
    return engine_weights(model, settings, storage, chosen, beside=beside, left_out=absent)


def _layer_inputs(model: Model, settings: ServeSettings, storage: Storage) -> tuple[Node, ...]:
    """Gemma 4's embeddings of a batch's tokens for each layer, which the class that reads images keeps room for."""
    text = model.config.table("text_config")
    if text is None or not has_fact("vllm", "keeps_layer_inputs", model.config.model_type):
        return ()
    tokens = settings.max_num_batched_tokens or LEAST_BATCHED_TOKENS
    size = tokens * model.num_layers * text.size("hidden_size_per_layer_input", default=0, least=0)
    if not size:
        return ()
    return (
        Node("inputs of each layer", size * storage.bytes_per_element, "derived",
             formula="max_num_batched_tokens × layers × width × dtype",
             inputs={"tokens": tokens, "layers": model.num_layers},
             source="vLLM 0.19.0 to 0.33.0 models/gemma4_mm.py per_layer_embeddings"),
    )  # fmt: skip


def _head_of_the_files(model: Model, settings: ServeSettings, storage: Storage, version: Version) -> tuple[Node, ...]:
    """An output layer that the files hold although the config ties it.

    It is loaded, compared with the embedding and dropped where the two are alike, but only in models with one
    embedding: those with embeddings of each layer keep it.
    """
    table = model.config.table("quantization_config")
    if table is None or not table.flag(HEAD_IN_FILES, False) or version < HEADS_IN_FILES_VERSION:
        return ()
    heads = [p for p in model.all_parameters if p.part == "head" and p.tied_to is not None]
    if not heads:
        return ()
    layout = engine_layout(settings)
    one_embedding = not text_config(model).size("hidden_size_per_layer_input", default=0, least=0)
    if one_embedding or layout.pipeline_parallel_size > 1:
        return ()
    size = storage.bytes_per_element * sum(prod(layout.cut.shape(head)) for head in heads)
    return (
        Node("output layer of the files", size, "derived", formula="vocabulary × hidden size × dtype",
             source="vLLM 0.29.0 to 0.33.0 config/model.py maybe_untie_word_embeddings, model_loader/weight_tying.py "
                    "_get_untied_lm_head"),
    )  # fmt: skip


def _streams_for_drafts(model: Model, settings: ServeSettings, storage: Storage, version: Version) -> tuple[Node, ...]:
    """DeepSeek V4's hidden states of a batch in all their streams, kept for a layer that drafts, and the indexer's
    choices; before STREAMS_FOR_DRAFTS_ALONE whether anything drafts or not."""
    config = text_config(model)
    if not has_fact("vllm", "compressed_keys", config.model_type):
        return ()
    tokens = settings.max_num_batched_tokens or LEAST_BATCHED_TOKENS
    kept = settings.speculative is not None or version < STREAMS_FOR_DRAFTS_ALONE
    width = config.size("hc_mult", default=1) * config.size("hidden_size") * storage.bytes_per_element if kept else 0
    size = tokens * (width + 4 * config.size("index_topk", default=0, least=0))
    return (
        Node("streams of a batch", size, "derived",
             formula="max_num_batched_tokens × (streams × hidden size × dtype + 4 × index_topk)",
             inputs={"tokens": tokens},
             source="vLLM 0.22.1 to 0.33.0 models/deepseek_v4/nvidia/model.py _mtp_hidden_buffer, topk_indices_buffer"),
    )  # fmt: skip


def _positions_factor(model: Model, version: Version) -> int:
    plain = has_fact("vllm", "plain_rotary_tables", model.config.model_type, version)
    return MROPE_FACTOR if version >= MROPE_VERSION and not plain else 1


def _buffers(version: Version) -> Node:
    buffers = constant("vllm", "weight_buffers", version)
    low, expected, high = (round(size * MIB) for size in (buffers.low, buffers.expected, buffers.high))
    return Node("runtime buffers", expected, buffers.kind, low, high, source=buffers.source)
