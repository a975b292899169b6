"""Names that a scenario's keys accept, and the spellings of the same thing that people write.

The first name is the default. Sources of the names: the frameworks' own flags and arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from vramwise import names_of_files
from vramwise.engines import ENGINES as SPELLED_ENGINES
from vramwise.optimizers import RULES

TASKS: Final = ("train", "serve", "generate", "load")
TASKS_MEANT: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("inference", "infer", "run", "chat", "predict"), "that is serve (an engine) or generate (transformers)"
    ),
    **dict.fromkeys(
        ("fine-tune", "finetune", "fine-tuning", "finetuning", "sft", "lora", "qlora", "pretrain", "pretraining"),
        "that is train (method full, lora or qlora)",
    ),
}
"""What people look for who write a task so."""

MODEL_SOURCES: Final = ("auto", "hub", "modelscope", "cache", "catalog")
CLASSIFIERS: Final = "timm"
EMBEDDERS: Final = "sentence-transformers"
LIBRARIES: Final = ("auto", "transformers", CLASSIFIERS, "diffusers", EMBEDDERS)

DTYPES: Final = ("fp32", "bf16", "fp16", "fp8_e4m3", "fp8_e5m2")
DTYPE_SPELLINGS: Final[Mapping[str, str]] = {
    "float32": "fp32",
    "float": "fp32",
    "f32": "fp32",
    "torch.float32": "fp32",
    "bfloat16": "bf16",
    "torch.bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "f16": "fp16",
    "torch.float16": "fp16",
    "fp8": "fp8_e4m3",
    "float8_e4m3fn": "fp8_e4m3",
    "float8_e5m2": "fp8_e5m2",
}
STATE_DTYPES: Final = (*DTYPES, "int8")

FRAMEWORKS: Final = (
    "transformers",
    "deepspeed",
    "torchtune",
    "torchtitan",
    "megatron",
    "litgpt",
    "llm-foundry",
    "axolotl",
    "llamafactory",
    "unsloth",
    "ms-swift",
    "pytorch",
)
FRAMEWORK_SPELLINGS: Final[Mapping[str, str]] = {
    "trl": "transformers",
    "peft": "transformers",
    "hf": "transformers",
    "megatron-lm": "megatron",
    "megatron-core": "megatron",
    "llama-factory": "llamafactory",
    "swift": "ms-swift",
    "torch": "pytorch",
}


def added_frameworks() -> dict[str, str]:
    """Frameworks of plug-ins, each with its record's module."""
    from vramwise import plugins

    return plugins.frameworks(FRAMEWORKS)


def added_kernels() -> dict[str, str]:
    """Kernel libraries of plug-ins, each with its record's module."""
    from vramwise import plugins

    return plugins.kernels((*KERNELS, *LAYERS))


