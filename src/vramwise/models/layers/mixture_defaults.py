"""Defaults of the configuration classes (transformers 5.23) of decoders with routed experts."""

from __future__ import annotations

from vramwise.models.config import Config

_NAMES = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim", "moe_intermediate_size", "sliding_window", "num_experts_per_tok",
)  # fmt: skip
# In the order of _NAMES, 0 where the class has no such default, then the number of experts.
_DEFAULTS: dict[str, tuple[int, ...]] = {
    "afmoe": (200_192, 2048, 6144, 32, 16, 0, 128, 1408, 1024, 6, 64),
    "aria_text": (32_000, 4096, 4096, 32, 32, 0, 0, 0, 0, 0, 8),
    "beam": (151_936, 5120, 20_480, 52, 48, 8, 128, 2560, 512, 8, 256),
    "cohere2_moe": (256_000, 8192, 22_528, 40, 64, 0, 128, 0, 4096, 2, 8),
    "dots1": (152_064, 4608, 10_944, 62, 32, 32, 0, 1408, 4096, 0, 0),
    "ernie4_5_moe": (103_424, 2560, 12_288, 28, 20, 4, 0, 1536, 0, 0, 64),
    "exaone_moe": (102_400, 4096, 16_384, 32, 32, 32, 0, 1024, 4096, 8, 64),
    "flex_olmo": (100_352, 4096, 11_008, 32, 32, 0, 0, 0, 0, 5, 7),
    "flint": (150_144, 2048, 6144, 49, 32, 4, 128, 512, 513, 6, 256),
    "glm4_moe": (151_552, 4096, 10_944, 46, 96, 8, 0, 1408, 0, 8, 128),
    "granitemoe": (32_000, 4096, 11_008, 32, 32, 0, 0, 0, 0, 2, 8),
    "granitemoe_swa": (32_000, 4096, 11_008, 32, 32, 0, 0, 0, 128, 2, 8),
    "granitemoeshared": (32_000, 4096, 11_008, 32, 32, 0, 0, 0, 0, 2, 8),
    "hunyuan_v1_moe": (290_943, 4096, 11_008, 32, 32, 0, 0, 0, 0, 0, 1),
    "hy_v3": (120_832, 4096, 13_312, 80, 64, 8, 128, 1536, 0, 8, 192),
    "kolibri1": (128_000, 2560, 0, 50, 48, 4, 128, 512, 513, 6, 384),
    "laguna": (100_352, 2048, 8192, 40, 48, 8, 128, 512, 512, 8, 256),
    "mellum": (98_304, 2304, 7168, 28, 32, 4, 128, 896, 1024, 8, 64),
    "mimo_v2_flash": (152_576, 4096, 16_384, 48, 64, 4, 192, 2048, 0, 8, 256),
    "minimax_m2": (200_064, 3072, 1536, 62, 48, 8, 128, 0, 0, 8, 256),
    "phimoe": (32_064, 4096, 6400, 32, 32, 8, 0, 0, 0, 2, 16),
    "solar_open": (196_608, 4096, 0, 48, 64, 8, 128, 1280, 0, 8, 128),
}


def completed(c: Config) -> tuple[Config, int | None]:
    """The config with its class's defaults, and the class's number of experts, None without one."""
    *sizes, num_experts = _DEFAULTS[c.model_type]
    defaults = {name: size for name, size in zip(_NAMES, sizes, strict=True) if size}
    if "sliding_window" in c.values and c.values["sliding_window"] is None:  # no window, not the class's
        defaults.pop("sliding_window", None)
    c = c.filled(defaults)
    if c.model_type == "glm4_moe" and not c.has("head_dim"):  # the class rounds down, and its own default needs that
        c = c.filled({"head_dim": c.hidden_size // c.num_attention_heads})
    return c, num_experts or None
