"""Gradients under FSDP: whole until the last micro-batch of a step, a unit's in one piece, the root unit's last."""

from __future__ import annotations

import contextlib
import gc
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from vramwise import estimate
from vramwise.models import describe
from vramwise.scenario import Scenario
from vramwise.sources import resolve
from vramwise.training.job import Job, job_of
from vramwise.training.step.moments import Moment

MODEL = "mistralai/Mistral-7B-v0.1"
TOKENS, WIDTH, LAYERS = 2000, 256, 6
UNIT, TABLE = 2 * (4 * WIDTH * WIDTH), 2 * TOKENS * WIDTH
"""Bytes in 16 bit of a layer's two weights, and of an embedding or output layer."""


def job(num_gpus: int = 4, **train: Any) -> Job:
    settings = {"precision": "bf16-mixed", "checkpointing": "full", "attention": "flash", "fsdp": "full-shard",
                "fsdp_version": 1, "sequence_length": 512, "gradient_accumulation_steps": 4, **train}  # fmt: skip
    found = resolve(MODEL)
    scenario = {"model": MODEL, "task": "train", "num_gpus": num_gpus, "train": settings}
    return job_of(Scenario.from_dict(scenario), describe(found.config, found.id), None)


def moments(**train: Any) -> dict[str, Moment]:
    made = job(**train)
    return {moment.name: moment for moment in made.moments(made.ranks[0])}


def numel(*parts: str) -> int:
    return sum(p.numel for p in job().model.parameters if not parts or p.part in parts)


def test_between_micro_batches_gradients_are_whole_and_in_16_bit() -> None:
    found = moments()
    waiting = found["forward end"].parts
    assert waiting["unsharded gradients"] == 2 * numel()
    assert "gradients" not in waiting
    stepping = found["optimizer step"].parts
    assert stepping["gradients"] == pytest.approx(4 * numel() / 4, rel=0.001)
    assert not {"unsharded gradients"} & (stepping.keys() | found["clipping"].parts.keys())


@pytest.mark.parametrize(
    ("settings", "defers"),
    [
        ({"gradient_accumulation_steps": 1}, False),
        ({"framework": "llm-foundry"}, False),
        ({"framework": "litgpt"}, True),
        ({"fsdp_version": 2, "framework_version": "transformers 4.57"}, False),
        ({"fsdp_version": 2}, True),
    ],
)
def test_who_reduces_after_every_micro_batch(settings: dict[str, Any], defers: bool) -> None:
    assert ("unsharded gradients" in moments(**settings)["forward end"].parts) is defers


def test_the_root_units_gradients_wait_for_the_embeddings() -> None:
    found = moments(gradient_accumulation_steps=1)
    head, both = 2 * numel("head"), 2 * numel("head", "embedding")
    of_this_rank, layer = 4 * numel("head") / 4, 2 * numel("attention", "mlp") / job().model.num_layers
    kept = found["backward: layers"].parts["unsharded gradients"]
    assert kept == pytest.approx(head - of_this_rank + layer, rel=0.001)
    joined = found["gradient reduction"].parts
    assert [joined[name] for name in ("gathered weights", "unsharded gradients", "reduce-scatter")] == [
        pytest.approx(both, rel=0.001)
    ] * 3


@pytest.fixture
def two_ranks() -> Iterator[None]:
    dist = pytest.importorskip("torch").distributed
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield
    dist.destroy_process_group()


