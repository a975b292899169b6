"""Which attention runs where one was asked for, or none was: what classes and frameworks have, by their sources.

transformers refuses a kernel that the class does not have and takes eager attention where none was asked for
(transformers 5.23 modeling_utils.py `_flash_attn_can_dispatch`, `_sdpa_can_dispatch`,
`_check_and_adjust_attn_implementation`). Attention with sinks has flash kernels (gpt-oss: `_compatible_flash_
implementations`, kernels-community/vllm-flash-attn3), but SDPA takes none. unsloth trains gpt-oss with flex attention
whatever is asked for (unsloth_zoo 2026.10 temporary_patches/gpt_oss.py, flex_attention_with_sink), and takes SDPA or
eager attention by itself where a class has no flash attention or the card none. llm-foundry's own blocks follow the
config's `attn_impl` (models/layers/attention.py; flash in models/mpt/configuration_mpt.py). axolotl's `flex_attention`
asks for flex attention, which some classes have that have no flash attention. Under Megatron sinks turn flash attention
off (Transformer Engine's "Disabling FlashAttention for softmax_type"), and cuDNN's fused attention takes them since
9.13 alone, for some layouts since 9.18.
"""

from __future__ import annotations

from typing import Any

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
SINKS = frozenset({"flint", "gpt_oss", "granite_swa", "granitemoe_swa", "mimo_v2_flash"})
"""Types with a learned column of scores, of which flash kernels make an argument."""
KEEPS_NO_SCORES = frozenset({"flash", "flex"})
FLEX_UNDER_UNSLOTH = frozenset({"gpt_oss"})
ON_TRANSFORMERS = frozenset({"transformers", "axolotl", "llamafactory", "ms-swift", "pytorch", "deepspeed"})
"""They run transformers' own attention; unsloth's has no mask in training (models/llama.py `attention_mask = None`)."""
_OF_FOUNDRY = {"flash": "flash", "torch": "eager", "flex": "flex"}


def attention_of(given: TrainSettings, train: TrainSettings, model: Model) -> str:
    """The attention that runs; raises `ScenarioError` where the class refuses what was asked for.

    `given`: the settings as stated; `train`: with what the framework decides.
    """
    kind, asked = str(model.config.model_type), "attention" in given.explicit
    if train.framework == "unsloth":
        return _of_unsloth(train, kind)
    if train.framework == "llm-foundry" and kind == "mpt" and not asked:
        table: dict[str, Any] = model.config.values.get("attn_config") or {}
        return _OF_FOUNDRY.get(str(table.get("attn_impl", "flash")), train.attention)
    if train.framework == "megatron" and train.attention == "flash" and kind in SINKS:
        return "eager"
    if train.framework not in ON_TRANSFORMERS:
        return train.attention
    if train.framework == "axolotl" and train.attention == "flash" and kind in WITHOUT_FLASH - WITHOUT_FLEX:
        return "flex"
    if train.attention == "flex" and kind in WITHOUT_FLEX:
        raise ScenarioError("train.attention", f"transformers has no flex attention for {kind}: {_others(kind)}")
    if train.attention == "flash" and kind in WITHOUT_FLASH:
        raise ScenarioError("train.attention", f"transformers has no flash attention for {kind}: {_others(kind)}")
    if train.attention == "flash" and kind == "falcon" and model.config.flag("alibi"):  # FalconFlashAttention2.forward
        problem = "transformers has no flash attention for falcon with ALiBi: it runs sdpa or eager"
        raise ScenarioError("train.attention", problem)
    if train.attention == "sdpa" and kind in WITHOUT_SDPA:
        if asked:
            raise ScenarioError("train.attention", f"transformers has no SDPA for {kind}: {_others(kind)}")
        return train.attention if kind in OF_OTHER_MODELS else "eager"
    return train.attention


def _of_unsloth(train: TrainSettings, kind: str) -> str:
    if kind in FLEX_UNDER_UNSLOTH:
        return "flex"
    if train.attention == "flash" and kind in WITHOUT_FLASH:
        return "eager" if kind in WITHOUT_SDPA else "sdpa"
    return "eager" if train.attention == "sdpa" and kind in WITHOUT_SDPA else train.attention


def _others(kind: str) -> str:
    names = [name for name, without in (("sdpa", WITHOUT_SDPA), ("flash", WITHOUT_FLASH)) if kind not in without]
    return f"it runs {', '.join(names)} or eager" if names else "it runs eager"


def attention_note(asked: TrainSettings, train: TrainSettings, model: Model) -> str:
    """What runs in the place of the attention that was asked for, or grows with the square; empty where neither is."""
    kind = str(model.config.model_type)
    if train.framework == "unsloth" and kind in FLEX_UNDER_UNSLOTH:
        other = f", not {asked.attention}" if "attention" in asked.explicit and asked.attention != "flex" else ""
        return f"unsloth trains {kind} with flex attention{other}: linear in the sequence, sinks included"
    if train.framework == "megatron" and kind in SINKS and train.attention == "eager":
        return "sinks turn Transformer Engine's flash attention off; its fused attention takes them since cuDNN 9.13"
    if "attention" in asked.explicit and asked.attention != train.attention:
        return f"attention {asked.attention} changed nothing: {train.framework} runs {train.attention} for {kind}"
    inner = model.config.values.get("text_config")
    text = str(inner.get("model_type")) if isinstance(inner, dict) else kind
    runs_eager = train.attention == "eager" or (train.attention == "sdpa" and text != kind)
    if runs_eager and text in WITHOUT_SDPA - _WITHOUT_SCORES and train.framework in ON_TRANSFORMERS:
        kernel = "" if text in WITHOUT_FLASH or kind in WITHOUT_FLASH else "; --attention flash keeps none"
        return f"eager attention, as {text} has no SDPA: scores grow with the square of the sequence{kernel}"
    return ""


_WITHOUT_SCORES = frozenset({"falcon_mamba", "mamba", "mamba2", "rwkv", "xlstm"})
