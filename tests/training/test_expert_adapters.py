"""Adapters on experts that are one tensor: the parameters of the states are those that the layers record."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from described_types import small_model

from vramwise import estimate
from vramwise.errors import ScenarioError
from vramwise.models import describe, supported_types
from vramwise.models.adapters import adapter_shapes
from vramwise.models.autograd import evaluate, with_rounded_axes
from vramwise.models.model import Model
from vramwise.models.operations.simple import Conv1dLinear, Linear
from vramwise.models.step import BlockRun, record_forward
from vramwise.scenario import Scenario
from vramwise.training.answer import job_of
from vramwise.training.model_states.states import model_states
from vramwise.training.recipe.adapters import adapters, peft_targets
from vramwise.training.recipe.settings import execution

UNTRAINED = frozenset({"kimi_k3", "bailing_moe_linear"})
MIXTRAL = {
    "model_type": "mixtral", "hidden_size": 64, "intermediate_size": 224, "num_hidden_layers": 3,
    "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 512, "num_local_experts": 4,
}  # fmt: skip


def trained_bytes(run: BlockRun) -> int:
    weights = {t.storage: t.nbytes for node in run.nodes for t in node.inputs if t.is_parameter and t.requires_grad}
    return sum(int(size) for size in weights.values())  # type: ignore[call-overload]


def with_experts(model_type: str) -> Model | None:
    """A model whose blocks all run on text, where it has such experts and training it is described."""
    model = small_model(model_type)
    runs = all(block.modality == "text" for block in model.blocks) and model_type not in UNTRAINED
    return model if runs and adapters(model, ("experts",), 8) else None


@pytest.mark.parametrize("model_type", supported_types())
def test_adapters_of_experts_are_counted_as_they_are_recorded(model_type: str) -> None:
    model = with_experts(model_type)
    if model is None:
        return
    train = {"method": "lora", "lora_targets": ["experts"], "precision": "bf16"}
    job = job_of(Scenario.from_dict({"model": "x", "task": "train", "train": train}), model, None)
    forward = record_forward(job.model, execution(job.structure, job.model), batch=2, sequence=128)
    assert (
        sum(trained_bytes(run) for run in forward.runs)
        == 4 * model_states(job.model, job.structure, job.ranks[0]).num_trainable
    )


@pytest.mark.parametrize("model_type", supported_types())
def test_adapters_read_what_their_layer_reads_and_give_what_it_gives(model_type: str) -> None:
    for op in (op for block in small_model(model_type).blocks for op in block.ops):
        if isinstance(op, Linear | Conv1dLinear):
            down, up = adapter_shapes(op, op.parameters[0], 8)
            assert (down, up) == ((8, op.inputs[0].width), (op.outputs[0].width, 8))


def estimated(**train: Any) -> Any:
    return estimate({"model": MIXTRAL, "task": "train", "train": {"method": "lora", "sequence_length": 128, **train}})


def test_mixtrals_experts_by_hand() -> None:
    """Gate and up projection have twice the rank, each expert its own: 3 layers, 4 experts, rank 8."""
    by_hand = 3 * (16 * 4 * (64 + 448) + 8 * 4 * (224 + 64))
    assert estimated(lora_targets=["experts"]).model.num_trainable_parameters == by_hand


QWEN3 = {**MIXTRAL, "model_type": "qwen3_moe", "moe_intermediate_size": 32, "num_experts": 4, "head_dim": 16,
         "num_experts_per_tok": 2}  # fmt: skip
QWEN2 = {**QWEN3, "model_type": "qwen2_moe", "shared_expert_intermediate_size": 48, "mlp_only_layers": [0]}
DEEPSEEK = {
    **QWEN3, "model_type": "deepseek_v3", "n_routed_experts": 4, "n_group": 1, "topk_group": 1, "v_head_dim": 16,
    "first_k_dense_replace": 1, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
}  # fmt: skip
FORMER = ("gate_proj", "up_proj", "down_proj")


def placed_by_us(config: dict[str, Any], targets: Any, **train: Any) -> list[tuple[int, ...]]:
    scenario = {"model": "x", "task": "train", "train": {"method": "lora", "lora_targets": targets, **train}}
    settings = Scenario.from_dict(scenario).train
    model = describe(config)
    return sorted(shape for one in adapters(model, peft_targets(model, settings), 2) for shape in one.shapes)


def placed_by_peft(config: dict[str, Any], targets: Any, **more: Any) -> list[tuple[int, ...]]:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    peft = pytest.importorskip("peft")
    kind = transformers.AutoConfig.for_model(**config)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(kind)
        lora = peft.LoraConfig(r=2, target_modules=targets, task_type="CAUSAL_LM", **more)
        real = peft.get_peft_model(model, lora, low_cpu_mem_usage=True)
    return sorted(tuple(weight.shape) for weight in real.parameters() if weight.requires_grad)


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("config", "targets"),
    [
        *((config, "all-linear") for config in (MIXTRAL, QWEN3, QWEN2, DEEPSEEK)),
        (QWEN3, ["q_proj", *FORMER]), (DEEPSEEK, ["o_proj", *FORMER]), (MIXTRAL, ["q_proj", "w1", "w2", "w3"]),
        (QWEN2, ["q_proj", *FORMER]), (QWEN3, ["gate"]), (MIXTRAL, ["gate", "v_proj"]),
    ],
)  # fmt: skip
def test_experts_and_routers_get_the_adapters_that_peft_gives_them(config: dict[str, Any], targets: Any) -> None:
    assert placed_by_us(config, targets) == placed_by_peft(config, targets)


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
def test_one_half_of_a_fused_tensor_is_refused_as_peft_refuses_it() -> None:
    with pytest.raises(ValueError, match="without also targeting w3"):
        placed_by_peft(MIXTRAL, ["q_proj", "w1"])
    with pytest.raises(ScenarioError, match="peft refuses w1 and w3 one without the other"):
        placed_by_us(MIXTRAL, ["q_proj", "w1"])


@pytest.mark.parametrize(
    ("train", "means_experts"),
    [
        ({"framework_version": "peft 0.18"}, False),
        ({"framework_version": "transformers 4.57"}, False),
        ({"framework": "axolotl"}, False),  # it names the linear layers that it finds
        ({"framework": "llamafactory"}, False),
        ({"framework": "unsloth"}, False),
        ({}, True),
        ({"framework": "pytorch"}, True),
    ],
)
def test_all_linear_by_version_and_framework(train: dict[str, Any], means_experts: bool) -> None:
    placed = placed_by_us(QWEN3, "all-linear", **train)
    assert (2, 64) in placed
    assert ((2 * 2 * 4, 64) in placed) is means_experts


def test_peft_0_19_refuses_all_linear() -> None:
    with pytest.raises(ScenarioError, match="reads all-linear as letters"):
        placed_by_us(MIXTRAL, "all-linear", framework_version="peft 0.19")


@pytest.mark.parametrize(("key", "value"), [("dora", True), ("lora_dropout", 0.1)])
def test_what_adds_up_whole_experts_takes_neither_dropout_nor_dora(key: str, value: Any) -> None:
    with pytest.raises(ScenarioError, match=f"train.{key}: peft refuses"):
        estimated(**{key: value})
    for parameters in ("experts", "experts.down_proj", "gate.weight"):
        with pytest.raises(ScenarioError, match=f"train.{key}: peft refuses"):
            estimated(**{key: value}, lora_targets=["q_proj", parameters])
    estimated(**{key: value}, lora_targets=["q_proj"])


PARAMETERS = ("mlp.experts.gate_up_proj", "experts.down_proj", "mlp.gate.weight")


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("config", [MIXTRAL, QWEN3, QWEN2, DEEPSEEK])
@pytest.mark.parametrize("parameters", [PARAMETERS[:1], PARAMETERS[1:2], PARAMETERS[2:], PARAMETERS])
def test_named_parameters_get_the_adapters_that_peft_gives_them(
    config: dict[str, Any], parameters: tuple[str, ...]
) -> None:
    """Named by itself, a tensor that stands for two layers has the rank of one."""
    ours = placed_by_us(config, ["q_proj", "o_proj", *parameters])
    assert ours == placed_by_peft(config, ["q_proj", "o_proj"], target_parameters=list(parameters))


def recorded_and_counted(config: dict[str, Any], targets: Any) -> tuple[int, int]:
    """Trained parameters that the layers record, and those of the states."""
    train = {"method": "lora", "lora_targets": targets, "precision": "bf16"}
    job = job_of(Scenario.from_dict({"model": "x", "task": "train", "train": train}), describe(config), None)
    forward = record_forward(job.model, execution(job.structure, job.model), batch=2, sequence=128)
    recorded = sum(trained_bytes(run) for run in forward.runs) // 4
    return recorded, model_states(job.model, job.structure, job.ranks[0]).num_trainable


@pytest.mark.parametrize(
    "targets",
    [
        ".*layers\\.0\\.self_attn\\.(q|v)_proj",
        ["layers.1.self_attn.q_proj", "o_proj"],
        ["shared_expert.up_proj"],
        ["q_proj", "mlp.experts.gate_up_proj"],
        ["layers.1.mlp.experts.down_proj", "mlp.gate.weight"],
    ],
)
def test_layers_have_the_adapters_that_paths_and_expressions_name(targets: Any) -> None:
    recorded, counted = recorded_and_counted(QWEN2, targets)
    assert recorded == counted > 0


def test_the_note_says_what_all_linear_means() -> None:
    assert "all-linear means them and routers from peft 0.20 on" in "; ".join(estimated().notes)
    assert "adapters skip experts" in "; ".join(estimated(lora_targets=["q_proj"]).notes)


def test_experts_layers_of_another_type_are_refused_with_the_reason() -> None:
    for target in ("gate_proj", "up_proj"):
        with pytest.raises(ScenarioError, match=f'"{target}" gets no adapter: .* and peft wraps linear layers'):
            estimated(lora_targets=[target])


def test_targets_that_match_nothing_beside_others_are_said() -> None:
    notes = "; ".join(estimated(lora_targets=["q_proj", "up_proj"]).notes)
    assert 'lora_targets up_proj changed nothing here: "up_proj" gets no adapter' in notes
    assert "lora_targets" not in "; ".join(estimated(lora_targets=["q_proj", "experts"]).notes)


def test_dense_models_have_no_experts() -> None:
    llama = {**MIXTRAL, "model_type": "llama"}
    with pytest.raises(ScenarioError, match='no module of the model is called "experts"'):
        estimate({"model": llama, "task": "train", "train": {"method": "lora", "lora_targets": ["experts"]}})


AS_MODULES = {
    "framework": "transformers",
    "framework_version": "transformers 4.57.6, peft 0.18.0",
    "param_dtype": "bf16",
}


def saved_on_the_cpu(config: dict[str, Any], targets: Any, dropout: float) -> tuple[int, int]:
    """Values that train, and what autograd keeps of the model's layers."""
    train = {**AS_MODULES, "method": "lora", "lora_targets": targets, "lora_dropout": dropout, "precision": "bf16"}
    job = job_of(Scenario.from_dict({"model": "x", "task": "train", "train": {**train, "lora_rank": 8}}),
                 describe(config), None)  # fmt: skip
    run = replace(execution(job.structure, job.model), device="cpu")
    layers = record_forward(job.model, run, batch=2, sequence=64).runs
    axes = with_rounded_axes(batch=2, sequence=64)
    kept = sum(
        int(evaluate(storage.nbytes, axes)) for layer in layers if layer.layer is not None for storage, _ in layer.saved
    )
    return model_states(job.model, job.structure, job.ranks[0]).num_trainable, kept


