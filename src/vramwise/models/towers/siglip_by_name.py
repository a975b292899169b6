"""SigLIP towers that a config only names, as DeepSeek-VL and Janus in their own code do.

Sizes are those of deepseek-ai/DeepSeek-VL, models/siglip_vit.py.
"""

from __future__ import annotations

from typing import Any

from vramwise.models.config import Config
from vramwise.models.towers import tower_defaults

_SO400M: dict[str, object] = {
    "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "num_attention_heads": 16,
    "patch_size": 14, "image_size": 336,
}  # fmt: skip
_SIGLIP: dict[str, dict[str, Any]] = {
    "siglip_so400m_patch14_384": _SO400M,
    "siglip_so400m_patch14_224": {**_SO400M, "image_size": 224},
    "siglip_large_patch16_384": {
        "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
        "patch_size": 16, "image_size": 384,
    },
}  # fmt: skip


def siglip(c: Config, given: Config) -> Config:
    """A SigLIP by its name, with as many layers as come before the one whose result is taken."""
    known = _SIGLIP.get(given.text("model_name", "siglip_large_patch16_384"))
    if known is None:
        raise c.error(
            f"vision_config: model_name: expected one of {', '.join(_SIGLIP)}, got {given.text('model_name')}"
        )
    layers, chosen = known["num_hidden_layers"], int(given.number("select_layer", -1))
    layers = min(layers, chosen if chosen > 0 else layers + chosen + 1)
    own = {"image_size": given.size("image_size", default=known["image_size"]), "num_hidden_layers": layers}
    values = {**tower_defaults.DEFAULTS["siglip_vision_model"], **known, **own, "hidden_act": "gelu"}
    return Config({**values, "model_type": "siglip_vision_model"}, c.model_id)
