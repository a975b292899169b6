"""How a model runs on a machine: in which precision, by which engine, with how long a context, for how many at once.

An engine with a pool of cache tokens (vLLM) comes first where it holds a useful context; llama.cpp otherwise, whose
files are smaller and which leaves on the host what the card has no room for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from math import ceil

from vramwise.errors import VramwiseError
from vramwise.memo import of_model
from vramwise.models import Model
from vramwise.models.lengths import model_length, reads_tokens
from vramwise.models.operations.experts import ExpertMlps
from vramwise.planner.bounds import EIGHT_BIT, FILE_TYPES, WIDE, Bounds
from vramwise.planner.machine import Machine
from vramwise.planner.ways import Question, Way, tried
from vramwise.records import record
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.common.constants import constant
from vramwise.serving.common.gguf.quantizer import typed_tensors
from vramwise.serving.common.gguf.tensors import LOOKED_UP
from vramwise.serving.common.idle_experts import without_idle_experts
from vramwise.serving.common.refusals import AS_LOADED
from vramwise.serving.common.storage import mlx_storage, storage_of
from vramwise.serving.llama_cpp.fitting import LEAST_CONTEXT as SHORTEST_OF_A_FILE
from vramwise.serving.packages import rules_of
from vramwise.serving.vllm.profile import DEFAULT_VERSION, profile_of, release

USEFUL_CONTEXT = 8192
LEAST_CONTEXT = 1024
_STEP = 256  # contexts are named in whole pages of both engines
_F16_BYTES = 2
POOLED, FILES = "vllm", "llama.cpp"
PUBLISHED = "published"
LOADED = "load"
"""How a model is held that makes no text: its weights."""

Wanted = Callable[[str], bool]
"""Whether an answer in a precision, as its engine or its file calls it, is of any use to who asks."""


@record
class Precision:
    """Bits of a weight, with what each engine calls it; `pooled`: the quantization that vLLM is asked for."""

    title: str
    pooled: str | None
    file_type: str


FOUR_BIT = "4 bit"
PRECISIONS = (
    Precision(WIDE, None, "BF16"),
    Precision("8 bit", EIGHT_BIT, "Q8_0"),
    Precision(FOUR_BIT, "awq", "Q4_K_M"),
)
COMMON_FILE_TYPE = "Q4_K_M"
LAYERS_SPARED, EXPERTS_SPARED = 2, 4
"""How many times the room a file may take whose rest, or whose experts, stay on the host."""


@lru_cache(maxsize=512)
def published_format(model: Model) -> str:
    """The format of the weights as published, empty for plain 16 or 32 bits."""
    format = storage_of(model, "auto", None, None).quantization
    return format.name if format is not None else ""


@of_model
def makes_text(model: Model) -> bool:
    """Whether an engine can run it: it reads tokens, and its last block makes something of them alone; one that
    compares them with an image gives a score."""
    return reads_tokens(model) and model.ends_in_text and "image" not in model.blocks[-1].inputs


def precisions_of(model: Model) -> tuple[Precision, ...]:
    """The precisions in which it runs; weights that were published in a narrower format stay in it."""
    format = published_format(model)
    if not format:
        return PRECISIONS
    if mlx_storage(model, AS_LOADED) is not None:  # no engine with kernels for CUDA reads it
        return (PRECISIONS[-1],)
    return (Precision(PUBLISHED, None, COMMON_FILE_TYPE), PRECISIONS[-1])


def best_run(question: Question, precision: Precision) -> Way:
    """The way to run a model in a precision: the engine with the first useful context, else the longest one.

    Where nothing fits whole, in 4 bits a file with a part of it on the host, else what it needs at a useful context.
    """
    if not makes_text(question.model):
        return loaded(question, precision)
    ways = list(_until_useful(question, precision))
    whole = [way for way in ways if way.fits and is_whole(question, way)]
    if whole:
        return max(whole, key=lambda way: (way.is_sure, context_of(way)))
    if precision.title == FOUR_BIT:
        partly = longest_of_a_file(question, precision.file_type)
        if runs_usably(question, partly):
            return partly
    answered = [way for way in ways if way.result is not None]
    return answered[0] if answered else whole_file(question, precision.file_type)


def _until_useful(question: Question, precision: Precision) -> Iterator[Way]:
    """vLLM, and llama.cpp where that does not hold a useful context."""
    has_pool = question.machine.runs_cuda_code and not (precision.pooled and published_format(question.model))
    if has_pool:
        pooled = longest_in_the_pool(question, precision)
        yield pooled
        if pooled.is_sure and is_useful(question, pooled):
            return
    may_be_whole = bytes_on_the_card(question.model, precision.file_type) <= question.machine.room_bytes
    if precision.title != PUBLISHED and may_be_whole:
        yield longest_of_a_file(question, precision.file_type)


def may_be_whole(model: Bounds, machine: Machine, wanted: Wanted) -> bool:
    """Whether weights in a precision that is wanted may lie on the cards whole."""
    if not model.makes_text:
        return wanted(WIDE)
    return any(map(wanted, _pooled(model, machine))) or any(map(wanted, whole_files(model, machine)))


def _pooled(model: Bounds, machine: Machine) -> list[str]:
    """Precisions in which vLLM's share of the cards may hold the weights."""
    if not machine.runs_cuda_code:
        return []
    share = ceil(machine.total_bytes * profile_of(release(DEFAULT_VERSION), True).utilization)
    room = min(machine.room_bytes, share * machine.num_gpus)
    return [name for name, size in model.pooled_bytes.items() if size <= room]


