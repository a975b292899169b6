"""Records what DeepSpeed's ZeRO stages 1 and 2 allocate to look at gradients, on the CPU with two gloo processes.

    DS_ACCELERATOR=cpu python tests/training/record_zero_checks.py > tests/golden/zero_checks.csv

where torch, transformers and deepspeed are installed (the file has the rows of three releases): the second step of a
tiny Llama on rank 0, whose slice of the weights begins with the whole embedding. Bytes of gradients that stand when the
first bucket is reduced, and the most bytes that a reduced gradient's way into the partition, the search for overflows
and the global norm take beyond what was there before.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

from deepspeed_ranks import record
from live_bytes import most_bytes

MODEL = {
    "model_type": "llama", "hidden_size": 32, "intermediate_size": 88, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 4096, "tie_word_embeddings": False,
}  # fmt: skip
COLUMNS = ("deepspeed", "config", "stage", "offload", "dtype", "gradients", "into_partition", "overflow", "norm")


def watched(row: dict[str, Any], name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, of whose calls the row keeps the largest need."""

    def call(*args: Any, **kwargs: Any) -> Any:
        returned, most = most_bytes(lambda: function(*args, **kwargs))
        row[name] = max(row[name], most)
        return returned

    return call


def _watch(row: dict[str, Any], model: Any, optimizer: Any) -> None:
    optimizer.copy_grads_in_partition = watched(row, "into_partition", optimizer.copy_grads_in_partition)
    optimizer.has_overflow = watched(row, "overflow", optimizer.has_overflow)
    optimizer.scaled_global_norm = watched(row, "norm", optimizer.scaled_global_norm)
    reduce = optimizer.reduce_ipg_grads

    def first_reduction(*args: Any, **kwargs: Any) -> None:
        held = (p.grad for p in model.parameters() if p.grad is not None)
        there = {grad.untyped_storage().data_ptr(): grad.numel() * grad.element_size() for grad in held}
        row["gradients"] = row["gradients"] or sum(there.values())
        reduce(*args, **kwargs)

    optimizer.reduce_ipg_grads = first_reduction


def play(stage: int, offload: str, dtype: str) -> dict[str, Any]:
    import deepspeed
    import torch
    import transformers

    names = {"fp16": torch.float16, "bf16": torch.bfloat16}
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**MODEL)).to(names[dtype])
    zero = {"stage": stage, "reduce_bucket_size": 50_000, "overlap_comm": False}
    if offload != "none":
        zero["offload_optimizer"] = {"device": offload, "pin_memory": False}
    scaled = {"loss_scale": 1} if dtype == "fp16" else {}
    engine, optimizer, *_ = deepspeed.initialize(
        model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-4),
        config={"train_micro_batch_size_per_gpu": 1, dtype: {"enabled": True, **scaled}, "zero_optimization": zero,
                "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False},
    )  # fmt: skip
    config = json.dumps(MODEL, separators=(",", ":"))
    row: dict[str, Any] = {
        "deepspeed": deepspeed.__version__,
        "config": config,
        "stage": stage,
        "offload": offload,
        "dtype": dtype,
    }
    ids = torch.arange(8)[None]
    for step in range(2):
        row |= dict.fromkeys(COLUMNS[5:], 0)
        if step:
            _watch(row, model, optimizer)
        loss = engine(input_ids=ids, labels=ids, use_cache=False).loss
        engine.backward(loss)
        engine.step()
    engine.destroy()
    return row


def rows() -> Iterator[dict[str, Any]]:
    for case in product((1, 2), ("none", "cpu"), ("bf16", "fp16")):
        yield play(*case)


def work(rank: int, world: int, port: int) -> None:
    record(rank, world, port, "tests/training/record_zero_checks.py", COLUMNS, rows())


if __name__ == "__main__":
    import torch.multiprocessing

    sys.exit(torch.multiprocessing.spawn(work, (2, 29682), nprocs=2))
