"""prime-rl's files by the part that they are for, and the command line of vLLM that its inference server is.

Read in prime-rl 0.8.1 (559b44772) configs/inference.py and rl.py: `[inference.vllm]` holds vLLM's own arguments, a
server's data-parallel ranks fill the GPUs that it has, adapters' rank is the trainer's rounded up to one of vLLM's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from vramwise.errors import UsageError

_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
_LORAS, _EACH, _SHARE = 8, 8, 0.9
_OLDER = {"tp": "tensor_parallel_size", "dp": "data_parallel_size"}
_OF_ITS_OWN = frozenset({"model", "tool_call_parser", "reasoning_parser", "api_server_count", "data_parallel_rpc_port",
                         "data_parallel_size_local", "seed", "enable_lora", "max_loras", "max_lora_rank",
                         "max_cpu_loras"})  # fmt: skip
_SFT = ("batch_size", "seq_len", "micro_batch_size", "name", "type")

Table = Mapping[str, object]


def part_of(table: Table) -> str:
    """Which of prime-rl's programs a file is for: `rl`, `sft`, `trainer`, `inference`, `orchestrator`; "" for none."""
    if isinstance(table.get("orchestrator"), Mapping) or isinstance(table.get("trainer"), Mapping):
        return "rl"
    model, data = table.get("model"), table.get("data")
    named = isinstance(model, Mapping) and isinstance(model.get("name"), str) and "flavor" not in model
    if isinstance(data, Mapping) and any(key in data for key in _SFT):
        return "sft" if named else ""
    if isinstance(table.get("vllm"), Mapping) or isinstance(table.get("inference"), Mapping):
        return "inference"
    if named and ("group_size" in table or isinstance(table.get("train"), Mapping)):
        return "orchestrator"
    of_trainer = ("optim", "scheduler", "weight_broadcast", "ckpt", "monitors", "loss", "max_steps")
    return "trainer" if named and any(key in table for key in of_trainer) else ""


def has_server(table: Table) -> bool:
    """Whether a file starts an inference server."""
    return isinstance(table.get("inference"), Mapping) or part_of(table) == "inference"


def server_words(table: Table) -> list[str]:
    """`vllm serve MODEL …` of the inference server. Raises UsageError where nothing names its model."""
    inner = table.get("inference")
    own = inner if isinstance(inner, Mapping) else table
    vllm = {**_older(own), **_table(own.get("vllm"))}
    model = vllm.get("model") or _table(table.get("model")).get("name") or _table(own.get("model")).get("name")
    if not isinstance(model, str):
        raise UsageError('prime-rl: nothing names the inference server\'s model: expected name = "MODEL" in [model]')
    vllm.setdefault("gpu_memory_utilization", _SHARE)
    words = ["vllm", "serve", model]
    for key, value in vllm.items():
        if key not in _OF_ITS_OWN and key != "data_parallel_size":
            words += _flag(key, value)
    ranks = _ranks(table, own, vllm)
    words += [f"--data-parallel-size={ranks}"] if ranks > 1 else []
    return words + _adapters(table, vllm)


def _older(own: Table) -> dict[str, object]:
    """`[inference.model]` and `[inference.parallel]`, as files before 0.7 have them."""
    model = {key: value for key, value in _table(own.get("model")).items() if key != "name"}
    return {**model, **{_OLDER[key]: value for key, value in _table(own.get("parallel")).items() if key in _OLDER}}


def _flag(key: str, value: object) -> list[str]:
    flag = f"--{key.replace('_', '-')}"
    if value is None or str(value).lower() in ("none", "null"):
        return []
    if isinstance(value, bool):
        return [flag] if value else []
    return [f"{flag}={json.dumps(value) if isinstance(value, Mapping | list) else value}"]


def _ranks(table: Table, own: Table, vllm: Table) -> int:
    """Data-parallel ranks: those that are stated, else as many as fill the server's GPUs (auto_setup_deployment)."""
    stated, tensor = _whole(vllm.get("data_parallel_size")), _whole(vllm.get("tensor_parallel_size")) or 1
    deployment = _table(table.get("deployment"))
    if own is table or (stated or 1) > 1:
        return stated or 1
    if deployment.get("type") == "multi_node":
        each = _whole(deployment.get("gpus_per_node")) or _EACH
    else:
        each = _whole(deployment.get("num_infer_gpus")) or _whole(deployment.get("num_eval_gpus")) or 1
    return max(1, each // tensor)


def _adapters(table: Table, vllm: Table) -> list[str]:
    trained = _table(_table(_table(table.get("trainer")).get("model")).get("lora"))
    trains = "lora" in _table(_table(table.get("trainer")).get("model"))
    if not trains and vllm.get("enable_lora") is not True:
        return []
    rank = (_whole(trained.get("rank")) or 16) if trains else _whole(vllm.get("max_lora_rank")) or 16
    rounded = next((one for one in _RANKS if one >= rank), rank)
    count = _whole(vllm.get("max_loras")) or _LORAS
    return ["--enable-lora", f"--max-loras={count}", f"--max-lora-rank={rounded}"]


def _table(value: object) -> Table:
    return value if isinstance(value, Mapping) else {}


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
