"""Contradictions between keys that need no model to be seen, and values that follow from others."""

from __future__ import annotations

from math import prod

from vramwise.errors import ScenarioError
from vramwise.scenario.cards import with_plain_card
from vramwise.scenario.definition import (
    DEFAULTS,
    UNCOUNTED_ENGINES,
    Scenario,
    ServeSettings,
    Settings,
    TrainSettings,
    engines_of,
)
from vramwise.scenario.names import LLAMA_CPP_ENGINES, SERVERS, SGLANG, TENSORRT_LLM, TGI, VLLM

ADAPTER_KEYS = ("lora_rank", "lora_targets", "lora_dropout", "lora_dtype", "dora")
TRAIN_SPLITS = ("tensor_parallel_size", "pipeline_parallel_size", "context_parallel_size")
SERVE_SPLITS = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")


def check(scenario: Scenario) -> Scenario:
    """The scenario with what follows from its keys filled in. Raises ScenarioError for a contradiction."""
    scenario = with_plain_card(scenario)
    if scenario.task == "train":
        return _check_train(scenario)
    if scenario.task == "generate":
        return _check_some_gpu(scenario, may_be_cpu=False)
    return _check_serve(scenario)


def _check_train(scenario: Scenario) -> Scenario:
    train = scenario.train
    _check_method(train)
    _check_sharding(train)
    if train.gradient_release and train.gradient_accumulation_steps > 1:
        steps = train.gradient_accumulation_steps
        raise ScenarioError(
            "train.gradient_release",
            f"steps after every backward pass; gradient_accumulation_steps is {steps}: set it to 1, or release off",
        )
    if train.recompute and train.checkpointing == "none" and "checkpointing" in train.explicit:
        raise ScenarioError("train.recompute", "needs checkpointing selective or full; it is none")
    if train.image_size is not None and not train.images_per_sequence:
        raise ScenarioError("train.image_size", "needs images_per_sequence above 0")
    for name in ("moe_overload_factor", "moe_capacity_factor"):
        factor = getattr(train, name)
        if factor is not None and factor < 1:
            raise ScenarioError(f"train.{name}", f"expected a number of at least 1 (an even share), got {factor:g}")
    scenario = _fill_schedule(_fill_rollout(scenario))
    scenario = _check_some_gpu(scenario, may_be_cpu=False)
    scenario = _fill_quantization(scenario)
    splits = {key: getattr(scenario.train, key) for key in TRAIN_SPLITS}
    return _check_split(scenario, "train", splits)


def _check_method(train: TrainSettings) -> None:
    if train.method in ("full", "freeze"):
        for key in ADAPTER_KEYS:
            if _changed(train, key):
                raise ScenarioError(f"train.{key}", f"needs method lora or qlora; it is {train.method}")
    if train.method == "full" and train.quantization is not None:
        raise ScenarioError(
            "train.quantization",
            f"{train.quantization} weights do not train themselves: method qlora trains adapters on them",
        )


def _check_sharding(train: TrainSettings) -> None:
    if train.fsdp != "none" and train.zero_stage > 0:
        raise ScenarioError(
            "train.zero_stage", f"{train.zero_stage} and fsdp {train.fsdp} exclude each other: choose one"
        )
    if train.virtual_pipeline_parallel_size > 1 and train.pipeline_parallel_size == 1:
        raise ScenarioError(
            "train.virtual_pipeline_parallel_size",
            f"{train.virtual_pipeline_parallel_size} needs pipeline_parallel_size above 1",
        )
    if train.virtual_pipeline_parallel_size > 1 and (
        "pipeline_schedule" in train.explicit and train.pipeline_schedule in ("1f1b", "gpipe")
    ):
        raise ScenarioError(
            "train.virtual_pipeline_parallel_size",
            f"{train.virtual_pipeline_parallel_size} needs pipeline_schedule interleaved-1f1b; it is "
            f"{train.pipeline_schedule}",
        )


def _fill_quantization(scenario: Scenario) -> Scenario:
    train = scenario.train
    if train.method != "qlora" or train.quantization is not None:
        return scenario
    note = "method qlora without a quantization: nf4 is assumed"
    return scenario.replace(train=train.replace(quantization="nf4"), notes=(*scenario.notes, note))


def _fill_schedule(scenario: Scenario) -> Scenario:
    """Chunks of a stage take turns in no other order than this one (Megatron-LM takes it wherever there are any)."""
    train = scenario.train
    if train.virtual_pipeline_parallel_size == 1 or "pipeline_schedule" in train.explicit:
        return scenario
    return scenario.replace(train=train.replace(pipeline_schedule="interleaved-1f1b"))


def _fill_rollout(scenario: Scenario) -> Scenario:
    train = scenario.train
    if train.rollout_gpu_memory_utilization is None:
        if train.rollout_sleep:
            raise ScenarioError("train.rollout_sleep", "needs rollout_gpu_memory_utilization, the engine's share awake")
        return scenario
    if any(name.startswith("rollout") for name in train.extra_models):
        return scenario
    return scenario.replace(train=train.replace(extra_models=(*train.extra_models, "rollout")))


