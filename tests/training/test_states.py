"""States are those of the real optimizers and adapters, tensor by tensor."""

from __future__ import annotations

import json
from typing import Any

import pytest

from vramwise import estimate
from vramwise.errors import ScenarioError, UnknownNameError
from vramwise.models import describe
from vramwise.models.model import Model
from vramwise.optimizers import RULES, TrainedTensor, is_paged, kept_bytes, step_transient_bytes
from vramwise.result import Node
from vramwise.scenario import Scenario
from vramwise.scenario.names import OPTIMIZERS
from vramwise.sources import resolve
from vramwise.training import estimate_training
from vramwise.training.job import Job, job_of
from vramwise.training.model_states.trained import trained_tensors
from vramwise.training.recipe.adapters import adapters

TINY = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 320, "max_position_embeddings": 128,
    "tie_word_embeddings": False,
}  # fmt: skip


def job(model: Model, **train: Any) -> Job:
    return job_of(Scenario.from_dict({"model": "tiny", "task": "train", "train": train}), model, None)


def kept_for(optimizer: str, model: Model, **train: Any) -> int:
    made = job(model, optimizer=optimizer, **{"precision": "bf16-mixed", **train})
    return sum(sum(kept_bytes(optimizer, tensor)) for tensor, _ in trained_tensors(model, made.structure))


