"""What the configuration classes of transformers 5.23 take for sizes that a config leaves out."""

from __future__ import annotations

from vramwise.models.config import Config

_SIZES = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads",
)  # fmt: skip

# In the order of _SIZES; 0: as many key-value heads as heads.
_DEFAULT_SIZES: dict[str, tuple[int, ...]] = {
    "apertus": (131_072, 4096, 14_336, 32, 32, 0),
    "arcee": (32_000, 2560, 18_432, 32, 32, 0),
    "bitnet": (128_256, 2560, 6912, 30, 20, 5),
    "cohere": (256_000, 8192, 22_528, 40, 64, 0),
    "cohere2": (256_000, 8192, 22_528, 40, 64, 0),
    "cohere_compass_text": (256_000, 8192, 22_528, 40, 64, 0),
    "cwm": (128_256, 6144, 21_504, 64, 48, 8),
    "diffllama": (32_000, 2048, 8192, 16, 32, 0),
    "doge": (32_768, 1024, 2048, 32, 8, 0),
    "ernie4_5": (103_424, 1024, 3072, 18, 16, 2),
    "eurobert": (128_256, 768, 3072, 12, 12, 0),
    "exaone4": (102_400, 4096, 16_384, 32, 32, 32),
    "gemma": (256_000, 3072, 24_576, 28, 16, 16),
    "gemma2": (256_000, 2304, 9216, 26, 8, 4),
    "gemma3_text": (262_208, 2304, 9216, 26, 8, 4),
    "gemma4_text": (262_144, 2304, 9216, 30, 8, 4),
    "gemma4_unified_text": (262_144, 2304, 9216, 30, 8, 4),
    "glm": (151_552, 4096, 13_696, 40, 32, 2),
    "glm4": (151_552, 4096, 13_696, 40, 32, 2),
    "granite": (32_000, 4096, 11_008, 32, 32, 0),
    "granite_swa": (100_352, 2560, 8192, 24, 20, 4),
    "helium": (48_000, 2560, 7040, 24, 20, 20),
    "hunyuan_v1_dense": (290_943, 4096, 11_008, 32, 32, 0),
    "hyperclovax": (32_000, 4096, 11_008, 32, 32, 0),
    "internlm3": (128_512, 4096, 10_240, 48, 32, 2),
    "iquestcoder": (76_800, 5120, 27_648, 80, 40, 8),
    "jais2": (150_272, 3328, 26_624, 32, 26, 0),
    "ministral": (32_000, 4096, 14_336, 32, 32, 8),
    "ministral3": (131_072, 4096, 14_336, 34, 32, 8),
    "nanochat": (50_304, 768, 8192, 12, 6, 0),
    "nemotron": (256_000, 6144, 24_576, 32, 48, 0),
    "olmo": (50_304, 4096, 11_008, 32, 32, 0),
    "olmo2": (50_304, 4096, 11_008, 32, 32, 0),
    "olmo3": (50_304, 4096, 11_008, 32, 32, 0),
    "persimmon": (262_144, 4096, 16_384, 36, 64, 0),
    "phi": (51_200, 2048, 8192, 24, 32, 0),
    "phi3": (32_064, 3072, 8192, 32, 32, 0),
    "seed_oss": (155_136, 4096, 27_648, 64, 80, 8),
    "smollm3": (128_256, 2048, 11_008, 36, 16, 4),
    "stablelm": (50_304, 2560, 6912, 32, 32, 32),
    "starcoder2": (49_152, 3072, 12_288, 30, 24, 2),
    "vaultgemma": (256_000, 2304, 9216, 26, 8, 4),
}
_OTHER_DEFAULTS: dict[str, dict[str, object]] = {
    "apertus": {"hidden_act": "xielu"},
    "arcee": {"hidden_act": "relu2"},
    "bitnet": {"hidden_act": "relu2"},
    "cohere2": {"sliding_window": 4096},
    "cohere_compass_text": {"sliding_window": 4096},
    "cwm": {"head_dim": 128, "sliding_window": 8192},
    "ernie4_5": {"head_dim": 128},
    "exaone4": {"sliding_window": 4096},
    "gemma": {"head_dim": 256},
    "gemma2": {"head_dim": 256, "sliding_window": 4096},
    "gemma3_text": {"head_dim": 256, "sliding_window": 4096},
    "gemma4_text": {"head_dim": 256, "sliding_window": 512, "vocab_size_per_layer_input": 262_144},
    "gemma4_unified_text": {"head_dim": 256, "sliding_window": 1024, "vocab_size_per_layer_input": 262_144},
    "glm": {"head_dim": 128},
    "glm4": {"head_dim": 128},
    "granite_swa": {"sliding_window": 128},
    "helium": {"head_dim": 128},
    "internlm3": {"head_dim": 128},
    "iquestcoder": {"head_dim": 128},
    "jais2": {"hidden_act": "relu2"},
    "ministral": {"sliding_window": 4096},
    "ministral3": {"head_dim": 128},
    "nanochat": {"hidden_act": "relu2", "final_logit_softcapping": 15.0},
    "nemotron": {"hidden_act": "relu2"},
    "olmo3": {"sliding_window": 4096},
    "persimmon": {"hidden_act": "relu2"},
    "phi": {"hidden_act": "gelu_new"},
    "seed_oss": {"head_dim": 128, "attention_dropout": 0.1, "residual_dropout": 0.1},
    "starcoder2": {"hidden_act": "gelu_pytorch_tanh"},
    "vaultgemma": {"head_dim": 256, "sliding_window": 4096},
}


def class_defaults(model_type: str) -> dict[str, object]:
    """What the class of a model type takes for keys that a config leaves out."""
    sizes = zip(_SIZES, _DEFAULT_SIZES[model_type], strict=True)
    return {**{name: size for name, size in sizes if size}, **_OTHER_DEFAULTS.get(model_type, {})}


def with_class_defaults(c: Config) -> Config:
    """The config with its class's defaults where a key is absent; an explicit null stays one."""
    return Config({**class_defaults(c.model_type), **c.values}, c.model_id)
