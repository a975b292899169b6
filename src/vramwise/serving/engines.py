"""Which module estimates which engine."""

from __future__ import annotations

from typing import Final

MODULES: Final[dict[str, str]] = {
    "vllm": "vllm.estimate",
    "sglang": "sglang",
    "llama.cpp": "llama_cpp.estimate",
    "tensorrt-llm": "tensorrt_llm",
    "tgi": "tgi",
    "ollama": "llama_cpp.estimate",
    "transformers": "transformers_server",
}
"""`serve.engine` -> module of this package with `estimate(scenario, model, source, gpu)`."""