def real_states(optimizer_class: Any, **options: Any) -> int:
    """Bytes of state tensors that an optimizer holds after one step on a real model."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    real = transformers.LlamaForCausalLM(transformers.LlamaConfig(**TINY))
    optimizer = optimizer_class([p for p in real.parameters()], **options)
    real(input_ids=torch.zeros(1, 8, dtype=torch.long), labels=torch.zeros(1, 8, dtype=torch.long)).loss.backward()
    optimizer.step()
    tensors = [v for state in optimizer.state.values() for k, v in state.items() if k != "step"]
    return sum(t.numel() * t.element_size() for t in tensors if torch.is_tensor(t) and t.ndim > 0)


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("name", "path", "options"),
    [
        ("adamw", "AdamW", {}),
        ("sgd", "SGD", {"lr": 0.1}),
        ("sgd-momentum", "SGD", {"lr": 0.1, "momentum": 0.9}),
    ],
)
def test_states_of_torch_optimizers(name: str, path: str, options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    assert kept_for(name, describe(TINY)) == real_states(getattr(torch.optim, path), **options)


@pytest.mark.oracle
def test_states_of_adafactor() -> None:
    transformers = pytest.importorskip("transformers")
    options = {"scale_parameter": False, "relative_step": False, "lr": 1e-3}
    assert kept_for("adafactor", describe(TINY)) == real_states(transformers.Adafactor, **options)


@pytest.mark.oracle
def test_states_of_muon_on_hidden_matrices() -> None:
    torch = pytest.importorskip("torch")
    weights = [torch.nn.Parameter(torch.randn(24, 16)), torch.nn.Parameter(torch.randn(8, 40))]
    optimizer = torch.optim.Muon(weights)
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    optimizer.step()
    real = sum(state["momentum_buffer"].numel() * 4 for state in optimizer.state.values())
    ours = [TrainedTensor("w", tuple(w.shape), "mlp", True, 4, 4, 4) for w in weights]
    assert sum(sum(kept_bytes("muon", tensor)) for tensor in ours) == real


def tensor(*shape: int, part: str = "mlp", name: str = "mlp.up_proj.weight") -> TrainedTensor:
    return TrainedTensor(name, shape, part, True, 2, 2, 4, head_dim=16)


@pytest.mark.parametrize(
    ("optimizer", "shape", "expected"),
    [
        ("adamw", (4096, 4096), 8 * 4096**2),
        ("adamw-8bit", (4096, 4096), 2 * (4096**2 + 4096**2 // 64)),
        ("adamw-8bit", (1000,), 8 * 1000),
        ("paged-adamw-8bit", (4096, 4096), 2 * (4096**2 + 4096**2 // 64)),
        ("paged-adamw", (4096, 4096), 8 * 4096**2),
        ("lion", (512, 512), 4 * 512**2),
        ("lion-8bit", (512, 512), 512**2 + 4 * 1024),
        ("adafactor", (300, 200), 4 * 500),
        ("adafactor", (300,), 4 * 300),
        ("adam-mini", (300, 200), 4 * 300 * 200 + 4 * 300),
        ("galore-adamw", (1024, 4096), 4 * 128 * 2 * 4096 + 2 * 128 * 1024),
        ("apollo", (1024, 4096), 4 * 128 * 2 * 4096 + 2 * 128 * 1024),
        ("lomo", (300, 200), 0),
        ("none", (300, 200), 0),
    ],
)
def test_kept_bytes_by_hand(optimizer: str, shape: tuple[int, ...], expected: int) -> None:
    assert sum(kept_bytes(optimizer, tensor(*shape))) == expected


def test_paged_states_in_32_bits_stay_so_whatever_weights_are_in() -> None:
    narrow = TrainedTensor("mlp.up_proj.weight", (4096, 64), "mlp", True, 2, 2, 2)
    assert sum(kept_bytes("paged-adamw", narrow)) == 8 * 4096 * 64
    assert step_transient_bytes("paged-adamw", "foreach", [narrow]) == 0


def test_trainer_keeps_8_bit_states_of_embeddings_in_fp32() -> None:
    embedding = tensor(1000, 64, part="embedding")
    assert sum(kept_bytes("adamw-8bit", embedding, fp32_embeddings=True)) == 8 * 64_000
    assert is_paged("paged-adamw-8bit", tensor(1000, 200))
    assert is_paged("paged-adamw", tensor(1000, 200))
    assert not is_paged("paged-adamw-8bit", embedding)


def test_the_step_needs_a_copy_only_where_it_is_foreach() -> None:
    tensors = [tensor(100, 10), tensor(50, 10)]
    assert step_transient_bytes("adamw", "foreach", tensors) == 4 * 1500
    assert step_transient_bytes("adamw", "for-loop", tensors) == 2 * 4 * 1000
    assert step_transient_bytes("adamw", "fused", tensors) == 0
    assert step_transient_bytes("adafactor", "foreach", tensors) == 4 * 4 * 1000
    assert step_transient_bytes("sgd", "foreach", tensors) == 0


def test_every_optimizer_that_can_be_asked_for_has_a_rule_of_its_own() -> None:
    assert set(RULES) == set(OPTIMIZERS)


def test_an_unknown_optimizer_is_not_answered_for_by_another() -> None:
    with pytest.raises(UnknownNameError, match='unknown optimizer "no-such-optimizer"'):
        kept_bytes("no-such-optimizer", tensor(10, 10))
    with pytest.raises(UnknownNameError, match="did you mean adamw"):
        step_transient_bytes("adamw9", "foreach", [tensor(10, 10)])


# -- adapters ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("targets", "rank", "trainable"),
    [
        ("all-linear", 8, 19_988_480),
        (("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"), 8, 19_988_480),
        (("q_proj", "v_proj"), 8, 4_194_304),
        (("self_attn.q_proj",), 64, 32 * 64 * 2 * 4096),
    ],
)
def test_trainable_parameters_of_llama_2_7b(targets: Any, rank: int, trainable: int) -> None:
    """peft prints 19,988,480 || 6,758,404,096 || 0.2958 for rank 8 on all seven."""
    found = resolve("meta-llama/Llama-2-7b-hf")
    model = describe(found.config, found.id)
    settings = {
        "method": "lora",
        "precision": "bf16",
        "lora_targets": list(targets) if targets != "all-linear" else targets,
    }
    scenario = Scenario.from_dict({"model": "x", "task": "train", "train": {**settings, "lora_rank": rank}})
    assert estimate_training(scenario, model, "", None).model.num_trainable_parameters == trainable


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # peft 0.21 asks by the old name
@pytest.mark.filterwarnings("ignore::UserWarning:peft")
@pytest.mark.parametrize("dora", [False, True])
@pytest.mark.parametrize("targets", ["all-linear", ["q_proj", "v_proj"], ["down_proj"], ["embed_tokens", "o_proj"],
                                      r".*self_attn\.(q|v)_proj", r"model\.layers\.1\..*_proj"])  # fmt: skip
def test_adapters_are_those_of_peft(targets: Any, dora: bool) -> None:
    transformers, peft = pytest.importorskip("transformers"), pytest.importorskip("peft")
    real = peft.get_peft_model(
        transformers.LlamaForCausalLM(transformers.LlamaConfig(**TINY)),
        peft.LoraConfig(task_type="CAUSAL_LM", r=4, target_modules=targets, use_dora=dora),
    )
    names = targets if targets == "all-linear" else (targets,) if isinstance(targets, str) else tuple(targets)
    ours = adapters(describe(TINY), names, 4, dora=dora)
    theirs = sorted(tuple(p.shape) for n, p in real.named_parameters() if p.requires_grad)
    assert sorted(shape for adapter in ours for shape in adapter.shapes) == theirs


def test_what_trains_beside_adapters_is_a_copy_in_its_own_dtype() -> None:
    """peft 0.21 with modules_to_save, bf16 base, after a step of torch's AdamW (bytes of its tensors)."""
    model = describe({**TINY, "hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 4,
                      "head_dim": 64, "vocab_size": 16384})  # fmt: skip
    made = job(model, method="lora", trainable=["embed_tokens", "lm_head"])
    states = made.states(made.ranks[0])
    assert states.num_trainable == 8_568_832
    held = states.weights + states.frozen_weights + states.adapter_weights
    assert (held, states.gradients, states.optimizer) == (42_144_256, 17_498_112, 34_996_224)
    own = job(model, method="lora", trainable=["embed_tokens", "lm_head"], framework="torchtune")
    assert own.states(own.ranks[0]).frozen_weights < states.frozen_weights


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore::UserWarning:peft")
@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("saved", [["embed_tokens"], ["lm_head"], ["embed_tokens", "lm_head"], ["norm"]])
def test_modules_to_save_are_the_copies_that_peft_makes(saved: list[str], tied: bool) -> None:
    torch = pytest.importorskip("torch")
    transformers, peft = pytest.importorskip("transformers"), pytest.importorskip("peft")
    sizes = {**TINY, "hidden_size": 256, "head_dim": 64, "vocab_size": 16384, "tie_word_embeddings": tied}
    base = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes)).to(torch.bfloat16)
    settings = peft.LoraConfig(task_type="CAUSAL_LM", r=8, target_modules="all-linear", modules_to_save=saved)
    real = peft.get_peft_model(base, settings)
    storages = {p.untyped_storage()._cdata: p.untyped_storage().nbytes() for p in real.parameters()}
    model = describe(sizes)
    made = job(model, method="lora", lora_rank=8, trainable=saved)
    states = made.states(made.ranks[0])
    assert states.num_trainable == sum(p.numel() for p in real.parameters() if p.requires_grad)
    assert states.weights + states.frozen_weights + states.adapter_weights == sum(storages.values())
    assert made.model.num_parameters == model.num_parameters


