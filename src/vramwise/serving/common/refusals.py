"""What servers refuse at their start, and what they only warn about: what several share.

What is one engine's own is in its package's `refusals.py`; `shard_refusals.py` has what hangs on a rank's share of the
weights. Sources: vLLM 0.33.0 config/model.py verify_with_parallel_config; SGLang 0.5.23 layers/linear.py divide and its
server arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from vramwise.engines import engine_named, engines
from vramwise.errors import Doubt, ScenarioError
from vramwise.hardware import Gpu
from vramwise.memo import of_model
from vramwise.models import Model
from vramwise.models.lengths import model_length, text_config
from vramwise.models.type_facts import has_fact
from vramwise.scenario import Scenario
from vramwise.scenario.definition import ServeSettings
from vramwise.scenario.inference import counts
from vramwise.serving.common.advice import MOST_RANKS, gpus_used, said
from vramwise.serving.common.heads import attention_heads, key_value_heads, shares_evenly
from vramwise.serving.common.layouts import capability_of, server_storage
from vramwise.serving.common.shard_refusals import ShardCheck
from vramwise.serving.common.storage import Storage, mlx_storage, own_method, quantization_method
from vramwise.serving.common.versions import at_version, version_of

_FP8_COMPUTE = 8.9
AS_LOADED = "bf16"
# What a format that is asked for is called in quantization_config: vLLM 0.8.5 to 0.33.0 config/model.py and SGLang
# 0.4.6 to 0.5.23 configs/model_config.py compare the two. Other names are kinds of these, or made while loading.
_METHODS = {"fp8": "fp8", "awq": "awq", "gptq": "gptq", "bitsandbytes": "bitsandbytes", "mxfp4": "mxfp4",
            "w4a16": "compressed-tensors", "w8a8": "compressed-tensors"}  # fmt: skip


def check_server(
    scenario: Scenario, model: Model, gpu: Gpu | None, *, asks_of_shards: bool = True
) -> tuple[str, ...]:  # fmt: skip
    """The check of a server without refusals of its own: splits, the cache's dtype, even shards where it asks."""
    settings = scenario.serve
    check_settings(settings, model)
    storage = server_storage(model, settings, gpu)
    shards = ShardCheck(model, storage, gpu)
    if asks_of_shards:
        shards.check(settings)
    own = shards.notes(settings) if asks_of_shards else ()
    return (*scenario_notes(scenario, model), *fp8_notes(storage, gpu), *own)


def check_settings(settings: ServeSettings, model: Model) -> None:
    """Raise ScenarioError for splits and dtypes of the cache that the engine does not have."""
    _check_splits(settings, model)
    _check_cache_dtype(settings)
    _check_own_format(settings, model)


def _check_splits(settings: ServeSettings, model: Model) -> None:
    """Heads are shared evenly, whole layers go to stages, ranks of context parallelism are ranks of tensors'."""
    ranks, title = settings.tensor_parallel_size, engine_named(settings.engine).title
    heads = attention_heads(model)
    if heads % ranks:
        fitting = ", ".join(str(size) for size in (1, 2, 4, 5, 6, 7, 8, 16, 32) if heads % size == 0)
        raise ScenarioError(
            "serve.tensor_parallel_size",
            f"{ranks} does not divide the {heads} attention heads, {title} refuses it: expected one of {fitting}",
        )
    if settings.pipeline_parallel_size > model.num_layers:
        raise ScenarioError(
            "serve.pipeline_parallel_size",
            f"{settings.pipeline_parallel_size} stages are more than the {model.num_layers} layers",
        )
    kv_heads = key_value_heads(model)
    if not shares_evenly(kv_heads, ranks):
        raise ScenarioError(
            "serve.tensor_parallel_size",
            f"{ranks} neither divides the {kv_heads} key/value heads nor is a multiple of them, {title} refuses it",
        )
    if ranks % settings.decode_context_parallel_size:
        raise ScenarioError(
            "serve.decode_context_parallel_size",
            f"{settings.decode_context_parallel_size} does not divide tensor_parallel_size {ranks}, {title} refuses it",
        )


def _check_cache_dtype(settings: ServeSettings) -> None:
    engine = engine_named(settings.engine)
    if settings.kv_cache_dtype not in engine.cache_dtypes:
        known = ", ".join(engine.cache_dtypes)
        raise ScenarioError(
            "serve.kv_cache_dtype",
            f"{engine.title} has no cache of {settings.kv_cache_dtype}: expected one of {known}",
        )


