"""Which attention transformers' classes have, by their sources, and what runs where one was asked for or none was.

transformers refuses a kernel that the class does not have and takes eager attention where none was asked for
(transformers 5.23 modeling_utils.py `_flash_attn_can_dispatch`, `_sdpa_can_dispatch`,
`_check_and_adjust_attn_implementation`). Attention with sinks has flash kernels (gpt-oss: `_compatible_flash_
implementations`, kernels-community/vllm-flash-attn3), but SDPA takes none.
"""

from __future__ import annotations

from vramwise.errors import ScenarioError
from vramwise.models.model import Model
from vramwise.scenario import TrainSettings

WITHOUT_SDPA = frozenset(
    {
        "big_bird", "bigbird_pegasus", "bloom", "codegen", "cpmant", "deberta", "deberta-v2", "deepseek_v4",
        "falcon_mamba", "flint", "gemma2", "git", "got_ocr2", "gpt_neo", "gpt_neox_japanese", "gpt_oss", "gptj",
        "granite_swa", "granitemoe_swa", "hy_v4", "inkling2_text", "led", "longt5", "mamba", "mamba2",
        "megatron-bert", "mimo_v2_flash", "mpnet", "mpt", "mvp", "openai-gpt", "prophetnet", "reformer", "rembert",
        "roformer", "rwkv", "switch_transformers", "trocr", "vaultgemma", "xglm", "xlm", "xlnet", "xlstm",
    }
)  # fmt: skip
"""Types whose class has no `_supports_sdpa`."""
WITHOUT_FLASH = frozenset(
    {
        "axk2", "big_bird", "bigbird_pegasus", "bloom", "blt", "codegen", "cpmant", "deberta", "deberta-v2",
        "deepseek_v32", "deepseek_v4", "doge", "dots3_note", "dots3_note_text", "falcon_mamba", "git", "glm_moe_dsa",
        "got_ocr2", "gpt_neox_japanese", "hy_v4", "inkling2_text", "inkling_text", "led", "llama4", "llama4_text",
        "longt5", "mamba", "mamba2", "megatron-bert", "minimax_m3_vl", "minimax_m3_vl_text", "mllama", "mpnet", "mpt",
        "mt5", "mvp", "openai-gpt", "prophetnet", "qwen4_exp", "qwen4_exp_text", "reformer", "rembert", "roformer",
        "rwkv", "step3p7", "switch_transformers", "t5", "trocr", "umt5", "xglm", "xlm", "xlnet", "xlstm",
    }
)  # fmt: skip
"""Types whose class has no `_supports_flash_attn`."""
OF_OTHER_MODELS = frozenset({"got_ocr2"})
"""Of these the models within, which have SDPA, choose for themselves."""
WITHOUT_FLEX = frozenset(
    {
        "aria_text", "axk2", "bailing_hybrid", "bamba", "big_bird", "bigbird_pegasus", "bloom", "blt", "codegen",
        "cohere_compass_text", "cpmant", "deberta", "deberta-v2", "deepseek_v32", "deepseek_v4", "deepseek_vl",
        "deepseek_vl_hybrid", "dots3_note", "dots3_note_text", "ernie4_5_vl_moe", "falcon", "falcon_h1", "falcon_mamba",
        "gemma4_assistant", "gemma4_unified_assistant", "git", "glm46v", "glm4v", "glm_moe_dsa", "got_ocr2", "gpt-sw3",
        "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox_japanese", "gptj", "hy_v4", "inkling2_text", "jamba", "janus",
        "kimi_k25", "kimi_linear", "led", "longt5", "mamba", "mamba2", "megatron-bert", "mimo_v2_flash",
        "minimax_m3_vl", "minimax_m3_vl_text", "moss_transcribe_diarize", "mpnet", "mpt", "mvp", "olmo_hybrid", "olmoe",
        "openai-gpt", "persimmon", "prophetnet", "qwen2_5_omni_thinker", "qwen2_5_vl", "qwen2_audio", "qwen2_vl",
        "qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_next", "qwen3_omni_moe_thinker",
        "qwen3_vl", "qwen4_exp", "qwen4_exp_text", "reformer", "rembert", "roformer", "rwkv", "stablelm",
        "switch_transformers", "trocr", "video_llava", "xglm", "xlm", "xlnet", "xlstm", "zamba",
    }
)  # fmt: skip
"""Types whose class has no `_supports_flex_attn`."""


def attention_of_classes(given: TrainSettings, train: TrainSettings, model: Model) -> str:
    """The attention of a transformers class; raises `ScenarioError` where it does not have what was asked for.

    `given`: the settings as stated; `train`: with what the framework decides.
    """
    kind = str(model.config.model_type)
    if train.attention == "flex" and kind in WITHOUT_FLEX:
        raise ScenarioError("train.attention", f"transformers has no flex attention for {kind}: {_others(kind)}")
    if train.attention == "flash" and kind in WITHOUT_FLASH:
        raise ScenarioError("train.attention", f"transformers has no flash attention for {kind}: {_others(kind)}")
    if train.attention == "flash" and kind == "falcon" and model.config.flag("alibi"):  # FalconFlashAttention2.forward
        problem = "transformers has no flash attention for falcon with ALiBi: it runs sdpa or eager"
        raise ScenarioError("train.attention", problem)
    if train.attention == "sdpa" and kind in WITHOUT_SDPA:
        if "attention" in given.explicit:
            raise ScenarioError("train.attention", f"transformers has no SDPA for {kind}: {_others(kind)}")
        return train.attention if kind in OF_OTHER_MODELS else "eager"
    return train.attention


def _others(kind: str) -> str:
    names = [name for name, without in (("sdpa", WITHOUT_SDPA), ("flash", WITHOUT_FLASH)) if kind not in without]
    return f"it runs {', '.join(names)} or eager" if names else "it runs eager"