@pytest.mark.parametrize(
    ("framework", "settings", "width"),
    [
        ("transformers", {}, 2),
        ("transformers", {"method": "qlora", "kbit_preparation": True}, 4),
        ("llamafactory", {"precision": "bf16-mixed", "param_dtype": "bf16"}, 4),  # model/adapter.py: all that trains
        ("llamafactory", {}, 2),  # pure_bf16
        ("unsloth", {}, 2),
        ("unsloth", {"precision": "fp16"}, 4),  # models/llama.py, "Tesla T4 must use float32 and not float16"
    ],
)
def test_copies_of_modules_have_the_dtype_that_their_framework_gives_them(
    framework: str, settings: dict[str, Any], width: int
) -> None:
    model = describe({**TINY, "vocab_size": 16384, "tie_word_embeddings": False})
    made = job(model, **{"method": "lora", "precision": "bf16", "trainable": ["lm_head"], "framework": framework,
                         **settings})  # fmt: skip
    head = next(tensor for tensor, base in trained_tensors(model, made.structure) if tensor.name == base.name)
    assert (head.name, head.param_bytes) == ("lm_head.weight", width)


def test_an_expression_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r'"q_proj[(]" is no expression'):
        job(describe(TINY), method="lora", lora_targets=["q_proj("]).moments(job(describe(TINY)).ranks[0])


def test_an_unknown_target_names_the_near_ones() -> None:
    with pytest.raises(ScenarioError, match=r'train.lora_targets: no module .* "q_porj".*q_proj'):
        job(describe(TINY), method="lora", lora_targets=["q_porj"]).moments(job(describe(TINY)).ranks[0])


# -- whole answers -----------------------------------------------------------------------------------------


def loaded(**train: Any) -> Node:
    scenario = Scenario.from_dict({"model": "tiny", "task": "train", "train": train})
    return estimate_training(scenario, describe(TINY), "", None).phases[0].components