def _check_own_format(settings: ServeSettings, model: Model) -> None:
    """A format that one engine alone reads is asked of it.

    MLX's table names no method: to vLLM 0.33.0 (config/model.py _verify_quantization) the checkpoint is none of a
    quantizer's, and its packed tensors fit no parameter; before, and in SGLang on CUDA (sgl-project/sglang#25191), it
    is an unknown method.
    """
    engine = engine_named(settings.engine)
    if not engine.own_formats and mlx_storage(model, AS_LOADED) is not None:
        raise ScenarioError(
            "serve.engine",
            f"MLX quantized the checkpoint, {engine.title} does not load it: set engine mlx, or name the model that it "
            "was made from",
        )
    asked = settings.quantization
    whose = None if asked is None else next((one for one in engines() if asked in one.own_formats), None)
    if whose is not None and whose.name != settings.engine:
        raise ScenarioError("serve.quantization", f"{asked} is {whose.title}'s, {engine.title} does not read it")


def check_format(settings: ServeSettings, model: Model, storage: Storage) -> None:
    """Raise ScenarioError for a format that is asked for where another has quantized the checkpoint."""
    asked, own = settings.quantization, quantization_method(model)
    method = next((name for name in _METHODS if asked is not None and asked.startswith(name)), None)
    if method is None or own not in _METHODS.values() or own in (_METHODS[method], own_method(model, storage)):
        return
    raise ScenarioError(
        "serve.quantization",
        f"the checkpoint is quantized by {own}, not by {asked}, {_with_version(settings)} refuses it "
        "(_verify_quantization): leave quantization out, or name a checkpoint that has it",
    )


def check_expert_ranks(settings: ServeSettings, model: Model) -> None:
    """Raise ScenarioError for more ranks than experts, in the types whose classes ask."""
    experts, ranks = expert_count(model), settings.tensor_parallel_size
    asks = has_fact(settings.engine, "asks_for_experts", model.config.model_type)
    if asks and 0 < experts < ranks:
        raise ScenarioError(
            "serve.tensor_parallel_size",
            f"{ranks} ranks are more than the {experts} experts, {_with_version(settings)} refuses it (the model's "
            f"class does): set it to {experts} or less",
        )


@of_model
def expert_count(model: Model) -> int:
    """Routed experts of the first layer that has some; 0 without."""
    for parameter in model.all_parameters:
        if parameter.shard == "expert_row":
            return parameter.shape[0]
    return 0


def _with_version(settings: ServeSettings) -> str:
    return at_version(engine_named(settings.engine).title, version_of(settings.engine_version))


def scenario_notes(scenario: Scenario, model: Model) -> Iterator[str]:
    """A drafter alone, weights of another program, requests beyond the model's length, and GPUs that are not used."""
    settings, length = scenario.serve, model_length(model)
    engine = engine_named(settings.engine)
    if model.not_counted:
        yield f"not counted: {model.not_counted}"
    if text_config(model).get("num_kv_shared_layers") and all(cache.kind == "none" for cache in model.caches):
        yield "every layer reads another model's keys: it drafts for that one (speculative), alone it answers nothing"
    if not engine.own_formats and mlx_storage(model, AS_LOADED) is not None:
        yield f"MLX quantized the checkpoint: {engine.title} is not known to read it; --engine mlx does"
    if settings.max_model_len is not None and settings.max_model_len > length:
        beyond = f"max_model_len {settings.max_model_len:,} is beyond the model's own {length:,}"
        way = f"without a RoPE scaling or {engine.long_requests}"
        yield Doubt(f"{beyond}; {engine.title} does not start with it {way}") if engine.long_requests else beyond
    used = gpus_used(settings)
    if used < scenario.num_gpus:
        yield (
            f"{used} of {scenario.num_gpus} GPUs {'is' if used == 1 else 'are'} used: {engine.title} takes "
            f"tensor_parallel_size × pipeline_parallel_size × data_parallel_size; "
            f"{said(_over_all(settings, scenario.num_gpus // used))}"
        )


def _over_all(settings: ServeSettings, times: int) -> Mapping[str, object]:
    """So many times the ranks; what a node has no room for are stages."""
    ranks = settings.tensor_parallel_size * times
    if ranks <= MOST_RANKS or ranks % MOST_RANKS or not counts(settings.engine, "pipeline_parallel_size"):
        return {"tensor_parallel_size": ranks}
    stages = settings.pipeline_parallel_size * ranks // MOST_RANKS
    return {"tensor_parallel_size": MOST_RANKS, "pipeline_parallel_size": stages}


def fp8_notes(storage: Storage, gpu: Gpu | None) -> Iterator[str]:
    """8-bit weights on a card that does not compute with them."""
    has, rule = capability_of(gpu), storage.quantization
    if gpu is not None and has is not None and rule is not None and rule.layout == "fp8" and has < _FP8_COMPUTE:
        yield f"{gpu.name} does not compute in fp8: the weights stay 8-bit and are unpacked (weight-only Marlin)"
