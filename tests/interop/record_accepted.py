"""Holds exports against the parsers of the tools themselves, and records what they took.

    PYTHONPATH=src PYTHON-WITH-THE-TOOL tests/interop/record_accepted.py TOOL

writes the rows of one tool into tests/golden/accepted_exports.jsonl: the scenario, what was written for it, and the
version of the tool whose parser took it. test_accepted_exports.py holds that the same is written today. Nothing is
trained or loaded; each tool needs an environment of its own. llama-server's is
benchmarks/oracles/llama_cpp/parser.sh's program: LLAMA_SERVER_PARSER names it, LLAMA_SERVER_BUILD the commit.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

import vramwise
from vramwise.interop.export import Export
from vramwise.interop.export.tools import tool_named
from vramwise.interop.launch import read_command

GOLDEN = Path(__file__).parents[1] / "golden" / "accepted_exports.jsonl"
_ADAPTERS = {"method": "lora", "lora_rank": 16, "checkpointing": "full", "lora_dropout": 0.05}
_QUANTIZED = {"method": "qlora", "quantization": "nf4-dq", "lora_rank": 32}
_TRAIN: tuple[tuple[int, dict[str, Any]], ...] = (
    (1, _ADAPTERS),
    (1, {**_QUANTIZED, "micro_batch_size": 4, "gradient_accumulation_steps": 2}),
    (4, {"optimizer": "adamw-8bit", "clip_grad_norm": True, "checkpointing": "full"}),
    (8, {"fsdp": "full-shard", "fsdp_version": 2, "offload_params": "cpu", "offload_optimizer": "cpu"}),
)
_ZERO = (4, {"zero_stage": 3, "precision": "bf16-master", "offload_optimizer": "cpu"})
_SERVE: tuple[dict[str, Any], ...] = (
    {"max_model_len": 4096},
    {"tensor_parallel_size": 2, "kv_cache_dtype": "fp8_e4m3", "dtype": "bf16"},
)
_OF_VLLM = (
    {"gpu_memory_utilization": 0.8, "max_num_seqs": 64, "max_num_batched_tokens": 4096, "enforce_eager": True},
    {"max_loras": 2, "max_lora_rank": 32, "speculative": {"method": "ngram", "num_tokens": 3}},
)
_OF_LLAMA_SERVER: tuple[tuple[int | None, dict[str, Any]], ...] = (
    (None, {"n_ctx": 8192, "n_gpu_layers": 20, "cache_type_k": "q8_0", "cache_type_v": "q8_0", "flash_attn": True}),
    (None, {"n_batch": 1024, "n_ubatch": 256, "n_parallel": 4, "kv_unified": False, "flash_attn": False, "fit": False}),
    (2, {"tensor_split": [3, 1], "split_mode": "layer", "main_gpu": 0, "swa_full": True, "no_kv_offload": True}),
    (2, {"override_tensor": ["ffn_.*_exps=CPU", "blk.1.ffn=CUDA0"], "mmproj_offload": False}),
    (0, {"n_ctx": 4096, "kv_unified": True, "n_cpu_moe": 4}),
    (1, {"speculative": {"method": "draft", "model": "Qwen/Qwen2.5-0.5B-Instruct", "num_tokens": 4}}),
)
_OF_SGLANG = ({"mem_fraction_static": 0.8, "chunked_prefill_size": 4096, "cuda_graph_max_bs": 32},)


def scenarios(tool: str) -> list[dict[str, Any]]:
    """What is written for a tool."""
    if tool in ("vllm", "sglang"):
        settings = (*_SERVE, *(_OF_VLLM if tool == "vllm" else _OF_SGLANG))
        return [{"model": "Qwen/Qwen2.5-7B-Instruct", "task": "serve", "serve": {"engine": tool, **one}}
                for one in settings]  # fmt: skip
    if tool == "llama-server":
        return [
            {"model": "Qwen/Qwen2.5-7B-Instruct", "task": "serve", **({} if gpus is None else {"num_gpus": gpus}),
             "serve": {"engine": "llama.cpp", "gguf_quant": "Q4_K_M", **one}} for gpus, one in _OF_LLAMA_SERVER
        ]  # fmt: skip
    runs = [_ZERO] if tool == "deepspeed" else [*_TRAIN, *([] if tool == "torchtune" else [_ZERO])]
    return [
        {"model": "Qwen/Qwen2.5-7B-Instruct", "task": "train", "num_gpus": gpus,
         "train": {"sequence_length": 1024, **train}} for gpus, train in runs
    ]  # fmt: skip


def row_of(tool: str, scenario: dict[str, Any], version_: str) -> dict[str, Any]:
    """What is kept of an export."""
    export = vramwise.export(scenario, tool)
    files = {file.path: file.text for file in export.files}
    return {"tool": tool, "version": version_, "scenario": scenario, "command": export.command, "files": files}


def _of_vllm(export: Export) -> None:
    platforms = import_module("vllm.platforms")
    platforms._current_platform = import_module("vllm.platforms.cpu").CpuPlatform()  # no GPU here to be found
    parser = import_module("vllm.utils.argparse_utils").FlexibleArgumentParser()
    import_module("vllm.engine.arg_utils").AsyncEngineArgs.add_cli_args(parser)
    words = shlex.split(export.command)
    parser.parse_args(["--model", *words[2:]])


def _of_sglang(export: Export) -> None:
    words = shlex.split(export.command)
    parser = argparse.ArgumentParser()
    import_module("sglang.srt.server_args").ServerArgs.add_cli_args(parser)
    parser.parse_args(words[next(place for place, word in enumerate(words) if word.startswith("--")) :])


def _of_llama_server(export: Export) -> None:
    words = [os.environ["LLAMA_SERVER_PARSER"], *shlex.split(export.command)[1:]]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr + done.stdout
    found = dict(line.partition("=")[::2] for line in done.stdout.splitlines() if "=" in line)
    stated = {key: value for key, value in _serve_of(export).items() if key in found}
    assert stated, found
    for key, value in stated.items():
        many = (
            str(len(value))
            if key == "override_tensor"
            else ",".join(f"{one:g}" for one in value)
            if isinstance(value, list)
            else None
        )
        assert found[key] == (many or str(int(value) if isinstance(value, bool) else value)), (key, value, found[key])


def _serve_of(export: Export) -> dict[str, Any]:
    """What the command says when it is read back; a mode's number is llama.cpp's own."""
    table = dict(read_command(shlex.split(export.command)).scenario["serve"])  # type: ignore[call-overload]
    table["split_mode"] = {"none": 0, "layer": 1, "row": 2}.get(str(table.get("split_mode")), 1)
    return table


def _of_torchtune(export: Export) -> None:
    root = Path(str(import_module("torchtune").__file__)).parents[1] / "recipes"
    registry = import_module("torchtune._recipe_registry")
    words = shlex.split(export.command)
    place = words.index("--config")
    [recipe] = [one for one in registry.get_all_recipes() if one.name == words[place - 1]]
    assert recipe.supports_distributed is ("--nproc_per_node" in words)
    [file] = {
        config.file_path
        for one in registry.get_all_recipes()
        for config in one.configs
        if config.name == words[place + 1]
    }
    parser = import_module("torchtune.config._parse").TuneRecipeArgumentParser()
    told = parser.parse_known_args(["--config", str(root / "configs" / file), *words[place + 2 :]])
    config = import_module("torchtune.config._utils")._merge_yaml_and_cli_args(*told)
    import_module("torchtune.config").validate(config)


def _of_deepspeed(export: Export) -> None:
    table = json.loads(export.text)
    for name in ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size"):
        table.pop(name, None)  # transformers writes them where they are "auto"
    numbers = {"reduce_bucket_size": 1, "stage3_prefetch_bucket_size": 1, "stage3_param_persistence_threshold": 1}
    zero = table.get("zero_optimization", {})
    zero.update({key: value for key, value in numbers.items() if zero.get(key) == "auto"})
    table = {key: value for key, value in table.items() if value != "auto"}
    for part in ("bf16", "fp16"):
        if isinstance(table.get(part), dict) and table[part].get("enabled") == "auto":
            table[part]["enabled"] = part == "bf16"
    import_module("deepspeed.runtime.config").DeepSpeedConfig({**table, "train_micro_batch_size_per_gpu": 1})


def _of_trl(export: Export) -> None:
    trl = import_module("trl")
    parser = trl.TrlParser((trl.ScriptArguments, trl.SFTConfig, trl.ModelConfig))
    os.environ["ACCELERATE_USE_CPU"] = "1"
    left = parser.parse_args_and_config(
        ["--config", export.files[0].path, "--use_cpu", "--bf16", "False"], return_remaining_strings=True
    )[-1]
    assert not left, left


def _of_llamafactory(export: Export) -> None:
    classes = import_module("llamafactory.hparams.parser")._TRAIN_ARGS
    parser = import_module("transformers").HfArgumentParser(classes)
    table = yaml.safe_load(export.text)
    parser.parse_dict({**table, "bf16": False, "use_cpu": True, "deepspeed": None}, allow_extra_keys=False)


def _of_axolotl(export: Export) -> None:
    known = import_module("axolotl.utils.schemas.config").AxolotlInputConfig
    table = yaml.safe_load(export.text)
    found = known(**table)
    assert not set(table) - set(type(found).model_fields), set(table) - set(type(found).model_fields)


_PARSERS: dict[str, tuple[str, Callable[[Export], None]]] = {
    "vllm": ("vllm", _of_vllm), "sglang": ("sglang", _of_sglang), "torchtune": ("torchtune", _of_torchtune),
    "deepspeed": ("deepspeed", _of_deepspeed), "trl": ("trl", _of_trl),
    "llama-server": ("llama-server", _of_llama_server),
    "llamafactory": ("llamafactory", _of_llamafactory), "axolotl": ("axolotl", _of_axolotl),
}  # fmt: skip


def main(tool: str) -> None:
    """Record the rows of a tool, all of which its parser has to take."""
    package, accept = _PARSERS[tool]
    try:
        newest = os.environ.get("LLAMA_SERVER_BUILD") if tool == "llama-server" else version(package)
    except ImportError:  # a source tree on the path
        newest = str(import_module(package).__version__)
    rows = []
    for scenario in scenarios(tool):
        with tempfile.TemporaryDirectory() as folder:
            export = vramwise.export(scenario, tool, os.path.join(folder, tool_named(tool).file))
            for file in export.files:
                Path(file.path).write_text(file.text)
            accept(export)
        rows.append(row_of(tool, scenario, newest))
    kept = [json.loads(line) for line in GOLDEN.read_text().splitlines()] if GOLDEN.exists() else []
    rows = sorted([row for row in kept if row["tool"] != tool] + rows, key=lambda row: str(row["tool"]))
    GOLDEN.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main(sys.argv[1])
