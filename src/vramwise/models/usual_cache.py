"""What a token leaves in the KV cache of a type that nobody described, where its config has the usual keys."""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.errors import SourceError
from vramwise.models.config import Config
from vramwise.records import record

_UNUSUAL = (
    "kv_lora_rank", "layer_types", "layers_block_type", "hybrid_override_pattern", "attn_layer_period", "ssm_cfg",
    "state_size", "mamba_d_state", "linear_num_value_heads", "cross_attention_layers", "num_kv_shared_layers",
    "attn_type_list", "compress_ratios", "full_attention_interval", "num_kv_heads", "multi_query",
)  # fmt: skip
_NEEDED = ("num_hidden_layers", "num_attention_heads", "hidden_size", "vocab_size")


@record
class UsualCache:
    """Keys and values of `layers` layers with so many key-value heads of one width."""

    layers: int
    heads: int
    head_dim: int


def usual_cache(values: Mapping[str, object]) -> tuple[UsualCache | None, str]:
    """The cache, or None and what is in the way: a key that is missing, or one that says that layers differ."""
    inner = values.get("text_config")
    config = Config(inner if isinstance(inner, Mapping) else values)
    unusual = next((key for key in _UNUSUAL if config.has(key)), None)
    if unusual is not None:
        return None, f"its config has {unusual}, so its layers do not keep what a plain decoder's do"
    try:
        sizes = {key: config.size(key) for key in _NEEDED}
        cache = UsualCache(sizes["num_hidden_layers"], config.num_key_value_heads, config.head_dim)
    except SourceError as problem:
        return None, str(problem).rpartition("config: ")[2]
    if config.flag("is_encoder_decoder"):
        return None, "it is an encoder and a decoder"
    return cache, ""
