"""Names of quantized checkpoints (`Qwen2.5-7B-Instruct-AWQ` is Qwen2.5-7B-Instruct in 4 bits) and of GGUF files."""

from __future__ import annotations

import re
from collections.abc import Mapping

from vramwise.formats.quantization_config import EXPERTS_IN_FILES, HEAD_IN_FILES
from vramwise.scenario.names import GGUF_QUANT_SPELLINGS, GGUF_QUANTS

_W8A8 = {"quant_method": "compressed-tensors", "config_groups": {"all": {"weights": {"num_bits": 8, "type": "int"}}}}
_NF4 = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True}
_GROUPS_OF_32 = {
    "quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"],
    "config_groups": {
        "all": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "symmetric": True, "group_size": 32}},
    },
}  # fmt: skip
_GOOGLE_QAT = {**_GROUPS_OF_32, HEAD_IN_FILES: True}
"""As Google's Gemma 4 is stored (vllm-project/recipes#514): groups of 32, and a head apart in the files (the 31B's
lm_head.weight in jundot/omlx#1775; the E2B's and the 31B's files are larger by one) although the config ties it."""
_NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "ignore": ["lm_head"]}

# Endings of names -> what is said of them, and the `quantization_config` that such checkpoints commonly carry.
_ENDINGS: tuple[tuple[str, str, Mapping[str, object]], ...] = (
    (r"awq(?:-int4|-4bit)?", "4-bit AWQ weights in groups of 128", {"quant_method": "awq", "group_size": 128}),
    (r"gptq-int8", "8-bit GPTQ weights in groups of 128", {"quant_method": "gptq", "bits": 8, "group_size": 128}),
    (r"qat-w4a16-ct", "4-bit weights in groups of 32, and the output layer stored apart in 16 bits", _GOOGLE_QAT),
    (
        r"gptq(?:-int4|-4bit|-4b-128g)?|quantized\.w4a16|w4a16", "4-bit GPTQ weights in groups of 128",
        {"quant_method": "gptq", "bits": 4, "group_size": 128},
    ),
    (r"fp8-dynamic", "fp8 weights with a scale a row", {"quant_method": "fbgemm_fp8"}),
    (r"fp8", "fp8 weights", {"quant_method": "fp8"}),
    (r"quantized\.w8a8|w8a8", "8-bit weights", _W8A8),
    (r"(?:nv)?fp4", "4-bit NVFP4 weights in groups of 16, all but the output layer", _NVFP4),
    (
        r"int4-autoround|autoround-int4", "4-bit AutoRound weights in groups of 128, as GPTQ packs them",
        {"quant_method": "gptq", "bits": 4, "group_size": 128},
    ),
    (
        r"unsloth-bnb-4bit",
        "nf4 weights, doubly quantized (Unsloth leaves some layers in 16 bit, which its config.json alone tells: "
        "at least this much)",
        _NF4,
    ),
    (r"bnb-4bit", "nf4 weights, doubly quantized", _NF4),
    (r"bf16|fp16", "weights in 16 bits", {}),
)  # fmt: skip
_NAME = re.compile(
    r"(?P<base>.+?)-(?:" + "|".join(f"(?P<n{i}>{ending})" for i, (ending, _, _) in enumerate(_ENDINGS)) + r")",
    re.IGNORECASE,
)


_MLX = re.compile(
    r"(?:mlx-community/(?P<a>.+?)|(?P<b>.+)-mlx)-(?P<bits>[234568])-?bit(?:-dwq(?:-\d+)?)?", re.IGNORECASE
)
"""What mlx-lm wrote: names of its own organization, and those that end in mlx-4bit; groups of 64 are its default, also
where it learned the bits (-DWQ)."""


