"""Records which parameters DeepSpeed's stage 3 keeps gathered, on the CPU with two gloo processes.

    DS_ACCELERATOR=cpu python tests/training/record_zero3.py > tests/golden/zero3_gathered.csv

where torch, transformers and deepspeed are installed. Each row is the third step of a tiny model, which is the first
that prefetches what two steps before it traced: of every block and pass the most values in storages that gathered
weights and the outputs of their all-gathers take on rank 0, read at every hook and at the end of every wait.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from deepspeed_ranks import record

MODELS: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", "hidden_size": 32, "intermediate_size": 88, "num_hidden_layers": 4,
              "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 97, "tie_word_embeddings": False},
    "llama-tied": {"model_type": "llama", "hidden_size": 32, "intermediate_size": 88, "num_hidden_layers": 3,
                   "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 301, "tie_word_embeddings": True},
    "qwen2": {"model_type": "qwen2", "hidden_size": 24, "intermediate_size": 52, "num_hidden_layers": 5,
              "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 120, "tie_word_embeddings": False},
    "gpt2": {"model_type": "gpt2", "n_embd": 24, "n_layer": 4, "n_head": 4, "vocab_size": 111, "n_positions": 32},
}  # fmt: skip
MODELS["llama-lora"] = MODELS["llama"]
LORA_RANK = 2
SETTINGS = (  # prefetch bucket, persistence threshold, max live parameters, max reuse distance
    (50_000_000, 100_000, 1_000_000_000, 1_000_000_000),
    (50_000_000, 40, 1_000_000_000, 1_000_000_000),
    (921, 320, 1_000_000_000, 1_000_000_000),
    (1000, 40, 20_000, 2000),
    (3000, 40, 12_000, 0),
    (0, 0, 12_000, 6000),
    (500, 0, 4000, 15_000),
    (7000, 600, 9000, 9000),
)
CHECKPOINTING = ("none", "full", "reentrant")
KINDS = {"llama": CHECKPOINTING, "gpt2": CHECKPOINTING, "llama-lora": ("full",)}
COLUMNS = ("model", "config", "checkpointing", "prefetch_bucket_size", "param_persistence_threshold",
           "max_live_parameters", "max_reuse_distance", "forward", "after_forward", "backward")  # fmt: skip


def block_of(module: str) -> str:
    found = re.search(r"\.(?:layers|h)\.(\d+)", module)
    return f"layer {found[1]}" if found else "head" if module.endswith("lm_head") else "outside"


class Gathered:
    """What is gathered now, and the most of it by pass and block."""

    def __init__(self, model: Any) -> None:
        self.model, self.params = model, list(model.parameters())
        self.names = {id(module): name for name, module in model.named_modules()}
        self.most: dict[tuple[str, str], int] = {}
        self.now = ("forward", "outside")

    def values(self, waited: Any = None) -> int:
        storages = {}
        handles = {id(h): h for h in self.model.ds_inflight_param_registry.values()}
        flat = [part for handle in handles.values() for part in outputs_of(handle)]
        for tensor in (*(p.data for p in self.params), *flat, *(outputs_of(waited) if waited is not None else ())):
            storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes() // tensor.element_size()
        return sum(size for size in storages.values() if size > 1)

    def note(self, waited: Any = None) -> None:
        self.most[self.now] = max(self.most.get(self.now, 0), self.values(waited))


def outputs_of(handle: Any) -> list[Any]:
    if hasattr(handle, "handles"):
        return [part for inner in handle.handles for part in outputs_of(inner)]
    return list(getattr(handle, "partitions", None) or ())


@contextmanager
def watched(gathered: Gathered) -> Iterator[None]:
    from deepspeed.runtime.zero.partition_parameters import AllGatherCoalescedHandle as Handle
    from deepspeed.runtime.zero.partitioned_param_coordinator import PartitionedParameterCoordinator as Coordinator

    fetch, release, wait = Coordinator.fetch_sub_module, Coordinator.release_sub_module, Handle.wait

    def fetched(self: Any, module: Any, forward: bool) -> None:
        gathered.now = gathered.now[0], block_of(gathered.names[id(module)])
        gathered.note()
        fetch(self, module, forward)
        gathered.note()

    def released(self: Any, module: Any, forward: bool = False) -> None:
        gathered.note()
        release(self, module, forward)
        gathered.note()

    def waited(self: Any, handle_dependency: bool = True) -> None:
        wait(self, handle_dependency)
        gathered.note(self)

    Coordinator.fetch_sub_module, Coordinator.release_sub_module, Handle.wait = fetched, released, waited
    yield
    Coordinator.fetch_sub_module, Coordinator.release_sub_module, Handle.wait = fetch, release, wait


def play(name: str, checkpointing: str, settings: tuple[int, ...]) -> dict[str, Any]:
    import deepspeed
    import torch
    import transformers

    config = transformers.AutoConfig.for_model(**MODELS[name])
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
    if name.endswith("lora"):
        import peft

        model = peft.get_peft_model(model, peft.LoraConfig(r=LORA_RANK, target_modules="all-linear")).to(torch.bfloat16)
    if checkpointing != "none":
        model.gradient_checkpointing_enable({"use_reentrant": checkpointing == "reentrant"})
        model.enable_input_require_grads() if checkpointing == "reentrant" else None
    zero = dict(zip(("prefetch_bucket_size", "param_persistence_threshold", "max_live_parameters",
                     "max_reuse_distance"), settings, strict=True))  # fmt: skip
    engine, *_ = deepspeed.initialize(
        model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-4),
        config={
            "train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_allow_untested_optimizer": True,
            "zero_optimization": {"stage": 3, "reduce_bucket_size": 5000,
                                  **{f"stage3_{key}": value for key, value in zero.items()}},
        },
    )  # fmt: skip
    ids = torch.arange(8)[None]
    for _ in range(2):
        engine.backward(engine(input_ids=ids, labels=ids, use_cache=False).loss)
        engine.step()
    gathered = Gathered(model)
    with watched(gathered):
        loss = engine(input_ids=ids, labels=ids, use_cache=False).loss
        after = gathered.values()
        gathered.now = "backward", "outside"
        engine.backward(loss)
    engine.step()
    passes = {
        which: {block: size for (kind, block), size in gathered.most.items() if kind == which}
        for which in ("forward", "backward")
    }
    blocks = ("outside", *(f"layer {i}" for i in range(config.num_hidden_layers)), "head")
    lists = {which: " ".join(str(found[block]) for block in blocks) for which, found in passes.items()}
    engine.destroy()
    text = json.dumps(MODELS[name], separators=(",", ":"))
    return {"model": name, "config": text, "checkpointing": checkpointing, **zero, "after_forward": after, **lists}


def rows() -> Iterator[dict[str, Any]]:
    for name in MODELS:
        for checkpointing in KINDS.get(name, CHECKPOINTING[:1]):
            for settings in SETTINGS:
                yield play(name, checkpointing, settings)


def work(rank: int, world: int, port: int) -> None:
    record(rank, world, port, "tests/training/record_zero3.py", COLUMNS, rows())


if __name__ == "__main__":
    import torch.multiprocessing

    sys.exit(torch.multiprocessing.spawn(work, (2, 29631), nprocs=2))