@pytest.mark.parametrize(
    ("config", "dropout", "trained", "kept"),
    [
        (MIXTRAL, 0.0, 86_016, 1_155_072), (MIXTRAL, 0.1, 86_016, 2_236_416),
        (QWEN3, 0.0, 32_256, 565_248), (QWEN3, 0.1, 32_256, 1_056_768),
    ],
)  # fmt: skip
def test_before_transformers_5_every_expert_has_adapters_beside_its_layers(
    config: dict[str, Any], dropout: float, trained: int, kept: int
) -> None:
    """transformers 4.57.6 with peft 0.18.0 and torch 2.13 on the CPU: what trains, and what autograd keeps of two rows
    of 64 tokens beyond adapters on queries alone."""
    names = ["w1", "w2", "w3"] if config is MIXTRAL else list(FORMER)
    of_queries = saved_on_the_cpu(config, ["q_proj"], dropout)[1]
    found = saved_on_the_cpu(config, ["q_proj", *names], dropout)
    assert (found[0], found[1] - of_queries) == (trained, kept)
    everything = 96_864 if config is MIXTRAL else 47_712
    assert saved_on_the_cpu(config, "all-linear", dropout)[0] == everything


def test_layers_of_experts_are_named_by_paths_and_expressions_too() -> None:
    def trained(targets: Any) -> int:
        return saved_on_the_cpu(QWEN3, targets, 0.0)[0]

    everything, queries = trained(["q_proj", *FORMER]), trained(["q_proj"])
    assert trained(r".*(q_proj|layers\.1\.mlp\.experts\.\d+\.(gate|up|down)_proj)") - queries == (
        everything - queries
    ) // 3  # fmt: skip
    with pytest.raises(ScenarioError, match="adapters on experts' up_proj alone are not described"):
        trained(["up_proj"])


