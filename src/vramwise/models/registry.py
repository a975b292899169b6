"""Which family file describes which `model_type`; the file is imported when it is asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module

from vramwise import plugins
from vramwise.errors import UndescribedTypeError, clipped, nearest
from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.model import Model

FAMILY_OF_TYPE: dict[str, str] = {
    "afmoe": "afmoe",
    "albert": "albert",
    "apertus": "apertus",
    "arcee": "arcee",
    "aria": "vision_language",
    "aria_text": "aria_text",
    "audioflamingo3": "vision_language",
    "axk1": "deepseek",
    "axk2": "deepseek",
    "aya_vision": "vision_language",
    "baichuan": "baichuan",
    "bailing_hybrid": "kimi_linear",
    "bailing_moe": "bailing_moe",
    "bailing_moe_linear": "bailing_moe",
    "bailing_moe_v2": "bailing_moe",
    "bamba": "bamba",
    "bark": "bark",
    "bart": "bart",
    "beam": "beam",
    "bert": "bert",
    "bert-generation": "bert",
    "big_bird": "bert",
    "bigbird_pegasus": "bart",
    "biogpt": "fairseq",
    "bitnet": "bitnet",
    "blenderbot": "bart",
    "blenderbot-small": "bart",
    "blip-2": "blip2",
    "bloom": "bloom",
    "blt": "blt",
    "camembert": "bert",
    "chatglm": "chatglm",
    "clip": "clip",
    "codegen": "gptj",
    "cohere": "cohere",
    "cohere2": "cohere",
    "cohere2_moe": "cohere_moe",
    "cohere2_vision": "vision_language",
    "cohere_compass_text": "cohere",
    "colpali": "late_interaction",
    "colqwen2": "late_interaction",
    "convnext": "convnext",
    "convnextv2": "convnext",
    "cpmant": "cpmant",
    "csm": "csm",
    "ctrl": "ctrl",
    "cwm": "cwm",
    "dac": "codecs",
    "data2vec-text": "bert",
    "dbrx": "dbrx",
    "deberta": "deberta",
    "deberta-v2": "deberta",
    "deepseek": "deepseek_moe",
    "deepseek_ocr": "deepseek_ocr",
    "deepseek_ref": "deepseek_v4",
    "deepseek_v2": "deepseek",
    "deepseek_v3": "deepseek",
    "deepseek_v32": "deepseek",
    "deepseek_v4": "deepseek_v4",
    "deepseek_vl": "vision_language",
    "deepseek_vl_hybrid": "deepseek_vl",
    "deepseekocr_2": "deepseek_ocr",
    "depth_anything": "depth_anything",
    "diffllama": "diffllama",
    "dinov2": "dino",
    "dinov2_with_registers": "dino",
    "dinov3_vit": "dino",
    "distilbert": "distilbert",
    "doge": "doge",
    "dory": "dory",
    "dots1": "dots1",
    "dots3_note": "dots3",
    "dots3_note_text": "dots3_text",
    "dots_ocr": "dots_ocr",
    "electra": "bert",
    "emu3": "emu3",
    "encodec": "codecs",
    "ernie": "bert",
    "ernie4_5": "ernie4_5",
    "ernie4_5_moe": "ernie4_5_moe",
    "ernie4_5_vl_moe": "ernie4_5_vl",
    "esm": "esm",
    "eurobert": "eurobert",
    "evolla": "evolla",
    "exaone": "exaone",
    "exaone4": "exaone4",
    "exaone4_5": "vision_language",
    "exaone_moe": "exaone_moe",
    "falcon": "falcon",
    "falcon_h1": "falcon_h1",
    "falcon_mamba": "mamba",
    "flex_olmo": "flex_olmo",
    "flint": "flint",
    "florence2": "florence2",
    "fuyu": "fuyu",
    "gemma": "gemma",
    "gemma2": "gemma",
    "gemma3": "vision_language",
    "gemma3_text": "gemma",
    "gemma3n": "gemma3n",
    "gemma3n_text": "gemma3n_text",
    "gemma4": "gemma4",
    "gemma4_assistant": "gemma4_assistant",
    "gemma4_text": "gemma4_text",
    "gemma4_unified": "gemma4",
    "gemma4_unified_assistant": "gemma4_assistant",
    "gemma4_unified_text": "gemma4_text",
    "git": "git",
    "glm": "glm",
    "glm4": "glm",
    "glm46v": "vision_language",
    "glm4_moe": "glm4_moe",
    "glm4_moe_lite": "deepseek",
    "glm4v": "vision_language",
    "glm4v_moe": "vision_language",
    "glm_moe_dsa": "deepseek",
    "glm_ocr": "vision_language",
    "glmasr": "vision_language",
    "got_ocr2": "vision_language",
    "gpt-sw3": "gpt2",
    "gpt2": "gpt2",
    "gpt_bigcode": "gpt_bigcode",
    "gpt_neo": "gpt_neo",
    "gpt_neox": "gpt_neox",
    "gpt_neox_japanese": "gpt_neox_japanese",
    "gpt_oss": "gpt_oss",
    "gptj": "gptj",
    "granite": "granite",
    "granite_speech": "granite_speech",
    "granite_speech_plus": "granite_speech",
    "granite_swa": "granite",
    "granitemoe": "granite_moe",
    "granitemoe_swa": "granite_moe",
    "granitemoehybrid": "granite_hybrid",
    "granitemoeshared": "granite_moe",
    "gte": "rotary_bert",
    "helium": "helium",
    "hrm_text": "hrm_text",
    "hubert": "wav2vec2",
    "hunyuan_v1_dense": "hunyuan_v1_dense",
    "hunyuan_v1_moe": "hunyuan_v1_moe",
    "hy_v3": "hy_v3",
    "hy_v4": "hy_v4",
    "hyperclovax": "hyperclovax",
    "idefics2": "vision_language",
    "idefics3": "vision_language",
    "inkling2_text": "inkling2",
    "inkling_text": "inkling",
    "instructblip": "blip2",
    "instructblipvideo": "blip2",
    "internlm": "internlm",
    "internlm2": "internlm2",
    "internlm3": "internlm3",
    "internvl": "vision_language",
    "internvl_chat": "internvl_chat",
    "iquestcoder": "iquestcoder",
    "jais2": "jais2",
    "jamba": "jamba",
    "janus": "janus",
    "jetmoe": "jetmoe",
    "jina_embeddings_v3": "rotary_bert",
    "kimi_k2": "deepseek",
    "kimi_k25": "kimi_k25",
    "kimi_k3": "kimi_k3",
    "kimi_linear": "kimi_linear",
    "kimi_vl": "kimi_vl",
    "kolibri1": "kolibri1",
    "laguna": "laguna",
    "led": "led",
    "lfm2": "lfm2",
    "lfm2_moe": "lfm2",
    "lfm2_vl": "vision_language",
    "lfm3": "lfm3",
    "lighton_ocr": "vision_language",
    "llada2_moe": "bailing_moe",
    "llama": "llama",
    "llama4": "vision_language",
    "llama4_text": "llama4_text",
    "llava": "vision_language",
    "llava_next": "vision_language",
    "llava_next_video": "vision_language",
    "llava_onevision": "vision_language",
    "longcat_flash": "longcat",
    "longt5": "longt5",
    "m2m_100": "bart",
    "mamba": "mamba",
    "mamba2": "mamba",
    "marian": "bart",
    "mbart": "bart",
    "megatron-bert": "bert",
    "mellum": "mellum",
    "mimi": "codecs",
    "mimo": "mimo",
    "mimo_v2_flash": "mimo_v2_flash",
    "minicpm": "minicpm",
    "minicpm3": "minicpm3",
    "minicpmv": "minicpmv",
    "minicpmv4_6": "minicpmv46",
    "minimax": "minimax",
    "minimax_m2": "minimax_m2",
    "minimax_m3": "minimax_m3",
    "minimax_m3_vl": "vision_language",
    "minimax_m3_vl_text": "minimax_m3",
    "ministral": "ministral",
    "ministral3": "ministral",
    "mistral": "llama",
    "mistral3": "vision_language",
    "mistral4": "deepseek",
    "mixtral": "mixtral",
    "mllama": "mllama",
    "modernbert": "modernbert",
    "modernbert-decoder": "modernbert",
    "molmo2": "molmo2",
    "moshi": "moshi",
    "moss_transcribe_diarize": "vision_language",
    "mpnet": "mpnet",
    "mpt": "mpt",
    "mt5": "t5",
    "multi_modality": "multi_modality",
    "muse_glimmer": "muse_glimmer",
    "musicflamingo": "vision_language",
    "musicgen": "musicgen",
    "musicgen_melody": "musicgen",
    "mvp": "bart",
    "nanochat": "nanochat",
    "nemotron": "nemotron",
    "nemotron-nas": "nemotron_nas",
    "nemotron_h": "nemotron_h",
    "new": "rotary_bert",
    "nomic_bert": "rotary_bert",
    "olmo": "olmo",
    "olmo2": "olmo",
    "olmo3": "olmo",
    "olmo_hybrid": "olmo_hybrid",
    "olmoe": "olmoe",
    "openai-gpt": "openai_gpt",
    "opt": "opt",
    "orion": "orion",
    "ovis2": "vision_language",
    "owlv2": "owlvit",
    "owlvit": "owlvit",
    "paddleocr_vl": "vision_language",
    "paligemma": "vision_language",
    "parakeet_ctc": "parakeet",
    "patchtst": "patchtst",
    "pegasus": "bart",
    "persimmon": "persimmon",
    "phi": "phi",
    "phi3": "phi",
    "phi3_v": "phi3_v",
    "phi4_multimodal": "phi4_multimodal",
    "phimoe": "phimoe",
    "plbart": "bart",
    "prophetnet": "prophetnet",
    "qianfan_ocr": "vision_language",
    "qwen": "qwen1",
    "qwen2": "llama",
    "qwen2_5_omni": "qwen2_5_omni",
    "qwen2_5_omni_thinker": "qwen2_5_omni",
    "qwen2_5_vl": "vision_language",
    "qwen2_audio": "vision_language",
    "qwen2_moe": "qwen_moe",
    "qwen2_vl": "vision_language",
    "qwen3": "llama",
    "qwen3_5": "qwen3_5",
    "qwen3_5_moe": "qwen3_5",
    "qwen3_5_moe_text": "qwen3_5",
    "qwen3_5_text": "qwen3_5",
    "qwen3_asr": "vision_language",
    "qwen3_moe": "qwen_moe",
    "qwen3_next": "qwen3_next",
    "qwen3_omni_moe": "qwen3_omni",
    "qwen3_omni_moe_thinker": "qwen3_omni",
    "qwen3_vl": "vision_language",
    "qwen3_vl_moe": "vision_language",
    "qwen4_exp": "qwen4_exp",
    "qwen4_exp_text": "qwen4_exp",
    "recurrent_gemma": "recurrent_gemma",
    "reformer": "reformer",
    "rembert": "bert",
    "roberta": "bert",
    "roberta-prelayernorm": "bert",
    "roc_bert": "bert",
    "roformer": "bert",
    "rwkv": "rwkv",
    "sam": "sam",
    "sam2": "sam",
    "sarvam_mla": "sarvam_mla",
    "sarvam_moe": "sarvam_moe",
    "seed_oss": "seed_oss",
    "segformer": "segformer",
    "shieldgemma2": "shieldgemma2",
    "siglip": "clip",
    "siglip2": "clip",
    "smollm3": "smollm3",
    "smolvlm": "vision_language",
    "solar_open": "solar_open",
    "speecht5": "speecht5",
    "stablelm": "stablelm",
    "starcoder2": "starcoder2",
    "step3_text": "step3_text",
    "step3p5": "step3p5",
    "step3p7": "step3p7",
    "switch_transformers": "switch_transformers",
    "t5": "t5",
    "timesfm": "timesfm",
    "timesfm2_5": "timesfm",
    "trocr": "bart",
    "umt5": "t5",
    "vaultgemma": "gemma",
    "video_llama_3": "vision_language",
    "video_llava": "vision_language",
    "vipllava": "vision_language",
    "vit": "vit",
    "vitpose": "vitpose",
    "voxtral": "vision_language",
    "voxtral_realtime": "voxtral_realtime",
    "wav2vec2": "wav2vec2",
    "whisper": "bart",
    "xcodec": "codecs",
    "xglm": "fairseq",
    "xlm": "xlm",
    "xlm-roberta": "bert",
    "xlm-roberta-xl": "bert",
    "xlnet": "xlnet",
    "xlstm": "xlstm",
    "xmod": "bert",
    "youtu": "deepseek",
    "yuan": "yuan",
    "zamba": "zamba",
    "zamba2": "zamba",
    "zaya": "zaya",
}
"""`model_type` of a config -> module of `vramwise.models.families`."""

_SAME_TYPE = {"deepseek_ref": "deepseek_v4", "new": "gte"}
"""Other names of a type, as SGLang's copies of DeepSeek V4 and GTE's own code have."""
_TYPE_OF_CLASS = {"MiniCPM3ForCausalLM": "minicpm3"}
"""The type of configs that name only their class."""
_OTHER_TYPE_OF_CLASS = {
    ("bailing_hybrid", "BailingMoeV2_5ForCausalLM"): "bailing_moe_linear",
    ("deepseek_vl_v2", "DeepseekOCR2ForCausalLM"): "deepseekocr_2",
    ("deepseek_vl_v2", "DeepseekOCRForCausalLM"): "deepseek_ocr",
    ("hunyuan", "HunYuanMoEV1ForCausalLM"): "hunyuan_v1_moe",
}
"""The type of classes whose `model_type` is another class's too, or says less."""