_CYANKIWI = re.compile(r"(?P<base>cyankiwi/.+?)-AWQ-(?:4bit|INT4)", re.IGNORECASE)
"""compressed-tensors in groups of 32, as users of its Qwen3.6-27B and Qwen3.8-27B read in their config.json; Qwen3.5-9B
loads 7.55 GiB in vLLM, which is symmetric, and Qwen3.5-122B-A10B more than all its layers in 4 bits."""


_UNSLOTH_EXPERTS = re.compile(r"(?P<base>unsloth/(?:gpt-oss|Llama-4)-.+?)-(?:unsloth-)?bnb-4bit", re.IGNORECASE)
"""Unsloth rewrote these classes with lists of linear layers for its files (unsloth_zoo temporary_patches/gpt_oss.py
GptOssExperts `gate_up_projs`; Llama 4's Scout likewise), and quantized them with the others."""


_QWEN_GPTQ = re.compile(r"(?P<base>Qwen/Qwen3\.5-.+?)-GPTQ-Int4", re.IGNORECASE)
_QWEN_EXPERTS_ALONE = {
    "quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False,
    "dynamic": {name: {} for name in ("lm_head", "-:.*attn.*", "-:.*shared_expert.*", "-:.*mtp.*", "-:.*visual.*")},
}  # fmt: skip
"""Qwen's own of Qwen3.5, as its config.json has it (onnxruntime/mobius#18: "Official Qwen3.5-27B-GPTQ-Int4 excludes
attention"): the 35B loads 21.05 GiB in vLLM, the 27B 27.51."""


def base_of(name: str) -> tuple[str, str, dict[str, object]] | None:
    """The name without its ending, the format in words and as a `quantization_config`; None for any other name."""
    own = _MLX.fullmatch(name)
    if own is not None:
        bits = int(own["bits"])
        return own["a"] or own["b"], f"{bits}-bit MLX weights in groups of 64", {"group_size": 64, "bits": bits}
    official = _QWEN_GPTQ.fullmatch(name)
    if official is not None:
        words = "4-bit GPTQ weights in groups of 128, all but attention, shared experts and towers"
        return official["base"], words, dict(_QWEN_EXPERTS_ALONE)
    rewritten = _UNSLOTH_EXPERTS.fullmatch(name)
    if rewritten is not None:
        words = "nf4 weights, doubly quantized, of experts too (some layers may be in 16 bit: at least this much)"
        return rewritten["base"], words, {**_NF4, EXPERTS_IN_FILES: True}
    theirs = _CYANKIWI.fullmatch(name)
    if theirs is not None:
        words = (
            "4-bit weights in groups of 32 (cyankiwi leaves some layers in 16 bit, which its config.json alone tells: "
            "at least this much)"
        )
        return theirs["base"], words, dict(_GROUPS_OF_32)
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    index = next(i for i in range(len(_ENDINGS)) if match[f"n{i}"] is not None)
    return match["base"], _ENDINGS[index][1], dict(_ENDINGS[index][2])


OWN_GGUF_TYPES = {name.upper(): name for name in GGUF_QUANTS} | {
    spelling.upper(): name for spelling, name in GGUF_QUANT_SPELLINGS.items() if name
}
"""llama.cpp's own file types by their spellings in capitals; a mix of a maker's own (UD-Q4_K_XL) is none of them."""


def nearest_type(mix: str) -> str | None:
    """llama.cpp's own type of the same bits as a mix (Q2_K of UD-Q2_K_XL, IQ1_S of UD-IQ1_S), None for none."""
    plain = re.sub(r"^(?:UD-|APEX-|dynamic-)", "", mix, flags=re.I).upper()
    bits = re.match(r"(I?Q\d(?:_K)?)(?:_\w+)?$", plain)
    wanted = (plain, *((f"{bits[1]}_M", bits[1], f"{bits[1]}_S", f"{bits[1].removesuffix('_K')}_0") if bits else ()))
    return next((OWN_GGUF_TYPES[name] for name in wanted if name in OWN_GGUF_TYPES), None)