def test_adapters_beside_experts_take_dropout_but_dora_is_not_described() -> None:
    estimated(**AS_MODULES, lora_targets="all-linear", lora_dropout=0.1)
    with pytest.raises(ScenarioError, match=r"train.dora: DoRA on experts and routers is not described"):
        estimated(**AS_MODULES, lora_targets="all-linear", dora=True)


@pytest.mark.parametrize(
    ("model", "version", "trained"),
    [
        ("baidu/ERNIE-4.5-21B-A3B-PT", "unsloth 2025.11.3", 177_545_216),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "unsloth 2025.12.5", 220_968_448),
        ("mistralai/Mixtral-8x7B-v0.1", "transformers 4.38", 960_495_616),
    ],
)
def test_what_published_runs_printed_that_trains(model: str, version: str, trained: int) -> None:
    """Two of unslothai/notebooks, and the translation into Hinglish of training-predicted.jsonl."""
    of_mixtral = {"lora_rank": 64, "lora_targets": ["q_proj", "k_proj", "v_proj", "o_proj", "w1", "w2", "w3"]}
    adapters = of_mixtral if "Mixtral" in model else {"lora_rank": 8, "lora_targets": "all-linear"}
    train = {"framework": version.split()[0], "framework_version": version, "method": "lora", **adapters}
    found = estimate({"model": model, "task": "train", "train": {**train, "sequence_length": 128}})
    assert found.model.num_trainable_parameters == trained