def supported_types() -> tuple[str, ...]:
    """Every `model_type` whose family is described, those of plug-ins last."""
    return (*FAMILY_OF_TYPE, *plugins.families(FAMILY_OF_TYPE))


def family_module(model_type: str) -> str | None:
    """The module that describes a `model_type`: of this package, else of a plug-in; None where none does."""
    family = FAMILY_OF_TYPE.get(model_type)
    if family is not None:
        return f"vramwise.models.families.{family}"
    return plugins.families(FAMILY_OF_TYPE).get(model_type) if model_type else None


def describe(config: Mapping[str, object], model_id: str = "") -> Model:
    """The model of a `config.json`, as blocks of operations.

    Raises `UndescribedTypeError` for a `model_type` that no family describes yet and `SourceError` for values that
    cannot be a model's. The answer is cached by the config's content.
    """
    try:
        key = json.dumps(config, sort_keys=True)
    except (TypeError, ValueError, RecursionError) as problem:
        raise Config({}, model_id).error(f"not JSON data ({problem})") from None
    return _described(key, model_id)


def _typed(c: Config) -> Config:
    """The config under the type's own name; one without `model_type` is known by its class."""
    names = c.get("architectures")
    classes = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    found = c.model_type or next((_TYPE_OF_CLASS[name] for name in classes if name in _TYPE_OF_CLASS), "")
    others = (_OTHER_TYPE_OF_CLASS.get((found, name)) for name in classes)
    found = next((other for other in others if other), _SAME_TYPE.get(found, found))
    return c if found == c.model_type else Config({**c.values, "model_type": found}, c.model_id)