METHODS: Final = ("full", "lora", "qlora", "freeze")
PRECISIONS: Final = (
    "bf16-mixed",
    "bf16",
    "bf16-master",
    "fp16-mixed",
    "fp16",
    "fp16-master",
    "fp32",
    "fp8-mixed",
)
PRECISION_SPELLINGS: Final[Mapping[str, str]] = {
    "bf16-true": "bf16",
    "bfloat16": "bf16",
    "fp16-true": "fp16",
    "16-mixed": "fp16-mixed",
    "float16": "fp16",
    "half": "fp16",
    "float32": "fp32",
    "32-true": "fp32",
    "fp8": "fp8-mixed",
}
OPTIMIZERS: Final = tuple(RULES)
OPTIMIZER_SPELLINGS: Final[Mapping[str, str]] = {
    spelling: name for name, rule in RULES.items() for spelling in rule.spellings
}
OPTIMIZER_IMPLS: Final = ("foreach", "for-loop", "fused")
OPTIMIZER_IMPL_SPELLINGS: Final[Mapping[str, str]] = {"forloop": "for-loop", "single-tensor": "for-loop"}
HEADS: Final = ("causal-lm", "masked-lm", "sequence-classification", "none")
CHECKPOINTING: Final = ("none", "full", "selective")
CHECKPOINTING_SPELLINGS: Final[Mapping[str, str]] = {"off": "none", "block": "full"}
ATTENTION: Final = ("sdpa", "eager", "flash")
TRAIN_ATTENTION: Final = (*ATTENTION, "flex", "auto")
"""`auto`: what each class within the model runs where nothing is asked for, as where the setting is left out."""
ATTENTION_SPELLINGS: Final[Mapping[str, str]] = {
    "flash_attention_2": "flash",
    "flash_attention_3": "flash",
    "flash-attn": "flash",
    "flash-attention": "flash",
}
TRAIN_ATTENTION_SPELLINGS: Final[Mapping[str, str]] = {**ATTENTION_SPELLINGS, "flex_attention": "flex"}
LOSSES: Final = ("standard", "fused", "chunked", "fused-linear", "vocab-parallel", "preference")
COMPILED: Final = ("layers", "model", "loss")
LAYERS: Final = ("litgpt", "megatron", "torchtitan", "torchtune", "axolotl-liger")
"""Records of kernels that a framework's record names, and no scenario."""
_KNOWN_FIRST = ("liger", "unsloth", "fms", "transformer-engine", "apex", "xielu", "axolotl", "flash-linear-attention")
_OF_KERNELS = ("fused", "litgpt_blocks", *(name.replace("-", "_") for name in LAYERS))
KERNELS: Final = tuple(dict.fromkeys((*_KNOWN_FIRST, *names_of_files("kernels", but=_OF_KERNELS))))
"""Every file of vramwise.kernels that is no framework's own and nothing that several share."""
KERNEL_SPELLINGS: Final[Mapping[str, str]] = {
    "te": "transformer-engine",
    "liger-kernel": "liger",
    "fla": "flash-linear-attention",
    "fla-core": "flash-linear-attention",
    "flash_linear_attention": "flash-linear-attention",
    "causal_conv1d": "causal-conv1d",
}
BASE_QUANTIZATION: Final = ("nf4", "nf4-dq", "fp4", "int8", "gptq-int4", "awq-int4")
BASE_QUANTIZATION_SPELLINGS: Final[Mapping[str, str | None]] = {
    "none": None,
    "bitsandbytes-nf4": "nf4",
    "bnb-nf4": "nf4",
    "bitsandbytes-fp4": "fp4",
    "bitsandbytes-int8": "int8",
    "llm-int8": "int8",
    "gptq": "gptq-int4",
    "awq": "awq-int4",
}
FSDP: Final = ("none", "full-shard", "shard-grad-op", "hybrid-shard")
PIPELINE_SCHEDULES: Final = ("1f1b", "interleaved-1f1b", "gpipe", "zero-bubble")
PIPELINE_SCHEDULE_SPELLINGS: Final[Mapping[str, str]] = {
    "interleaved": "interleaved-1f1b",
    "interleaved1f1b": "interleaved-1f1b",
    "zb": "zero-bubble",
    "zero-bubble-v": "zero-bubble",
}
FP8_RECIPES: Final = ("delayed", "tensorwise", "blockwise", "mxfp8", "rowwise")
FP8_RECIPE_SPELLINGS: Final[Mapping[str, str]] = {
    "current": "tensorwise",
    "current-scaling": "tensorwise",
    "delayed-scaling": "delayed",
    "subchannel": "blockwise",
    "axiswise": "rowwise",
    "rowwise-with-gw-hp": "rowwise",
}
CONTEXT_PARALLEL_KINDS: Final = ("ring", "ulysses")
FP8_OPERANDS: Final = ("none", "saved", "recomputed")
OFFLOAD: Final = ("none", "cpu", "nvme")

