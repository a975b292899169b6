"""Single changes of a serving, generation or loading scenario that save memory, each with its cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from vramwise.engines import PLAIN, engine_named
from vramwise.engines.engine import Engine
from vramwise.errors import VramwiseError
from vramwise.estimation import model_of
from vramwise.planner.changes import SDPA, Asked, Change, Cost, runs
from vramwise.planner.pipeline_changes import is_pipeline, pipeline_changes
from vramwise.serving.common.advice import MOST_RANKS, gpus_used, text_of
from vramwise.serving.common.storage import storage_of
from vramwise.verdict import Advice

_COST_OF_ADVICE: Mapping[str, tuple[str, Cost]] = {
    "gpu_memory_utilization": ("less room beside it", Cost.NOTHING),
    "mem_fraction_static": ("less room beside it", Cost.NOTHING),
    "kv_cache_memory_bytes": ("another size of the cache", Cost.NOTHING),
    "n_ctx": ("shorter requests", Cost.SHORTER),
    "max_model_len": ("shorter requests", Cost.SHORTER),
    "dtype": ("16-bit weights", Cost.PRECISION),
    "quantization": ("some quality", Cost.PRECISION),
    "enforce_eager": ("slower decoding", Cost.TIME),
    "n_cpu_moe": ("experts on the CPU: slower", Cost.TIME),
    "n_gpu_layers": ("layers on the CPU: much slower", Cost.HOST_MEMORY),
    "tensor_split": ("none", Cost.NOTHING),
    "tensor_parallel_size": ("more GPUs", Cost.MORE_GPUS),
    "pipeline_parallel_size": ("stages on further nodes", Cost.MORE_GPUS),
    "expert_parallel": ("whole experts on each", Cost.NOTHING),
}
"""What a setting costs that an engine's reasons name, each found by estimates of its own."""
_COST_OF_FORMAT = {"fp8": "8-bit weights; a little quality", "awq": "a 4-bit checkpoint; some quality"}
THERE = "the GPUs that are there"
_SMALLER_FILES = ("Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q3_K_M", "Q2_K")
_COMMON_CONTEXT = 8192
LEAST_LENGTH = 512
"""Tokens of a request below which no shorter one is of use."""
_FEWER_REQUESTS, _FEWER_TOKENS = 64, 2048
_FEWER_AT_ONCE = 128  # tokens of llama.cpp's physical batch


def serving_changes(asked: Asked) -> Iterator[Change]:
    """Every change that may help, by engine."""
    engine = engine_named(asked.scenario.serve.engine)
    yield from _of_idle_gpus(asked, engine)
    yield from _advised(asked)
    if engine.reads_gguf:
        yield from _of_llama_cpp(asked)
        return
    yield from _of_weights(asked, engine)
    if engine.memory_share is None:
        yield from _smaller(asked, "max_num_seqs", "max_batch", "fewer requests at once", Cost.SMALLER_STEPS)
    else:
        yield from _of_the_pool(asked)
    yield from _smaller(asked, "max_model_len", "max_seq", "shorter requests", Cost.SHORTER)
    yield from _twice_the_gpus(asked) if engine.lays_out_layers else _of_more_gpus(asked)
    yield from _of_another_engine(asked)


def serving_combinations(asked: Asked) -> Iterator[Change]:
    """Several changes at once, for where no single one is enough."""
    if engine_named(asked.scenario.serve.engine).memory_share is None:
        return
    if asked.settings.get("quantization") or _is_quantized(asked):
        return
    formats = [name for name in ("fp8", "awq") if name != "fp8" or runs(asked, "fp8_weights")]
    for ranks, stages in _idle_layouts(asked)[:1]:
        for weights in formats:
            words = f"{_layout_words(ranks, stages)}, quantization {weights}"
            values = _layout_values(ranks, stages) | {"quantization": weights}
            yield Change(words, values, f"{THERE}; {_COST_OF_FORMAT[weights]}", Cost.PRECISION)
    context, cost = _common_context(asked), "some quality; shorter requests"
    for weights in formats:
        words = f"quantization {weights}, max_model_len {context:,}"
        yield Change(words, {"quantization": weights, "max_model_len": context}, cost, Cost.SHORTER)