def whole_files(model: Bounds, machine: Machine) -> list[str]:
    """Types of files that the cards may hold whole, the widest first, beside what llama.cpp leaves free and the cache
    of the shortest context that it takes; 16 bits where no other engine holds them, and there are such."""
    margin = round(constant("llama.cpp", "fit_margin", (0,)).expected)
    room = machine.room_bytes - machine.num_gpus * margin - model.least_cache_bytes
    types = FILE_TYPES[1:] if machine.runs_cuda_code or model.published_format else FILE_TYPES
    return [name for name in types if name in model.file_bytes and model.file_bytes[name] <= room]


@lru_cache(maxsize=512)
def bounds_of(model: Model) -> Bounds:
    """What is known of a model's bytes on any machine."""
    makes = makes_text(model)
    return Bounds(
        num_parameters=model.num_parameters,
        makes_text=makes,
        published_format=published_format(model),
        pooled_bytes=_pooled_bytes(model) if makes else {},
        least_cache_bytes=_least_cache_bytes(model) if makes else 0,
        file_bytes={name: bytes_on_the_card(model, name) for name in FILE_TYPES} if makes else {},
    )


def _in_the_pool(model: Model, precision: Precision) -> str:
    """What a precision is called in vLLM."""
    return precision.pooled or published_format(model) or WIDE


def _pooled_bytes(model: Model) -> dict[str, int]:
    held, rules = without_idle_experts(model), rules_of(POOLED).weights
    assert rules is not None
    found: dict[str, int] = {}
    for precision in _of_the_pool(model):
        settings = ServeSettings(engine=POOLED, quantization=precision.pooled)
        with suppress(VramwiseError):
            storage = rules.storage(held, settings, None)
            found[_in_the_pool(model, precision)] = rules.weights(held, settings, storage, None).bytes
    return found


def _of_the_pool(model: Model) -> tuple[Precision, ...]:
    """The precisions in which vLLM runs a model, the widest first: 4 bits are llama.cpp's."""
    return tuple(one for one in precisions_of(model) if one.title != FOUR_BIT)


def _least_cache_bytes(model: Model) -> int:
    """Keys and values of a file's shortest context, of layers that look at all of it; others are left out."""
    caches = [cache for block in model.layers() for cache in block.caches]
    values = sum(
        cache.num_key_value_heads * (cache.key_head_dim + cache.value_head_dim)
        for cache in caches if cache.kind == "full"
    )  # fmt: skip
    return values * _F16_BYTES * min(SHORTEST_OF_A_FILE, model_length(model))


def _bounds(question: Question) -> Bounds:
    return question.bounds or bounds_of(question.model)


