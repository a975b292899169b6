"""torch's `loss_parallel` on logits cut along the vocabulary: real bytes on one rank, and published runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from live_bytes import peak_bytes

from vramwise import estimate
from vramwise.models.autograd.size import evaluate
from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.liveness import walk_backward
from vramwise.models.moments import largest
from vramwise.models.step import BlockRun
from vramwise.training.activations.ways_to_loss import compiled_softmax, loss_parallel, softmax_in_place

ROWS, CLASSES = 512, 1024


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
def test_backward_holds_four_copies_in_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    if not torch.distributed.is_available() or torch.distributed.is_initialized():
        pytest.skip("needs a process group of its own")
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    from torch.distributed.tensor.parallel import loss_parallel as torch_loss_parallel

    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}.items():
        monkeypatch.setitem(os.environ, name, value)
    torch.distributed.init_process_group("gloo")
    try:
        mesh = init_device_mesh("cpu", (1,))
        logits = torch.randn(ROWS, CLASSES, dtype=torch.bfloat16, requires_grad=True)
        labels = torch.zeros(ROWS, dtype=torch.long)

        def step() -> None:
            with torch_loss_parallel():
                cut = distribute_tensor(logits, mesh, [Shard(1)])
                torch.nn.functional.cross_entropy(cut.float(), labels).backward()
            logits.grad = None

        real = peak_bytes(step)
    finally:
        torch.distributed.destroy_process_group()
    copy_of_the_logits = 2 * ROWS * CLASSES  # distribute_tensor's own, alive to the end
    assert ours(loss_parallel) == pytest.approx(real - copy_of_the_logits, rel=0.01)


def ours(build: Callable[[Tape, Tensor], None]) -> int:
    tape = Tape()
    logits = tape.new((ROWS, CLASSES), "bf16", requires_grad=True)
    build(tape, logits)
    run = BlockRun("loss", None, tuple(tape.nodes), tuple(tape.saved.items()), (logits,))
    peak = largest(walk_backward(run).moments, {})
    assert int(evaluate(peak.total, {})) == peak.total
    return peak.total


@pytest.mark.parametrize(("build", "bytes_a_logit"), [(softmax_in_place, 4 + 2), (compiled_softmax, 4 + 4 + 2)])
def test_megatrons_backward_holds_softmax_and_gradient(
    build: Callable[[Tape, Tensor], None], bytes_a_logit: int
) -> None:
    """core 0.16.1: in place where eager; fusions/fused_cross_entropy.py's code of torch 2.13 allocates (T, V) in fp32
    and in bf16 (`buf0`, `buf2`) while `softmax` is saved."""
    assert ours(build) == pytest.approx(bytes_a_logit * ROWS * CLASSES, rel=0.01)


@pytest.mark.parametrize(("batch", "gpus", "tensor_parallel"), [(64, 32, 8), (32, 32, 4), (16, 32, 2)])
def test_published_runs_that_ran_out_of_memory(batch: int, gpus: int, tensor_parallel: int) -> None:
    """torchtitan #1690, Qwen3-32B at 4,096 tokens on H100 cards with 95.04 GiB: these three went out of memory."""
    train: dict[str, Any] = {
        "framework": "torchtitan", "precision": "bf16-mixed", "micro_batch_size": batch, "sequence_length": 4096,
        "loss": "vocab-parallel", "fsdp": "full-shard", "checkpointing": "full", "sequence_parallel": True,
        "tensor_parallel_size": tensor_parallel,
    }  # fmt: skip
    found = estimate({"model": "Qwen/Qwen3-32B", "task": "train", "gpu": "H100-80GB",
                      "gpu_total_bytes": 102_047_993_456, "num_gpus": gpus, "train": train})  # fmt: skip
    assert found.verdict is not None
    assert not found.verdict.fits
