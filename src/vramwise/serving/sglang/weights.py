"""The weights of one rank of SGLang: tensors, and the tables of rotary positions."""

from __future__ import annotations

from math import prod

from vramwise.hardware import Gpu
from vramwise.models import Model
from vramwise.models.lengths import text_config
from vramwise.models.operations.attention import Attention
from vramwise.models.operations.experts import ExpertMlps
from vramwise.models.type_facts import has_fact
from vramwise.result import Node
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.common.layouts import capability_of, engine_layout, engine_stages, engine_weights, rotary_tables
from vramwise.serving.common.storage import Storage
from vramwise.serving.common.versions import version_of

UNPACKED_VERSION = (0, 4, 7)  # from here on CUDA's copies of projections in blocks of fp8 are in 16 bits
MXFP4_GROUP, HOPPER, CONSUMER_BLACKWELL = 32, 9, 12
FP32_TABLES_VERSION, FP32_BYTES = (0, 4, 2), 4  # layers/rotary_embedding.py RotaryEmbedding of its own; vLLM's before

# 0.5.19 models/qwen2_classification.py, qwen2_rm.py, llama_reward.py, llama_embedding.py, qwen3_embedding.py: classes
# without a head; one that makes text keeps its head under --is-embedding (qwen3.py)
_WITHOUT_HEAD = ("ForSequenceClassification", "ForRewardModel", "EmbeddingModel", "MistralModel", "Qwen3Model")


def sglang_weights(model: Model, settings: ServeSettings, storage: Storage, stage: int | None = None) -> Node:
    """Of the heaviest pipeline stage where none is named. Tables are in fp32 (`if not _is_cuda: cache.to(dtype)`)."""
    fp32 = version_of(settings.engine_version) >= FP32_TABLES_VERSION
    tables = rotary_tables(model, FP32_BYTES if fp32 else storage.bytes_per_element)
    return engine_weights(model, settings, storage, stage, beside=tables, left_out=_left_out(model))


def copied_experts(model: Model, settings: ServeSettings, storage: Storage, gpu: Gpu | None, stage: int) -> Node | None:
    """Each rank's further copies of the shared expert, which runs as one more of the routed ones.

    0.4.6 models/deepseek_v2.py determine_n_share_experts_fusion: as many copies as ranks, each cut like a routed
    expert, of models with 256 routed ones, from compute capability 9.0 on, which torch on ROCm says of Instinct cards
    too. 0.4.5 asks to be told, and 0.4.7 has no copies.
    """
    ranks, version = settings.tensor_parallel_size, version_of(settings.engine_version)
    config, capability = text_config(model), capability_of(gpu)
    if ranks == 1 or not has_fact("sglang", "copies_shared_experts", config.model_type, version):
        return None
    if config.get("n_routed_experts") != 256 or (capability is not None and capability < 9):
        return None
    cut = engine_layout(settings).cut
    first, end = engine_stages(settings).spans(model.num_layers)[stage]
    size = 0
    for block in list(model.layers())[first:end]:
        for parameter in block.parameters:
            if ".shared_experts." in parameter.name:
                rule, shape = storage.rule_for(parameter), cut.shape(parameter)
                plain = prod(shape) * storage.bytes_per_element
                size += plain if rule is None else sum(held for _, held in rule.tensors_for(shape))
    size *= ranks - 1
    return Node(
        "copies of shared experts", size, "exact", formula="(copies − 1) × shared expert of a rank",
        inputs={"copies": ranks}, source="SGLang 0.4.6 models/deepseek_v2.py determine_n_share_experts_fusion",
    )  # fmt: skip


