"""Small configs of remote-code types, each with that of an architecture of transformers that has equal weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from config_strategies import STRATEGIES
from hypothesis import strategies as st

REMOTE_CODE_TYPES = frozenset(
    {
        "baichuan", "chatglm", "deepseek", "deepseek_ref", "internlm", "internlm2", "interns1", "internvl_chat",
        "kimi_k2", "dots_ocr", "kimi_k3", "kimi_vl", "mimo", "mimo_v2", "minicpm", "minicpmv", "minimax_m3",
        "multi_modality", "nemotron-nas", "orion", "phi3_v", "qwen", "yuan", "bailing_moe", "bailing_moe_linear",
        "bailing_moe_v2", "exaone", "deepseek_ocr", "deepseekocr_2", "llada2_moe", "new", "sarvam_mla", "sarvam_moe",
        "step3_text", "step3p5", "phi4mm",
    }
)  # fmt: skip
"""Types whose code is not in transformers; they are described by that code, or through an architecture that is."""

Config = dict[str, Any]
Pair = tuple[Config, Config]


@st.composite
def sizes(draw: st.DrawFn, *, grouped: bool = False) -> dict[str, int]:
    heads = draw(st.sampled_from([2, 4]))
    return {
        "hidden_size": heads * draw(st.sampled_from([8, 12])),
        "intermediate_size": 2 * draw(st.integers(5, 30)),
        "num_hidden_layers": draw(st.integers(1, 3)),
        "num_attention_heads": heads,
        "num_key_value_heads": draw(st.sampled_from([1, 2])) if grouped else heads,
        "vocab_size": draw(st.integers(17, 90)),
    }


@st.composite
def alike(draw: st.DrawFn, model_type: str, equal_type: str, *, grouped: bool = False, **equal: Any) -> Pair:
    """The same keys under two model types; `equal` are those that only the second one has."""
    values = {**draw(sizes(grouped=grouped)), "tie_word_embeddings": draw(st.booleans())}
    return {"model_type": model_type, **values}, {"model_type": equal_type, **values, **equal}


@st.composite
def biased(draw: st.DrawFn, model_type: str, key: str, *, grouped: bool = False) -> Pair:
    """Llama with biases in attention, under a key of its own."""
    bias = draw(st.booleans())
    given, equal = draw(alike(model_type, "llama", grouped=grouped))
    return {**given, key: bias}, {**equal, "attention_bias": bias}


@st.composite
def first_chatglm(draw: st.DrawFn) -> Pair:
    given = draw(sizes())
    common = {key: given[key] for key in ("hidden_size", "num_attention_heads", "vocab_size")}
    first = {"inner_hidden_size": given["intermediate_size"], "num_layers": given["num_hidden_layers"]}
    given.pop("num_key_value_heads")
    return (
        {"model_type": "chatglm", "position_encoding_2d": True, **common, **first},
        {"model_type": "gpt_neox", "tie_word_embeddings": True, **given},
    )


@st.composite
def chatglm(draw: st.DrawFn) -> Pair:
    """The second and later generations, whose keys have names of their own."""
    given, bias, width = draw(sizes(grouped=True)), draw(st.booleans()), draw(st.sampled_from([8, 16]))
    later = {
        "hidden_size": given["hidden_size"],
        "num_attention_heads": given["num_attention_heads"],
        "ffn_hidden_size": given["intermediate_size"],
        "num_layers": given["num_hidden_layers"],
        "multi_query_attention": given["num_key_value_heads"] != given["num_attention_heads"] or draw(st.booleans()),
        "multi_query_group_num": given["num_key_value_heads"],
        "padded_vocab_size": given["vocab_size"],
        "kv_channels": width,
        "add_qkv_bias": bias,
    }
    equal = {**given, "head_dim": width, "attention_bias": bias, "tie_word_embeddings": False, "pad_token_id": None}
    return {"model_type": "chatglm", **later}, {"model_type": "glm", **equal}


@st.composite
def qwen(draw: st.DrawFn) -> Pair:
    given, equal = draw(alike("qwen", "qwen2"))
    width = given["hidden_size"] // given["num_attention_heads"]
    doubled = {"kv_channels": width, "intermediate_size": 2 * given["intermediate_size"]}
    return {**given, **doubled}, equal


@st.composite
def minicpm_moe(draw: st.DrawFn) -> Pair:
    given, equal = draw(alike("minicpm", "mixtral", grouped=True))
    count = draw(st.integers(2, 4))
    return (
        {**given, "num_experts": count, "num_experts_per_tok": 2},
        {**equal, "num_local_experts": count, "num_experts_per_tok": 2},
    )


@st.composite
def searched(draw: st.DrawFn) -> Pair:
    """Nemotron-NAS with the same choice for every layer."""
    given = draw(sizes(grouped=True))
    heads, groups, count = (given[key] for key in ("num_attention_heads", "num_key_value_heads", "num_hidden_layers"))
    factor = draw(st.sampled_from([1.0, 2.5, 12.0]))
    inner = -(-int(2 * factor * given["hidden_size"] / 3) // 256) * 256
    choice = {"attention": {"n_heads_in_group": heads // groups}, "ffn": {"ffn_mult": factor}}
    own = {key: given[key] for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")}
    return (
        {"model_type": "nemotron-nas", **own, "block_configs": [choice] * count},
        {"model_type": "llama", **given, "intermediate_size": inner},
    )


@st.composite
def bailing(draw: st.DrawFn, model_type: str) -> Pair:
    """GLM 4.5's layers; queries, keys and values from one product."""
    given, head = draw(sizes(grouped=True)), draw(st.sampled_from([8, 16]))
    count, inner, shared = 4, draw(st.integers(3, 9)), draw(st.integers(1, 2))
    bias, normed, dense = draw(st.booleans()), draw(st.booleans()), draw(st.integers(0, 2))
    both = {
        **given, "head_dim": head, "moe_intermediate_size": inner, "num_experts_per_tok": draw(st.integers(1, 4)),
        "first_k_dense_replace": dense, "n_group": 2, "topk_group": 1, "use_qk_norm": normed,
        "tie_word_embeddings": draw(st.booleans()),
    }  # fmt: skip
    own = {"num_experts": count, "num_shared_experts": shared, "use_qkv_bias": bias, "use_bias": False}
    equal = {"n_routed_experts": count, "n_shared_experts": shared, "attention_bias": bias}
    return {"model_type": model_type, **both, **own}, {"model_type": "glm4_moe", **both, **equal}


