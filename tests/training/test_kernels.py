"""Kernel libraries: what each runs in place of which operations, in which types of models, and who gives way."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from described_types import small_model
from small_configs import LLAMA

from vramwise.errors import UsageError
from vramwise.kernels import kernels_for, kernels_named
from vramwise.kernels.axolotl import with_joined_mlps
from vramwise.kernels.fused import with_joined_gates
from vramwise.models import describe
from vramwise.models.autograd.gradients import input_gradients
from vramwise.models.autograd.size import probe
from vramwise.models.blocks import Block, Modality
from vramwise.models.execution import Execution, Images, Kernels, Lora, Override, overrides_in
from vramwise.models.lowering import LOWERINGS
from vramwise.models.operations.attention import Rotary
from vramwise.models.operations.norms import RmsNorm
from vramwise.models.operations.simple import Linear
from vramwise.models.step import BlockRun, Forward, record_forward
from vramwise.scenario.names import KERNELS

MODALITIES: tuple[Modality, ...] = ("text", "image", "audio")
FUSED = {"fused_rms_norm", "fused_gated_activation", "rotary_in_place"}


def forward_of(config: dict[str, object], *names: str, images: Images | None = None) -> Forward:
    model = describe(config)
    execution = Execution(kernels=kernels_for(names, model.config), images=images)
    return record_forward(model, execution, batch=2, sequence=128)


def fused(forward: Forward, layer: int = 0) -> dict[str, int]:
    """How often each fused operation runs in a layer."""
    run = next(run for run in forward.runs if run.layer == layer)
    return dict(Counter(node.op for node in run.nodes if node.op in FUSED))


@pytest.mark.parametrize("name", KERNELS)
def test_a_library_is_a_record_with_its_source(name: str) -> None:
    record = kernels_named(name)
    assert record.name == name
    assert record.source
    assert record.overrides


def test_any_two_libraries_know_which_comes_first() -> None:
    every = tuple(kernels_named(name) for name in KERNELS)
    assert len({library.order for library in every}) == len(every)
    for modality in MODALITIES:
        overrides_in(every, modality)


def test_two_libraries_of_one_order_may_not_replace_the_same() -> None:
    apex = kernels_named("apex")
    with pytest.raises(UsageError, match=r"kernels apex and other both replace RMS norms \(RmsNorm\)"):
        overrides_in((apex, replace(apex, name="other")), "text")


def test_of_two_libraries_the_one_of_lower_order_replaces() -> None:
    unsloth, liger = kernels_named("unsloth"), kernels_named("liger")
    found = overrides_in((liger, unsloth), "text")
    assert found[Rotary] in unsloth.overrides
    assert overrides_in((unsloth, liger), "text") == found


def test_fms_takes_the_loss_alone_from_liger() -> None:
    assert fused(forward_of(LLAMA, "fms", "liger")) == {"fused_rms_norm": 2, "rotary_in_place": 2}


def test_a_layer_with_ligers_kernels() -> None:
    found = fused(forward_of(LLAMA, "liger"))
    assert found == {"fused_rms_norm": 2, "rotary_in_place": 2, "fused_gated_activation": 1}


def test_xielus_kernel_keeps_its_input_alone() -> None:
    """In Python a dozen operations keep seven tensors."""
    apertus = {**LLAMA, "model_type": "apertus", "hidden_act": "xielu"}
    in_python, by_kernel = (
        [node for node in run.nodes if node.module.endswith("act_fn")]
        for names in ((), ("xielu",))
        for run in forward_of(apertus, *names).runs
        if run.layer == 0
    )
    assert sum(len(node.saved) for node in in_python) > 7
    (kernel,) = by_kernel
    assert list(kernel.saved) == [(kernel.inputs[0].storage, "input")]


def test_a_fused_norm_keeps_its_input_and_a_number_a_row() -> None:
    run = forward_of(LLAMA, "apex").runs[1]
    norm = next(node for node in run.nodes if node.op == "fused_rms_norm")
    (x, _), out, rstd = norm.inputs, *norm.outputs
    assert [storage for storage, role in norm.saved if role != "weight"] == [x.storage, rstd.storage]
    assert (out.dtype, rstd.dtype, rstd.shape) == (x.dtype, "fp32", x.shape[:-1])


@pytest.mark.parametrize(
    ("model_type", "expected"),
    [
        ("olmo2", FUSED), ("gpt_oss", FUSED - {"fused_gated_activation"}), ("deepseek_v3", FUSED - {"rotary_in_place"}),
        ("glm4", FUSED - {"rotary_in_place"}), ("cohere", set()), ("olmoe", set()), ("t5", set()),
    ],
)  # fmt: skip
def test_liger_replaces_what_its_patch_of_the_type_does(model_type: str, expected: set[str]) -> None:
    forward = forward_of(dict(small_model(model_type).config.values), "liger")
    assert {node.op for run in forward.runs for node in run.nodes} & FUSED == expected


def test_gates_of_mixers_are_not_those_of_mlps() -> None:
    assert fused(forward_of(dict(small_model("falcon_h1").config.values), "liger"))["fused_gated_activation"] == 1
    assert "fused_gated_activation" not in fused(forward_of(dict(small_model("mamba2").config.values), "unsloth"))


def test_a_tower_keeps_its_own_operations_where_liger_patches_the_text_alone() -> None:
    config = dict(small_model("qwen2_5_vl").config.values)
    runs = forward_of(config, "liger", images=Images(1, 8, 8, tokens=16)).runs
    tower = {node.op for run in runs if run.modality == "image" for node in run.nodes}
    assert tower & FUSED == {"fused_rms_norm"}


def test_experts_gates_are_fused_as_those_of_mlps_are() -> None:
    forward = forward_of(dict(small_model("mixtral").config.values), "liger")
    assert fused(forward)["fused_gated_activation"] == 1


def test_the_kernels_are_part_of_what_a_recording_is_kept_by() -> None:
    plain, with_kernels = forward_of(LLAMA), forward_of(LLAMA, "liger")
    assert not fused(plain)
    assert fused(with_kernels)
    assert forward_of(LLAMA, "liger") is with_kernels


def layer_of(config: dict[str, object]) -> Block:
    return next(block for block in describe(config).blocks if block.layer == 0)


def test_joined_gates_leave_parameters_and_streams() -> None:
    layer = layer_of(LLAMA)
    joined = with_joined_gates(layer)
    assert len(joined.ops) == len(layer.ops) - 1
    assert (joined.parameters, joined.inputs, joined.outputs) == (layer.parameters, layer.inputs, layer.outputs)


def test_a_block_without_gates_is_left_as_it_is() -> None:
    layer = layer_of(dict(small_model("gpt2").config.values))
    assert with_joined_gates(layer) is layer


def test_an_override_by_the_registered_lowering_changes_nothing() -> None:
    same = Kernels("same", (Override(RmsNorm, LOWERINGS[RmsNorm], "norms"),), order=0, source="none")
    model = describe(LLAMA)
    plain, other = (record_forward(model, Execution(kernels=k), batch=2, sequence=128) for k in ((), (same,)))
    assert plain is not other
    assert [[node.op for node in run.nodes] for run in plain.runs] == [[n.op for n in run.nodes] for run in other.runs]
    assert plain.saved_bytes == other.saved_bytes


def saved_by_norms(*names: str) -> set[str]:
    """dtypes of what fused norms of a layer keep of their inputs, under autocast over fp32 weights."""
    model = describe(LLAMA)
    execution = Execution(param_dtype="fp32", autocast="bf16", kernels=kernels_for(names, model.config))
    run = record_forward(model, execution, batch=2, sequence=128).runs[1]
    return {node.inputs[0].dtype for node in run.nodes if node.op == "fused_rms_norm"}


def test_apex_and_transformer_engine_narrow_a_norms_input_under_autocast() -> None:
    """apex fused_layer_norm.py `_cast_if_autocast_enabled`, TransformerEngine rmsnorm.py `maybe_autocast_dtype`."""
    assert saved_by_norms("apex") == saved_by_norms("transformer-engine") == {"bf16"}
    assert saved_by_norms("liger") == {"fp32"}


def test_transformer_engine_has_norms_and_megatron_gates_and_rotations() -> None:
    assert fused(forward_of(LLAMA, "transformer-engine")) == {"fused_rms_norm": 2}
    ops = Counter(node.op for node in forward_of(LLAMA, "megatron", "transformer-engine").runs[1].nodes)
    assert (ops["fused_rms_norm"], ops["fused_gate"], ops["fused_rotation"]) == (2, 1, 2)


def test_layers_of_a_framework_come_before_kernels_that_are_asked_for() -> None:
    assert not fused(forward_of(LLAMA, "litgpt", "liger"))
    assert fused(forward_of({**LLAMA, "model_type": "gemma3_text"}, "litgpt", "liger"))  # has no class described
    ops = {node.op for node in forward_of(LLAMA, "liger", "megatron").runs[1].nodes}
    assert {"fused_gate", "fused_rotation", "fused_rms_norm"} <= ops


def test_torchtune_copies_keys_and_values_to_every_head() -> None:
    def shapes(*names: str) -> set[object]:
        run = forward_of({**LLAMA, "num_attention_heads": 4, "num_key_value_heads": 2}, *names).runs[1]
        (kernel,) = (node for node in run.nodes if node.primitive.is_attention)
        return {tensor.shape[1] for tensor in kernel.inputs}

    assert (shapes(), shapes("torchtune")) == ({4, 2}, {4})


def test_axolotl_swaps_in_ligers_kernels_for_types_of_its_own() -> None:
    jamba = dict(small_model("jamba").config.values)
    norms = [
        "fused_rms_norm" in {node.op for run in forward_of(jamba, name).runs for node in run.nodes}
        for name in ("liger", "axolotl-liger")
    ]
    assert norms == [False, True]
    assert fused(forward_of(LLAMA, "axolotl-liger")) == fused(forward_of(LLAMA, "liger"))


# -- axolotl's kernels for adapters (0.18 kernels/lora.py) --------------------------------------------------

EVERY = frozenset({"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"})


def layer_with_adapters(*names: str, targets: frozenset[str] = EVERY, **lora: Any) -> BlockRun:
    model = describe({**LLAMA, "intermediate_size": 512})
    adapters = Lora(rank=4, targets=targets, **lora)
    execution = Execution(param_dtype="bf16", lora=adapters, kernels=kernels_for(names, model.config))
    return record_forward(model, execution, batch=2, sequence=128).runs[1]


def kept_by(run: BlockRun) -> int:
    return sum(probe(storage.nbytes) for storage in {storage for node in run.nodes for storage, _ in node.saved})


def test_an_mlp_with_adapters_keeps_its_input_its_gate_and_up_alone() -> None:
    run = layer_with_adapters("axolotl", dtype="bf16")
    (mlp,) = [node for node in run.nodes if node.op == "adapted_mlp"]
    assert [role for _, role in mlp.saved] == ["input", "gate or up", "gate or up"]
    assert not any(node.saved for node in run.nodes if ".mlp" in node.module and node is not mlp)
    assert sum(tensor.is_parameter and tensor.requires_grad for tensor in mlp.inputs) == 6


def test_gradients_of_gate_and_up_take_their_place_beside_one_tensor_as_wide() -> None:
    run = layer_with_adapters("axolotl", dtype="bf16")
    (mlp,) = [node for node in run.nodes if node.op == "adapted_mlp"]
    gradients = input_gradients(mlp, mlp.outputs[0])
    rows = mlp.inputs[0].numel // LLAMA["hidden_size"]
    assert {probe(each.scratch) for each in gradients} == {probe(2 * rows * 512)}
    assert gradients[0].nbytes == mlp.inputs[0].nbytes


def test_a_projection_with_adapters_keeps_its_input_and_adapters_in_its_dtype() -> None:
    run = layer_with_adapters("axolotl")
    products = {node.module.split(".")[-1]: node for node in run.nodes if node.op == "adapted_product"}
    assert set(products) == {"q_proj", "k_proj", "v_proj", "o_proj"}
    query = products["q_proj"]
    assert [role for _, role in query.saved] == ["input", "adapters", "adapters"]
    assert {storage for storage, role in query.saved if role == "adapters"}.isdisjoint(
        tensor.storage for tensor in query.inputs
    )
    assert query.outputs[0].dtype == "bf16"
    assert kept_by(run) < kept_by(layer_with_adapters())


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        (EVERY - {"down_proj"}, {"adapted_product": 4}),
        (EVERY - {"k_proj"}, {"adapted_product": 1, "adapted_mlp": 1}),
        (frozenset({"gate_proj"}), {}),
    ],
)
def test_an_mlp_and_queries_keys_and_values_need_adapters_together(
    targets: frozenset[str], expected: dict[str, int]
) -> None:
    run = layer_with_adapters("axolotl", targets=targets)
    assert Counter(node.op for node in run.nodes if node.op.startswith("adapted")) == expected


def test_without_adapters_of_its_kind_nothing_changes() -> None:
    for targets, lora in ((frozenset[str](), {}), (EVERY, {"dora": True})):
        plain = layer_with_adapters(targets=targets, **lora)
        kernels = layer_with_adapters("axolotl", targets=targets, **lora)
        assert [node.op for node in plain.nodes] == [node.op for node in kernels.nodes]


def test_an_mlp_whose_gate_reads_something_else_is_left_as_it_is() -> None:
    """`apply_lora_mlp_swiglu` hands one input to gate and up."""
    layer = layer_of(LLAMA)
    assert len(with_joined_mlps(layer).ops) < len(layer.ops)
    (gate,) = (op for op in layer.operations(Linear) if op.parameters[0].module.endswith("mlp.gate_proj"))
    elsewhere = replace(gate, inputs=(next(iter(layer.inputs.values())),))
    apart = replace(layer, ops=tuple(elsewhere if op is gate else op for op in layer.ops))
    assert with_joined_mlps(apart) is apart


def test_dropout_keeps_what_it_leaves_beside_the_input() -> None:
    run = layer_with_adapters("axolotl", dropout=0.1)
    (mlp,) = [node for node in run.nodes if node.op == "adapted_mlp"]
    assert [role for _, role in mlp.saved].count("input") == 2
