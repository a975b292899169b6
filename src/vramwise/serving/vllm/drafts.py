"""What speculative decoding keeps beside the model: a draft model's weights, and its layers' share of the KV cache.

Sources: vLLM model_executor/models/llama_eagle.py, llama_eagle3.py, deepseek_mtp.py, v1/spec_decode/draft_model.py. A
draft model that is named and known is counted as itself; else one layer like the last one stands for EAGLE and MTP.
"""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.errors import VramwiseError
from vramwise.models import Block, LayerCache, Model, describe
from vramwise.result import Node
from vramwise.serving.common.kv_cache import engine_caches
from vramwise.serving.common.layouts import engine_layout
from vramwise.serving.common.storage import storage_of
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
    elements = sum(p.numel for p in layer.parameters) // r.settings.tensor_parallel_size
    formula = "one decoder layer + 2·hidden² of the join"
    if "eagle3" in method:
        read = sum(p.numel for p in layer.parameters if p.part == "attention" and p.shard == "column")
        elements += (read + EAGLE3_VOCABULARY * hidden) // r.settings.tensor_parallel_size + 3 * hidden**2
        formula = "one decoder layer that reads 2·hidden + 3·hidden² of the join + head of 32,000 tokens"
    else:
        elements += 2 * hidden**2
    size = elements * r.storage.bytes_per_element
    # a recipe that quantizes the model may quantize the drafter with it (AutoRound does all but the join)
    quantized = size - _saved(layer, r) // r.settings.tensor_parallel_size
    return Node(
        "draft layer", size, "assumed", min(size // 2, quantized), 2 * size, formula=formula,
        source="vLLM model_executor/models/llama_eagle.py, llama_eagle3.py, deepseek_mtp.py",
    )  # fmt: skip


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
    full = [cache for cache in caches if cache.kind in _SHARED_LAYERS]
    return tuple(full[-1:]) if _is_one_layer(method) else ()


def drafted_tokens(r: Resolved) -> int:
    """Tokens that are drafted in a step: 0 without speculative decoding, 1 where their number is not given."""
    speculative = r.settings.speculative
    return int(speculative.get("num_tokens") or 1) if speculative else 0


def has_drafter(r: Resolved) -> bool:
    """Whether a model drafts, not a rule (n-grams, suffixes)."""
    return _method(r) is not None


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
