"""What a framework sets where the scenario says nothing: defaults of released sources, and how they are left alone."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from vramwise.estimation import estimate
from vramwise.frameworks import framework_named
from vramwise.planner.grid import grid
from vramwise.scenario import Scenario, TrainSettings
from vramwise.scenario.definition import KINDS
from vramwise.scenario.names import FRAMEWORKS
from vramwise.training.recipe.gradient_life import gradient_life, reentrant


def step(framework: str, version: str = "", **changed: Any) -> Any:
    train = {"framework": framework, "method": "qlora", "micro_batch_size": 2, **changed}
    if version:
        train["framework_version"] = version
    return estimate({"model": "meta-llama/Llama-3.1-8B", "task": "train", "train": train})


def settings(framework: str, version: str = "", **changed: Any) -> dict[str, Any]:
    found: dict[str, Any] = step(framework, version, **changed).scenario["train"]
    return found


@pytest.mark.parametrize(
    ("framework", "checkpointing"),
    [
        ("transformers", "none"),
        ("axolotl", "none"),
        ("llamafactory", "full"),
        ("ms-swift", "full"),
        ("unsloth", "full"),
    ],
)
def test_who_checkpoints_unasked(framework: str, checkpointing: str) -> None:
    assert settings(framework)["checkpointing"] == checkpointing
    assert settings(framework, checkpointing="selective", recompute=["mlp"])["checkpointing"] == "selective"


@pytest.mark.parametrize(
    ("version", "implementation", "weights"),
    [
        ("", "fused", "bf16"),
        ("transformers 5.0, torch 2.7", "foreach", "bf16"),
        ("transformers 4.57", "fused", "fp32"),
        ("transformers 4.53", "foreach", "fp32"),
        ("transformers 4.31", "for-loop", "fp32"),
        ("transformers 4.33, torch 1.13", "for-loop", "fp32"),
    ],
)
def test_trainers_optimizer_and_weights_by_version(version: str, implementation: str, weights: str) -> None:
    """training_args.py default_optim and modeling_utils.py dtype of transformers 4.31, 4.33, 4.53, 4.54, 4.57, 5.23."""
    found = settings("transformers", version, method="full")
    assert (found["optimizer_impl"], found["param_dtype"], found["grad_dtype"]) == (implementation, weights, weights)


def test_what_is_stated_is_kept() -> None:
    """`precision: bf16-mixed` means fp32 weights under autocast, as the scenario's definition says."""
    assert settings("transformers", method="full", precision="bf16-mixed")["param_dtype"] == "fp32"
    assert settings("transformers", method="full", param_dtype="fp32")["precision"] == "bf16-mixed"
    assert settings("transformers", method="full", optimizer_impl="foreach")["optimizer_impl"] == "foreach"


def test_a_checkpoint_in_fp32_is_trained_in_fp32() -> None:
    table = {"model": "openai-community/gpt2", "task": "train"}
    assert estimate(table).scenario["train"]["param_dtype"] == "fp32"


def test_a_note_says_what_was_taken() -> None:
    notes = step("transformers", method="full").notes
    assert "not stated, so as Trainer 5.23 with --bf16 does it: param_dtype bf16, optimizer_impl fused" in notes
    for precision, program in (
        ("fp16", "5.23"),
        ("fp16-mixed", "5.23 with --fp16"),
        ("bf16-mixed", "5.23 with --bf16"),
    ):
        said = step("transformers", method="lora", precision=precision).notes
        assert any(note.startswith(f"not stated, so as Trainer {program} does it: ") for note in said)
    whole = step("transformers", method="full", precision="bf16", optimizer_impl="foreach").notes
    assert not any("not stated" in note for note in whole)


def test_every_default_is_a_setting_with_a_source() -> None:
    for framework in FRAMEWORKS:
        for default in framework_named(framework).defaults:
            assert default.key in KINDS[TrainSettings]
            assert len(default.source) > 15


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("method", ["full", "lora", "qlora"])
def test_a_resolved_scenario_resolves_to_itself(framework: str, method: str) -> None:
    first = step(framework, method=method)
    again = estimate(first.scenario)
    assert again.scenario == first.scenario
    assert dict(again.quantities) == dict(first.quantities)


@pytest.mark.parametrize(
    ("framework", "expandable"),
    [("transformers", False), ("ms-swift", False), ("axolotl", True), ("unsloth", True), ("torchtune", False)],
)
def test_who_asks_for_expandable_segments(framework: str, expandable: bool) -> None:
    assert settings(framework)["expandable_segments"] is expandable
    assert settings(framework, expandable_segments=not expandable)["expandable_segments"] is not expandable


