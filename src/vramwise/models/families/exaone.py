"""EXAONE 3 and 3.5: Llama under other keys.

transformers 5.24 runs both by Llama's class, whose names of parameters these are; the code that comes with the
checkpoints calls the same tensors otherwise.
"""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.families import llama

_NAMES = {"num_layers": "num_hidden_layers", "activation_function": "hidden_act"}
# Defaults of `ExaoneConfig` (transformers 5.24).
_DEFAULTS = {
    "vocab_size": 102_400, "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8,
}  # fmt: skip


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    values = {_NAMES.get(name, name): value for name, value in c.values.items()}
    return llama.blocks(Config({**values, "model_type": "llama"}, c.model_id).filled(_DEFAULTS))
