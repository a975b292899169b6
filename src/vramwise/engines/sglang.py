"""SGLang: weights and KV cache fill a share of the card; what runs must find room beside it."""

from __future__ import annotations

import re

from vramwise.engines.engine import CommandLine, Container, Engine, Log, Script, Shortage

RECORD = Engine(
    name="sglang",
    takes_any_adapter_rank=True,  # 0.5.23 lora/mem_pool.py: buffers of max_lora_rank
    title="SGLang",
    classes="srt/models",
    others_since=(0, 4, 6),  # srt/models/transformers.py of 0.4.7; 0.4.6 has none, its posts were not read
    # each of 100 releases; of compressed-tensors in NVFP4 the schemes' files
    formats_since={
        "modelopt": (0, 4, 1),
        "modelopt nvfp4": (0, 4, 5),
        "mxfp4": (0, 5),
        "quark": (0, 5),
        "auto-round": (0, 5, 4),
        "compressed-tensors nvfp4": (0, 5, 7),
    },
    formats="srt/layers/quantization",
    serving="sglang",
    newest="0.5.23",
    memory_share="mem_fraction_static",
    cache_dtypes=("auto", "bf16", "fp8_e4m3", "fp8_e5m2"),
    vocab_multiple=64,  # DEFAULT_VOCAB_PADDING_SIZE of vocab_parallel_embedding.py
    last_stages_take_more=True,  # distributed/utils.py get_pp_indices
    expert_flag="--ep-size",
    # configs/model_config.py _derive_context_length; 0.4.6 let it pass with a warning, 0.5.3 to 0.5.23 do not
    long_requests="SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1",
    words={
        "gpu_memory_utilization": "mem_fraction_static",
        "n_ctx": "max_model_len",
        "n_parallel": "max_num_seqs",
        "cache_type_k": "kv_cache_dtype",
    },
    command_line=CommandLine(
        programs=("sglang",),
        example="python -m sglang.launch_server",
        modules=(
            "sglang.launch_server",
            "sglang_router.launch_server",  # the same server behind a router, whose flags begin with --router
            "sglang.srt.entrypoints.http_server",
            "sglang.bench_offline_throughput",  # these two take the server's flags beside their own
            "sglang.bench_one_batch",
        ),
        image=r"lmsysorg/sglang(?::v?([0-9]+(?:\.[0-9]+)*))?",
        shortens_flags=True,
        subcommands=True,
        server=("python3", "-m", "sglang.launch_server"),
        model_flag="--model-path",
        flags_file="--config",  # 0.5.23 srt/server_args_config_parser.py
    ),
    # 0.5.23 srt/entrypoints/engine.py
    script=Script(
        package="sglang",
        classes={"Engine": ("model_path",), "Runtime": ("model_path",)},
        command=("python3", "-m", "sglang.launch_server"),
        aliases=("sgl",),
    ),
    # docs/get_started/install.md
    container=Container(image="lmsysorg/sglang", tag="latest", version_tag="v{}", port=30000),
    log=Log(
        signs=re.compile(
            r"server_args=|Load weight (?:begin|end)|KV Cache is allocated|max_total_num_tokens=|Memory pool end"
            r"|[Cc]uda graph (?:begin|end)|CUDA graph end"
        )
    ),
    shortages=(
        # managers/schedule_batch.py prepare_for_extend, check_decode_mem: the pool of tokens, not the card, is full
        Shortage(
            sign=r"(?:Prefill|Decode) out of memory\. Try to lower your batch size",
            cause="the KV cache has no free token slots left for the requests that run: the pool is full, not the card",
            changes=(
                ("fewer requests at once (--max-running-requests), or shorter ones", "fewer requests at once"),
                (
                    "a higher --mem-fraction-static, or --kv-cache-dtype fp8_e4m3: a larger pool",
                    "less room for activations, or some quality",
                ),
            ),
        ),
        # model_executor/pool_configurator.py: free after loading − (1 − mem_fraction_static) × free before it
        Shortage(
            cause="weights fill the share that SGLang may take (mem_fraction_static of what was free before loading): "
            "nothing is left for the KV cache",
            changes=(
                ("a higher --mem-fraction-static", "less room for activations and CUDA graphs"),
                ("quantized weights (--quantization fp8) or a higher --tp-size", "some quality, or more cards"),
            ),
        ),
    ),
)
