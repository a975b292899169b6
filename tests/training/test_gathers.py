"""What FSDP gathers and reduces around blocks, and in which order: held against torch's own FSDP on the CPU."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from vramwise import estimate
from vramwise.models import describe
from vramwise.models.allocator import Block, CachingAllocator
from vramwise.scenario import Scenario
from vramwise.sources import resolve
from vramwise.training.job import job_of
from vramwise.training.reserved_memory import step_replay
from vramwise.training.reserved_memory.gathers import GATHERING, REDUCING, SHARDS, Replicated
from vramwise.training.reserved_memory.replay import replay
from vramwise.training.reserved_memory.step_replay import StepReplay
from vramwise.training.reserved_memory.traces import Memory

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
dist = torch.distributed

WORLD = 4
SIZES = {
    "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 256, "tie_word_embeddings": False,
}  # fmt: skip
Taken = list[tuple[int, int]]
"""Streams and bytes, in order."""


class _Collectives:
    """Elements of the outputs and inputs of all-gathers and reduce-scatters, in order."""

    def __init__(self) -> None:
        from torch.utils._python_dispatch import TorchDispatchMode

        self.rows: list[tuple[str, int, int]] = []
        rows = self.rows

        class Mode(TorchDispatchMode):
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                name = str(func)
                if "_allgather_base_" in name:
                    rows.append(("gather", args[0].numel(), args[1].numel()))
                elif "allgather_" in name:
                    rows.append(("gather", sum(one.numel() for one in args[0][0]), args[1][0].numel()))
                elif "_reduce_scatter_base_" in name:
                    rows.append(("reduce", args[1].numel(), args[0].numel()))
                return func(*args, **(kwargs or {}))

        self.mode = Mode()


@pytest.fixture
def four_ranks() -> Iterator[None]:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=WORLD)
    yield
    dist.destroy_process_group()


def real(version: int) -> list[tuple[str, int, int]]:
    """The collectives of one forward and backward pass of a Llama with three layers."""
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer

    model = LlamaForCausalLM(LlamaConfig(**SIZES))
    if version == 2:
        from accelerate.utils import FullyShardedDataParallelPlugin
        from accelerate.utils.fsdp_utils import fsdp2_prepare_model
        from torch.distributed.fsdp import MixedPrecisionPolicy

        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
        plugin = FullyShardedDataParallelPlugin(
            fsdp_version=2, auto_wrap_policy="transformer_based_wrap", mixed_precision_policy=policy
        )
        accelerator: Any = SimpleNamespace(
            state=SimpleNamespace(fsdp_plugin=plugin), mixed_precision="no", is_main_process=True, device="cpu"
        )
        fsdp2_prepare_model(accelerator, model)
    else:
        from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
        from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

        wrap = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={LlamaDecoderLayer})
        narrow = MixedPrecision(torch.bfloat16, torch.bfloat16, torch.bfloat16)
        model = FullyShardedDataParallel(
            model, auto_wrap_policy=wrap, mixed_precision=narrow, use_orig_params=True, device_id=torch.device("cpu")
        )
    tokens = torch.randint(0, SIZES["vocab_size"], (2, 16))
    log = _Collectives()
    with log.mode:
        model(input_ids=tokens, labels=tokens, use_cache=False).loss.backward()
    return log.rows


def replayed(version: int, monkeypatch: pytest.MonkeyPatch) -> Taken:
    """What the replay of the same pass takes on the streams of communication."""
    taken: Taken = []

    class Recorded(Memory):
        def take(self, size: int, stream: int = 0) -> Block:
            if stream:
                taken.append((stream, size))
            return super().take(size, stream)

    monkeypatch.setattr(step_replay, "Memory", Recorded)
    train = {"framework": "transformers", "method": "full", "precision": "bf16-mixed", "fsdp": "full-shard",
             "fsdp_version": version, "micro_batch_size": 2, "sequence_length": 16}  # fmt: skip
    config = {"model_type": "llama", **SIZES}
    scenario = Scenario.from_dict({"model": config, "task": "train", "num_gpus": WORLD, "train": train})
    job = job_of(scenario, describe(config), None)
    played = StepReplay(job.model, job.structure, 2, 16, False, 0, None, (), job.ranks[0])
    played._micro_batch(accumulating=False)
    return taken


@pytest.mark.usefixtures("four_ranks")
@pytest.mark.parametrize("version", [1, 2])
def test_gathers_and_reductions_come_in_torchs_order(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        collectives = real(version)
    expected: Taken = []
    for kind, whole, part in collectives:
        if kind == "gather":
            expected += [(SHARDS if version == 1 else GATHERING, 2 * part), (GATHERING, 2 * whole)]
        else:
            expected += [(REDUCING, 2 * part), (REDUCING, 4 * part)]
    outside = 3 if version == 1 else 2 + 3 + 1  # the embedding twice, norm and output layer, and their reductions
    assert len(expected) in (2 * (1 + 3 + 3 + 3 + 1), 2 * (3 + 3 + 3 + outside - 1))
    assert replayed(version, monkeypatch) == expected


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("precision", ["bf16", "bf16-mixed"])
@pytest.mark.parametrize(("version", "library"), [(1, "4.48"), (1, "5.3"), (2, "4.57"), (2, "5.3")])
def test_the_moments_allocate_what_the_replay_does(version: int, library: str, precision: str, steps: int) -> None:
    """Gradients of earlier micro-batches that wait whole (accelerate's `no_sync`) included."""
    train = {"framework": "transformers", "framework_version": f"transformers {library}", "method": "full",
             "precision": precision, "fsdp": "full-shard", "fsdp_version": version, "sequence_length": 2048,
             "checkpointing": "full", "gradient_accumulation_steps": steps, "attention": "flash"}  # fmt: skip
    named = "Qwen/Qwen2.5-7B"
    scenario = Scenario.from_dict({"model": named, "task": "train", "num_gpus": 4, "train": train})
    job = job_of(scenario, describe(resolve(named).config, named), None)
    rank = job.ranks[0]
    played = replay(job.model, job.structure, 1, 2048, job.accumulates, 0, None, (), rank)
    peak = max(moment.total for moment in job.moments(rank))
    assert played.allocated == pytest.approx(peak, rel=0.025)


FMS = {"framework": "transformers", "framework_version": "transformers 4.45.2, torch 2.4.1", "optimizer": "adamw",
       "optimizer_impl": "foreach", "checkpointing": "full", "attention": "flash", "sequence_length": 4096,
       "packing": True, "kernels": ["fms", "liger"], "loss": "fused-linear", "fsdp": "full-shard",
       "fsdp_version": 1}  # fmt: skip
ADAPTERS = {"precision": "bf16", "lora_rank": 16, "lora_targets": ["q_proj", "k_proj", "v_proj", "o_proj"],
            "lora_dropout": 0.1, "lora_dtype": "fp32"}  # fmt: skip
FULL = {**FMS, "method": "full", "precision": "bf16-mixed", "micro_batch_size": 4}
LORA = {**FMS, **ADAPTERS, "method": "lora", "micro_batch_size": 8}
QLORA = {**FMS, **ADAPTERS, "method": "qlora", "quantization": "nf4-dq", "micro_batch_size": 8}


@pytest.mark.parametrize(
    ("gpus", "train", "allocated", "process_mib"),
    [(4, FULL, 36_226_152_448, 47_698), (2, LORA, 34_109_038_592, 38_599), (2, QLORA, 28_439_290_880, 34_082)],
    ids=["full", "lora", "qlora"],
)
def test_process_memory_of_published_runs_of_fsdp_1(
    gpus: int, train: dict[str, Any], allocated: int, process_mib: int
) -> None:
    """fms-acceleration, Mistral 7B on A100: nvidia-smi less its first reading."""
    table = {"model": "mistralai/Mistral-7B-v0.1", "task": "train", "gpu": "A100-80GB", "num_gpus": gpus}
    found = estimate({**table, "train": train}).quantities
    assert found["peak_allocated"].expected == pytest.approx(allocated, rel=0.01)
    assert found["nvidia_smi"].expected == pytest.approx(process_mib * 2**20, rel=0.05)


@pytest.mark.parametrize(("gpus", "batch", "measured_gib"), [(8, 1, 81.47), (8, 2, 89.33), (16, 4, 78.48)])
def test_reserved_memory_of_published_runs_of_fsdp_2(gpus: int, batch: int, measured_gib: float) -> None:
    """torchtitan pull request 1690: Qwen3 32B, full checkpointing, H100 with 95 GiB."""
    train = {"framework": "torchtitan", "method": "full", "precision": "bf16-mixed", "fsdp": "full-shard",
             "sequence_length": 4096, "checkpointing": "full", "loss": "standard",
             "micro_batch_size": batch}  # fmt: skip
    table = {"model": "Qwen/Qwen3-32B", "task": "train", "num_gpus": gpus, "train": train}
    assert estimate(table).quantities["peak_reserved"].expected == pytest.approx(measured_gib * 2**30, rel=0.04)


def test_data_parallels_buckets_are_torchs() -> None:
    tensors = [torch.empty(rows, 1024) for rows in (1, 3000, 200, 64, 9000, 10, 6400, 6400, 1)]
    assigned = dist._compute_bucket_assignment_by_size(tensors[::-1], [2**20, 25 * 2**20])[0]
    sizes = [4 * tensor.numel() for tensor in tensors]
    memory = Memory()
    taken: list[int] = []
    memory.take = lambda size, stream=0: taken.append(size) or CachingAllocator.take(memory, size, stream)  # type: ignore
    Replicated(memory, sizes).prepare()
    assert taken == [sum(sizes[::-1][index] for index in bucket) for bucket in assigned]


def test_reserved_memory_of_a_published_run_of_data_parallel() -> None:
    """AnswerDotAI/fsdp_qlora benchmarks_03_2024.md: Llama 2 7B with adapters on two RTX 3090."""
    train = {**ADAPTERS, "framework": "transformers", "framework_version": "transformers 4.37.2, torch 2.2.1",
             "method": "lora", "lora_dtype": "bf16", "lora_rank": 64, "optimizer": "adamw", "optimizer_impl": "foreach",
             "lora_targets": ["k_proj", "q_proj", "v_proj", "up_proj", "down_proj", "gate_proj"], "packing": True,
             "clip_grad_norm": False, "micro_batch_size": 4, "sequence_length": 2048, "checkpointing": "full",
             "grad_dtype": "bf16", "optimizer_state_dtype": "bf16"}  # fmt: skip
    table = {"model": "meta-llama/Llama-2-7b-hf", "task": "train", "gpu": "RTX 3090", "num_gpus": 2, "train": train}
    assert estimate(table).quantities["peak_reserved"].expected == pytest.approx(22.04 * 2**30, rel=0.06)


def test_torchtitan_gave_the_head_a_unit_in_2025() -> None:
    """Until then embedding and head were whole from the first forward to the end of backward (pull request 1094)."""
    train = {"framework": "torchtitan", "method": "full", "precision": "bf16-mixed", "fsdp": "full-shard",
             "sequence_length": 8192, "checkpointing": "full"}  # fmt: skip
    table = {"model": "meta-llama/Llama-3.1-8B", "task": "train", "num_gpus": 8}
    before, since = (
        next(phase for phase in estimate({**table, "train": {**train, "framework_version": version}}).phases
             if phase.name == "backward: layers")
        for version in ("March 2025", "October 2025")
    )  # fmt: skip
    whole = [
        next(n.bytes for n in phase.components.children if n.name == "gathered weights") for phase in (before, since)
    ]
    assert whole[0] - whole[1] == 2 * 128_256 * 4096 * 2 + 4096 * 2


def test_a_model_that_is_cut_in_host_memory_leaves_no_holes() -> None:
    """Where nobody said it, the low end reaches what host memory leads to."""
    table = {"model": "mistralai/Mistral-7B-v0.1", "task": "train", "gpu": "A100-80GB", "num_gpus": 2}
    on_gpu, on_host, unsaid = (
        estimate({**table, "train": {**QLORA, **said}}).quantities["peak_reserved"]
        for said in ({"cpu_ram_efficient_loading": False}, {"cpu_ram_efficient_loading": True}, {})
    )
    assert on_gpu.expected - on_host.expected > 1.5e9
    assert (unsaid.expected, unsaid.high) == (on_gpu.expected, on_gpu.high)
    assert on_host.low < unsaid.low < min(on_gpu.low, on_host.expected)


NORM_ALONE = {
    "hrm_text": {"head_dim": 16, "H_cycles": 1, "L_cycles": 1},
    "megatron-bert": {"max_position_embeddings": 512},
}


@pytest.mark.parametrize("model_type", NORM_ALONE)
def test_a_last_norm_is_no_output_layer_whatever_its_name(model_type: str) -> None:
    """That of HRM Text's stacks is no module, Megatron BERT's is `encoder.ln`: its result is what frames name, once."""
    config = {
        "model_type": model_type, "vocab_size": 21, "hidden_size": 24, "intermediate_size": 9, "num_hidden_layers": 2,
        "num_attention_heads": 2, **NORM_ALONE[model_type],
    }  # fmt: skip
    sizes = {"micro_batch_size": 32, "sequence_length": 512, "precision": "bf16-mixed"}
    job = {"model": config, "task": "train", "gpu": "h100-sxm-80gb", "train": sizes}
    whole, cut = estimate(job), estimate({**job, "num_gpus": 2, "train": {**sizes, "fsdp": "full-shard"}})
    assert cut.quantities["peak_reserved"].expected <= 1.1 * whole.quantities["peak_reserved"].expected
