"""`torchrun … -m torchtitan.train --job.config_file FILE`, `--module NAME --config NAME`, `run_train.sh`.

Read in torchtitan 0.2.2 (config/job_config.py, train_configs/*.toml) and b5bcd76c6 (config_registry.py of each model,
config/configs.py). torchtitan.csv holds what the configurations that it ships say about memory, under both names.
Weights are fp32 and cast by FSDP; a batch is one replica's; `data_parallel_shard_degree` -1 is all that is left.
"""

from __future__ import annotations

from functools import cache
from math import prod
from pathlib import Path

from vramwise.errors import SourceError, UsageError, clipped, nearest
from vramwise.interop.beside import file_table
from vramwise.interop.launch.command import Launch, Start, launched
from vramwise.interop.launch.launchers import Launcher, torchrun_gpus
from vramwise.interop.launch.options import Options, flattened
from vramwise.tables import table

_MODELS = {  # models/*/__init__.py: flavours of each model, by the checkpoints that they are made for
    "llama2": {
        "7B": "meta-llama/Llama-2-7b-hf",
        "13B": "meta-llama/Llama-2-13b-hf",
        "70B": "meta-llama/Llama-2-70b-hf",
    },
    "llama3": {"8B": "meta-llama/Llama-3.1-8B", "70B": "meta-llama/Llama-3.1-70B", "405B": "meta-llama/Llama-3.1-405B"},
    "llama4": {"17bx16e": "meta-llama/Llama-4-Scout-17B-16E", "17bx128e": "meta-llama/Llama-4-Maverick-17B-128E"},
    "deepseek_v3": {"16B": "deepseek-ai/DeepSeek-V2-Lite", "671B": "deepseek-ai/DeepSeek-V3"},
    "gpt_oss": {"20b": "openai/gpt-oss-20b", "120b": "openai/gpt-oss-120b"},
}
# b5bcd76c6 models/llama3/__init__.py, models/qwen3/__init__.py: what run_train.sh and its tests train
_SMALL: dict[str, dict[str, object]] = {
    "llama3": {
        "model_type": "llama", "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 6,
        "num_attention_heads": 16, "vocab_size": 2048, "max_position_embeddings": 131_072, "tie_word_embeddings": False,
    },
    "qwen3": {
        "model_type": "qwen3", "hidden_size": 256, "intermediate_size": 3072, "num_hidden_layers": 8,
        "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 2048,
        "max_position_embeddings": 4096, "tie_word_embeddings": True,
    },
}  # fmt: skip
_DEBUG = ("debugmodel", "debugmodel_flex_attn", "debugmodel_varlen_attn")
_SCHEDULE = ("parallelism.pipeline_parallel_schedule", "experimental.pipeline_parallel_schedule")
_SCHEDULES = {"1f1b": "1f1b", "interleaved1f1b": "interleaved-1f1b", "gpipe": "gpipe", "interleavedzerobubble":
              "zero-bubble", "zbvzerobubble": "zero-bubble"}  # fmt: skip
_OPTIMIZERS = {"adamw": "adamw", "adam": "adamw", "muon": "muon", "distmuon": "muon"}
_BATCH, _LENGTH, _GPUS = 8, 2048, 8
_TENSOR = ("parallelism.tensor_parallel_degree", "training.tensor_parallel_degree")
_PIPELINE = ("parallelism.pipeline_parallel_degree", "experimental.pipeline_parallel_degree",
             "training.pipeline_parallel_degree")  # fmt: skip
_FLOAT8_RECIPE = ("quantize.linear.float8.recipe_name", "float8.recipe_name")
_FLOAT8_GATHER = ("quantize.linear.float8.enable_fsdp_float8_all_gather", "float8.enable_fsdp_float8_all_gather")
_CONTEXT = ("parallelism.context_parallel_degree", "experimental.context_parallel_degree")
_SHARD = ("parallelism.data_parallel_shard_degree", "training.data_parallel_shard_degree",
          "training.data_parallel_degree")  # fmt: skip
_REPLICATE = ("parallelism.data_parallel_replicate_degree", "training.data_parallel_replicate_degree")


def read(start: Start) -> Launch:
    """The scenario of a torchtitan command. Raises UsageError or SourceError for what cannot be read."""
    options = Options(("torchtitan",), "torchtitan")
    options.read_words(start.words)
    environment = start.environment
    named = options.first("job.config_file") or environment.get("CONFIG_FILE")
    module, config = options.first("module") or environment.get("MODULE"), options.first("config") or environment.get(
        "CONFIG")  # fmt: skip
    if named:
        options.read_table(_of_file(named))
    elif config:
        options.read_table(_shipped(config, module))
    model = _model(options)
    gpus, each = _gpus(start)
    train, notes = _training(options, gpus)
    launcher = Launcher(gpus, each)
    scenario = {"model": model, "task": "train", **launcher.table(), "train": train}
    return launched("torchtitan", scenario, (*notes, *options.notes(), *launcher.said()), options)