@lru_cache(maxsize=512)
def _described(key: str, model_id: str) -> Model:
    config = _typed(Config(json.loads(key), model_id))
    model_type = config.model_type
    described_in = family_module(model_type)
    if described_in is None:
        given = f'model_type "{clipped(model_type)}"' if model_type else _without_type(config)
        raise UndescribedTypeError(model_id, given, likely_type(config), brings_code=config.has("auto_map"))
    module = import_module(described_in)
    blocks = module.blocks(config)
    _check_shapes(blocks, config)
    head = module.task(config) if hasattr(module, "task") else getattr(module, "HEAD", "causal-lm")
    head = head if "logits" in blocks[-1].outputs else "none"
    loss = module.loss(config) if hasattr(module, "loss") else ""
    not_counted = module.not_counted(config) if hasattr(module, "not_counted") else ""
    counted_as = module.counted_as(config) if hasattr(module, "counted_as") else ""
    return Model(model_id, described_in.rpartition(".")[2], config, blocks, head, loss, not_counted, counted_as)


def _without_type(c: Config) -> str:
    """What a config of another library calls itself."""
    for key, what in (("_class_name", "the Diffusers class"), ("architecture", "the timm architecture")):
        if isinstance(c.get(key), str) and c.get(key):
            return f'{what} "{clipped(c.get(key))}"'
    return "a config without model_type"


