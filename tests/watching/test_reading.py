"""What a trainer's arguments and objects say of sharding and optimizers, read without running a training."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import vramwise
from vramwise.errors import UsageError
from vramwise.watching.reading import read_training

SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 64}


@pytest.fixture(scope="module")
def model():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES))


def table_of(model, arguments, optimizer=None):
    """The resolved train table: what was read is a scenario that can be estimated."""
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), fused=True)
    taken = read_training(model, optimizer, {"world_size": 4, **arguments}, (1, 16))
    return vramwise.estimate(taken.scenario()).scenario["train"]


@pytest.mark.parametrize(
    ("arguments", "fsdp", "version"),
    [
        ({"fsdp": True}, "full-shard", 2),
        ({"fsdp": True, "fsdp_config": {"reshard_after_forward": False}}, "shard-grad-op", 2),
        ({"fsdp": True, "fsdp_config": {"version": 1, "sharding_strategy": "SHARD_GRAD_OP"}}, "shard-grad-op", 1),
        ({"fsdp": ["full_shard", "auto_wrap"]}, "full-shard", 1),
        ({"fsdp": []}, "none", 2),
    ],
)
def test_fsdp_of_old_and_new_arguments(model, arguments, fsdp, version):
    table = table_of(model, {"bf16": True, **arguments})
    assert (table["fsdp"], table["fsdp_version"]) == (fsdp, version)
    assert (table["precision"], table["optimizer_impl"]) == ("bf16-mixed", "fused")


def test_deepspeed_keeps_master_copies(model):
    config = {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}
    table = table_of(model, {"bf16": True, "hf_deepspeed_config": SimpleNamespace(config=config)})
    assert (table["framework"], table["zero_stage"], table["precision"]) == ("deepspeed", 2, "bf16-master")
    assert table["offload_optimizer"] == "cpu"


@pytest.mark.parametrize(
    ("name", "inside", "expected"),
    [
        ("AdamW", {"args": SimpleNamespace(optim_bits=8)}, "adamw-8bit"),
        ("AdamW", {"args": SimpleNamespace(optim_bits=8), "is_paged": True}, "paged-adamw-8bit"),
        ("PagedAdamW8bit", {}, "paged-adamw-8bit"),
        ("AdamW", {"args": SimpleNamespace(optim_bits=32), "is_paged": True}, "paged-adamw"),
        ("PagedAdamW32bit", {}, "paged-adamw"),
        ("Lion", {"args": SimpleNamespace(optim_bits=32)}, "lion"),
        ("Adafactor", {}, "adafactor"),
        ("GaLoreAdamW", {}, "galore-adamw"),
    ],
)
def test_optimizers_of_other_libraries_go_by_their_class(model, name, inside, expected):
    optimizer = type(name, (), inside)()
    wrapped = SimpleNamespace(optimizer=optimizer)  # as accelerate's AcceleratedOptimizer
    assert table_of(model, {}, wrapped)["optimizer"] == expected
    assert "optimizer_impl" not in read_training(model, wrapped, {}, (1, 16)).scenario()["train"]  # torch's own alone


def test_an_optimizer_without_a_name_is_refused(model):
    with pytest.raises(UsageError, match="optimizer Sophia is not one that a scenario names"):
        table_of(model, {}, type("Sophia", (), {})())


def test_the_length_is_the_longest_that_the_arguments_allow(model):
    arguments = {"per_device_train_batch_size": 4, "max_length": 128}
    table = table_of(model, arguments)
    assert (table["micro_batch_size"], table["sequence_length"]) == (4, 128)