def best_serving(question: Question, wanted: Wanted | None = None) -> Way | None:
    """The widest weights with a useful context: vLLM's, then a file's of the best type; else what fits at all.

    None where most of a file would be on the host. `wanted`: who asks has use for these precisions alone, and for
    nothing that is not whole; None too as soon as it can be in none of them.
    """
    model, machine = question.model, question.machine
    if not makes_text(model):
        return loaded(question, PRECISIONS[0]) if wanted is None or wanted(WIDE) else None
    pooled: Way | None = None
    keeps_one = wanted is None
    types = whole_files(_bounds(question), machine)
    held = _pooled(_bounds(question), machine)
    in_the_pool = [one for one in _of_the_pool(model) if _in_the_pool(model, one) in held]
    for place, precision in enumerate(in_the_pool):
        further = (*(_in_the_pool(model, one) for one in in_the_pool[place:]), *types)
        if wanted is not None and not keeps_one and not any(map(wanted, further)):
            return None
        way = longest_in_the_pool(question, precision)
        if way.is_sure and is_useful(question, way):
            return way
        if way.fits and pooled is None:
            pooled, keeps_one = way, wanted is None or wanted(way.precision)
    file = best_file(question, None if keeps_one else wanted)
    good = file is not None and file.is_sure and is_useful(question, file)
    return file if pooled is None or good else pooled


def is_useful(question: Question, way: Way) -> bool:
    """Whether all of it is on the card and the context is long enough for most, or the model's own."""
    return is_whole(question, way) and context_of(way) >= min(USEFUL_CONTEXT, model_length(question.model))


def longest_in_the_pool(question: Question, precision: Precision) -> Way:
    """vLLM with the longest context that surely fits; what it needs for a useful one where none does."""
    name = _in_the_pool(question.model, precision)
    first: Way | None = None
    for parallel in _splits(question.machine.num_gpus, question.machine.keys):
        asked = {} if precision.pooled is None else {"quantization": precision.pooled}
        settings = {"engine": POOLED, **asked, **parallel}
        first = tried(question, Way("serve", POOLED, name, settings, question.machine))
        if first.result is not None:
            break
    assert first is not None
    if first.result is None or first.is_sure:
        return first
    held = first.result.quantities.get("max_seq")
    length = int(held.low) // _STEP * _STEP if held is not None else 0
    if length >= LEAST_CONTEXT:
        shorter = _with_length(question, first, length)
        if shorter.fits:
            return shorter
    if first.fits:
        return first
    useful = min(USEFUL_CONTEXT, model_length(question.model))
    return _with_length(question, first, useful) if useful < model_length(question.model) else first


def _with_length(question: Question, way: Way, length: int) -> Way:
    settings = {**way.settings, "max_model_len": length}
    return tried(question, Way("serve", POOLED, way.precision, settings, question.machine))


def _splits(num_gpus: int, keys: Mapping[str, object]) -> Iterator[dict[str, object]]:
    """Ways to spread a model over all cards: as much tensor parallelism as a node has and the model divides into."""
    node = int(str(keys.get("gpus_per_node", 8)))
    for tensor in range(min(num_gpus, node), 0, -1):
        if num_gpus % tensor == 0:
            stages = num_gpus // tensor
            sizes = {"tensor_parallel_size": tensor, "pipeline_parallel_size": stages}
            yield {key: size for key, size in sizes.items() if size > 1}


def longest_of_a_file(question: Question, file_type: str) -> Way:
    """llama.cpp as it loads the file by itself: the longest context with all on the card, else some on the host."""
    settings = {"engine": FILES, "gguf_quant": file_type}
    return tried(question, Way("serve", FILES, file_type, settings, question.machine))


def whole_file(question: Question, file_type: str) -> Way:
    """llama.cpp with a useful context and nothing on the host, whether that fits or not."""
    context = min(USEFUL_CONTEXT, model_length(question.model))
    settings = {"engine": FILES, "gguf_quant": file_type, "n_ctx": context, "fit": False}
    return tried(question, Way("serve", FILES, file_type, settings, question.machine))


