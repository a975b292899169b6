"""Records the gradient buffers of DeepSpeed's ZeRO stages, on the CPU with two gloo processes.

    DS_ACCELERATOR=cpu python tests/training/record_zero_buckets.py > tests/golden/zero_buckets.csv

where torch, transformers and deepspeed are installed: the second step of a tiny Llama in bf16 on rank 0. Bytes of the
buckets when forward is over and when the embedding's gradient arrives, bytes of stage 3's partition of the gradients
when forward is over, and the values of the fp32 partitions that the optimizer steps one by one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from deepspeed_ranks import record

MODEL = {
    "model_type": "llama", "hidden_size": 32, "intermediate_size": 88, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 97, "tie_word_embeddings": False,
}  # fmt: skip
SETTINGS: tuple[dict[str, Any], ...] = (
    {}, {"reduce_bucket_size": 4000}, {"reduce_bucket_size": 4000, "overlap_comm": True},
    {"reduce_bucket_size": 4000, "contiguous_gradients": False},
    {"reduce_bucket_size": 4000, "sub_group_size": 6000, "grad_dtype": "fp32"},
    {"reduce_bucket_size": 4000, "overlap_comm": False, "communication_data_type": "fp32"},
)  # fmt: skip
COLUMNS = ("config", "stage", "settings", "buckets_forward", "buckets_backward", "gradients", "sub_groups")


def nbytes(tensors: list[Any]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def buckets(optimizer: Any) -> int:
    found = (bucket.buffer for bucket in optimizer.ipg_buckets.values())
    return nbytes(
        [tensor for held in found for tensor in (held if isinstance(held, list) else [held]) if tensor is not None]
    )


def play(stage: int, settings: dict[str, Any]) -> dict[str, Any]:
    import deepspeed
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**MODEL)).to(torch.bfloat16)
    above = {name: settings[name] for name in ("communication_data_type",) if name in settings}
    if "grad_dtype" in settings:
        above["data_types"] = {"grad_accum_dtype": settings["grad_dtype"]}
    zero = {name: value for name, value in settings.items() if name not in (*above, "grad_dtype")}
    engine, optimizer, *_ = deepspeed.initialize(
        model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-4),
        config={"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_allow_untested_optimizer": True,
                "zero_optimization": {"stage": stage, **zero}, **above},
    )  # fmt: skip
    row: dict[str, Any] = {"config": json.dumps(MODEL, separators=(",", ":")), "stage": stage}
    ids = torch.arange(8)[None]
    for _ in range(2):
        loss = engine(input_ids=ids, labels=ids, use_cache=False).loss
        row["buckets_forward"] = buckets(optimizer)
        partition = getattr(optimizer, "grad_partitions_flat_buffer", None)
        row["gradients"] = 0 if partition is None else nbytes([partition])
        arriving = lambda gradient: row.__setitem__("buckets_backward", buckets(optimizer))  # noqa: E731
        hook = model.model.embed_tokens.weight.register_hook(arriving)
        engine.backward(loss)
        hook.remove()
        engine.step()
    name = "fp32_partitioned_groups_flat" if stage == 3 else "single_partition_of_fp32_groups"
    row["sub_groups"] = " ".join(str(tensor.numel()) for tensor in getattr(optimizer, name))
    engine.destroy()
    return row | {"settings": json.dumps(settings, separators=(",", ":"))}


def rows() -> Iterator[dict[str, Any]]:
    for stage in (1, 2, 3):
        for settings in SETTINGS:
            if stage == 1 and "grad_dtype" in settings:
                continue  # another optimizer's, which keeps all gradients in fp32
            yield play(stage, settings)


def work(rank: int, world: int, port: int) -> None:
    record(rank, world, port, "tests/training/record_zero_buckets.py", COLUMNS, rows())


if __name__ == "__main__":
    import torch.multiprocessing

    sys.exit(torch.multiprocessing.spawn(work, (2, 29681), nprocs=2))