def generation_changes(asked: Asked) -> Iterator[Change]:
    """Every change of plain `generate`, or of a pipeline's, that may help."""
    if is_pipeline(asked):
        yield from pipeline_changes(asked)
        return
    if asked.settings.get("attention") == "eager":
        yield SDPA
    yield from _of_weights(asked, engine_named(PLAIN))
    yield from _smaller(asked, "batch_size", "max_batch", "fewer requests at once", Cost.SMALLER_STEPS)
    yield from _smaller(asked, "prompt_tokens", "max_seq", "shorter prompts", Cost.SHORTER)
    if asked.settings.get("cache_implementation") != "quantized":
        words = "cache_implementation quantized"
        yield Change(words, {"cache_implementation": "quantized"}, "slower; some quality", Cost.PRECISION)
    if asked.scenario.num_gpus > 1:
        yield from _twice_the_gpus(asked)


def loading_changes(asked: Asked) -> Iterator[Change]:
    """Smaller weights."""
    serve = asked.scenario.serve
    engine = engine_named(serve.engine if "engine" in serve.explicit else PLAIN)
    if engine.reads_gguf:
        yield from _of_files(asked)
    else:
        yield from _of_weights(asked, engine)


CHANGES: Mapping[str, Callable[[Asked], Iterator[Change]]] = {
    "serve": serving_changes,
    "generate": generation_changes,
    "load": loading_changes,
}
"""Every single change that may help, by the scenario's task."""


def _advice(asked: Asked) -> list[Mapping[str, object]]:
    """The values of every reason that says what to set."""
    reasons = asked.result.verdict.reasons if asked.result.verdict is not None else ()
    return [reason.values for reason in reasons if isinstance(reason, Advice)]


def _is_advised(asked: Asked, key: str) -> bool:
    return any(key in values for values in _advice(asked))


def _advised(asked: Asked) -> Iterator[Change]:
    for advised in _advice(asked):
        if not advised.keys() <= _COST_OF_ADVICE.keys() or list(advised) == ["max_model_len"]:
            continue  # of lengths, that is named below which is sure to fit
        values = dict(advised)
        if values in (_layout_values(*layout) for layout in _idle_layouts(asked)):
            continue  # that is no further card, and is named above
        costs = [_COST_OF_ADVICE[key] for key in advised]
        if "tensor_parallel_size" in values:
            values["num_gpus"] = max(asked.scenario.num_gpus, gpus_used(asked.scenario.serve.replace(**values)))
        words = ", ".join(key if value is True else f"{key} {text_of(key, value)}" for key, value in advised.items())
        yield Change(words, values, "; ".join(cost for cost, _ in costs), max(rank for _, rank in costs))


def _of_weights(asked: Asked, engine: Engine) -> Iterator[Change]:
    """Narrower weights, where the checkpoint has none and none were asked for."""
    settings = asked.settings
    if settings.get("dtype") == "fp32":
        half = "bf16" if runs(asked, "bf16") else "fp16"
        yield Change(f"dtype {half}", {"dtype": half}, "16-bit weights", Cost.PRECISION)
    if settings.get("quantization") or _is_quantized(asked):
        return
    for name in engine.narrower_weights:
        if name == "fp8" and not runs(asked, "fp8_weights"):
            continue
        cost = _COST_OF_FORMAT.get(name, "slower; some quality")
        yield Change(f"quantization {name}", {"quantization": name}, cost, Cost.PRECISION, family="weights")


def _is_quantized(asked: Asked) -> bool:
    """Whether the checkpoint itself is; a model that is not described is taken as such."""
    try:
        return storage_of(model_of(asked.scenario)[1], "auto", None, None).quantization is not None
    except VramwiseError:
        return True