def loaded_scales(model: Model, settings: ServeSettings, storage: Storage, gpu: Gpu | None, stage: int) -> Node | None:
    """Scales of MXFP4 experts as they were loaded, in fp32, which stay beside those that Marlin reads.

    0.5.12 to 0.5.15 layers/quantization/mxfp4_marlin_moe.py, marlin_utils_fp4.py prepare_moe_mxfp4_layer_for_marlin;
    0.5.17 drops them ("for stale in"). On 12.x Marlin comes first, on Hopper it is what its guide asks for, and
    --moe-runner-backend flashinfer_mxfp4 takes their place (mxfp4_flashinfer_cutlass_moe.py).
    """
    version, capability = version_of(settings.engine_version), capability_of(gpu)
    fact = has_fact("sglang", "keeps_loaded_scales", text_config(model).model_type, version)
    if not fact or capability is None or int(capability) not in (HOPPER, CONSUMER_BLACKWELL):
        return None
    cut = engine_layout(settings).cut
    first, end = engine_stages(settings).spans(model.num_layers)[stage]
    size = 0
    for block in list(model.layers())[first:end]:
        for op in block.operations(ExpertMlps):
            for parameter in op.parameters:
                rule = storage.rule_for(parameter)
                if rule is not None and rule.layout == "mxfp4":
                    size += FP32_BYTES * prod(cut.shape(parameter)) // MXFP4_GROUP
    if not size:
        return None
    return Node(
        "loaded scales", size, "derived", 0 if capability < CONSUMER_BLACKWELL else size, size,
        formula="experts of a rank / 32 × 4", source="SGLang 0.5.12 to 0.5.15 layers/quantization/mxfp4_marlin_moe.py",
    )  # fmt: skip


def absorbed_projections(
    model: Model, settings: ServeSettings, storage: Storage, gpu: Gpu | None, stage: int
) -> Node | None:  # fmt: skip
    """Latent attention's up-projections once more, cut into keys' and values', for decode steps.

    0.4.4 to 0.5.23 models/deepseek_v2.py, deepseek_common/deepseek_weight_loader.py post_load_weights: w_kc and w_vc
    are contiguous copies in 16 bits; of fp8 in fp8 where it goes by tensors or channels, and by blocks on ROCm and
    before UNPACKED_VERSION.
    """
    ranks, version = settings.tensor_parallel_size, version_of(settings.engine_version)
    first, end = engine_stages(settings).spans(model.num_layers)[stage]
    size = 0
    for block in list(model.layers())[first:end]:
        latent = next((cache for cache in block.caches if cache.kind == "latent"), None)
        attention = next(block.operations(Attention), None)
        if latent is None or attention is None:
            continue
        heads = -(-attention.num_heads // ranks)
        width = attention.inputs[1].width - latent.rope_dim + attention.inputs[2].width
        projection = next((p for p in block.parameters if p.module.endswith("kv_b_proj")), None)
        rule = None if projection is None else storage.rule_for(projection)
        element = storage.bytes_per_element
        if rule is not None and rule.layout == "fp8":
            unpacks = version >= UNPACKED_VERSION and not (gpu is not None and gpu.vendor == "AMD")
            element = element if rule.weight_block_size is not None and unpacks else 1
        size += heads * width * latent.latent_dim * element
    if not size:
        return None
    return Node(
        "latent projections", size, "derived", formula="heads of a rank × (key + value width) × latent × bytes",
        source="SGLang models/deepseek_common/deepseek_weight_loader.py post_load_weights",
    )  # fmt: skip


def whole_embeddings(
    model: Model, settings: ServeSettings, storage: Storage, gpu: Gpu | None, stage: int
) -> Node | None:  # fmt: skip
    """What each rank holds of the token tables beyond its share, where the class does not cut them."""
    type_, version = model.config.model_type, version_of(settings.engine_version)
    if stage or settings.tensor_parallel_size == 1 or not has_fact("sglang", "whole_embeddings", type_, version):
        return None
    cut = engine_layout(settings).cut
    tables = {p.name: p for block in model.blocks for p in block.parameters if "embed_tokens" in p.name}
    elements = sum(prod(p.shape) - prod(cut.shape(p)) for p in tables.values())
    size = elements * storage.bytes_per_element
    return Node(
        "whole embeddings", size, "exact", formula="(rows − rows of a rank) × width × bytes",
        source="SGLang models/gemma3_causal.py Gemma3TextScaledWordEmbedding(nn.Embedding)",
    )  # fmt: skip


def _left_out(model: Model) -> frozenset[str]:
    named = map(str, model.config.items("architectures") or [])
    return frozenset({"head"}) if any(name.endswith(_WITHOUT_HEAD) for name in named) else frozenset()