@st.composite
def exaone(draw: st.DrawFn) -> Pair:
    given, equal = draw(alike("exaone", "llama", grouped=True))
    return {**given, "num_layers": given.pop("num_hidden_layers"), "activation_function": "silu"}, equal


def sarvam_mla() -> st.SearchStrategy[Pair]:
    """DeepSeek V3 under the published config's names of the counts of experts."""
    names = {"n_routed_experts": "num_experts", "n_shared_experts": "num_shared_experts"}

    def pair(equal: Config) -> Pair:
        own = {names.get(name, name): value for name, value in equal.items()}
        return {**own, "model_type": "sarvam_mla"}, equal

    return STRATEGIES["deepseek_v3"]().map(pair)


def mimo_v2() -> st.SearchStrategy[Pair]:
    """MiMo V2 Flash with its lists as ones and zeros and the sizes of sliding layers under names of their own."""

    def pair(equal: Config) -> Pair:
        count = equal["num_hidden_layers"]
        dropped = ("layer_types", "mlp_layer_types", "rope_parameters")
        own = {key: value for key, value in equal.items() if key not in dropped}
        wide = 2 * equal.get("num_key_value_heads", equal["num_attention_heads"])
        return {
            **own, "model_type": "mimo_v2", "add_swa_attention_sink_bias": True, "partial_rotary_factor": 0.334,
            "hybrid_layer_pattern": [int(kind == "sliding_attention") for kind in equal["layer_types"][:count]],
            "moe_layer_freq": [int(kind == "sparse") for kind in equal["mlp_layer_types"][:count]],
            "swa_num_attention_heads": equal["num_attention_heads"], "swa_num_key_value_heads": wide,
            "swa_head_dim": equal["head_dim"], "swa_v_head_dim": equal["v_head_dim"],
        }, equal  # fmt: skip

    return STRATEGIES["mimo_v2_flash"]().map(pair)


