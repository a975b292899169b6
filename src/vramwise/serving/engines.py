"""Which module estimates which engine."""

from __future__ import annotations

from typing import Final

MODULES: Final[dict[str, str]] = {
    "vllm": "vllm.estimate",
    "sglang": "sglang.estimate",
    "llama.cpp": "llama_cpp.estimate",
    "tensorrt-llm": "tensorrt_llm.estimate",
    "tgi": "tgi.estimate",
    "ollama": "llama_cpp.estimate",
    "transformers": "transformers.server",
}
"""`serve.engine` -> module of this package with `estimate(scenario, model, source, gpu)`."""
