"""MLX: mlx-lm on Apple silicon, in memory that the GPU shares with the system.

Read in the wheels mlx-lm 0.32.2 (generate.py, server.py, utils.py, models/cache.py) and mlx 0.32.4.
"""

from __future__ import annotations

from vramwise.engines.engine import CommandLine, Engine

RECORD = Engine(
    name="mlx",
    title="MLX",
    serving="mlx",
    newest="0.32.2",
    lacks=("kv_cache_dtype",),
    fuses_layers=False,
    vendor="Apple",
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
    command_line=CommandLine(
        programs=("mlx_lm.generate", "mlx_lm.server", "mlx_lm.chat", "mlx_lm"),
        example="mlx_lm.server",
        modules=("mlx_lm.generate", "mlx_lm.server", "mlx_lm.chat", "mlx_lm"),
        shortens_flags=True,
    ),
)
