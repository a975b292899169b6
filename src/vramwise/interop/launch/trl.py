"""What each of TRL's trainers does beside a Trainer's step: pairs, a reference, completions that a rollout makes.

Defaults are those of trl 1.16 (trainer/*_config.py). Its trainers work the output layer and the log-probabilities out
a tile at a time (kernels/chunked_logprob.py), which is taken as the fused-linear loss.
"""

from __future__ import annotations

from vramwise.interop.launch.options import Options
from vramwise.interop.launch.values import fraction

STAGES = ("sft", "dpo", "grpo", "kto", "reward", "rloo", "distillation")
_LENGTH = 1024
_COMPLETION = 512
_BETAS = {"grpo": "0.0", "rloo": "0.05"}
_SHARE = "0.3"
OF_ITS_OWN = "vllm_mode server: the rollout engine has cards of its own, which are not counted"


def stage_settings(stage: str, options: Options) -> tuple[dict[str, object], list[str]]:
    """Keys of the scenario; `pairs` says that each sample of a batch is two sequences."""
    found: dict[str, object] = {"loss": "fused-linear"}
    notes = ["trl 1.16's tiled output layer and loss are taken; before, whole logits are made: --loss standard"]
    if options.is_on("activation_offloading"):
        found["offload_activations"] = "cpu"
    if stage in ("grpo", "rloo", "distillation"):
        rollout, said = rollout_settings(stage, options)
        return found | rollout, notes + said
    if options.first("packing_strategy") == "wrapped" and not options.is_on("padding_free"):
        found["padding_free"] = False  # trainer/sft_trainer.py joins rows for the bfd strategies alone
    if not {"max_length", "max_seq_length"} & set(options.values):
        found["sequence_length"] = _LENGTH
    if stage in ("dpo", "reward"):
        found["pairs"] = True
        notes.append("a batch holds the chosen and the rejected answer of each sample: micro_batch_size is twice it")
    if stage == "reward":
        del found["loss"]
        return {**found, "head": "sequence-classification"}, notes[1:]
    if stage == "dpo":
        found["loss"] = "preference"
        notes[0] = "trl 1.15's tiled loss is taken; before, whole logits are made: --framework-version 'trl 1.5'"
    if stage in ("dpo", "kto") and not options.is_on("precompute_ref_log_probs"):
        found["extra_models"] = ["reference"]
    return found, notes


def beside_a_step(stage: str) -> tuple[int, dict[str, object]]:
    """Sequences that a sample of a batch is, and the keys of `train` that say which models stand beside the policy.

    By the trainer's defaults; GRPO's completions are made by vLLM on the policy's cards, as `use_vllm` alone means.
    """
    options = Options(("trl", "trainer"), "TRL")
    options.give("use_vllm", True)
    found, _ = stage_settings(stage, options)
    beside = {key: value for key, value in found.items() if key in ("extra_models", "rollout_gpu_memory_utilization")}
    return 2 if found.get("pairs") else 1, beside


def rollout_settings(stage: str, options: Options) -> tuple[dict[str, object], list[str]]:
    """Lengths, models and the engine of trainers whose sequences a rollout makes."""
    found: dict[str, object] = {}
    completion = options.number("max_completion_length") or _COMPLETION
    prompt = options.number("max_prompt_length") or 0
    found["sequence_length"] = completion + prompt
    notes = [] if prompt else [
        f"sequences of {completion:,} tokens, the longest completion: prompts come on top (--sequence-length)"
    ]  # fmt: skip
    models = []
    if stage in _BETAS and fraction(options.first("beta") or _BETAS[stage]) != 0:
        models.append("reference")
    teacher = options.first("teacher_model_name_or_path")
    if teacher:
        models.append(f"teacher:{teacher}")
    reward = options.first("reward_model_name_or_path", "reward_model_path")
    if reward:
        models.append(f"reward:{reward}")
    if not options.is_on("use_vllm"):
        notes.append("completions are made by transformers: the cache of generation is not counted")
    elif (options.first("vllm_mode") or "colocate") == "colocate":
        models.append("rollout:vllm")
        found["rollout_gpu_memory_utilization"] = fraction(options.first("vllm_gpu_memory_utilization") or _SHARE)
        found["rollout_sleep"] = options.is_on("vllm_enable_sleep_mode")
    else:
        notes.append(OF_ITS_OWN)
    if models:
        found["extra_models"] = models
    return found, notes
