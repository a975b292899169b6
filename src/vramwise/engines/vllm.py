"""vLLM: a profile run at the start, and all that it leaves of a share of the card is the KV cache."""

from __future__ import annotations

import re

from vramwise.engines.engine import CommandLine, Container, Engine, Log, Script, Shortage

_NO_ROOM_FOR_A_REQUEST = (
    "after weights and activations too little is left for the KV cache of one request of full length"
)
_LARGER_SHARE = ("a higher --gpu-memory-utilization, up to 0.95", "less room for other programs")

RECORD = Engine(
    name="vllm",
    title="vLLM",
    serving="vllm",
    newest="0.33.0",
    phases=("load", "profile run", "graph capture", "decode"),
    memory_share="gpu_memory_utilization",
    cache_dtypes=(
        "auto",
        "bf16",
        "fp16",
        "fp8_e4m3",
        "fp8_e5m2",
        "nvfp4",
        "nvfp4_4over6",
        "int8_per_token_head",
        "fp8_per_token_head",
        "int4_per_token_head",
        "turboquant_k8v4",
        "turboquant_4bit_nc",
        "turboquant_k3v4_nc",
        "turboquant_3bit_nc",
    ),
    vocab_multiple=64,  # DEFAULT_VOCAB_PADDING_SIZE of vocab_parallel_embedding.py
    experts_over_data_ranks=True,  # 0.8.5 fused_moe/layer.py, 0.11.0 to 0.33.0 fused_moe/config.py flatten_tp_across_dp
    shared_experts_stay_whole=True,  # config/parallel.py use_sequence_parallel_moe
    expert_flag="--enable-expert-parallel",
    long_requests="VLLM_ALLOW_LONG_MAX_MODEL_LEN=1",
    words={
        "mem_fraction_static": "gpu_memory_utilization",
        "chunked_prefill_size": "max_num_batched_tokens",
        "n_ctx": "max_model_len",
        "n_parallel": "max_num_seqs",
        "cache_type_k": "kv_cache_dtype",
    },
    classes="models/registry.py",
    others_since=(0, 7, 2),  # models/registry.py _FALLBACK_MODEL, since 0.8.3 _TRANSFORMERS_MODELS; 0.7.1 has none
    # each of 69 releases; of compressed-tensors in NVFP4 the schemes' files
    formats_since={
        "gptq": (0, 2, 6),
        "fp8": (0, 4, 1),
        "bitsandbytes": (0, 5),
        "compressed-tensors": (0, 5),
        "compressed-tensors nvfp4": (0, 9),
        "fbgemm_fp8": (0, 5, 3),
        "modelopt": (0, 6, 1),
        "modelopt nvfp4": (0, 8),
        "quark": (0, 7),
        "torchao": (0, 8, 4),
        "auto-round": (0, 9),
        "mxfp4": (0, 10, 1),
    },
    formats="layers/quantization",
    adapter_ranks=(8, 16, 32, 64, 128, 256, 320, 512),  # 0.26.0 config/lora.py MaxLoRARanks; 1 older ones do not take
    command_line=CommandLine(
        programs=("vllm",),
        example="vllm serve",
        modules=(
            "vllm.entrypoints.openai.api_server",
            "vllm.entrypoints.api_server",
            "vllm.entrypoints.cli.main",
        ),
        image=r"(?:vllm|aibrix|lmcache)/vllm-(?:openai|tpu)(?:-[a-z0-9]+)*(?::v?([0-9]+(?:\.[0-9]+)+))?",
        shortens_flags=True,
        subcommands=True,
        server=("vllm", "serve"),
        model_flag="--model",
        flags_file="--config",  # 0.33 utils/argparse_utils.py load_config_file
        negates_switches=True,
    ),
    # 0.33 entrypoints/llm.py: the usage context LLM_CLASS, whose batches of tokens are larger; engine/arg_utils.py
    script=Script(
        package="vllm",
        classes={"LLM": ("model",), "EngineArgs": ("model",), "AsyncEngineArgs": ("model",)},
        command=("vllm", "serve"),
        serve={"LLM": {"offline_inference": True}},
    ),
    # docs/deployment/k8s.md: /dev/shm in memory for tensor parallelism, the Hugging Face cache on a volume
    container=Container(image="vllm/vllm-openai", tag="latest", version_tag="v{}", port=8000),
    log=Log(
        signs=re.compile(
            r"LLM engine \(v|vLLM API server|[Mm]odel (?:loading|weights) took|KV cache size: "
            r"|Available KV cache memory|Graph capturing finished|Maximum concurrency for|# (?:GPU|cuda) blocks"
            r"|model weights take|GiB KV cache is needed|for peak activation|No available memory for the cache blocks"
        ),
        closes_its_budget=True,
    ),
    shortages=(
        Shortage(
            sign="on startup is less",
            cause="other programs hold memory that vLLM was told to take (gpu_memory_utilization)",
            changes=(
                ("end the other programs on the card (nvidia-smi)", "none"),
                ("a lower --gpu-memory-utilization", "a smaller KV cache"),
            ),
        ),
        Shortage(
            sign=r"warming up \w{1,20} with (\d{1,9}) dummy",
            cause=r"the logits of \1 requests, sampled at once to warm up, found no room beside the KV cache",
            changes=(
                ("a lower --max-num-seqs", "fewer requests at once"),
                ("a lower --gpu-memory-utilization", "a smaller KV cache"),
            ),
        ),
        Shortage(
            sign="No available memory for the cache blocks",
            cause="weights and the activations of the profile run take the whole share of the card "
            "(gpu_memory_utilization): nothing is left for the KV cache",
            changes=(
                _LARGER_SHARE,
                (
                    "quantized weights or a higher --tensor-parallel-size; fewer --max-num-batched-tokens, where "
                    "activations are large",
                    "some quality, more cards or slower prefills",
                ),
            ),
        ),
        Shortage(
            sign=r"(?:estimated maximum model length is |tokens that can be stored in KV cache \()(\d{1,9})\b",
            cause=_NO_ROOM_FOR_A_REQUEST,
            changes=((r"--max-model-len \1", "shorter requests"), _LARGER_SHARE),
        ),
        Shortage(
            cause=_NO_ROOM_FOR_A_REQUEST, changes=(("a lower --max-model-len", "shorter requests"), _LARGER_SHARE)
        ),
    ),
)
