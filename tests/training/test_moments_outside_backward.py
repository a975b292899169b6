"""Clipping, evaluation, the first step and steps in backward, held against the real modules on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
from live_bytes import kept_bytes, peak_bytes

from vramwise.errors import ScenarioError
from vramwise.models import describe
from vramwise.scenario import Scenario
from vramwise.training.components import Component
from vramwise.training.job import Job, job_of
from vramwise.training.step.moments import Moment

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

WIDE = {"hidden_size": 256, "intermediate_size": 1024, "vocab_size": 512}
MANY_CLASSES = {"hidden_size": 128, "intermediate_size": 256, "vocab_size": 16_384}
BATCH, SEQUENCE = 4, 128


def config(sizes: dict[str, int]) -> Any:
    return transformers.LlamaConfig(
        **sizes, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=4, use_cache=False,
        attn_implementation="sdpa",
    )  # fmt: skip


def job(sizes: dict[str, int], **train: Any) -> Job:
    made = {"model_type": "llama", "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 4,
            "architectures": ["LlamaForCausalLM"], **sizes}  # fmt: skip
    settings = {"precision": "fp32", "attention": "sdpa", "micro_batch_size": BATCH, "sequence_length": SEQUENCE}
    scenario = Scenario.from_dict({"model": made, "task": "train", "train": settings | train})
    return job_of(scenario, describe(made), None)


def moments(made: Job) -> dict[str, Moment]:
    return {moment.name: moment for moment in made.moments(made.ranks[0])}


@pytest.mark.parametrize("sizes", [WIDE, MANY_CLASSES], ids=["layers", "logits"])
def test_an_evaluation_holds_what_the_real_forward_pass_holds(sizes: dict[str, int]) -> None:
    model = transformers.LlamaForCausalLM(config(sizes)).eval()
    ids = torch.randint(0, 512, (BATCH, SEQUENCE))

    def evaluate() -> None:
        with torch.no_grad():
            model(input_ids=ids, labels=ids)

    parts = moments(job(sizes))["evaluation"].parts
    own = sum(parts.get(name, 0) for name in ("forward temporaries", "masks", "weight casts"))
    assert own == pytest.approx(peak_bytes(evaluate), rel=0.002)


def test_an_evaluation_keeps_the_cache_that_nobody_turned_off() -> None:
    model = transformers.LlamaForCausalLM(config(WIDE)).eval()
    ids = torch.randint(0, 512, (BATCH, SEQUENCE))

    def evaluate() -> None:
        with torch.no_grad():
            model(input_ids=ids, labels=ids, use_cache=True)

    stated = {"eval_batch_size": BATCH, "framework_version": "transformers 4.57"}
    parts = moments(job(WIDE, **stated))["evaluation"].parts
    own = sum(parts.get(name, 0) for name in ("forward temporaries", "masks", "weight casts", "outputs held"))
    assert own == pytest.approx(peak_bytes(evaluate), rel=0.01)
    for other in ({"framework_version": "transformers 5.1"}, {"framework_version": "transformers 4.57, trl 0.24"},
                  {"framework": "llamafactory"}, {"eval_batch_size": None}):  # fmt: skip
        assert "outputs held" not in moments(job(WIDE, **(stated | other)))["evaluation"].parts


@pytest.mark.parametrize(("attention", "heads"), [("sdpa", 4), ("eager", 1)])
def test_a_loop_that_names_its_outputs_keeps_their_cache_until_the_next_are_there(attention: str, heads: int) -> None:
    """transformers' own example: `outputs = model(**batch); loss = outputs.loss`."""
    sizes = WIDE | {"num_key_value_heads": heads}
    made = {"num_hidden_layers": 3, "num_attention_heads": 4, "attn_implementation": attention, **sizes}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**made))
    ids = torch.randint(0, 512, (BATCH, SEQUENCE))

    def outputs(*, use_cache: bool, backward: bool) -> Any:
        found = model(input_ids=ids, labels=ids, use_cache=use_cache)
        if backward:
            found.loss.backward()
            model.zero_grad()
        return found

    def kept(*, backward: bool) -> int:
        return kept_bytes(lambda: outputs(use_cache=True, backward=backward)) - kept_bytes(
            lambda: outputs(use_cache=False, backward=backward)
        )

    def said(**train: object) -> dict[str, Moment]:
        return moments(job(sizes, framework="pytorch", optimizer="sgd", attention=attention, **train))

    cache = 3 * 2 * BATCH * SEQUENCE * heads * 64 * 4
    step, held = said(), Component.OUTPUTS_HELD
    assert step["optimizer step"].of(held) == kept(backward=True) == cache
    assert step["forward end"].of(held) == kept(backward=False) == (0 if heads == 4 else cache)
    assert step["forward"].of(held) == cache
    for off in ({"checkpointing": "full"}, {"framework_version": "transformers 4.44"}, {"keeps_outputs": False}):
        assert not any(said(**off)[name].of(held) for name in ("forward", "backward: layers", "optimizer step"))