def best_file(question: Question, wanted: Wanted | None = None) -> Way | None:
    """The best file type with a useful context whole on the card, else the common one with a part on the host.

    None where that leaves most of it there. `wanted`: as in `best_serving`.
    """
    found = best_whole_file(question, wanted)
    if found is not None or wanted is not None:
        return found
    spared = EXPERTS_SPARED if question.model.has(ExpertMlps) else LAYERS_SPARED
    if _bounds(question).file_bytes[COMMON_FILE_TYPE] > question.machine.room_bytes * spared:
        return None
    partly = longest_of_a_file(question, COMMON_FILE_TYPE)
    return partly if runs_usably(question, partly) else None


def best_whole_file(question: Question, wanted: Wanted | None = None) -> Way | None:
    """The best file type that surely fits whole with a useful context, else the best that fits whole; None without one.

    `wanted`: as in `best_serving`.
    """
    fitting: list[Way] = []
    types = whole_files(_bounds(question), question.machine)
    for place, name in enumerate(types):
        if wanted is not None and not any(map(wanted, (*(way.precision for way in fitting), *types[place:]))):
            return None
        way = longest_of_a_file(question, name)
        if not way.fits or not is_whole(question, way):
            continue
        if way.is_sure and is_useful(question, way):
            return way
        fitting.append(way)
    return max(fitting, key=lambda way: way.is_sure, default=None)


@of_model
def bytes_on_the_card(model: Model, file_type: str) -> int:
    """Bytes of a file but for the tables that tokens are looked up in, which llama.cpp keeps on the host."""
    return sum(one.bytes for one in typed_tensors(model, file_type, False) if one.tensor.name not in LOOKED_UP)


@of_model
def _bytes_looked_up(model: Model, file_type: str) -> int:
    return sum(one.bytes for one in typed_tensors(model, file_type, False) if one.tensor.name in LOOKED_UP)


def loaded(question: Question, precision: Precision) -> Way:
    """The weights alone, for a model that makes no text."""
    formats = {"16 bit": None, "8 bit": "bitsandbytes-int8", "4 bit": "bitsandbytes-nf4"}
    quantization = formats.get(precision.title)
    settings = {"engine": "transformers", **({} if quantization is None else {"quantization": quantization})}
    return tried(question, Way("load", LOADED, quantization or precision.title, settings, question.machine))


def context_of(way: Way) -> int:
    """Tokens of the longest request."""
    if way.result is None:
        return 0
    return int(way.resolved.get("n_ctx" if way.method == FILES else "max_model_len") or 0)


def requests_of(way: Way) -> float | None:
    """Requests of that length at once, where the engine's pool says so; 1 for llama.cpp's one context."""
    if way.result is None or way.task != "serve":
        return None
    many = way.result.quantities.get("max_concurrency")
    return float(many.expected) if many is not None else (1.0 if way.method == FILES else None)


def layers_of(way: Way, model: Model) -> tuple[int, int] | None:
    """Of a GGUF file: layers on the card and all of them, the output counted as one."""
    if way.method != FILES or way.result is None:
        return None
    whole = model.num_layers + 1
    given = way.resolved.get("n_gpu_layers")
    return (whole if given is None else min(int(given), whole)), whole


def host_experts_of(way: Way) -> int:
    """Layers of a GGUF file whose experts stay on the host."""
    return int(way.resolved.get("n_cpu_moe") or 0) if way.method == FILES and way.result is not None else 0


def host_bytes_of(way: Way) -> int | None:
    """Bytes of a GGUF file's weights that stay on the host."""
    held = way.result.quantities.get("weights_host") if way.result is not None else None
    return int(held.expected) if held is not None else None


def runs_usably(question: Question, way: Way) -> bool:
    """Whether it is worth running with a part on the host: half of the layers, or all but experts, on the cards."""
    if is_whole(question, way) or way.result is None or not way.fits:
        return way.fits
    layers = layers_of(way, question.model)
    return bool(host_experts_of(way)) or (layers is not None and 2 * layers[0] >= layers[1])


def is_whole(question: Question, way: Way) -> bool:
    """Whether all layers are on the cards: of a GGUF file everything but the tables of tokens."""
    if way.method != FILES or way.result is None:
        return way.result is not None
    held = host_bytes_of(way)
    return held is not None and held <= _bytes_looked_up(question.model, way.precision)
