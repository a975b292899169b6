"""A model of which only the tensors are known: parameters without operations, so weights and nothing else.

What a token leaves in the KV cache of a type that nobody described, where its config has the usual keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from vramwise.errors import SourceError
from vramwise.models.blocks import Block, Parameter, Part
from vramwise.models.config import Config
from vramwise.models.model import Model
from vramwise.models.operations.undescribed import Stored
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


FAMILY = "tensors only"

# What a tensor belongs to, told by its name; the first that fits counts.
_PATTERNS: tuple[tuple[str, Part], ...] = (
    (r"(^|\.)(vision|visual|vit|image)", "vision"),
    (r"(^|\.)(audio|speech|sound)", "audio"),
    (r"(projector|connector|aligner)", "projector"),
    (r"(^|[._])(norm|ln|layernorm|layer_norm)", "norm"),
    (r"norm(\d*)?\.(weight|bias)$", "norm"),
    (r"(lm_head|output_layer|^head\.|^output\.)", "head"),
    (r"(embed|wte|wpe|tok_emb)", "embedding"),
    (r"(experts)\.", "experts"),
    (r"(router|\.gate\.)", "router"),
    (r"(attn|attention|q_proj|k_proj|v_proj|o_proj)", "attention"),
    (r"(mixer|mamba|ssm|conv)", "mixer"),
)
_PARTS = tuple((re.compile(pattern), part) for pattern, part in _PATTERNS)
LAYER = re.compile(r"(?:.*?\.)?(?:layers|h|blocks|block|layer)\.(\d+)\.")
"""The beginning of a tensor's name up to the number of a layer of the outermost stack."""
_LINEAR_PARTS = frozenset({"attention", "mlp", "experts", "mixer", "head", "vision", "audio", "projector"})


def model_of_tensors(
    config: Mapping[str, object], model_id: str, tensors: Iterable[tuple[str, tuple[int, ...]]]
) -> Model:  # fmt: skip
    """The tensors as the parameters of a model without operations.

    Part, layer and whether a tensor is a linear layer's weight are told by its name and number of axes, which decides
    only what a quantizer would replace. Activations, caches and FLOPs are not counted.
    """
    parameters = tuple(_parameter(name, shape) for name, shape in tensors if not is_buffer(name))
    op = Stored(parameters=parameters)
    return Model(model_id, FAMILY, Config(config, model_id), (Block("", (op,), {}, {}),), head="none")


_BUFFER = re.compile(r"(?:^|[./])(?:running_mean|running_var|num_batches_tracked|inv_freq|position_ids)$")


def is_buffer(name: str) -> bool:
    """Whether a tensor of a file is what layers note, and no parameter: statistics of batches, counts, positions."""
    return _BUFFER.search(name) is not None


def part_of(name: str) -> Part:
    """What a tensor belongs to, by its name."""
    return next((part for pattern, part in _PARTS if pattern.search(name)), "mlp")


def _parameter(name: str, shape: tuple[int, ...]) -> Parameter:
    part = part_of(name)
    layer = LAYER.match(name)
    is_linear = len(shape) == 2 and part in _LINEAR_PARTS and name.endswith("weight")
    return Parameter(name, shape, part, is_linear=is_linear, layer=int(layer[1]) if layer else None)