def _of_the_pool(asked: Asked) -> Iterator[Change]:
    """What an engine with a pool of cache tokens takes besides its weights."""
    settings, quantities = asked.settings, asked.result.quantities
    working = int(quantities["activation_peak"].expected) if "activation_peak" in quantities else None
    graphs = int(quantities["cuda_graph"].high) if "cuda_graph" in quantities else None
    share = settings.get("gpu_memory_utilization") or settings.get("mem_fraction_static") or 1
    scale = 1 / min(1.0, float(str(share)))
    if not settings.get("enforce_eager") and graphs:
        cost = "slower decoding"
        yield Change("enforce_eager", {"enforce_eager": True}, cost, Cost.TIME, round(graphs * scale))
    most = round(working * scale) if working is not None else None
    for key, value, cost in (
        ("max_num_batched_tokens", _FEWER_TOKENS, "slower prefill"),
        ("chunked_prefill_size", _FEWER_TOKENS, "slower prefill"),
        ("max_num_seqs", _FEWER_REQUESTS, "fewer requests at once"),
    ):  # fmt: skip
        present = settings.get(key)
        if isinstance(present, int) and present > value:
            yield Change(f"{key} {value:,}", {key: value}, cost, Cost.TIME, most)
    if settings.get("kv_cache_dtype") in ("auto", "bf16", "fp16", None):
        cost = "a little quality at long context"
        yield Change("kv_cache_dtype fp8", {"kv_cache_dtype": "fp8_e4m3"}, cost, Cost.PRECISION)


def _smaller(asked: Asked, key: str, limit: str, cost: str, rank: Cost) -> Iterator[Change]:
    """The largest value that fits by the engine's own search, else half of it (of batches: one)."""
    present = asked.settings.get(key)
    if not isinstance(present, int) or present < 2:
        return
    most = asked.at_least(limit) if asked.is_short else None
    value = most if most is not None and 1 <= most < present else 1 if limit == "max_batch" else present // 2
    if rank == Cost.SHORTER and value < LEAST_LENGTH:
        return
    yield Change(f"{key} {value:,}", {key: value}, cost, rank)


def _idle_ranks(asked: Asked) -> list[int]:
    """Tensor-parallel ranks with which GPUs work that are there and that the scenario leaves idle, most first."""
    serve, there = asked.scenario.serve, min(asked.scenario.num_gpus, MOST_RANKS)
    if gpus_used(serve) > 1:
        return []
    return [ranks for ranks in (there, *(1 << power for power in reversed(range(there.bit_length())))) if ranks > 1]


def _idle_layouts(asked: Asked) -> list[tuple[int, int]]:
    """Tensor-parallel ranks and stages on GPUs that the scenario leaves idle; more than a node has are stages."""
    serve, nodes = asked.scenario.serve, asked.scenario.num_gpus // MOST_RANKS
    split = serve.pipeline_parallel_size * serve.data_parallel_size
    over_nodes = [(MOST_RANKS, nodes)] if nodes > 1 and split == 1 else []
    return over_nodes + [(ranks, 1) for ranks in dict.fromkeys(_idle_ranks(asked))]


def _layout_values(ranks: int, stages: int) -> dict[str, object]:
    sizes = {"tensor_parallel_size": ranks, "pipeline_parallel_size": stages}
    return {key: size for key, size in sizes.items() if size > 1}


def _layout_words(ranks: int, stages: int) -> str:
    return ", ".join(f"{key} {size}" for key, size in _layout_values(ranks, stages).items())


def _of_idle_gpus(asked: Asked, engine: Engine) -> Iterator[Change]:
    """Every GPU that was counted, where the engine uses fewer of them."""
    if engine.reads_gguf or engine.lays_out_layers:
        return
    for ranks, stages in _idle_layouts(asked):
        words = _layout_words(ranks, stages)
        yield Change(words, _layout_values(ranks, stages), THERE, Cost.NOTHING, family="idle GPUs")