def test_since_when_they_ask_for_them() -> None:
    versions = (("axolotl", "axolotl 0.4.1"), ("axolotl", "axolotl 0.5.0"), ("unsloth", "unsloth 2024.2"))
    assert [settings(framework, version)["expandable_segments"] for framework, version in versions] == [
        False, True, False,
    ]  # fmt: skip


def test_adapters_of_torchtunes_recipes() -> None:
    found = settings("torchtune")
    assert found["lora_dtype"] == "bf16"
    assert found["lora_targets"] == ["q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    assert settings("torchtune", precision="fp32")["lora_dtype"] == "fp32"
    assert settings("torchtune", lora_targets="all-linear", lora_dtype="fp32")["lora_targets"] == "all-linear"


def test_unsloth_offloads_inputs_of_layers() -> None:
    assert settings("unsloth")["offload_activations"] == "cpu"
    assert settings("unsloth", offload_activations="none")["offload_activations"] == "none"


@pytest.mark.parametrize(
    ("version", "loss"),
    [
        ("unsloth 2024.5", "fused"),
        ("unsloth 2024.11.7", "fused"),
        ("unsloth 2024.11.8", "fused-linear"),  # Apple's cut cross entropy
        ("unsloth 2025.7.8", "fused-linear"),
        ("unsloth 2025.8.4", "fused-linear"),  # its own chunks
        ("", "fused-linear"),
    ],
)
def test_since_when_unsloth_makes_no_logits(version: str, loss: str) -> None:
    """unsloth 2024.11.8 models/llama.py CausalLM_fast_forward: fused_linear_cross_entropy where there are labels."""
    assert settings("unsloth", version)["loss"] == loss


@pytest.mark.parametrize(("version", "loss"), [("unsloth 2025.3.19", "fused"), ("unsloth 2025.8.9", "fused-linear")])
def test_unsloth_kept_logits_of_types_that_it_compiles(version: str, loss: str) -> None:
    """unsloth_zoo 2025.3.17 compiler.py cross_entropy_replacement_3: Gemma 3 masks its images in its own loss."""
    table = {"framework": "unsloth", "framework_version": version, "method": "qlora"}
    asked = {"model": "google/gemma-3-4b-it", "task": "train", "gpu": "t4", "num_gpus": 1, "train": table}
    assert estimate(asked).scenario["train"]["loss"] == loss


def test_unsloth_cuts_no_logits_without_cut_cross_entropys_triton() -> None:
    """unsloth_zoo 2025.3.17 loss_utils.py HAS_CUT_CROSS_ENTROPY: torch 2.4 and triton 3.0, which came with it."""
    assert settings("unsloth", "unsloth 2025.3.17, torch 2.3.1")["loss"] == "fused"
    assert settings("unsloth", "unsloth 2025.3.17, torch 2.4.1")["loss"] == "fused-linear"


@pytest.mark.parametrize(
    ("version", "batch", "length", "has_logits"),
    [
        ("unsloth 2024.12.4", 1, 1024, False),
        ("unsloth 2025.1.1", 1, 1024, True),
        ("unsloth 2025.1.1", 1, 1025, False),
        ("unsloth 2025.1.1", 2, 1024, False),
        ("unsloth 2026.10.9", 2, 512, True),
    ],
)
def test_unsloth_keeps_logits_of_up_to_1024_tokens(version: str, batch: int, length: int, has_logits: bool) -> None:
    """unsloth 2025.1.1 to 2026.10.9 models/llama.py: `if bsz*q_len <= 1024: RETURN_LOGITS = True`.

    Whatever loss is set; what the answer states of it stands for every size, so that another size can be asked of it.
    """
    sizes = {"micro_batch_size": batch, "sequence_length": length}
    unsaid = step("unsloth", version, **sizes)
    asked, fused = (step("unsloth", version, **sizes, loss=loss) for loss in ("fused-linear", "fused"))
    assert unsaid.scenario["train"]["loss"] == asked.scenario["train"]["loss"] == "fused-linear"
    assert any("makes the logits of a micro-batch of up to 1,024 tokens" in note for note in asked.notes) == has_logits
    assert unsaid.phases == asked.phases
    assert (asked.phases == fused.phases) == has_logits


def test_an_answer_of_unsloth_asked_with_another_size_has_the_same_limits() -> None:
    """A step of one token has logits, one of thousands none: the scenario of the first holds for the second."""
    train = {"framework": "unsloth", "method": "qlora", "sequence_length": 1}
    small = estimate({"model": "llama-3.1-8b", "task": "train", "gpu": "rtx-4090", "train": train})
    largest = small.quantities["max_batch"].expected
    grown = {**small.scenario, "train": {**small.scenario["train"], "micro_batch_size": int(largest)}}
    there = estimate(grown)
    assert there.quantities["max_batch"].expected == largest
    assert there.verdict is not None
    assert there.verdict.headroom_bytes >= 0


def test_limits_and_tables_of_unsloth_know_that_more_tokens_have_no_logits() -> None:
    """A micro-batch of 1,025 tokens needs less than one of 1,024, wherever the search or the table begins."""
    train = {"framework": "unsloth", "method": "qlora", "micro_batch_size": 1, "sequence_length": 512}
    scenario = Scenario.from_dict({"model": "llama-3.1-8b", "task": "train", "gpu": "rtx-4090", "train": train})
    small = estimate(scenario)
    several = estimate(scenario.replace(train=scenario.train.replace(micro_batch_size=4)))
    assert small.quantities["max_batch"] == several.quantities["max_batch"]
    largest = int(small.quantities["max_batch"].expected)
    fits = [
        estimate(scenario.replace(train=scenario.train.replace(micro_batch_size=size))).verdict
        for size in (largest, largest + 1)
    ]
    assert [verdict is not None and verdict.word != "does not fit" for verdict in fits] == [True, False]
    axes = {"micro_batch_size": (1, 2, 3, 4), "sequence_length": (256, 512, 768)}
    for cell, (batch, length) in zip(grid(scenario, axes).cells, product(*axes.values()), strict=True):
        sized = scenario.train.replace(micro_batch_size=batch, sequence_length=length)
        alone = estimate(scenario.replace(train=sized), replays=False)
        assert cell.peak_allocated_bytes == alone.quantities["peak_allocated"].expected


def test_unsloth_without_checkpointing_has_nothing_to_offload() -> None:
    """use_gradient_checkpointing = False: no layer is computed again, so that its tensors stay on the GPU."""
    assert settings("unsloth", checkpointing="none")["offload_activations"] == "none"


def test_adapters_in_16_bit_have_fp32_copies_where_weights_do() -> None:
    """DeepSpeed 0.19 zero/stage_1_and_2.py and bf16_optimizer.py make them of whatever trains."""
    narrow = settings("deepspeed", method="qlora", precision="bf16-master", lora_dtype="bf16", zero_stage=2)
    assert (narrow["master_dtype"], narrow["optimizer_state_dtype"], narrow["grad_dtype"]) == ("fp32", "fp32", "bf16")
    assert settings("deepspeed", method="qlora", precision="bf16", lora_dtype="bf16").get("master_dtype") is None


def test_unsloth_keeps_only_adapters_and_one_layer_beside_the_weights() -> None:
    """Two samples of 2,048 tokens: 31 more layers' inputs of 2 · 2048 · 4096 bf16 values would be 0.97 GiB."""
    sizes = [
        step("unsloth", offload_activations=away).quantities["peak_allocated"].expected for away in ("cpu", "none")
    ]
    assert sizes[1] - sizes[0] == pytest.approx(31 * 2 * 2 * 2048 * 4096, rel=0.1)


def test_megatron_keeps_16_bit_weights_with_a_master_copy_and_its_own_loss() -> None:
    found = settings("megatron", method="full")
    assert (found["precision"], found["param_dtype"], found["master_dtype"]) == ("bf16-master", "bf16", "fp32")
    assert found["grad_dtype"] == "fp32"
    assert found["loss"] == "vocab-parallel"
    assert settings("megatron", method="full", precision="fp16-master")["param_dtype"] == "fp16"


def test_deepspeeds_own_16_bit_is_named_where_autocast_is_computed() -> None:
    def notes(**changed: Any) -> str:
        return " ".join(step("deepspeed", method="full", **changed).notes)

    assert "--precision bf16-master" in notes(precision="bf16-mixed")
    assert "--precision fp16-master" in notes(precision="fp16-mixed")
    assert "-master" not in notes(precision="bf16-master")


@pytest.mark.parametrize(
    ("name", "tokens"), [("openai/whisper-tiny", 448), ("gpt2", 1024), ("meta-llama/Llama-3.1-8B", 2048)]
)
def test_an_open_length_is_the_models_own_up_to_2048_tokens(name: str, tokens: int) -> None:
    assert estimate({"model": name, "task": "train"}).scenario["train"]["sequence_length"] == tokens


@pytest.mark.parametrize("framework", ["ms-swift", "llamafactory"])
def test_conversations_never_reserve_less_than_is_allocated(framework: str) -> None:
    train = {"framework": framework, "method": "lora", "checkpointing": "full", "micro_batch_size": 16}
    found = estimate({"model": "Qwen/Qwen2.5-7B", "task": "train", "gpu": "h100-sxm-80gb", "train": train}).quantities
    assert found["peak_reserved"].expected >= found["peak_allocated"].expected
    assert found["nvidia_smi"].expected >= found["total_needed"].expected


def test_megatrons_8_bit_products_leave_the_optimizer_as_it_is() -> None:
    table = {"framework": "megatron", "precision": "fp8-mixed", "param_dtype": "bf16"}
    found = estimate({"model": "meta-llama/Llama-3.1-8B", "task": "train", "num_gpus": 8, "train": table})
    settings = found.scenario["train"]
    assert (settings["grad_dtype"], settings["optimizer_state_dtype"], settings["master_dtype"]) == ("fp32",) * 3


def test_zero_offloads_weights_in_stage_3_alone() -> None:
    sizes = {}
    for stage, offload in ((2, "none"), (2, "cpu"), (3, "cpu")):
        train = {"framework": "deepspeed", "zero_stage": stage, "offload_params": offload}
        found = estimate({"model": "Qwen/Qwen2.5-7B", "task": "train", "num_gpus": 8, "train": train})
        sizes[stage, offload] = found.quantities["weights"].expected
    assert sizes[2, "cpu"] == sizes[2, "none"] > sizes[3, "cpu"] == 0


@pytest.mark.parametrize(
    ("version", "waits"),
    [("", True), ("transformers 4.57", False), ("transformers 4.57, accelerate 1.11.0", True),
     ("transformers 5.1, accelerate 1.10.1", False)],
)  # fmt: skip
def test_gradients_wait_whole_for_the_last_micro_batch_since_accelerate_1_11(version: str, waits: bool) -> None:
    """accelerate pull request 3762: `no_sync` does nothing for FSDP 2 before."""
    train = TrainSettings(fsdp="full-shard", gradient_accumulation_steps=4, framework_version=version or None)
    assert gradient_life(train).deferred is waits


@pytest.mark.parametrize(
    ("framework", "changed", "expected"),
    [
        ("transformers", {}, False),
        ("transformers", {"framework_version": "4.57"}, True),
        ("llamafactory", {}, True),
        ("axolotl", {}, True),
        ("axolotl", {"extra_models": ("reference",)}, False),
        ("ms-swift", {}, True),
        ("ms-swift", {"checkpointing": "none"}, False),
    ],
)
def test_who_checkpoints_with_reentry(framework: str, changed: dict[str, Any], expected: bool) -> None:
    assert reentrant(TrainSettings(framework=framework, **{"checkpointing": "full", **changed})) is expected


@pytest.mark.parametrize(
    ("model", "version", "expected"),
    [
        ("meta-llama/Llama-3.1-8B", "", ("selective", "chunked")),
        ("meta-llama/Llama-3.1-70B-Instruct", "", ("full", "chunked")),
        ("Qwen/Qwen3-1.7B", "", ("selective", "chunked")),
        ("Qwen/Qwen3-32B", "torchtitan of September 2025", ("full", "standard")),
        ("meta-llama/Llama-3.1-8B", "torchtitan 0.2.0", ("selective", "standard")),
        ("deepseek-ai/DeepSeek-V3", "", ("selective", "chunked")),
    ],
)
def test_torchtitan_follows_its_own_configurations(model: str, version: str, expected: tuple[str, str]) -> None:
    """torchtitan 0.3 models/*/config_registry.py; pull request 2937 of April 2026."""
    train = {"framework": "torchtitan", **({"framework_version": version} if version else {})}
    found = estimate({"model": model, "task": "train", "num_gpus": 64, "train": {**train, "fsdp": "full-shard"}})
    assert (found.scenario["train"]["checkpointing"], found.scenario["train"]["loss"]) == expected
    assert any(note.startswith("not stated, so as torchtitan ") for note in found.notes)


@pytest.mark.parametrize(
    ("version", "freed"),
    [("", False), ("torchtitan 03be241 (August 2026)", False), ("torchtitan of July 2026", True), ("0.2.2", True)],
)
def test_gradients_of_torchtitan_stay_since_its_graphs(version: str, freed: bool) -> None:
    """Pull request 3559 of 13 August 2026, torchtitan 0.3 trainer.py: zero_grad(set_to_none=disable_cuda_graphs)."""
    train = {"framework": "torchtitan", "sequence_length": 128, **({"framework_version": version} if version else {})}
    found = estimate({"model": "Qwen/Qwen3-8B", "task": "train", "num_gpus": 8, "train": train})
    moments = {phase.name: phase.bytes for phase in found.phases}
    assert found.scenario["train"]["set_to_none"] is freed
    assert (moments["forward"] < moments["optimizer step"]) is freed


@pytest.mark.parametrize(
    ("framework", "version", "said"),
    [
        ("llamafactory", "", "as LLaMA-Factory 0.9.5 does it"),
        ("axolotl", "axolotl 0.4.1", "as axolotl 0.4.1 does it"),
        ("axolotl", "torch 2.5", "as axolotl 0.19 does it"),
        ("torchtitan", "2024-06", "as torchtitan does it"),
        ("llm-foundry", "", "as llm-foundry does it"),
    ],
)
def test_which_version_is_taken_is_said(framework: str, version: str, said: str) -> None:
    assert said in " ".join(step(framework, version, method="full").notes)


@pytest.mark.parametrize(
    ("version", "changed", "runs"),
    [
        ("", {}, True), ("axolotl 0.10", {}, True), ("axolotl 0.9", {}, False), ("axolotl of April 2025", {}, False),
        ("axolotl of May 2025", {}, True), ("axolotl 0.12", {"lora_dropout": 0.05}, False),
        ("axolotl 0.16", {"lora_dropout": 0.05}, True), ("", {"quantization": "int8"}, False),
        ("", {"dora": True}, False), ("", {"extra_models": ["reference"]}, False), ("", {"method": "full"}, False),
        ("", {"kernels": ["liger"]}, False), ("", {"kernels": []}, False),
    ],
)  # fmt: skip
def test_axolotl_runs_adapters_in_kernels_of_its_own(version: str, changed: dict[str, Any], runs: bool) -> None:
    """axolotl 0.10 to 0.18 utils/schemas/config.py check_auto_enable_lora_kernels; what a scenario names is all."""
    assert ("axolotl" in settings("axolotl", version, **changed)["kernels"]) == runs


@pytest.mark.parametrize(
    ("sharding", "runs"),
    [({}, True), ({"fsdp": "full-shard", "fsdp_version": 1}, False), ({"fsdp": "full-shard", "fsdp_version": 2}, True)],
)
def test_axolotls_kernels_for_adapters_and_fsdp(sharding: dict[str, Any], runs: bool) -> None:
    train = {"framework": "axolotl", "method": "lora", **sharding}
    scenario = {"model": "meta-llama/Llama-3.1-8B", "task": "train", "num_gpus": 2, "train": train}
    assert ("axolotl" in estimate(scenario).scenario["train"]["kernels"]) == runs


@pytest.mark.parametrize("precision", ["bf16-mixed", "fp16-mixed"])
@pytest.mark.parametrize(
    ("framework", "method", "narrow"),
    [
        ("unsloth", "qlora", True),
        ("transformers", "qlora", True),
        ("unsloth", "lora", True),
        ("llamafactory", "lora", True),
        ("axolotl", "lora", True),
        ("ms-swift", "lora", True),
        ("transformers", "lora", False),
        ("unsloth", "full", False),
        ("axolotl", "full", False),
    ],
)
def test_frozen_weights_beside_autocast_are_loaded_in_16_bits(
    framework: str, method: str, narrow: bool, precision: str
) -> None:
    """unsloth 2024.8 to 2026.7 models/llama.py, LLaMA-Factory 0.8.3 model/patcher.py, axolotl 0.16.1 utils/config."""
    found = settings(framework, method=method, precision=precision)
    assert (found["param_dtype"], found["lora_dtype"]) == (precision.split("-")[0] if narrow else "fp32", "fp32")
    assert settings(framework, method=method, precision=precision, param_dtype="fp32")["param_dtype"] == "fp32"


def test_unsloth_in_llamafactory_has_its_own_loss_and_checkpoints_in_host_memory() -> None:
    """LLaMA-Factory 0.8.3 and 0.9.4 model/model_utils/unsloth.py: FastLanguageModel."""
    old = settings("llamafactory", "llamafactory of May 2024", kernels=["unsloth"])
    new = settings("llamafactory", "llamafactory of October 2025", kernels=["unsloth"])
    assert (old["loss"], old["offload_activations"]) == ("fused", "cpu")
    assert (new["loss"], new["offload_activations"]) == ("fused-linear", "cpu")
    assert settings("llamafactory", kernels=["liger"])["offload_activations"] == "none"
    assert settings("llamafactory", kernels=["unsloth"], checkpointing="none")["offload_activations"] == "none"
