"""Phi-4 multimodal as Microsoft publishes it: the parts of transformers' port by the names of the checkpoint's config.

Its code comes with checkpoints; read in vLLM 0.26.0 `model_executor/models/phi4mm.py`, `phi4mm_audio.py` and
`phi4mm_utils.py` (a table of distances of t5_bias_max_distance to either side), whose loader passes over the adapters:
`--enable-lora` takes them from their folders. With both of them it has the 5,574,460,224 parameters that the headers
of the published files count.
"""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.families import phi4_multimodal

_SOUND = {
    "attention_dim": "hidden_size", "linear_units": "intermediate_size", "attention_heads": "num_attention_heads",
    "depthwise_seperable_out_channel": "depthwise_separable_out_channel", "num_blocks": "num_blocks",
    "input_size": "input_size", "ext_pw_out_channel": "ext_pw_out_channel", "kernel_size": "kernel_size",
    "depthwise_multiplier": "depthwise_multiplier", "time_reduction": "time_reduction", "activation": "activation",
}  # fmt: skip
"""Names of the published config, and those of the port."""
_ADAPTERS = ("vision_lora", "speech_lora")
_BIAS_DISTANCE = 500


def ported(c: Config) -> Config:
    """The config with its tables named as transformers' port names them."""
    empty = Config({}, c.model_id)
    given = (c.table("audio_processor") or empty).table("config") or empty
    audio: dict[str, object] = {new: given.values[old] for old, new in _SOUND.items() if old in given.values}
    convolutions = given.table("nemo_conv_settings") or empty
    if "conv_channels" in convolutions.values:
        audio["nemo_conv_channels"] = convolutions.values["conv_channels"]
    bias = given.table("relative_attention_bias_args") or empty
    audio["bias_max_distance"] = bias.values.get("t5_bias_max_distance", _BIAS_DISTANCE)
    return Config({**c.values, "audio_config": audio}, c.model_id)


def not_counted(c: Config) -> str:
    """Adapters that a batch with images or sound needs, on the four layers of every block."""
    tables = {key: table for key in _ADAPTERS if (table := c.table(key))}
    if not tables:
        return ""
    width, inner, heads = c.hidden_size, c.intermediate_size, c.num_attention_heads
    keys = width // heads * c.num_key_value_heads
    sides = (2 * width + 2 * keys) + 2 * width + (width + 2 * inner) + (inner + width)
    count = c.num_hidden_layers * sides * sum(table.size("r", default=0, least=0) for table in tables.values())
    return f"the checkpoint's own adapters ({', '.join(tables)}; {count:,} parameters)"


def blocks(c: Config) -> tuple[Block, ...]:
    """Towers, projectors and the language model."""
    return phi4_multimodal.blocks(ported(c))
