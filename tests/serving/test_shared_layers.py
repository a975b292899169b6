"""Layers that share their parameters hold them once, whoever counts."""

from __future__ import annotations

import pytest

from vramwise.estimation import estimate
from vramwise.interop.huggingface_calculator import calculator
from vramwise.models import describe
from vramwise.serving.common.gguf.tensors import gguf_tensors
from vramwise.serving.common.storage import storage_of
from vramwise.serving.common.weights import Layout, stage_weights
from vramwise.sources import resolve

SHARING = "albert/albert-base-v1"


@pytest.mark.parametrize("name", [SHARING, "openai-community/gpt2"])
def test_weights_are_the_parameters(name: str) -> None:
    model = describe(resolve(name).config, name)
    (stage,) = stage_weights(model, storage_of(model, "fp32", None, None), Layout())
    assert stage.tensor_bytes == 4 * model.num_parameters


def test_more_passes_through_one_layer_take_no_more_weights() -> None:
    config = resolve(SHARING).config
    deep = {**config, "num_hidden_layers": 2 * config["num_hidden_layers"]}
    one, two = describe(config), describe(deep)
    assert [tensor.shape for tensor in gguf_tensors(one)] == [tensor.shape for tensor in gguf_tensors(two)]
    assert calculator(one).base_parameters == calculator(two).base_parameters
    step = {"fsdp": "full-shard", "reshard_after_forward": False, "sequence_length": 8}
    gathered = []
    for table in (config, deep):
        result = estimate({"model": table, "task": "train", "num_gpus": 2, "train": step})
        loss = next(phase for phase in result.phases if phase.name == "loss")
        node = loss.components.find("gathered weights")
        assert node is not None
        gathered.append(node.bytes)
    assert gathered[0] == gathered[1] == pytest.approx(2 * one.num_parameters, rel=0.001)