def test_weights_by_precision() -> None:
    n = describe(TINY).num_parameters
    rounding = 512 * len(describe(TINY).parameters)
    for precision, size in (("bf16", 2), ("fp16", 2), ("bf16-mixed", 4), ("fp32", 4), ("bf16-master", 2)):
        weights = loaded(precision=precision).find("weights")
        assert weights is not None
        assert 0 <= weights.bytes - size * n <= rounding


def test_a_quantized_base_keeps_embeddings_norms_and_head_in_16_bit() -> None:
    found = resolve("mistralai/Mistral-7B-v0.1")
    model = describe(found.config, found.id)
    sizes = {}
    for name, settings in {"nf4-dq": {}, "prepared": {"kbit_preparation": True}}.items():
        table = {"method": "qlora", "precision": "bf16", "quantization": "nf4-dq", **settings}
        scenario = Scenario.from_dict({"model": "x", "task": "train", "train": table})
        node = estimate_training(scenario, model, "", None).phases[0].components.find("weights")
        assert node is not None
        sizes[name] = node.bytes
    linear = sum(p.numel for p in model.parameters if p.is_linear and p.part != "head")
    rest = model.num_parameters - linear
    assert sizes["nf4-dq"] == pytest.approx(linear * (0.5 + 1 / 64 + 4 / (64 * 256)) + 2 * rest, rel=1e-4)
    assert sizes["prepared"] - sizes["nf4-dq"] == pytest.approx(2 * rest, rel=1e-3)


def test_dtypes_override_what_precision_implies() -> None:
    made = job(describe(TINY), precision="bf16", grad_dtype="fp32", optimizer_state_dtype="fp32", master_dtype="fp32")
    states, n = made.states(made.ranks[0]), describe(TINY).num_parameters
    assert states.weights == pytest.approx(2 * n, rel=0.05)
    assert states.gradients == pytest.approx(4 * n, rel=0.05)
    assert states.master == pytest.approx(4 * n, rel=0.05)
    assert states.optimizer == pytest.approx(8 * n, rel=0.05)
    assert json.loads(json.dumps(made.train.to_dict()))["master_dtype"] == "fp32"


@pytest.mark.parametrize(("master_dtype", "each"), [("fp32", 4), ("fp16", 2), (None, 0)])
def test_a_master_copy_has_its_own_width(master_dtype: str | None, each: int) -> None:
    made = job(describe(TINY), precision="bf16", **({"master_dtype": master_dtype} if master_dtype else {}))
    states, n = made.states(made.ranks[0]), describe(TINY).num_parameters
    assert states.master == pytest.approx(each * n, rel=0.05)


def test_adam_mini_counts_heads_of_models_whose_cache_has_none() -> None:
    """Latent attention caches no heads; adam_mini 1.1.1 cuts queries by hidden size and number of heads."""
    found = resolve("deepseek-ai/DeepSeek-V2-Lite")
    model = describe(found.config, found.id)
    made = job(model, optimizer="adam-mini", precision="bf16")
    tensor = next(t for t, _ in trained_tensors(model, made.structure) if "q_proj" in t.name)
    blocks = tensor.numel // (2048 * 2048 // 16)
    assert kept_bytes("adam-mini", tensor) == (2 * tensor.numel, 2 * blocks)


def test_a_flat_partition_is_stepped_as_one_tensor() -> None:
    """hiyouga/LlamaFactory issue 1221: Llama 7B under ZeRO 2 on eight V100, in torch's loop of AdamW.

    28.28 GiB were allocated, the first temporary of 3.14 GiB among them, and the second one of 3.14 found no room.
    """
    train = {
        "framework": "llamafactory", "method": "full", "precision": "fp16-master", "zero_stage": 2,
        "micro_batch_size": 1, "sequence_length": 1024, "checkpointing": "full", "optimizer_impl": "for-loop",
    }  # fmt: skip
    scenario = {"model": "huggyllama/llama-7b", "task": "train", "num_gpus": 8, "gpu": "v100-sxm2-32gb", "train": train}
    found = estimate(scenario)
    step = next(phase for phase in found.phases if phase.name == "optimizer step").components
    term = step.find("optimizer temporaries")
    assert term is not None
    assert term.bytes == pytest.approx(2 * 3.14 * 2**30, rel=0.001)
    assert found.quantities["peak_allocated"].expected == pytest.approx((28.28 + 3.14) * 2**30, rel=0.002)
