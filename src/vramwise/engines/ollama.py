"""ollama: runs llama.cpp (until 0.30 runners of its own), with a context, a batch and slots of its own choice."""

from __future__ import annotations

import re

from vramwise.engines.engine import CommandLine, Engine, Shortage
from vramwise.engines.llama_cpp import PHASES, WORDS

RECORD = Engine(
    name="ollama",
    title="ollama",
    serving="llama_cpp",
    runs="llama.cpp",
    dated=(("0.30.0", "2026-05-29"),),
    phases=PHASES,
    # a tag that ends in a type of files: qwen3:30b-a3b-q4_K_M, gemma3:12b-it-qat
    model_names=re.compile(r"[\w.-]+:(?:[\w.-]+-)?(?:i?q\d(?:_\w+)?|fp16|bf16|f16|mxfp4|nvfp4|qat)", re.I),
    reads_gguf=True,
    takes_any_adapter_rank=True,  # src/llama-adapter.cpp: an adapter's own tensors
    divides_by_room=True,
    runs_on_cpu=True,
    words=WORDS,
    command_line=CommandLine(programs=("ollama",), example="ollama run", subcommands=True, variables="OLLAMA_"),
    shortages=(
        # server/sched.go: what the model needs beyond the cards, against free memory and swap
        Shortage(
            sign="requires more system memory",
            cause="what of the model does not go to a card is more than the machine has free, swap included",
            changes=(
                ("a smaller model or quantization, or a shorter num_ctx (OLLAMA_CONTEXT_LENGTH)", "some quality"),
                ("end other programs, or more memory for the container or WSL (.wslconfig memory=)", "none"),
            ),
        ),
        Shortage(
            cause="the runner found the card full after ollama had reckoned that the layers fit",
            changes=(
                ("fewer layers on the card (num_gpu), or room kept free (OLLAMA_GPU_OVERHEAD)", "slower"),
                ("OLLAMA_FLASH_ATTENTION=1 with OLLAMA_KV_CACHE_TYPE=q8_0, or a shorter num_ctx", "shorter texts"),
            ),
        ),
    ),
)
