"""What ms-swift's commands share, Megatron-SWIFT's too: where their settings stand, and what `rlhf` adds to a step.

Read in ms-swift 4.6: arguments/*.py, rlhf_trainers/*.py (beta of each kind).
"""

from __future__ import annotations

from vramwise.interop.beside import file_table
from vramwise.interop.launch.command import Start
from vramwise.interop.launch.options import Options
from vramwise.interop.launch.trl import OF_ITS_OWN
from vramwise.interop.launch.values import fraction, whole_in

_PAIRS = ("dpo", "orpo", "simpo", "cpo", "rm")
_WITH_REFERENCE = ("dpo", "kto", "ppo")
_COMPLETION, _SHARE = 512, "0.9"


def options_of(start: Start, programs: tuple[str, ...], title: str) -> Options:
    """What a command line of ms-swift and the configuration files that it names say. Raises UsageError, SourceError."""
    options = Options(programs, title)
    options.read_words(start.words if start.is_script else start.words[1:])
    for file in [word for word in options.loose if word.endswith((".yaml", ".yml", ".json"))]:
        options.loose.remove(file)
        options.read_table(file_table(file))
    named = options.first("config")
    if named:
        options.read_table(file_table(named))
    return options


def completions_and_models(
    program: str, options: Options, train: dict[str, object]
) -> tuple[dict[str, object], list[str]]:
    """What `rlhf` adds to a step: pairs of answers, models beside the policy, completions and their engine."""
    if not program.removesuffix(".py").endswith("rlhf"):
        return {}, []
    kind = options.first("rlhf_type") or "dpo"
    found: dict[str, object] = {}
    notes, models = [], []
    if kind in _PAIRS and options.is_on("packing"):  # `sum(length)` of both answers, dataset/packing.py, since 3.12
        notes.append("a pack holds chosen and rejected answers; before ms-swift 3.12 it took up to twice its length")
    elif kind in _PAIRS:
        found["micro_batch_size"] = 2 * whole_in(train, "micro_batch_size")
        notes.append("a batch holds the chosen and the rejected answer of each sample: micro_batch_size is twice it")
    if kind == "rm":
        found["head"] = "sequence-classification"
    with_beta = kind == "grpo" and fraction(options.first("beta") or "0.04") != 0
    if kind in _WITH_REFERENCE or with_beta:
        named = options.first("ref_model")
        models.append(f"reference:{named}" if named else "reference")
    for role in ("teacher", "reward"):
        models += [f"{role}:{name}" for name in options.several(f"{role}_model")]
    if kind == "ppo":
        models.append("critic")
    if kind in ("grpo", "gkd", "ppo"):
        said = _completions(options, found, models, train)
        notes += said
    if models:
        found["extra_models"] = models
    return found, notes


def _completions(options: Options, found: dict[str, object], models: list[str], train: dict[str, object]) -> list[str]:
    """Length of what a rollout makes, and its engine on the same GPU. `max_length` is the prompts'."""
    completion = options.number("max_completion_length", "response_length") or _COMPLETION
    prompt = whole_in(train, "sequence_length", 0)
    found["sequence_length"] = completion + prompt
    notes = [] if prompt else [
        f"sequences of {completion:,} tokens, the longest completion: prompts come on top (--sequence-length)"
    ]  # fmt: skip
    if not options.is_on("use_vllm"):
        notes.append("completions are made by transformers: the cache of generation is not counted")
    elif (options.first("vllm_mode") or "server") == "colocate":
        models.append("rollout:vllm")
        found["rollout_gpu_memory_utilization"] = fraction(options.first("vllm_gpu_memory_utilization") or _SHARE)
        found["rollout_sleep"] = bool(options.number("sleep_level"))
    else:
        notes.append(OF_ITS_OWN)
    return notes
