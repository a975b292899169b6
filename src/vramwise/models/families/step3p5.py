"""Step 3.5 Flash: the language model of Step 3.7 under the keys of its own configuration class.

Parameter names are those of transformers' Step 3.7 without its images; what differs between sliding and full layers is
in `attention_other_setting`. Not counted: the layers for multi-token prediction.
"""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.families import step3p7
from vramwise.models.layers.text_defaults import TEXT_DEFAULTS

_NAMES = {
    "moe_num_experts": "n_routed_experts", "moe_top_k": "num_experts_per_tok", "share_expert_dims": "share_expert_dim",
    "num_attention_groups": "num_key_value_heads",
}  # fmt: skip


def sparse_numbers(c: Config) -> set[int] | None:
    """The layers with experts, which the config gives as a list or as numbers between commas."""
    given = c.get("moe_layers_enum")
    listed = given.split(",") if isinstance(given, str) else given
    if not isinstance(listed, list | tuple):
        return None
    if not all(str(number).strip().isdigit() for number in listed):
        raise c.error("moe_layers_enum: expected the numbers of layers")
    return {int(str(number)) for number in listed}


def completed(c: Config) -> Config:
    """The config under the names of Step 3.7's text part."""
    values = {_NAMES.get(name, name): value for name, value in c.values.items()}
    c = Config(values, c.model_id).filled(TEXT_DEFAULTS["step3p7_text"])
    count, sparse = c.num_hidden_layers, sparse_numbers(c)
    own: dict[str, object] = {}
    if sparse is not None:
        own["mlp_layer_types"] = ["sparse" if i in sparse else "dense" for i in range(count)]
    other = c.table("attention_other_setting")
    if other is not None and other.has("num_attention_heads"):
        own["num_sliding_attention_heads"] = other.size("num_attention_heads")
    types = c.items("layer_types")
    if types is not None and len(types) > count:  # those behind are of the layers for further tokens
        own["layer_types"] = types[:count]
    return Config({**c.values, **own}, c.model_id)


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    return step3p7.text_blocks(completed(c))
