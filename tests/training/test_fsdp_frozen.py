"""FSDP 1 around frozen layers: what its hooks keep under reentrant checkpointing, and scales that it never cuts."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from vramwise.models import describe
from vramwise.models.model import Model
from vramwise.scenario import Scenario
from vramwise.sources import resolve
from vramwise.training.job import Job, job_of
from vramwise.training.step.moments import Moment

LAYERS, ROWS, WIDTH = 5, 600, 24
BEFORE_5 = {"framework_version": "transformers 4.48.1"}


def model(name: str) -> Model:
    found = resolve(name)
    return describe(found.config, found.id)


def job(name: str = "mistralai/Mistral-7B-v0.1", num_gpus: int = 2, **train: Any) -> Job:
    settings = {"method": "qlora", "quantization": "nf4-dq", "precision": "bf16", "checkpointing": "full",
                "fsdp": "full-shard", "fsdp_version": 1, "sequence_length": 2048, **train}  # fmt: skip
    scenario = {"model": name, "task": "train", "num_gpus": num_gpus, "train": settings}
    return job_of(Scenario.from_dict(scenario), model(name), None)


def in_layers(made: Job) -> Moment:
    return next(m for m in made.moments(made.ranks[0]) if m.name == "backward: layers")


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("reentrant", "kept"), [(True, 2 * LAYERS), (False, 2)])
def test_hidden_states_alive_when_backward_reaches_the_first_layer(
    reentrant: bool, kept: int, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real FSDP 1: all inputs and their gradients with reentrant checkpointing, else the first input and gradient."""
    torch = pytest.importorskip("torch")
    fsdp = pytest.importorskip("torch.distributed.fsdp").FullyShardedDataParallel
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    options = {"use_orig_params": True, "device_id": torch.device("cpu")}
    alive: list[int] = []

    class Layer(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.base = torch.nn.Linear(WIDTH, WIDTH, bias=False).requires_grad_(False)
            self.adapter = fsdp(torch.nn.Linear(WIDTH, WIDTH, bias=False), **options)

        def forward(self, x: Any) -> Any:
            return x + torch.tanh(self.base(x) + self.adapter(x))

    class Stack(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(fsdp(Layer(), **options) for _ in range(LAYERS))

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=reentrant)
            return x.sum()

    def count(gradient: Any) -> None:
        found = (o for o in gc.get_objects() if issubclass(type(o), torch.Tensor) and o.shape == (ROWS, WIDTH))
        alive.append(len({t.untyped_storage().data_ptr() for t in found} - {0}))

    try:
        x = torch.randn(ROWS, WIDTH, requires_grad=True)
        x.register_hook(count)
        fsdp(Stack(), **options)(x).backward()
    finally:
        torch.distributed.destroy_process_group()
    assert alive == [kept]


def test_the_lowest_layers_peak_holds_every_input_and_gradient() -> None:
    """Of all layers above the lowest, whose input wants a gradient too (`enable_input_require_grads`)."""
    hidden = 2048 * 4096 * 2
    held = in_layers(job(**BEFORE_5)).parts["inputs that FSDP keeps"]
    assert held == pytest.approx(2 * 31 * hidden, rel=0.01)
    assert "inputs that FSDP keeps" not in in_layers(job(framework_version="transformers 5.0")).parts
    assert "inputs that FSDP keeps" not in in_layers(job(fsdp_version=2, **BEFORE_5)).parts
    assert "inputs that FSDP keeps" not in in_layers(job(method="full", quantization=None, **BEFORE_5)).parts


def test_scales_of_4_bit_weights_stay_whole_on_every_rank() -> None:
    one, two = (job(num_gpus=n).states(job(num_gpus=n).ranks[0]).frozen_weights for n in (1, 2))
    quantized = sum(p.numel for p in model("mistralai/Mistral-7B-v0.1").parameters if p.is_linear and p.part != "head")
    assert two - one / 2 == pytest.approx(quantized / 64 / 2, rel=0.05)


@pytest.mark.parametrize(("version", "gigabytes"), [("transformers 4.48", 24.6), ("transformers 5.2", 91.3)])
def test_experts_are_quantized_where_they_were_linear_layers(version: str, gigabytes: float) -> None:
    """Published: 24.66 GB after loading Mixtral 8x7B with adapters of 0.08 GB (fms-acceleration, a100_80gb.csv)."""
    made = job("mistralai/Mixtral-8x7B-v0.1", 1, framework_version=version)
    assert made.states(made.ranks[0]).frozen_weights / 1e9 == pytest.approx(gigabytes, abs=0.3)


@pytest.mark.parametrize(
    ("name", "measured"),
    [("mistralai/Mistral-7B-v0.1", 15_144_870_400), ("mistralai/Mixtral-8x7B-Instruct-v0.1", 57_554_708_992)],
)
def test_no_layer_is_gathered_ahead_under_reentrant_checkpointing(name: str, measured: int) -> None:
    """Published: LoRA on two A100s, FSDP 1, peak of torch's allocated bytes (fms-acceleration, a100_80gb.csv)."""
    settings = {"method": "lora", "quantization": None, "micro_batch_size": 2, "sequence_length": 4096,
                "attention": "flash", "packing": True, "loss": "standard", "lora_rank": 16, "lora_dropout": 0.1,
                "lora_dtype": "fp32", "optimizer_impl": "foreach",
                "lora_targets": ["q_proj", "k_proj", "v_proj", "o_proj"]}  # fmt: skip
    before, since = (job(name, **settings, framework_version=f"transformers {v}") for v in ("4.48.1", "5.0"))
    workspaces = 2 * 8_519_680
    assert max(m.total for m in before.moments(before.ranks[0])) + workspaces == pytest.approx(measured, rel=0.005)
    one, two = (in_layers(made).parts["gathered weights"] for made in (before, since))
    root = 2 * sum(p.numel for p in model(name).parameters if p.layer is None)
    assert two - root == pytest.approx(2 * (one - root), rel=0.001)