def peaks_of_real_micro_batches(count: int, no_sync: bool) -> list[int]:
    """The most bytes beyond weights and states in each micro-batch of a step of torch's FSDP 1, in bf16."""
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy
    from torch.profiler import profile, record_function
    from torch.utils.checkpoint import checkpoint

    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up = torch.nn.Linear(WIDTH, 2 * WIDTH, bias=False)
            self.down = torch.nn.Linear(2 * WIDTH, WIDTH, bias=False)

        def forward(self, x: Any) -> Any:
            return x + self.down(torch.relu(self.up(x)))

    class Stack(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(TOKENS, WIDTH)
            self.layers = torch.nn.ModuleList(Layer() for _ in range(LAYERS))
            self.head = torch.nn.Linear(WIDTH, TOKENS, bias=False)

        def forward(self, tokens: Any) -> Any:
            x = self.table(tokens)
            for layer in self.layers:
                x = checkpoint(layer, x, use_reentrant=False)
            return self.head(x).float().pow(2).mean()

    cpu = torch.device("cpu")
    options = {"auto_wrap_policy": ModuleWrapPolicy({Layer}), "use_orig_params": True, "device_id": cpu}
    model = FullyShardedDataParallel(Stack().bfloat16(), **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tokens = torch.zeros(1, 2, dtype=torch.long)

    def step() -> None:
        for number in range(count):
            waits = no_sync and number + 1 < count
            with model.no_sync() if waits else contextlib.nullcontext(), record_function(f"micro-batch {number}"):
                model(tokens).backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    gc.collect()  # what an earlier model left must not go while this one's memory is counted
    with profile(profile_memory=True, record_shapes=False) as found:
        step()
    held, events = 0, found.profiler.kineto_results.events()  # type: ignore[union-attr]
    series = []
    for at, size in sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]"):
        held += size
        series.append((at, held))
    spans = sorted((e.start_ns(), e.duration_ns()) for e in events if e.name().startswith("micro-batch"))
    return [max(size for at, size in series if start <= at <= start + length) for start, length in spans]


@pytest.mark.oracle
@pytest.mark.usefixtures("two_ranks")
def test_peaks_of_torchs_own_micro_batches() -> None:
    """First: gradients of the layers, then thrice the root unit. Between: all of them. Last: in its first layer."""
    all_layers, root = LAYERS * UNIT, 2 * TABLE
    in_a_layer = root + TABLE + 4 * UNIT  # gathered: the root and two layers; the head's gradient; the layer's twice
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first, between, last = peaks_of_real_micro_batches(3, no_sync=True)
        reduced = peaks_of_real_micro_batches(1, no_sync=False)
    assert first == pytest.approx(all_layers + 3 * root, rel=0.01)
    assert between == pytest.approx(all_layers + root + 3 * root, rel=0.01)
    assert last == pytest.approx(all_layers + root + in_a_layer, rel=0.01)
    assert reduced == [pytest.approx(all_layers / 2 + 3 * root, rel=0.01)]


def test_shard_grad_op_cuts_weights_and_keeps_them_gathered_from_forward_to_backward() -> None:
    """torch's SHARD_GRAD_OP; Megatron's optim_grads alone leaves weights whole (distributed/fsdp)."""
    cut, kept = moments(gradient_accumulation_steps=1), moments(gradient_accumulation_steps=1, fsdp="shard-grad-op")
    assert kept["optimizer step"].parts == cut["optimizer step"].parts
    assert kept["load"].parts["weights"] == pytest.approx(4 * numel() / 4, rel=0.001)
    assert kept["loss"].parts["gathered weights"] == pytest.approx(2 * numel(), rel=0.001)
    megatron = {"framework": "megatron", "precision": "bf16-master", "checkpointing": "none"}
    whole = moments(fsdp="shard-grad-op", gradient_accumulation_steps=1, **megatron)
    assert whole["load"].parts["weights"] == pytest.approx(2 * numel(), rel=0.001)


def test_published_adapters_under_both_kinds_of_sharding() -> None:
    """Qwen2.5 0.5B, LoRA of rank 16, 4 x 105 tokens, 4 H100: 2,068 and 2,727 MiB; a quarter of the weights a rank."""
    train = {"method": "lora", "lora_rank": 16, "lora_targets": ["q_proj", "k_proj", "v_proj", "o_proj"],
             "precision": "bf16-mixed", "param_dtype": "fp32", "checkpointing": "none", "attention": "sdpa",
             "framework_version": "transformers 4.57.6, torch 2.13", "micro_batch_size": 4, "sequence_length": 105,
             "fsdp_version": 1}  # fmt: skip
    for kind, measured_mib in (("full-shard", 2068), ("shard-grad-op", 2727)):
        table = {"model": "Qwen/Qwen2.5-0.5B", "task": "train", "gpu": "h100-sxm-80gb", "num_gpus": 4}
        found = estimate({**table, "train": {**train, "fsdp": kind}})
        assert found.quantities["peak_allocated"].expected == pytest.approx(measured_mib * 2**20, rel=0.03)
