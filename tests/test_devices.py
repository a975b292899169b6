"""What is said of devices that share memory, run no CUDA code, or are not named."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise.estimation import estimate
from vramwise.result import Result
from vramwise.units import GIB

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def served(engine: str = "llama.cpp", **scenario: Any) -> Result:
    settings = {"n_ctx": 4096} if engine == "llama.cpp" else scenario.pop("serve", {})
    return estimate({"model": LLAMA, "task": "serve", **scenario, "serve": {"engine": engine, **settings}})


@pytest.mark.parametrize(
    "gpu", ["m3-max-64gb", "gb10", "dgx-spark", "jetson-orin-nano-8gb", "strix halo 64gb", "Apple M1 16GB"]
)
def test_shared_memory_has_a_verdict_and_says_which_share_is_taken(gpu: str) -> None:
    result = served(gpu=gpu)
    assert result.verdict is not None
    assert result.capacity is not None
    assert sum("with the system" in note and "--gpu-total-bytes" in note for note in result.notes) == 1
    exact = served(gpu=gpu, gpu_total_bytes=6 * GIB)
    assert exact.capacity is not None
    assert exact.capacity.usable_bytes == 6 * GIB
    assert not any("with the system" in note for note in exact.notes)


def test_of_several_sizes_the_smallest_is_taken_and_said() -> None:
    result = served(gpu="m3-max")
    assert result.capacity is not None
    assert result.capacity.gpu == "apple-m3-max-30core-36gb"
    assert any("sold with 36, 48, 64, 96 or 128 GB" in note for note in result.notes)


@pytest.mark.parametrize(
    ("gpu", "runtime"),
    [("m3-max-64gb", "Metal"), ("tpu-v5e", "PyTorch/XLA"), ("aws-trainium2", "Neuron"), ("ascend-910b", "CANN")],
)
def test_devices_without_cuda_have_no_context_and_say_what_is_not_known(gpu: str, runtime: str) -> None:
    for result in (
        served(gpu=gpu),
        estimate({"model": LLAMA, "task": "train", "gpu": gpu, "train": {"method": "lora"}}),
    ):
        assert any("does not run CUDA code" in note and runtime in note for note in result.notes)
        nodes = [result.phases[-1].components.find(name) for name in ("CUDA context", "runtime pool")]
        assert not any(node.bytes for node in nodes if node is not None)
    assert not any("does not run CUDA code" in note for note in served(gpu="mi300x").notes)


@pytest.mark.parametrize(("version", "said"), [("0.9.2", True), ("0.8.5", True), ("0.19.0", False)])
def test_the_engine_of_a_card_that_is_not_named_is_said_where_it_hangs_on_the_card(version: str, said: bool) -> None:
    settings: dict[str, Any] = {"engine_version": version}
    for scenario, expected in (
        ({"gpu_total_bytes": 24 * GIB, "serve": settings}, said),
        ({"gpu": "rtx-2060-12gb", "serve": settings}, False),
        ({"gpu_total_bytes": 24 * GIB, "serve": {**settings, "use_v1": True}}, False),
    ):
        result = served("vllm", **scenario)
        assert any("no card is named" in note for note in result.notes) == expected


def test_8_bit_training_without_a_card_is_taken_as_on_hopper() -> None:
    train = {"framework": "megatron", "precision": "fp8-mixed"}
    notes = {gpu: estimate({"model": LLAMA, "task": "train", "gpu": gpu, "train": train}).notes
             for gpu in (None, "b200")}  # fmt: skip
    assert [any("as on Hopper" in note for note in found) for found in notes.values()] == [True, False]
