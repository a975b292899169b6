"""The input of `aisimulate predict`, which simulates how long requests wait and take: of one server, or of servers of
prefill and of decode.

Fields: ai-dynamo/aisimulate docs/cli-design.md, docs/replay/workloads.md and docs/replay/engine (README, workers,
kv-cache, kv-transfer). The cache has as many blocks as the estimate says (`capacity: fixed`), in place of the
simulator's own account of memory. Systems: python/aisimulate/src/aiconfigurator_core/systems and the kernel-source
table of its documentation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from vramwise.engines import engine_named
from vramwise.errors import UsageError
from vramwise.hardware import find_gpu
from vramwise.interop.export.draft import Asked, Draft, File
from vramwise.interop.export.tools import TOOLS, draft_of, tool_named
from vramwise.models.operations.experts import ExpertMlps
from vramwise.result import Result
from vramwise.scenario import Scenario
from vramwise.utilization.throughput import GIGA

if TYPE_CHECKING:
    from vramwise.planner.apart import Apart, Servers

_SAID = frozenset({
    "engine", "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "expert_parallel",
    "max_model_len", "max_num_seqs", "max_num_batched_tokens", "block_size", "enable_prefix_caching",
    "gpu_memory_utilization", "mem_fraction_static", "kv_cache_memory_bytes",
})  # fmt: skip
"""Settings that have a field, or decide nothing but the number of blocks."""
_FP8 = frozenset({"fp8", "fp8_e4m3", "fp8_e5m2"})
_REQUESTS_OF_A_RUN = 1000


def write(asked: Asked) -> Draft:
    """The input of one server. Raises UsageError for a card that the simulator has no data of."""
    from vramwise.estimation import estimate

    scenario, result = asked.scenario, estimate(asked.scenario)
    _refuse_unequal(scenario)
    engine = {
        "mode": "aggregated", "model": asked.model, **_deployment(scenario, result),
        "context_length": int(result.scenario["serve"]["max_model_len"]),
        "workers": {"aggregated": _worker(scenario, result, 1)},
    }  # fmt: skip
    reader = next((tool for tool in TOOLS if tool.runs == (scenario.serve.engine,)), None)
    own = None if reader is None else draft_of(reader, asked)
    unsaid = ["traffic: the simulator's own 100 requests of 1,024 and 128 tokens, 10 at once: state yours"]
    unsaid += [f"{key}: only in the number of blocks" for key in sorted(_unsaid(scenario))]
    file = File(asked.path, _yaml({"engine": engine}), "the simulator's input")
    words = ("aisimulate", "predict", "--config", asked.path)
    if own is None:
        return Draft(words, (file,), unsaid=tuple(unsaid))
    return Draft(words, (file,), own.environment, tuple(unsaid), own.reads or own.words)


def apart_file(found: Apart, path: str) -> File:
    """The input of both kinds of servers under their load. Raises UsageError as `write` does."""
    prefill, decode, moved = found.prefill, found.decode, found.transfer
    assert prefill is not None
    assert decode is not None
    assert moved is not None
    load = found.traffic
    deployment = _deployment(prefill.scenario, prefill.result)
    workers = {one.role: _worker(one.scenario, one.result, one.replicas) for one in (prefill, decode)}
    other = _deployment(decode.scenario, decode.result)["hardware"]
    if other != deployment["hardware"]:
        workers[decode.role] = {"hardware": other, **workers[decode.role]}
    engine = {
        "mode": "disaggregated", "model": _hub_name(prefill), **deployment,
        "context_length": load.input_tokens + load.output_tokens,
        "workers": workers,
        "kv_transfer": {
            "bytes_per_token": -(-moved.bytes // load.input_tokens),
            "bandwidth_gb_per_second": round(moved.link_bytes_per_s / GIGA, 3),
        },
    }  # fmt: skip
    traffic = {
        "source": {"type": "synthetic", "input_tokens": load.input_tokens, "output_tokens": load.output_tokens},
        "load": {"type": "poisson", "requests_per_second": load.requests_per_second},
        "stop": {"requests": _REQUESTS_OF_A_RUN},
    }
    said = [f"{key}: only in the number of blocks" for key in sorted(_unsaid(prefill.scenario))]
    head = [f"the simulator's input, by vramwise; run: aisimulate predict --config {path}"]
    head += [f"not expressed: {line}" for line in said]
    text = "".join(f"# {line}\n" for line in head) + _yaml({"traffic": traffic, "engine": engine})
    return File(path, text, "the simulator's input")


def _deployment(scenario: Scenario, result: Result) -> dict[str, object]:
    """Card, backend and what the cache holds numbers in."""
    gpu = find_gpu(scenario.gpu).gpu if scenario.gpu is not None else None
    tool = tool_named("aisimulate")
    if gpu is None or gpu.id not in tool.cards:
        which = "a scenario without --gpu" if gpu is None else gpu.name
        raise UsageError(
            f"--export aisimulate: it has no measured kernels of {which}: expected one of {', '.join(tool.cards)}"
        )
    engine = engine_named(scenario.serve.engine)
    if engine.name not in tool.runs:
        titles = ", ".join(engine_named(name).title for name in tool.runs)
        raise UsageError(f"--export aisimulate: simulates {titles}, not {engine.title}")
    found: dict[str, object] = {"hardware": tool.cards[gpu.id], "backend": (*engine.rollout_names, engine.name)[0]}
    if result.scenario["serve"].get("kv_cache_dtype") in _FP8:
        found["kvcache_quant_mode"] = "fp8"
    return found


def _worker(scenario: Scenario, result: Result, replicas: int) -> dict[str, object]:
    table: Mapping[str, object] = result.scenario["serve"]
    serve = scenario.serve
    ranks = serve.tensor_parallel_size * serve.data_parallel_size
    parallelism: dict[str, object] = {
        "replicas": replicas, "tensor": serve.tensor_parallel_size, "pipeline": serve.pipeline_parallel_size,
        "attention_data": serve.data_parallel_size,
    }  # fmt: skip
    if _has_experts(scenario):
        parallelism["moe_expert" if serve.expert_parallel else "moe_tensor"] = ranks
    limits = {"max_batched_tokens": table.get("max_num_batched_tokens"), "max_sequences": table.get("max_num_seqs")}
    cache: dict[str, object] = {"block_size": table.get("block_size")}
    if isinstance(table.get("enable_prefix_caching"), bool):
        cache["prefix_caching"] = table["enable_prefix_caching"]
    blocks = result.quantities.get("kv_cache_blocks")
    if blocks is not None:
        cache["capacity"] = {"type": "fixed", "blocks": int(blocks.expected)}
    return {
        "parallelism": parallelism, "scheduler": {key: value for key, value in limits.items() if value},
        "kv_cache": {key: value for key, value in cache.items() if value is not None},
    }  # fmt: skip


def _has_experts(scenario: Scenario) -> bool:
    from vramwise.estimation import model_of

    return model_of(scenario)[1].has(ExpertMlps)


def _unsaid(scenario: Scenario) -> set[str]:
    """Stated settings without a field."""
    stated = set(scenario.serve.explicit) - _SAID
    if scenario.serve.kv_cache_dtype in (*_FP8, "auto"):
        stated.discard("kv_cache_dtype")
    return stated


def _refuse_unequal(scenario: Scenario) -> None:
    if scenario.gpus:
        raise UsageError("--export aisimulate: simulates equal cards, and --gpus names several kinds")


def _hub_name(servers: Servers) -> str:
    name = str(servers.scenario.model)
    return servers.result.model.id if "/" not in name and "/" in servers.result.model.id else name


def _yaml(document: Mapping[str, object]) -> str:
    import yaml

    return str(yaml.safe_dump(document, sort_keys=False, width=120))
