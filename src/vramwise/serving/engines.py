"""Which module estimates which engine."""

from __future__ import annotations

from typing import Final

MODULES: Final[dict[str, str]] = {
    "vllm": "vllm.estimate",
}
"""`serve.engine` -> module of this package with `estimate(scenario, model, source, gpu)`."""