def _check_serve(scenario: Scenario) -> Scenario:
    serve = scenario.serve
    notes = _check_engine_keys(serve)
    if notes:
        scenario = scenario.replace(notes=(*scenario.notes, *notes))
    scenario = _check_some_gpu(scenario, may_be_cpu=serve.engine in LLAMA_CPP_ENGINES)
    return _check_split(scenario, "serve", {key: getattr(serve, key) for key in SERVE_SPLITS})


def _check_engine_keys(serve: ServeSettings) -> tuple[str, ...]:
    """Raise ScenarioError for a key of another engine; notes for those that the answer leaves out."""
    notes = []
    for key in sorted(serve.explicit):
        if not _changed(serve, key):
            continue
        if serve.engine not in engines_of(key) and not _says_the_same(serve, key):
            instead = _INSTEAD.get(key, {}).get(serve.engine)
            hint = f": set {instead}" if instead else ""
            raise ScenarioError(f"serve.{key}", f"belongs to {_owners(key)}; the engine is {serve.engine}{hint}")
        if serve.engine in UNCOUNTED_ENGINES[key]:
            notes.append(f"{key} of {serve.engine} is accepted, and left out of the answer")
    if serve.gguf_quant is not None and serve.engine not in LLAMA_CPP_ENGINES and serve.quantization != "gguf":
        raise ScenarioError("serve.gguf_quant", f"needs quantization gguf with the engine {serve.engine}")
    if serve.variant != IK:
        for key in _IK_KEYS:
            if key in serve.explicit and getattr(serve, key) is not None:
                raise ScenarioError(f"serve.{key}", f"belongs to {IK}: set variant to it")
    return tuple(notes)


IK = "ik_llama.cpp"
_IK_KEYS = ("mla_attn", "attn_max_b", "fused_moe")
_LLAMA_CPP_WORD = {
    "dtype": "gguf_quant", "quantization": "gguf_quant", "kv_cache_dtype": "cache_type_k and cache_type_v",
    "max_num_seqs": "n_parallel", "max_num_batched_tokens": "n_batch",
    "pipeline_parallel_size": "num_gpus", "expert_parallel": "cpu_moe or override_tensor",
}  # fmt: skip
# key -> engine -> the engine's own key for the same thing
_INSTEAD = {
    key: dict.fromkeys(LLAMA_CPP_ENGINES, word) for key, word in _LLAMA_CPP_WORD.items()
} | {
    "gpu_memory_utilization": {SGLANG: "mem_fraction_static"},
    "mem_fraction_static": dict.fromkeys((VLLM, TGI, TENSORRT_LLM), "gpu_memory_utilization"),
    "chunked_prefill_size": dict.fromkeys((VLLM, TGI, TENSORRT_LLM), "max_num_batched_tokens"),
    "n_ctx": dict.fromkeys(SERVERS, "max_model_len"),
    "n_parallel": dict.fromkeys(SERVERS, "max_num_seqs"),
    "cache_type_k": dict.fromkeys((VLLM, SGLANG, TGI, TENSORRT_LLM), "kv_cache_dtype"),
}  # fmt: skip


def _owners(key: str) -> str:
    """`the engines vllm and sglang`; llama.cpp stands for ollama too."""
    named = [engine for engine in engines_of(key) if engine != "ollama"]
    if len(named) == 1:
        return f"the engine {named[0]}"
    return f"the engines {', '.join(named[:-1])} and {named[-1]}"


def _says_the_same(serve: ServeSettings, key: str) -> bool:
    """GGUF is what llama.cpp reads, whether it is said or not."""
    return key == "quantization" and serve.quantization == "gguf" and serve.engine in LLAMA_CPP_ENGINES


def _changed(settings: Settings, key: str) -> bool:
    """Whether the key was given a value that is not its default (a default contradicts nothing)."""
    return key in settings.explicit and getattr(settings, key) != DEFAULTS[type(settings)][key]


def _check_some_gpu(scenario: Scenario, *, may_be_cpu: bool) -> Scenario:
    if scenario.num_gpus == 0 and not may_be_cpu:
        raise ScenarioError("num_gpus", "0 means CPU only, which is estimated for the engine llama.cpp alone")
    return scenario


def _check_split(scenario: Scenario, table: str, splits: dict[str, int]) -> Scenario:
    """Model copies must fill the GPUs evenly; GPUs that were not counted follow from the split."""
    needed = prod(splits.values())
    if needed == 1 or (scenario.num_gpus and scenario.num_gpus % needed == 0):
        return scenario
    factors = [f"{key} {size}" for key, size in splits.items() if size > 1]
    product = " × ".join(factors) + (f" = {needed}" if len(factors) > 1 else "")
    if "num_gpus" not in scenario.explicit:
        note = f"num_gpus {needed}: {' × '.join(factors)}"
        return scenario.replace(num_gpus=needed, notes=(*scenario.notes, note))
    first = next(key for key, size in splits.items() if size > 1)
    raise ScenarioError(f"{table}.{first}", f"{product} does not divide num_gpus {scenario.num_gpus}")