ENGINES: Final = tuple(SPELLED_ENGINES)
ENGINE_SPELLINGS: Final[Mapping[str, str]] = {
    spelling: name for name, spellings in SPELLED_ENGINES.items() for spelling in spellings
}
SERVE_DTYPES: Final = ("auto", "bf16", "fp16", "fp32")
SERVE_QUANTIZATION: Final = (
    "awq",
    "awq-marlin",
    "gptq",
    "gptq-marlin",
    "gptq-int8",
    "fp8",
    "fp8-dynamic",
    "w4a16",
    "w8a8",
    "mxfp4",
    "nvfp4",
    "bitsandbytes-nf4",
    "bitsandbytes-fp4",
    "bitsandbytes-int8",
    "mlx-2bit",
    "mlx-3bit",
    "mlx-4bit",
    "mlx-5bit",
    "mlx-6bit",
    "mlx-8bit",
    "gguf",
)
SERVE_QUANTIZATION_SPELLINGS: Final[Mapping[str, str | None]] = {
    "none": None,
    "gptq-int4": "gptq",
    "awq-int4": "awq",
    "bitsandbytes": "bitsandbytes-nf4",
    "nf4": "bitsandbytes-nf4",
    "fp4": "bitsandbytes-fp4",
    "int8": "bitsandbytes-int8",
    "llm-int8": "bitsandbytes-int8",
    "int8-w8a8": "w8a8",
}
OFFLOADS: Final = ("none", "model", "sequential", "group")
CACHE_IMPLEMENTATIONS: Final = ("dynamic", "static", "quantized", "none")
RECURRENT_STATE_DTYPES: Final = ("auto", "fp32", "bf16", "fp16")
KV_CACHE_DTYPES: Final = ("auto", "bf16", "fp16", "fp32", "fp8_e4m3", "fp8_e5m2", "int8", "int4", "nvfp4")
PACKED_CACHE_DTYPES: Final = (
    "int8_per_token_head",
    "fp8_per_token_head",
    "int4_per_token_head",
    "nvfp4_4over6",
    "turboquant_k8v4",
    "turboquant_4bit_nc",
    "turboquant_k3v4_nc",
    "turboquant_3bit_nc",
)
"""Caches of servers that hold more in a head than its elements."""
CACHE_DTYPE_SPELLINGS: Final[Mapping[str, str]] = {**DTYPE_SPELLINGS, "fp8_ds_mla": "fp8_e4m3", "fp8_inc": "fp8_e4m3"}
LLAMA_CPP_CACHE_TYPES: Final = (
    "f16",
    "f32",
    "bf16",
    "q8_0",
    "q6_0",
    "q5_1",
    "q5_0",
    "q4_1",
    "q4_0",
    "iq4_nl",
    "q8_kv",
)
LLAMA_CPP_CACHE_SPELLINGS: Final[Mapping[str, str]] = {"fp16": "f16", "fp32": "f32", "bfloat16": "bf16"}
LLAMA_CPP_VARIANTS: Final = ("llama.cpp", "ik_llama.cpp")
# llama.cpp's file types (`llama-quantize --help`), then those that only ik_llama.cpp writes.
GGUF_QUANTS: Final = (
    "custom",
    "F32",
    "F16",
    "BF16",
    "Q8_0",
    "Q6_K",
    "Q5_K_M",
    "Q5_K_S",
    "Q5_1",
    "Q5_0",
    "Q4_K_M",
    "Q4_K_S",
    "Q4_K_L",
    "Q4_1",
    "Q4_0",
    "Q3_K_L",
    "Q3_K_M",
    "Q3_K_S",
    "Q3_K_XL",
    "Q2_K",
    "Q2_K_S",
    "Q2_K_L",
    "Q1_0",
    "IQ4_NL",
    "IQ4_XS",
    "IQ3_M",
    "IQ3_S",
    "IQ3_XS",
    "IQ3_XXS",
    "IQ2_M",
    "IQ2_S",
    "IQ2_XS",
    "IQ2_XXS",
    "IQ1_M",
    "IQ1_S",
    "TQ1_0",
    "TQ2_0",
    "MXFP4_MOE",
    "NVFP4",
    "Q6_0",
    "IQ6_K",
    "IQ5_K",
    "IQ5_KS",
    "IQ4_K",
    "IQ4_KS",
    "IQ4_KSS",
    "IQ4_KT",
    "IQ3_K",
    "IQ3_KS",
    "IQ3_KL",
    "IQ3_KT",
    "IQ2_K",
    "IQ2_KS",
    "IQ2_KL",
    "IQ2_KT",
    "IQ1_KT",
    "IQ1_BN",
    "IQ2_BN",
)
GGUF_QUANT_SPELLINGS: Final[Mapping[str, str]] = {
    "fp32": "F32",
    "fp16": "F16",
    "bfloat16": "BF16",
    "Q5_K": "Q5_K_M",
    "Q4_K": "Q4_K_M",
    "Q3_K": "Q3_K_M",
    "MXFP4": "MXFP4_MOE",
}
_FOUR_BITS, _EIGHT_BITS = "4 bits are awq, gptq, w4a16 or bitsandbytes-nf4", "8 bits are fp8, w8a8, gptq-int8 or int8"
_OF_GGUF = "of GGUF files, which the engines llama.cpp and ollama read: gguf_quant"
SERVE_QUANTIZATION_MEANT: Final[Mapping[str, str]] = {
    **{name.lower().replace("_", "-"): f"{_OF_GGUF} {name}" for name in GGUF_QUANTS},
    **dict.fromkeys(("4bit", "4-bit", "int4", "4bits"), f"{_FOUR_BITS}; {_OF_GGUF} Q4_K_M"),
    **dict.fromkeys(("8bit", "8-bit", "8bits"), f"{_EIGHT_BITS}; {_OF_GGUF} Q8_0"),
    **{f"q{bits}": f"{_OF_GGUF} {name}" for bits, name in ((4, "Q4_K_M"), (5, "Q5_K_M"), (6, "Q6_K"), (8, "Q8_0"))},
    **dict.fromkeys(("bnb", "bitsandbytes-4bit", "bnb-4bit"), "bitsandbytes-nf4 or bitsandbytes-int8"),
}
"""What people look for who write a format of the weights so."""
SERVE_DTYPES_MEANT: Final[Mapping[str, str]] = {
    **{word: f"quantized weights are no dtype; {meant}" for word, meant in SERVE_QUANTIZATION_MEANT.items()},
    **{name: f"quantized weights are quantization {name}" for name in SERVE_QUANTIZATION},
    "nf4": "quantized weights are quantization bitsandbytes-nf4",
}
PRECISIONS_MEANT: Final[Mapping[str, str]] = dict.fromkeys(
    ("int4", "4bit", "4-bit", "nf4"), "frozen weights of 4 bits are method qlora"
)
GGUF_QUANT_OF_BITS: Final[Mapping[str, str]] = {
    "q2": "Q2_K", "q3": "Q3_K_M", "q4": "Q4_K_M", "q5": "Q5_K_M", "q6": "Q6_K", "q8": "Q8_0",
}  # fmt: skip
"""What is usual of so many bits, where no more is said."""
GGUF_QUANT_MEANT: Final[Mapping[str, str]] = {
    **{
        f"ud-{bits}-k-xl": f"a mix of its maker's own, to which {name} is the nearest"
        for bits, name in GGUF_QUANT_OF_BITS.items()
    },
    **dict.fromkeys(("int4", "4bit"), "4 bits are Q4_K_M"),
    **dict.fromkeys(("int8", "8bit", "fp8"), "8 bits are Q8_0"),
}
"""Types of files that llama.cpp's quantizer does not make, and what is near."""
_RUNS_LLAMA_CPP = "it runs llama.cpp, which is engine llama.cpp"
ENGINES_MEANT: Final[Mapping[str, str]] = dict.fromkeys(
    ("lmstudio", "lm-studio", "koboldcpp", "jan", "gpt4all", "llamafile", "ik-llama.cpp"), _RUNS_LLAMA_CPP
)
"""Programs that are no engines of their own."""

LLAMA_CPP_BACKENDS: Final = ("cuda", "vulkan", "metal", "other")
LLAMA_CPP_SPLIT_MODES: Final = ("layer", "row", "none", "tensor", "graph", "attn")
