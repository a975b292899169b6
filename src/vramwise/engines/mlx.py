"""MLX: mlx-lm on Apple silicon, in memory that the GPU shares with the system.

Read in the wheels mlx-lm 0.32.2 (generate.py, server.py, utils.py, models/cache.py) and mlx 0.32.4.
"""

from __future__ import annotations

import re

from vramwise.engines.engine import CommandLine, Engine, Script, Shortage

RECORD = Engine(
    name="mlx",
    title="MLX",
    serving="mlx",
    newest="0.32.2",
    lacks=("kv_cache_dtype",),
    fuses_layers=False,
    vendor="Apple",
    model_names=re.compile(r"(?:mlx-community/.+|.+-mlx(?:-[2-8]-?bit)?)", re.I),
    cache_dtypes=("auto",),
    own_formats=tuple(f"mlx-{bits}bit" for bits in (2, 3, 4, 5, 6, 8)),
    narrower_weights=("mlx-8bit", "mlx-4bit"),
    words={
        "kv_cache_dtype": "kv_bits",
        "n_ctx": "max_model_len",
        "chunked_prefill_size": "prefill_step_size",
        "max_num_batched_tokens": "prefill_step_size",
        "n_parallel": "max_num_seqs",
        "cache_type_k": "kv_bits",
        "cache_type_v": "kv_bits",
    },
    # mlx-lm 0.32.2 utils.py load
    script=Script(
        package="mlx_lm",
        classes={"load": ("path_or_hf_repo",)},
        command=("mlx_lm.generate",),
        renamed={"path_or_hf_repo": "model"},
    ),
    command_line=CommandLine(
        programs=("mlx_lm.generate", "mlx_lm.server", "mlx_lm.chat", "mlx_lm"),
        example="mlx_lm.server",
        modules=("mlx_lm.generate", "mlx_lm.server", "mlx_lm.chat", "mlx_lm"),
        shortens_flags=True,
    ),
    shortages=(
        # mlx/backend/metal/allocator.cpp MetalAllocator::malloc: MTLDevice.maxBufferLength, whatever is free
        Shortage(
            sign="maximum allowed buffer size",
            cause="one array is larger than Metal lets any buffer be, however much memory is free",
            changes=(
                ("a shorter prompt, or fewer tokens of it at once (--prefill-step-size)", "slower prompts"),
                ("a smaller batch", "some speed"),
            ),
        ),
        Shortage(
            sign=r"\[metal::malloc\] Resource limit",
            cause="more arrays are alive than Metal keeps track of",
            changes=(
                ("mx.eval after each step, so that no long graph is kept", "none"),
                ("mx.clear_cache(), or a smaller mx.set_cache_limit", "some speed"),
            ),
        ),
        Shortage(
            cause="weights, cache and temporaries need more than macOS lets the GPU keep wired (iogpu.wired_limit_mb)",
            changes=(
                ("fewer bits of weights, a shorter context, or --kv-bits 8", "some quality"),
                ("sudo sysctl iogpu.wired_limit_mb=N: a larger share", "less for macOS and other programs"),
            ),
        ),
    ),
)