def test_the_outputs_of_a_trainer_have_a_cache_until_the_loss_is_returned() -> None:
    """What autograd keeps beside it is repeated for every head here (the test above: against the real pass)."""
    sizes, old = WIDE | {"num_key_value_heads": 1}, "transformers 4.57"

    def held(moment: str, version: str = old, **train: object) -> int:
        step = job(sizes, attention="eager", framework="transformers", framework_version=version, **train)
        return moments(step)[moment].of(Component.OUTPUTS_HELD)

    last_hidden, cache = BATCH * SEQUENCE * 256 * 4, 3 * 2 * BATCH * SEQUENCE * 64 * 4
    without = held("loss", "transformers 5.1")
    assert without in (0, last_hidden)
    assert held("loss") == without + cache
    assert held("backward: layers") == held("optimizer step") == 0
    for version in ("transformers 4.44", "transformers 4.57, trl 0.24"):
        assert held("loss", version) == without
    assert held("loss", checkpointing="full") == held("loss", "transformers 5.1", checkpointing="full")


def test_the_norms_of_clipping_are_a_scalar_a_tensor_and_their_stack() -> None:
    """The same on fake CUDA tensors: 183 traced steps in test_traced_moments.py."""
    found = moments(job(WIDE))
    assert found["clipping"].total - found["backward end"].total == (2 + 3 * 9 + 1) * 512 + 512 + 512
    assert "clipping" not in moments(job(WIDE, clip_grad_norm=False))


def test_the_first_step_lacks_optimizer_states() -> None:
    found = moments(job(MANY_CLASSES))
    assert "optimizer states" not in found["first step"].parts
    before = [found[name].total for name in ("loss", "forward end", "backward: head", "backward: layers")]
    assert found["first step"].total == max(before) - found["optimizer step"].parts["optimizer states"]
    assert "first step" not in moments(job(MANY_CLASSES, optimizer="sgd"))


@pytest.mark.parametrize("sizes", [WIDE, MANY_CLASSES], ids=["layers", "logits"])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_step_in_backward_holds_one_gradient_at_a_time(sizes: dict[str, int], optimizer: str) -> None:
    model = transformers.LlamaForCausalLM(config(sizes))
    ids = torch.randint(0, 512, (BATCH, SEQUENCE))
    kinds = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}
    steppers = {p: kinds[optimizer]([p], foreach=False, lr=1e-4) for p in model.parameters()}

    def step(parameter: Any) -> None:
        steppers[parameter].step()
        steppers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)

    made = job(sizes, optimizer=optimizer, optimizer_impl="for-loop", gradient_release=True)
    found = moments(made)
    assert "optimizer step" not in found
    assert found["backward end"].parts.get("gradients", 0) == 0
    states = found["load"].total + found["backward end"].parts.get("optimizer states", 0)
    largest = max(moment.total for name, moment in found.items() if name not in ("load", "first step")) - states
    inputs = found["backward end"].parts["inputs"]
    real = peak_bytes(lambda: model(input_ids=ids, labels=ids).loss.backward())
    assert largest - inputs == pytest.approx(real, rel=0.02)


def test_gradients_that_zero_grad_keeps_are_there_in_forward() -> None:
    kept, freed = moments(job(WIDE, set_to_none=False)), moments(job(WIDE))
    gradients = freed["backward end"].parts["gradients"]
    assert kept["loss"].total - freed["loss"].total == gradients
    assert kept["evaluation"].total - freed["evaluation"].total == gradients


def test_lomo_holds_no_gradients_and_updates_in_fp32() -> None:
    made = job(WIDE, optimizer="lomo", precision="bf16")
    largest = WIDE["hidden_size"] * WIDE["intermediate_size"]
    assert made.states(made.ranks[0]).released[0] == (2 * largest, 8 * largest)
    found = moments(made)
    assert found["backward end"].parts.get("gradients", 0) == 0


def test_a_step_in_backward_does_not_wait_for_other_micro_batches() -> None:
    with pytest.raises(ScenarioError, match="gradient_accumulation_steps"):
        job(WIDE, gradient_release=True, gradient_accumulation_steps=4)


def test_an_evaluation_batch_of_its_own_can_be_the_peak() -> None:
    one, own = (job(MANY_CLASSES, micro_batch_size=n, eval_batch_size=8, optimizer="sgd") for n in (1, 8))
    assert moments(one)["evaluation"].parts == moments(own)["evaluation"].parts
    found = moments(job(MANY_CLASSES, checkpointing="full", eval_batch_size=64))
    assert max(found.values(), key=lambda moment: moment.total).name == "evaluation"
    assert found["evaluation"].total > 10 * moments(job(MANY_CLASSES))["evaluation"].parts["forward temporaries"]
