"""Flags that people give and that are called otherwise here: other tools' names."""

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


def meant_flag(given: str, known: Collection[str], *, takes_model: bool) -> str | None:
    """What a flag of another name is called here, where the command has that."""
    meant = _MEANT.get(given)
    if meant is None or (meant.startswith(_MODEL) and not takes_model):
        return None
    return meant if meant.startswith(_MODEL) or meant.split()[0] in known else None
