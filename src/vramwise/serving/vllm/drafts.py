"""What speculative decoding keeps beside the model: a draft model's weights, and its layers' share of the KV cache.

Sources: vLLM model_executor/models/llama_eagle.py, llama_eagle3.py, deepseek_mtp.py, v1/spec_decode/draft_model.py. A
draft model that is named and known is counted as itself; else one layer like the last one stands for EAGLE and MTP.
EAGLE-3's heads are dense layers of Llama's, whatever the model (registry.py of 0.11.0 to 0.16.0 knows no other class;
0.18.1 has one of DeepSeek's too): of a model of experts or with latent attention they share no layer's sizes.
"""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.errors import VramwiseError
from vramwise.models import Block, LayerCache, Model, describe
from vramwise.models.lengths import text_config
from vramwise.result import Node
from vramwise.serving.common.kv_cache import engine_caches
from vramwise.serving.common.layouts import engine_layout
from vramwise.serving.common.storage import own_method, storage_of
from vramwise.serving.common.weight_nodes import weights_node
from vramwise.serving.vllm.settings import Resolved
from vramwise.sources import resolve

EAGLE3_VOCABULARY = 32_000  # draft_vocab_size of the published EAGLE-3 heads
_SHARED_LAYERS = ("full", "latent")


def draft_weights(model: Model, r: Resolved) -> Node | None:
    """Weights of the drafter on one rank; None without one."""
    method = _method(r)
    if method is None:
        return None
    draft = _draft_model(r)
    if draft is not None:
        layout = engine_layout(r.settings.replace(pipeline_parallel_size=1))
        whole = weights_node(draft, storage_of(draft, r.storage.dtype, None, None), layout, 0)
        return Node(
            "draft model", whole.bytes, "derived", formula=f"weights of {draft.id}", source="its parameters, cut alike"
        )
    layer = _last_layer(model)
    if layer is None or not _is_one_layer(method):
        return None
    hidden = model.hidden_size
    ranks = r.settings.tensor_parallel_size
    elements = sum(p.numel for p in layer.parameters) // ranks
    formula = "one decoder layer + 2·hidden² of the join"
    if "eagle3" in method:
        of_layer, read = _eagle3_layer(model, layer)
        elements = (of_layer + read + EAGLE3_VOCABULARY * hidden) // ranks + 3 * hidden**2
        formula = "one decoder layer that reads 2·hidden + 3·hidden² of the join + head of 32,000 tokens"
    else:
        elements += 2 * hidden**2
    size = elements * r.storage.bytes_per_element
    # a recipe that quantizes the model may quantize the drafter with it (AutoRound does all but the join)
    quantized = size - _saved(layer, r) // ranks if "eagle3" not in method else size
    low, high = min(size // 2, quantized), 2 * size
    if "mtp" in method and own_method(model, r.storage) == "fp8":
        # the layer stands in the checkpoint, under its quantization (deepseek_mtp.py, qwen3_5_mtp.py quant_config)
        size, high = quantized, size
    return Node(
        "draft layer", size, "assumed", low, high, formula=formula,
        source="vLLM model_executor/models/llama_eagle.py, llama_eagle3.py, deepseek_mtp.py",
    )  # fmt: skip


def _eagle3_layer(model: Model, layer: Block) -> tuple[int, int]:
    """Parameters of a head's layer, and those of them that read hidden states: they read two side by side."""
    inputs = sum(p.numel for p in layer.parameters if p.part == "attention" and p.shard == "column")
    total = sum(p.numel for p in layer.parameters)
    if _shares_sizes(model, layer):
        return total, inputs
    config = text_config(model)
    heads = [cache for cache in layer.caches if cache.kind != "latent"]
    attention = sum(p.numel for p in layer.parameters if p.part == "attention")
    if not heads:
        whole = config.num_attention_heads * _value_size(model)
        inputs = 3 * whole * model.hidden_size
        attention = inputs + whole * model.hidden_size
    return attention + 3 * model.hidden_size * config.intermediate_size, inputs


def _shares_sizes(model: Model, layer: Block) -> bool:
    """Whether the model's own layers are dense, with keys and values of heads."""
    experts = any(p.part == "experts" for p in layer.parameters)
    return not experts and all(cache.kind != "latent" for cache in layer.caches)


def _value_size(model: Model) -> int:
    return text_config(model).size("v_head_dim", "head_dim", default=128)


def _saved(layer: Block, r: Resolved) -> int:
    """Bytes that a layer is smaller by in the formats of the model's own layers, over all ranks."""
    rules = ((parameter, r.storage.rule_for(parameter)) for parameter in layer.parameters)
    return sum(
        parameter.numel * r.storage.bytes_per_element - rule.bytes_for(parameter.shape)
        for parameter, rule in rules
        if rule is not None
    )


def draft_caches(model: Model, r: Resolved, caches: Sequence[LayerCache]) -> tuple[LayerCache, ...]:
    """Caches of the drafter's layers: its own, or one more like the last full or latent one."""
    method = _method(r)
    if method is None:
        return ()
    draft = _draft_model(r)
    if draft is not None:
        return engine_caches(draft, draft.caches)
    full = [cache for cache in caches if cache.kind in _SHARED_LAYERS][-1:]
    if not full or not _is_one_layer(method):
        return ()
    config, last = text_config(model), full[0]
    if "eagle3" in method and (
        last.kind == "latent" or last.key_head_dim != config.size("head_dim", default=last.key_head_dim)
    ):
        heads, size = config.num_attention_heads, _value_size(model)
        if last.kind != "latent":  # Gemma 4's full layers have heads of their own
            heads = config.size("num_key_value_heads", default=heads)
        return (LayerCache("full", num_key_value_heads=heads, key_head_dim=size, value_head_dim=size),)
    return tuple(full)


def drafted_tokens(r: Resolved) -> int:
    """Tokens that are drafted in a step: 0 without speculative decoding, 1 where their number is not given."""
    speculative = r.settings.speculative
    return int(speculative.get("num_tokens") or 1) if speculative else 0


def has_drafter(r: Resolved) -> bool:
    """Whether a model drafts, not a rule (n-grams, suffixes)."""
    return _method(r) is not None


def reads_layers(r: Resolved) -> bool:
    """Whether the drafter reads hidden states of several layers."""
    return "eagle3" in (_method(r) or "")


def drafts_like_the_last_layer(model: Model) -> bool:
    """Whether a drafter of one dense layer has the sizes of the model's own."""
    layer = _last_layer(model)
    return layer is not None and _shares_sizes(model, layer)


def _method(r: Resolved) -> str | None:
    speculative = r.settings.speculative or {}
    method = str(speculative.get("method") or ("draft_model" if speculative.get("model") else "")).lower()
    return method if method and "ngram" not in method and method != "suffix" else None


def _is_one_layer(method: str) -> bool:
    return "eagle" in method or "mtp" in method


def _draft_model(r: Resolved) -> Model | None:
    """The draft model where it is named and known; heads of EAGLE and MTP are files of their own kind."""
    name = (r.settings.speculative or {}).get("model")
    if not name or "ngram" in str(name):
        return None
    try:
        found = resolve(str(name))
        draft = describe(found.config, found.id)
    except VramwiseError:
        return None
    return draft if draft.num_layers and draft.num_parameters else None


def _last_layer(model: Model) -> Block | None:
    return next((b for b in reversed(model.blocks) if b.layer is not None), None)
