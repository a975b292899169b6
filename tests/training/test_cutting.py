"""What cutting a quantized model that is whole on every GPU takes: held against accelerate's own preparation."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from live_fsdp import Live

from vramwise import estimate
from vramwise.result import Result
from vramwise.training.exchange.units import Unit
from vramwise.training.reserved_memory.gathers import Fsdp2, Widths
from vramwise.training.reserved_memory.traces import Memory

torch = pytest.importorskip("torch")
pytest.importorskip("accelerate")
pytest.importorskip("transformers")

RANKS = 4
SIZES = {
    "hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 4096, "tie_word_embeddings": False,
}  # fmt: skip
QLORA = {
    "framework": "axolotl", "method": "qlora", "quantization": "nf4-dq", "fsdp": "full-shard", "fsdp_version": 2,
    "sequence_length": 512, "checkpointing": "full", "loss": "fused-linear", "lora_targets": ["q_proj", "v_proj"],
}  # fmt: skip


@pytest.fixture
def ranks() -> Iterator[None]:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    yield
    torch.distributed.destroy_process_group()


def prepared() -> tuple[int, int]:
    """Bytes of a model's weights, and the most that are live while accelerate cuts them on the device they are on."""
    from accelerate.utils import FullyShardedDataParallelPlugin
    from accelerate.utils.fsdp_utils import fsdp2_prepare_model
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(LlamaConfig(**SIZES))
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="transformer_based_wrap")
    accelerator: Any = SimpleNamespace(
        state=SimpleNamespace(fsdp_plugin=plugin), mixed_precision="no", is_main_process=True, device="cpu"
    )
    whole, live = sum(weight.nbytes for weight in model.parameters()), Live()
    for weight in model.parameters():
        live.see(weight)
    with live:
        fsdp2_prepare_model(accelerator, model)
    return whole, live.peaks[""]


@pytest.mark.usefixtures("ranks")
def test_accelerate_holds_whole_weights_until_all_are_cut() -> None:
    """Its `original_sd` names them (utils/fsdp_utils.py, 1.6 to 1.15; axolotl's copy of it too)."""
    whole, most = prepared()
    assert most == pytest.approx(whole + whole // RANKS, rel=0.01)


def test_the_replay_holds_them_too() -> None:
    units = [Unit(f"layer {i}", loaded=[900, 2048], shards=[450, 1024], unpacked=[0, 8192], uncut=[100, 0])
             for i in range(3)]  # fmt: skip
    memory = Memory()
    Fsdp2(memory, units, Widths(2, 2, 2), weights_away=False, gradients_away=False, loads_whole=True).load()
    in_blocks_of_512 = 3 * (1024 + 2048) + 3 * (512 + 1024) + 3 * 512  # packed, cut, scales
    assert memory.allocated == 3 * (512 + 1024) + 3 * 512
    assert memory.peak_allocated == memory.allocated
    assert memory.reserved >= in_blocks_of_512


def answered(model: str, **said: object) -> Result:
    return estimate({"model": model, "task": "train", "num_gpus": 2, "gpu_total_bytes": 48 * 2**30,
                     "train": {**QLORA, **said}})  # fmt: skip


def test_a_model_that_is_whole_on_every_gpu_must_fit_there() -> None:
    """Llama 3.1 70B in 4 bits: 37 GiB whole and 19 GiB of each rank's own on cards of 48 GiB."""
    on_gpu = answered("meta-llama/Llama-3.1-70B", cpu_ram_efficient_loading=False)
    on_host = answered("meta-llama/Llama-3.1-70B", cpu_ram_efficient_loading=True)
    assert on_gpu.peak_phase == "sharding"
    assert on_gpu.verdict is not None
    assert not on_gpu.verdict.fits
    weights = on_host.quantities["weights"].expected
    most = next(phase for phase in on_gpu.phases if phase.name == "sharding").bytes
    assert "sharding" not in [phase.name for phase in on_host.phases]
    assert on_gpu.suggestions[0]["change"] == {"cpu_ram_efficient_loading": True}
    first = next(phase for phase in on_gpu.phases if phase.name == "first step")
    assert first.bytes < most
    assert 2.9 * weights < most < 3.1 * weights + 2**30


@pytest.mark.parametrize("framework", ["axolotl", "transformers"])
def test_reserved_memory_keeps_what_it_was_cut_from(framework: str) -> None:
    on_gpu, on_host, unsaid = (
        answered("meta-llama/Llama-3.1-8B", framework=framework, **said).quantities["peak_reserved"]
        for said in ({"cpu_ram_efficient_loading": False}, {"cpu_ram_efficient_loading": True}, {})
    )  # fmt: skip
    assert on_gpu.expected > 1.5 * 5.3 * 2**30 > on_host.expected
    assert unsaid.expected == on_gpu.expected
    assert unsaid.low < on_gpu.low


def test_fsdp_1_cuts_unit_by_unit() -> None:
    version_1, version_2 = (
        next(p for p in answered("meta-llama/Llama-3.1-70B", framework="transformers", fsdp_version=version,
                                 cpu_ram_efficient_loading=False).phases if p.name == "sharding").bytes
        for version in (1, 2)
    )  # fmt: skip
    weights = 37 * 2**30  # 2.08 GiB of them in the root unit, which is cut last
    assert version_1 < 1.05 * weights < 1.45 * weights < version_2
