"""Which module estimates which engine."""

from __future__ import annotations

from typing import Final

MODULES: Final[dict[str, str]] = {
    "vllm": "vllm.estimate",
    "llama.cpp": "llama_cpp.estimate",
    "ollama": "llama_cpp.estimate",
}
"""`serve.engine` -> module of this package with `estimate(scenario, model, source, gpu)`."""