def likely_type(c: Config) -> str | None:
    """The described type whose name begins with the same word, else the plainest one with the same kinds of layers.

    None for what has no layers of a decoder of text: an image classifier, a pipeline.
    """
    family = _first_word(c.model_type)
    close = nearest(c.model_type, [name for name in FAMILY_OF_TYPE if family and _first_word(name) == family], n=1)
    if close:
        return close[0]
    if c.has("kv_lora_rank"):
        return "deepseek_v3"
    if any(c.has(key) for key in ("num_experts", "num_local_experts", "n_routed_experts", "moe_intermediate_size")):
        return "qwen3_moe"
    return "llama" if all(any(c.has(key) for key in keys) for keys in _OF_A_DECODER) else None


_OF_A_DECODER = (
    ("hidden_size", "n_embd", "d_model"), ("num_hidden_layers", "n_layer"), ("num_attention_heads", "n_head"),
    ("vocab_size",),
)  # fmt: skip


def _first_word(model_type: str) -> str:
    found = re.match(r"[a-z]+", model_type.lower())
    return found[0] if found else ""


def _check_shapes(blocks: tuple[Block, ...], config: Config) -> None:
    """Sizes that are worked out of several values can come to nothing although each value is one."""
    for block in blocks:
        for parameter in block.parameters:
            if min(parameter.shape, default=1) < 1:
                raise config.error(f"{parameter.name} would have the shape {parameter.shape}")