def phi4mm() -> st.SearchStrategy[Pair]:
    """Phi-4 multimodal with the tower of sound under the checkpoint's own names, its distances to either side."""
    names = {
        "attention_dim": "hidden_size", "linear_units": "intermediate_size", "attention_heads": "num_attention_heads",
        "depthwise_seperable_out_channel": "depthwise_separable_out_channel", "num_blocks": "num_blocks",
        "input_size": "input_size", "ext_pw_out_channel": "ext_pw_out_channel", "kernel_size": "kernel_size",
        "time_reduction": "time_reduction",
    }  # fmt: skip

    def pair(equal: Config) -> Pair:
        audio = {**equal["audio_config"], "bias_symmetric": False}
        own = {key: value for key, value in equal.items() if key != "audio_config"}
        config = {
            **{old: audio[new] for old, new in names.items()},
            "nemo_conv_settings": {"conv_channels": audio["nemo_conv_channels"]},
            "relative_attention_bias_args": {"type": "t5", "t5_bias_max_distance": audio["bias_max_distance"]},
        }
        adapters = {"vision_lora": {"r": 4}, "speech_lora": {"r": 4}}
        own = {**own, **adapters, "model_type": "phi4mm", "audio_processor": {"name": "cascades", "config": config}}
        return own, {**equal, "audio_config": audio}

    return STRATEGIES["phi4_multimodal"]().map(pair)


def interns1() -> st.SearchStrategy[Pair]:
    """InternVL in transformers' form under the checkpoint's own type."""
    vision = {"model_type": "interns1_vision"}
    return STRATEGIES["internvl"]().map(
        lambda c: ({**c, "model_type": "interns1", "vision_config": {**c["vision_config"], **vision}}, c)
    )


def deepseek_vl(text: dict[str, int], *, high: dict[str, Any] | None = None, layers: int = 2) -> Pair:
    """One tower that is known by name, or two; the first layers of it."""
    tower = {"image_size": 384, "model_name": "siglip_large_patch16_384", "select_layer": layers - 25}
    vision = {"cls": "HybridVisionTower", "params": {"low_res_cfg": tower, "high_res_cfg": high}} if high else {
        "cls": "CLIPVisionTower", "params": tower}  # fmt: skip
    siglip = {
        "model_type": "siglip_vision_model", "hidden_size": 1024, "intermediate_size": 4096, "image_size": 384,
        "num_hidden_layers": layers, "num_attention_heads": 16, "patch_size": 16, "vision_use_head": True,
    }  # fmt: skip
    aligner = {"cls": "MlpProjector", "params": {"depth": 2, "input_dim": 1024, "n_embed": text["hidden_size"]}}
    own = {"model_type": "multi_modality", "vision_config": vision, "aligner_config": aligner}
    kind = {"model_type": "deepseek_vl_hybrid" if high else "deepseek_vl", "tie_word_embeddings": False}
    inner = {"model_type": "llama", **text}
    return {**own, "language_config": inner}, {**kind, "vision_config": siglip, "text_config": inner}


PAIRS: dict[str, Callable[[], st.SearchStrategy[Pair]]] = {
    "baichuan": lambda: alike("baichuan", "llama"),
    "bailing_moe": lambda: bailing("bailing_moe"),
    "bailing_moe_v2": lambda: bailing("bailing_moe_v2"),
    "chatglm": chatglm,
    "chatglm-first": first_chatglm,
    "deepseek-dense": lambda: biased("deepseek", "attention_bias", grouped=True),
    "exaone": exaone,
    "internlm": lambda: biased("internlm", "bias"),
    "internlm2": lambda: biased("internlm2", "bias", grouped=True),
    "interns1": interns1,
    "mimo_v2": mimo_v2,
    "mimo": lambda: alike("mimo", "qwen2", grouped=True),
    "minicpm": lambda: alike("minicpm", "llama", grouped=True),
    "minicpm-moe": minicpm_moe,
    "minimax_m3": lambda: STRATEGIES["minimax_m3_vl_text"]().map(lambda c: ({**c, "model_type": "minimax_m3"}, c)),
    "multi_modality": lambda: sizes(grouped=True).map(deepseek_vl),
    "nemotron-nas": searched,
    "new": lambda: STRATEGIES["gte"]().map(lambda c: ({**c, "model_type": "new"}, c)),
    "llada2_moe": lambda: bailing("llada2_moe"),
    "orion": lambda: alike("orion", "stablelm", grouped=True, use_parallel_residual=False, use_qkv_bias=False),
    "phi4mm": phi4mm,
    "qwen": qwen,
    "sarvam_mla": sarvam_mla,
    "sarvam_moe": lambda: bailing("sarvam_moe"),
}