def _gpus(start: Start) -> tuple[int | None, int | None]:
    """torchrun's, or run_train.sh's NGPU (8 unless told otherwise)."""
    if start.program == "run_train.sh":
        text = start.environment.get("NGPU", str(_GPUS))
        each = int(text) if text.isdecimal() and len(text) < 6 else _GPUS
        return each, each
    each, nodes = torchrun_gpus(start.before, start.environment)
    return each * nodes or None, each or None


@cache
def shipped() -> dict[str, dict[str, str]]:
    """What torchtitan's own configurations say, by name."""
    return {row["config"]: {key: value for key, value in row.items() if value and key != "config"}
            for row in table(__file__)}  # fmt: skip


def _of_file(path: str) -> dict[str, object]:
    """A TOML file's entries, or those of the file that torchtitan ships under its name."""
    name = Path(path).name
    if not Path(path).exists() and name in shipped():
        return dict(shipped()[name])
    return dict(flattened(file_table(path)))


def _shipped(config: str, module: str | None) -> dict[str, object]:
    if config not in shipped() or config.endswith(".toml"):
        close = ", ".join(nearest(config, [name for name in shipped() if not name.endswith(".toml")])) or "a file"
        raise SourceError(f"torchtitan's configuration {clipped(config)} is not known here: did you mean {close}?")
    return dict(shipped()[config])


def _model(options: Options) -> object:
    """The checkpoint that a flavour is made for, or the one whose files are named."""
    from vramwise.sources import model_elsewhere

    assets = options.first("model.hf_assets_path", "model.tokenizer_path", "hf_assets_path")
    name, flavor = options.first("model.name") or "llama3", options.first("model.flavor") or ""
    family = _MODELS.get(name, {})
    found = options.first("hf_transformers.model") if name == "transformers_modeling_backend" else family.get(flavor)
    if name in _SMALL and flavor in _DEBUG:
        return dict(_SMALL[name])
    if name.startswith("qwen3") and flavor:
        found = f"Qwen/{'Qwen3.5' if name == 'qwen3_5' else 'Qwen3'}-{flavor}"
    if found is None and assets:
        here = model_elsewhere(assets)
        found = here[0] if here else None
    if found is None:
        known = ", ".join(f"{one} {size}" for one, sizes in _MODELS.items() for size in sizes)
        raise UsageError(f"torchtitan: model {clipped(name)} {clipped(flavor)} has no checkpoint known here: "
                         f"expected {known}, a Qwen3, or MODEL beside the file")  # fmt: skip
    return found


