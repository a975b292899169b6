"""Live bytes of a step under FSDP 2 on one rank of a process group that exchanges nothing: a script, not a test.

    python tests/training/live_fsdp.py fp32|bf16 [units]

`units`: embedding and output layer as units of their own, as torchtitan has them. Every storage counts from the
operation that shows it first until it is gone or resized to nothing.
"""

from __future__ import annotations

import sys
import weakref
from typing import Any

import torch
import torch.distributed
import transformers
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

RANKS = 8
TINY = {
    "hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 16384, "tie_word_embeddings": False, "head_dim": 64,
    "max_position_embeddings": 512, "use_cache": False,
}  # fmt: skip


class Live(TorchDispatchMode):
    """The largest sum of live storages in each phase."""

    def __init__(self) -> None:
        super().__init__()
        self.storages: dict[int, Any] = {}
        self.phase = ""
        self.peaks: dict[str, int] = {}

    def see(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        known = self.storages.get(storage._cdata)
        if known is None or known() is None:
            self.storages[storage._cdata] = weakref.ref(storage)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves((args, kwargs, out)):
            if isinstance(leaf, torch.Tensor):
                self.see(getattr(leaf, "_local_tensor", leaf))
        alive = [found for found in (reference() for reference in self.storages.values()) if found is not None]
        self.peaks[self.phase] = max(self.peaks.get(self.phase, 0), sum(storage.nbytes() for storage in alive))
        return out


def main(reduced: str, *, units: bool) -> None:
    torch.distributed.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    mesh = init_device_mesh("cpu", (RANKS,))
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**TINY)).float()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32 if reduced == "fp32" else torch.bfloat16)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    if units:
        fully_shard(model.model.embed_tokens, mesh=mesh, mp_policy=policy)
        last = [model.model.norm, model.lm_head]
        fully_shard(last, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    tokens, live = torch.randint(0, 100, (1, 8)), Live()
    for parameter in model.parameters():
        live.see(parameter._local_tensor)
    with live:
        for step in (1, 2):
            live.phase = f"step {step} forward"
            loss = model(input_ids=tokens, labels=tokens).loss
            live.phase = f"step {step} backward"
            loss.backward()
            live.phase = f"step {step} backward end"
            torch.zeros(1)
            live.phase = f"step {step} optimizer"
            optimizer.step()
            optimizer.zero_grad()
    for phase, size in live.peaks.items():
        print(f"{phase}\t{size}")


if __name__ == "__main__":
    main(sys.argv[1], units="units" in sys.argv)
