"""Flags that people give and that are called otherwise here: other tools' names, and those of other tasks."""

from __future__ import annotations

from collections.abc import Collection

_MODEL = "MODEL"
_MEANT: dict[str, str] = {
    "--lora": "--method lora",
    "--qlora": "--method qlora",
    "--load-in-4bit": "--method qlora",
    "--full": "--method full",
    "--bf16": "--precision bf16-mixed",
    "--fp16": "--precision fp16-mixed",
    "--gradient-checkpointing": "--checkpointing full",
    "--activation-checkpointing": "--checkpointing full",
    "--seq-len": "--sequence-length",
    "--seq-length": "--sequence-length",
    "--max-seq-length": "--sequence-length",
    "--max-length": "--sequence-length",
    "--per-device-train-batch-size": "--micro-batch-size",
    "--train-batch-size": "--micro-batch-size",
    "--gpus": "--num-gpus",
    "--tp": "--tensor-parallel-size",
    "--pp": "--pipeline-parallel-size",
    "--ctx": "--max-model-len",
    "--context": "--max-model-len",
    "--context-length": "--max-model-len",
    "--seconds-per-step": "--step-time",
    "--time-per-step": "--step-time",
    "--picture": "--plot",
    "--model": f"{_MODEL}, without a flag",
}
_IN_TASK: dict[tuple[str, str], str] = {
    ("batch_size", "train"): "micro_batch_size",
    ("batch_size", "serve"): "max_num_seqs",
    ("micro_batch_size", "serve"): "max_num_seqs",
    ("micro_batch_size", "generate"): "batch_size",
    ("max_num_seqs", "train"): "micro_batch_size",
    ("max_num_seqs", "generate"): "batch_size",
    ("max_model_len", "train"): "sequence_length",
    ("n_ctx", "train"): "sequence_length",
    ("prompt_tokens", "train"): "sequence_length",
    ("max_model_len", "generate"): "prompt_tokens",
    ("sequence_length", "serve"): "max_model_len",
    ("sequence_length", "generate"): "prompt_tokens",
    ("prompt_tokens", "serve"): "max_model_len",
    ("dtype", "train"): "precision",
    ("precision", "serve"): "dtype",
    ("precision", "generate"): "dtype",
}


def meant_flag(given: str, known: Collection[str], *, takes_model: bool) -> str | None:
    """What a flag of another name is called here, where the command has that."""
    meant = _MEANT.get(given)
    if meant is None or (meant.startswith(_MODEL) and not takes_model):
        return None
    return meant if meant.startswith(_MODEL) or meant.split()[0] in known else None


def key_of_task(key: str, task: str) -> str | None:
    """What a key of another task is called in this one."""
    return _IN_TASK.get((key, task))
