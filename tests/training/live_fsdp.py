"""Live bytes of a step under FSDP 2 on one rank of a process group that exchanges nothing: a script, not a test.

    python tests/training/live_fsdp.py fp32|bf16 [units|accelerate]
    python tests/training/live_fsdp.py chunked LENGTH [alone]

`units`: embedding and output layer as units of their own, as torchtitan has them; `accelerate`: what the installed
accelerate makes of the model. `chunked`: torchtitan's chunked loss
with them, and without FSDP where a GPU is `alone`. Every storage counts from the
operation that shows it first until it is gone or resized to nothing.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed
import transformers
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
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
                self.see(getattr(leaf, "_local_tensor", getattr(leaf, "elem", leaf)))  # shards, pending results
        alive = [found for found in (reference() for reference in self.storages.values()) if found is not None]
        self.peaks[self.phase] = max(self.peaks.get(self.phase, 0), sum(storage.nbytes() for storage in alive))
        return out


class HandsBack(torch.autograd.Function):
    """A loss whose gradient of the hidden states is there already."""

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, gradient: torch.Tensor, loss: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(gradient)
        return loss.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return ctx.saved_tensors[0], None, None


def loss_of_chunks(head: Any, hidden: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """As torchtitan 0.3 does it: an eighth of the positions at a time through head, loss and backward of both."""
    size = hidden.shape[1] // 8
    rows = [rows.contiguous().detach().requires_grad_() for rows in hidden.split(size, dim=1)]
    summed, total = torch.zeros_like(hidden, dtype=torch.float32), torch.zeros(())
    if isinstance(head, FSDPModule):
        head.set_reshard_after_forward(False)
        head.set_reshard_after_backward(False)
        head.set_requires_gradient_sync(False, recurse=False)
        head.unshard()
    for place, (chunk, target) in enumerate(zip(rows, labels.split(size, dim=1), strict=True)):
        if isinstance(head, FSDPModule) and chunk is rows[-1]:
            head.set_requires_gradient_sync(True, recurse=False)
        logits = head(chunk)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), target.flatten(0, 1), reduction="sum")
        total = total + loss.detach()
        loss.backward()
        summed[:, place * size : (place + 1) * size] = chunk.grad
        chunk.grad = None
    if isinstance(head, FSDPModule):
        head.set_reshard_after_forward(True)
        head.set_reshard_after_backward(True)
        head.reshard()
    result: torch.Tensor = HandsBack.apply(hidden, summed.to(hidden.dtype), total)
    return result


def chunked(alone: bool, length: int) -> None:
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**TINY, "max_position_embeddings": 4096}))
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model.forward = lambda input_ids: model.model(input_ids=input_ids).last_hidden_state
    if alone:
        model = model.bfloat16()
    else:
        cut(model.float(), MixedPrecisionPolicy(torch.bfloat16, torch.float32), units=True)
    tokens = torch.randint(0, 100, (1, length))
    steps(model, lambda: model(input_ids=tokens), lambda hidden: loss_of_chunks(model.lm_head, hidden, tokens))


def main(reduced: str, *, units: bool, by_accelerate: bool) -> None:
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**TINY)).float()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32 if reduced == "fp32" else torch.bfloat16)
    if by_accelerate:
        cut_by_accelerate(model, policy)
    else:
        cut(model, policy, units=units)
    tokens = torch.randint(0, 100, (1, 8))
    steps(model, lambda: model(input_ids=tokens, labels=tokens).loss, lambda loss: loss)


def cut(model: Any, policy: MixedPrecisionPolicy, *, units: bool) -> None:
    torch.distributed.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    mesh = init_device_mesh("cpu", (RANKS,))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    if units:
        fully_shard(model.model.embed_tokens, mesh=mesh, mp_policy=policy)
        last = [model.model.norm, model.lm_head]
        fully_shard(last, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
    fully_shard(model, mesh=mesh, mp_policy=policy)


def cut_by_accelerate(model: Any, policy: MixedPrecisionPolicy) -> None:
    from accelerate.utils import FullyShardedDataParallelPlugin
    from accelerate.utils.fsdp_utils import fsdp2_prepare_model

    torch.distributed.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2, auto_wrap_policy="transformer_based_wrap", mixed_precision_policy=policy
    )
    accelerator: Any = SimpleNamespace(
        state=SimpleNamespace(fsdp_plugin=plugin), mixed_precision="no", is_main_process=True, device="cpu"
    )
    fsdp2_prepare_model(accelerator, model)


def steps(model: Any, forward: Callable[[], torch.Tensor], loss_of: Callable[[torch.Tensor], torch.Tensor]) -> None:
    optimizer, live = torch.optim.AdamW(model.parameters(), foreach=True), Live()
    for parameter in model.parameters():
        live.see(getattr(parameter, "_local_tensor", parameter))
    with live:
        for step in (1, 2):
            live.phase = f"step {step} forward"
            loss = forward()
            live.phase = f"step {step} loss"
            loss = loss_of(loss)
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
    if sys.argv[1] == "chunked":
        chunked("alone" in sys.argv, int(sys.argv[2]))
    else:
        main(sys.argv[1], units="units" in sys.argv, by_accelerate="accelerate" in sys.argv)
