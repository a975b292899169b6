"""What vLLM's own rules make of the bytes that are left for the cache: blocks, tokens, requests of full length."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any

_TOKENS = re.compile(r"KV cache size: ([\d,]+) tokens")
_REQUESTS = re.compile(r"Maximum concurrency for [\d,]+ tokens per request: ([\d.]+)x")
_PLANNERS = ("vllm.v1.core.kv_cache_planning", "vllm.v1.core.kv_cache_utils")
"""The rules' module, newest first (0.33; before)."""


class Printed:
    """In place of a module's logger: keeps what is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def info(self, text: str, *values: object, **others: object) -> None:
        self.lines.append(text % values if values else text)

    info_once = info

    def __getattr__(self, key: str) -> Any:
        if key.startswith("__"):
            raise AttributeError(key)
        return lambda *args, **kwargs: None


def cache_of(question: Mapping[str, Any]) -> Any:
    """For `profile_run`'s `after`: the cache of what is left of `pool_bytes`, or `cache_bytes` where they are given."""

    def told(config: object, runner: Any, charged_bytes: int) -> dict[str, Any]:
        given = question["cache_bytes"]
        left = given if given is not None else question["pool_bytes"] - charged_bytes
        specification = runner.get_kv_cache_spec()
        if not specification or left <= 0:
            return {"cache_bytes": max(0, left), "cache_blocks": 0}
        printed = Printed()
        try:
            blocks = _blocks(config, specification, left, printed)
        except ValueError as problem:
            return {"cache_bytes": left, "cache_blocks": 0, "cache_said": " ".join(str(problem).split())[:400]}
        return {"cache_bytes": left, "cache_blocks": blocks, **_figures(printed)}

    return told


def _figures(printed: Printed) -> dict[str, Any]:
    text = "\n".join(printed.lines)
    tokens, requests = _TOKENS.search(text), _REQUESTS.search(text)
    return {
        **({"cache_tokens": int(tokens[1].replace(",", ""))} if tokens else {}),
        **({"max_concurrency": float(requests[1])} if requests else {}),
    }


def _blocks(config: Any, specification: Any, left_bytes: int, printed: Printed) -> int:
    """Blocks of the cache, by the functions that vLLM's engine calls at its start (v1/engine/core.py)."""
    planner: Any = None
    for name in _PLANNERS:
        with suppress(ModuleNotFoundError):
            module: Any = import_module(name)
            module.logger = printed
            planner = planner or module
    if not hasattr(planner, "get_global_kv_cache_groups"):
        (made,) = planner.get_kv_cache_configs(config, [specification], [left_bytes])
        return int(made.num_blocks)
    core: Any = import_module("vllm.v1.core.single_type_kv_cache_manager")
    layouts: Any = import_module("vllm.v1.attention.backends.utils")
    core.register_all_kvcache_specs(config)
    used = import_module("vllm.v1.worker.worker_base").get_current_attn_backends(config)
    names = [layout.name for layout in layouts.get_supported_kv_cache_layouts(used)]
    layouts.resolve_kv_cache_layout(config, [names], list(specification.values()))
    groups = planner.get_global_kv_cache_groups(config, [specification])
    made = planner.get_kv_cache_configs(config, [specification], [left_bytes], groups)
    utils: Any = import_module("vllm.v1.core.kv_cache_utils")
    scheduled = utils.generate_scheduler_kv_cache_config(made)
    utils.update_kv_cache_capacity(config, scheduled)
    return int(scheduled.num_blocks)
