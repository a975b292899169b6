"""`train.py --hf-checkpoint …`: slime's actor, Megatron's step around SGLang's rollouts.

Read in slime at 624b824a (2026-08-21): utils/arguments.py, backends/megatron_utils/arguments.py (bf16 unless fp16, a
distributed optimizer always), actor.py (reference, old actor and teacher wait on the host; with --colocate the actor
and the engines leave the GPU to one another), utils/ppo_utils.py (log-probabilities and entropy over a vocabulary that
tensor parallelism divides). Megatron's own arguments count as in `megatron`.
"""

from __future__ import annotations

from typing import Any

from vramwise.interop.launch.command import Launch, Start, launched, one_model
from vramwise.interop.launch.flags import cut
from vramwise.interop.launch.megatron import count_micro_batches, expands, step_of
from vramwise.interop.launch.megatron_model import READ_FOR_THE_MODEL
from vramwise.interop.launch.model_facts import config_of, text_config
from vramwise.interop.launch.options import Options
from vramwise.interop.launch.rl import Beside
from vramwise.interop.launch.values import whole_in
from vramwise.units import format_bytes

_SHARE = "--sglang-mem-fraction-static"
_GPUS_OF_A_NODE = 8


def read(start: Start) -> Launch:
    """The scenario of slime's actor. Raises UsageError for what the arguments leave open."""
    options = Options(("slime",), "slime")
    options.read_words(start.words)
    words = cut("megatron", start.words)
    told = tuple(flag for flag in words.given if flag not in READ_FOR_THE_MODEL)
    words.given.setdefault("--use-distributed-optimizer", ["true"])
    if "--fp16" not in words.given:
        words.given["--bf16"] = ["true"]
    model = one_model("slime", options.first("hf_checkpoint"), "--hf-checkpoint MODEL")
    config = text_config(config_of(model))
    settings, notes = step_of(words, whole_in(config, "num_hidden_layers", 0))
    each = options.number("actor_num_gpus_per_node") or _GPUS_OF_A_NODE
    gpus = each * (options.number("actor_num_nodes") or 1)
    notes += _lengths(options, settings)
    count_micro_batches(words, settings, gpus)
    notes.append(_of_the_loss(settings, whole_in(config, "vocab_size", 0)))
    beside = _beside(options, start)
    if expands(start):
        settings["expandable_segments"] = True
    train = {**settings, **beside.table()}
    scenario: dict[str, object] = {
        "model": model, "task": "train", "num_gpus": gpus, "gpus_per_node": each, "train": train,
    }  # fmt: skip
    own = {name.replace("-", "_").lstrip("_") for name in words.given} | {"spec"}
    options.unknown = [name for name in options.unknown if name.replace("-", "_").lstrip("_") not in own
                       and not name.startswith(("--sglang-", "--router-"))]  # fmt: skip
    options.loose.clear()
    launch = launched("slime", scenario, (*notes, *beside.notes, *options.notes()), options)
    return Launch(launch.engine, scenario, launch.notes, (*launch.understood, *told), launch.passed_over)


def _lengths(options: Options, settings: dict[str, Any]) -> list[str]:
    """One row of as many tokens as a rank may take, or micro-batches of the longest samples."""
    budget = options.number("max_tokens_per_gpu") if options.is_on("use_dynamic_batch_size") else None
    settings.pop("sequence_length", None)  # Megatron's --seq-length: rows are as long as samples are
    if budget:
        shared = settings.get("context_parallel_size") or 1
        settings |= {"micro_batch_size": 1, "sequence_length": budget * shared}
        return [f"--max-tokens-per-gpu {budget:,}: rows of so many tokens; one sample that is longer takes a row alone"]
    response, prompt = options.number("rollout_max_response_len"), options.number("rollout_max_prompt_len")
    length = options.number("rollout_max_context_len") or (response or 0) + (prompt or 0)
    if length:
        settings["sequence_length"] = length
    return [] if prompt or not response else ["prompts come on top of --rollout-max-response-len (--sequence-length)"]


def _of_the_loss(settings: dict[str, Any], vocab_size: int) -> str:
    tokens = whole_in(settings, "sequence_length", 0) // max(1, settings.get("context_parallel_size") or 1)
    each = 4 * tokens * vocab_size // max(1, settings.get("tensor_parallel_size") or 1)
    size = f" ({format_bytes(each)})" if each else ""
    return f"the policy's loss holds the logits in fp32 once more than Megatron's own{size}, which is not counted"


def _beside(options: Options, start: Start) -> Beside:
    found = Beside()
    if options.is_on("colocate"):
        found.rollout("sglang", _after(_SHARE, start.words) or "0.88", sleeps=True)
        found.notes.append(
            "the actor leaves the GPU while the engines sample: the moment rollout counts it all the same"
        )
    elif not options.is_on("debug_train_only"):
        found.notes.append("the rollout engines have GPUs of their own, which are not counted here")
    if options.is_on("use_kl_loss") or (options.first("kl_coef") or "0") not in ("0", "0.0", "0.00"):
        found.notes.append("reference: its weights are on the host while the policy trains")
    if options.first("advantage_estimator") == "ppo":
        found.notes.append("the critic, which trains on cards of its own or in turns with the policy, is not counted")
    return found


def _after(flag: str, words: tuple[str, ...]) -> str:
    """The value of one of SGLang's own flags, which slime hands on."""
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == flag:
            return value if equals else " ".join(words[place + 1 : place + 2])
    return ""
