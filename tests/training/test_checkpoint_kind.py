"""What checkpointing of transformers asks for besides: gradients of embedded tokens, read in 4.57.6 and 5.0.0."""

from __future__ import annotations

from vramwise.estimation import estimate
from vramwise.models import describe


def _head_alone(**settings):
    return estimate(
        "llama-3.2-1b", task="train", method="freeze", trainable=["layers.15"], precision="bf16", sequence_length=512,
        framework="transformers", **settings,
    )  # fmt: skip


def _held(result, name):
    return next(phase.bytes for phase in result.phases if phase.name == name)


def test_checkpointing_goes_back_through_frozen_layers_since_transformers_5():
    now, before = (
        _head_alone(checkpointing="full", framework_version=f"transformers {version}") for version in ("5.23", "4.57.6")
    )
    mlp = 3 * 512 * 8192 * 2  # what backward of a frozen layer has of its MLP, once it ran again
    assert _held(now, "backward: layers") - _held(before, "backward: layers") > mlp
    assert _held(now, "optimizer step") == _held(before, "optimizer step")


def test_xlstm_has_as_many_layers_as_its_blocks_are_said_to_be():
    config = {"model_type": "xlstm", "num_hidden_layers": 4}
    one, two = (describe({**config, "num_blocks": count}).num_parameters for count in (1, 2))
    assert two > one
    assert describe({**config, "num_blocks": None}).num_parameters == two + 2 * (two - one)


def test_falcons_weights_in_16_bit_go_with_their_layer():
    """`FalconLinear` multiplies by a view of its weight, and autocast keeps copies of leaves alone."""
    config = {"model_type": "falcon", "hidden_size": 1024, "num_attention_heads": 16, "vocab_size": 1000}
    settings = {"precision": "bf16-mixed", "checkpointing": "full", "sequence_length": 64, "framework": "transformers"}
    few, more = (
        estimate({"model": {**config, "num_hidden_layers": layers}, "task": "train", "train": settings})
        for layers in (4, 8)
    )
    one = (3 * 64 + 13 * 1024) * 1024  # of a layer: query, key and value of one head, output, and the MLP
    # weights and states of four layers more, and no 16-bit copies of theirs
    grown = _held(more, "forward") - _held(few, "forward")
    assert grown < 4 * one * 12.5