def _of_more_gpus(asked: Asked) -> Iterator[Change]:
    """Twice the ranks, where the engine itself named no number of them; beyond one node stages."""
    serve = asked.scenario.serve
    if _is_advised(asked, "tensor_parallel_size"):
        return
    ranks, stages = serve.tensor_parallel_size, serve.pipeline_parallel_size
    twice, there = min(MOST_RANKS, 2 * ranks), _idle_layouts(asked)
    for tensor, pipeline in ((twice, stages), (max(ranks, MOST_RANKS), 2 * stages)):
        if (tensor, pipeline) in ((ranks, stages), *there):
            continue
        values = {"tensor_parallel_size": tensor, "pipeline_parallel_size": pipeline}
        words = f"tensor_parallel_size {tensor}" + (f", pipeline_parallel_size {pipeline}" if pipeline > stages else "")
        total = {"num_gpus": gpus_used(serve.replace(**values))}
        yield Change(words, values | total, "more GPUs", Cost.MORE_GPUS, family="more GPUs")


def _of_another_engine(asked: Asked) -> Iterator[Change]:
    """A 4-bit file in llama.cpp, for one card that is short of memory."""
    if not asked.is_short or asked.scenario.num_gpus != 1:
        return
    context = _common_context(asked)
    values = {"engine": "llama.cpp", "gguf_quant": "Q4_K_M", "n_ctx": context}
    words = f"llama.cpp, Q4_K_M, n_ctx {context:,}"
    yield Change(words, values, "another engine, one request at a time", Cost.ANOTHER_ENGINE, fresh=True)


def _common_context(asked: Asked) -> int:
    """Tokens of a request that is long enough for most, no more than were asked for."""
    length = asked.settings.get("max_model_len")
    return min(length, _COMMON_CONTEXT) if isinstance(length, int) else _COMMON_CONTEXT


def _of_llama_cpp(asked: Asked) -> Iterator[Change]:
    settings = asked.settings
    yield from _of_files(asked)
    if settings.get("cache_type_k") in (None, "f16") and settings.get("flash_attn") is not False:
        values = {"cache_type_k": "q8_0", "cache_type_v": "q8_0"}
        yield Change("cache_type_k and cache_type_v q8_0", values, "a little quality", Cost.PRECISION)
    physical, buffer = settings.get("n_ubatch"), asked.result.quantities.get("compute_buffer")
    if isinstance(physical, int) and physical > _FEWER_AT_ONCE and buffer is not None:
        cost, most = "slower prefill", int(buffer.high)
        yield Change(f"n_ubatch {_FEWER_AT_ONCE}", {"n_ubatch": _FEWER_AT_ONCE}, cost, Cost.TIME, most)
    if not _is_advised(asked, "n_ctx"):
        yield from _smaller(asked, "n_ctx", "", "shorter requests", Cost.SHORTER)
    cache = asked.result.quantities.get("kv_cache_bytes")
    if not settings.get("no_kv_offload") and asked.scenario.num_gpus and cache is not None:
        cost, most = "the cache on the host: much slower", int(cache.high)
        yield Change("no_kv_offload", {"no_kv_offload": True}, cost, Cost.HOST_MEMORY, most)
    if not asked.scenario.serve.tensor_split:
        yield from _twice_the_gpus(asked)


def _twice_the_gpus(asked: Asked) -> Iterator[Change]:
    """For programs that lay layers over the cards by themselves."""
    if asked.scenario.num_gpus and not asked.scenario.gpus:
        many = 2 * asked.scenario.num_gpus
        yield Change(f"{many} GPUs", {"num_gpus": many}, "more GPUs", Cost.MORE_GPUS)


def _of_files(asked: Asked) -> Iterator[Change]:
    """Smaller file types than the one at hand: the next, and the common 4-bit one."""
    present = asked.settings.get("gguf_quant")
    if str(asked.scenario.model).endswith(".gguf") or present not in ("F32", "F16", "BF16", *_SMALLER_FILES):
        return
    smaller = _SMALLER_FILES[_SMALLER_FILES.index(present) + 1 :] if present in _SMALLER_FILES else _SMALLER_FILES
    for name in dict.fromkeys(name for name in (*smaller[:1], "Q4_K_M", *smaller[-1:]) if name in smaller):
        words, cost = f"gguf_quant {name}", "a smaller file; some quality"
        yield Change(words, {"gguf_quant": name}, cost, Cost.PRECISION, family="weights")