def _training(options: Options, gpus: int | None) -> tuple[dict[str, object], list[str]]:
    notes: list[str] = []
    batch = options.number("training.local_batch_size", "training.batch_size") or _BATCH
    degrees = {"tensor_parallel_size": options.number(*_TENSOR), "pipeline_parallel_size": options.number(*_PIPELINE),
               "context_parallel_size": options.number(*_CONTEXT)}  # fmt: skip
    cut = {key: value for key, value in degrees.items() if value and value > 1}
    train: dict[str, object] = {
        "framework": "torchtitan", "micro_batch_size": batch,
        "sequence_length": options.number("training.seq_len", "training.max_context_length") or _LENGTH,
        "precision": "bf16-mixed", "param_dtype": "fp32", **cut, **_sharding(options, gpus, prod(cut.values())),
        **_checkpointing(options, notes), **_optimizer(options, notes),
    }  # fmt: skip
    if options.first("training.dtype") == "bfloat16":
        train |= {"precision": "bf16", "param_dtype": "bf16"}
    elif options.first("training.mixed_precision_param") == "float32":
        train["precision"] = "fp32"
    train |= _pipeline(options, batch, "pipeline_parallel_size" in cut)
    for name in ("expert_parallel_degree", "expert_tensor_parallel_degree"):
        count = options.number(f"parallelism.{name}")
        if count and (count > 1 or name == "expert_tensor_parallel_degree"):
            train[name.replace("_degree", "_size")] = count
    if "expert_parallel_size" not in train:
        train.pop("expert_tensor_parallel_size", None)
    if options.is_on("compile.enable", "training.compile"):
        train["compile"] = True
    if _is_float8(options):
        recipe = options.first(*_FLOAT8_RECIPE) or "tensorwise"
        train |= {"precision": "fp8-mixed", "fp8_recipe": "rowwise" if recipe.startswith("rowwise") else "tensorwise"}
        if options.is_on(*_FLOAT8_GATHER):
            train["fp8_all_gather"] = True
        if options.is_on("float8.force_recompute_fp8_weight_in_bwd") and recipe == "tensorwise":
            train["fp8_operands"] = "recomputed"
    if _gathers_logits(options) and "tensor_parallel_size" in cut:
        train["loss"] = "standard"
    samples = options.number("training.global_batch_size")
    if samples and samples > 0 and gpus:
        train["gradient_accumulation_steps"] = max(1, samples // (batch * max(1, gpus // prod(cut.values()))))
    if options.is_on("training.disable_cuda_graphs"):
        train["set_to_none"] = True
    if options.first("training.max_norm") in ("0", "0.0"):
        train["clip_grad_norm"] = False
    return train, notes


def _gathers_logits(options: Options) -> bool:
    """Whether every rank has the whole logits; until autumn 2024 a switch turned the parallel loss on."""
    off = options.is_on("parallelism.disable_loss_parallel", "training.disable_loss_parallel")
    return off or not options.is_on("training.enable_loss_parallel", default=True)


def _is_float8(options: Options) -> bool:
    """Among the converters; until 2025 a switch of its own, before that the kind of scaling."""
    named = any("float8" in one for one in options.several("model.converters"))
    return named or options.is_on("float8.enable_float8_linear") or (
        options.first("training.fp8_linear") not in (None, "False"))  # fmt: skip


def _sharding(options: Options, gpus: int | None, cut: int) -> dict[str, object]:
    replicate = options.number(*_REPLICATE) or 1
    shard = options.first(*_SHARD) or "-1"
    alone = gpus is not None and gpus // cut <= 1
    if alone or (shard == "1" and replicate > 1):
        return {"fsdp": "none"}
    found: dict[str, object] = {"fsdp": "hybrid-shard" if replicate > 1 else "full-shard", "fsdp_version": 2}
    reshard = options.first("parallelism.fsdp_reshard_after_forward") or "default"
    if reshard == "never" or (reshard == "default" and (options.number(*_PIPELINE) or 1) > 1):
        found["reshard_after_forward"] = False
    if options.is_on("training.enable_cpu_offload"):
        found |= {"offload_params": "cpu", "offload_optimizer": "cpu"}
    return found


def _checkpointing(options: Options, notes: list[str]) -> dict[str, object]:
    mode = str(options.values.get("activation_checkpoint.mode") or "selective").lower()  # "none" is one of them
    if mode == "memory_budget":
        notes.append(
            "activation_checkpoint.mode memory_budget is taken as selective: what a compiler keeps is not known"
        )
    if mode in ("none", "full"):
        return {"checkpointing": mode}
    option = options.first("activation_checkpoint.selective_ac_option") or "op"
    return {"checkpointing": "selective", "recompute": [f"layer:{option}" if option.isdecimal() else "op"]}


def _optimizer(options: Options, notes: list[str]) -> dict[str, object]:
    name = (options.first("optimizer.name") or "AdamW").lower()
    if name not in _OPTIMIZERS:
        notes.append(f"optimizer {clipped(name)} is not described: adamw is taken")
    found: dict[str, object] = {"optimizer": _OPTIMIZERS.get(name, "adamw")}
    how = options.first("optimizer.implementation")
    if how is None and options.is_on("optimizer.fused"):
        how = "fused"
    return found | ({"optimizer_impl": how} if how in ("fused", "foreach", "for-loop") else {})


def _pipeline(options: Options, batch: int, has_stages: bool) -> dict[str, object]:
    """Micro-batches of a pipeline: the batch over pipeline_parallel_microbatch_size."""
    if not has_stages:
        return {}
    schedule = options.first(*_SCHEDULE) or "1F1B"
    each = options.number("parallelism.pipeline_parallel_microbatch_size") or 1
    parts = options.number("experimental.pipeline_parallel_microbatches")
    if parts:
        each = max(1, batch // parts)
    count = max(1, batch // each)
    found: dict[str, object] = {"pipeline_schedule": _SCHEDULES.get(schedule.lower(), "1f1b"),
                                "micro_batch_size": each, "num_microbatches": count,
                                "gradient_accumulation_steps": count}  # fmt: skip
    if found["pipeline_schedule"] == "interleaved-1f1b":
        found["virtual_pipeline_parallel_size"] = 2  # distributed/pipeline_parallel.py: two stages a rank unless told
    return found
