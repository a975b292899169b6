"""What FSDP makes a unit of, counted by hand on a small model."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise import estimate
from vramwise.errors import ScenarioError
from vramwise.interop.launch.sharding import Sharding, read_fsdp
from vramwise.models import describe
from vramwise.scenario import Scenario
from vramwise.training.answer import job_of
from vramwise.training.exchange.units import units_of

HIDDEN, WIDE, VOCABULARY, LAYERS = 256, 1024, 16384, 4
LAYER = 4 * HIDDEN * HIDDEN + 3 * HIDDEN * WIDE + 2 * HIDDEN
OUTSIDE = 2 * VOCABULARY * HIDDEN + HIDDEN
MODEL = {
    "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": WIDE, "num_hidden_layers": LAYERS,
    "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": VOCABULARY, "max_position_embeddings": 512,
}  # fmt: skip


def told(*units: str, **train: Any) -> Any:
    table = {"framework": "pytorch", "precision": "bf16", "sequence_length": 64, "fsdp": "full-shard", **train}
    scenario = {"model": MODEL, "task": "train", "num_gpus": 8, "train": {**table, "fsdp_units": list(units)}}
    return estimate(scenario)


def most(found: Any, name: str) -> int:
    parts = (part for phase in found.phases for part in phase.components.children)
    return max((part.bytes for part in parts if part.name == name), default=0)


@pytest.mark.parametrize("version", [1, 2])
def test_what_is_gathered_at_most(version: int) -> None:
    def gathered(*units: str) -> int:
        return most(told(*units, fsdp_version=version), "gathered weights")

    assert gathered("root") == 2 * (LAYERS * LAYER + OUTSIDE)
    assert gathered() == gathered("layer") == gathered("LlamaDecoderLayer") == 2 * (2 * LAYER + OUTSIDE)
    assert gathered("LlamaDecoderLayer", "Embedding") < gathered("layer")
    assert gathered("module") <= gathered("LlamaDecoderLayer", "Embedding")


@pytest.mark.parametrize("version", [1, 2])
def test_one_unit_has_all_gradients_whole_until_backward_is_over(version: int) -> None:
    found = told("root", fsdp_version=version)
    reduction = next(phase for phase in found.phases if phase.name == "gradient reduction")
    parts = {part.name: part.bytes for part in reduction.components.children}
    assert parts["unsharded gradients"] == parts["reduce-scatter"] == 2 * (LAYERS * LAYER + OUTSIDE)


def test_layers_that_share_their_weights_are_one_unit() -> None:
    albert = {"model_type": "albert", "num_hidden_layers": 3, "embedding_size": 16, "hidden_size": 64, "vocab_size": 99,
              "num_attention_heads": 4, "intermediate_size": 96}  # fmt: skip
    asked = {"model": albert, "task": "train", "num_gpus": 2, "train": {"fsdp": "full-shard"}}
    job = job_of(Scenario.from_dict(asked), describe(albert), None)
    units = units_of(job.model, job.train, job.ranks[0])
    layers = [unit for block, unit in zip(job.model.blocks, units, strict=False) if block.layer is not None]
    assert len(layers) == 3
    assert len({id(unit) for unit in layers}) == 1
    assert layers[0].whole_bytes > 0


def test_names_that_say_nothing_are_refused() -> None:
    with pytest.raises(ScenarioError, match=r'train\.fsdp_units: "Attention" is no unit that is known; expected layer'):
        told("Attention")


@pytest.mark.parametrize(
    ("table", "units"),
    [
        ({"auto_wrap_policy": "NO_WRAP"}, ["root"]),
        ({"auto_wrap_policy": "TRANSFORMER_BASED_WRAP"}, None),
        ({"transformer_layer_cls_to_wrap": "LlamaDecoderLayer,Embedding"}, ["layer", "Embedding"]),
    ],
)
def test_accelerates_policies(table: dict[str, object], units: list[str] | None) -> None:
    found = Sharding()
    read_fsdp(found, table, version=2)
    assert found.settings.get("fsdp_units") == units


def test_a_stage_has_the_adapters_of_its_own_layers() -> None:
    """Under a pipeline a rank cuts the units of its own stage, of a quantized model that it has whole too."""
    train = {"method": "qlora", "fsdp": "full-shard", "pipeline_parallel_size": 2, "cpu_ram_efficient_loading": False}
    table = {"model": "llama-3.1-8b", "task": "train", "gpu": "h100-sxm-80gb", "num_gpus": 4}
    stages, alone = (
        next(phase for phase in estimate({**table, "train": one}).phases if phase.name == "sharding")
        for one in (train, {**train, "pipeline_parallel_size": 1})
    )
    held = [phase.components.find("whole weights") for phase in (stages, alone)]
    assert held[0] is not None
    assert held[1] is not None
    assert held[0].bytes < held[1].bytes
